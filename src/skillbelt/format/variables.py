"""The environment variables that a skill requires, in the spellings of different clients."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

from skillbelt.text import Lazy
from skillbelt.values import Frontmatter

MAX_VARIABLES = 32
_NAME = Lazy(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z", re.ASCII)
_IN_TEXT = Lazy(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|TOKEN|SECRET|PASSWORD)\b", re.ASCII)
# Keys without hyphens and underscores, in lower case.
_REQUIRED = frozenset(
    ("env", "envvars", "environmentvariables", "primaryenv", "requiredenv", "requiredenvvars",
     "requiredenvironmentvariables", "requiredsecrets", "requiresenv", "requiressecrets", "secrets")
)  # fmt: skip
_OPTIONAL = frozenset(
    ("optionalenv", "optionalenvvars", "optionalenvironmentvariables", "optionalsecrets")
)
# At the top level, other tools use it for values.
_NOT_AT_TOP = frozenset(("env", "secrets"))
_NAMING = ("name", "key", "variable", "var")


def needed_variables(frontmatter: Frontmatter) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the required variables of a skill, and the optional ones.

    A variable that is optional anywhere is optional. So is one that `compatibility` mentions.
    """
    required: dict[str, None] = {}
    optional: dict[str, None] = {}
    for name, needed in islice(_find_declared(frontmatter), MAX_VARIABLES):
        (required if needed else optional)[name] = None
    return tuple(name for name in required if name not in optional), tuple(optional)


def _find_declared(frontmatter: Frontmatter) -> Iterator[tuple[str, bool]]:
    top = {key: value for key, value in frontmatter.extra.items() if key not in _NOT_AT_TOP}
    yield from _in_table(top)
    yield from _in_table(frontmatter.extra.get("requires"))
    yield from _in_table(frontmatter.metadata)
    yield from _in_table(frontmatter.metadata.get("requires"))
    for client in frontmatter.metadata.values():
        if isinstance(client, Mapping):
            yield from _in_table(client)
            yield from _in_table(client.get("requires"))
    for name in _IN_TEXT.findall(frontmatter.compatibility or ""):
        yield name, False


def _in_table(table: object) -> Iterator[tuple[str, bool]]:
    if not isinstance(table, Mapping):
        return
    for key, value in table.items():
        plain = str(key).replace("-", "").replace("_", "").lower()
        if plain in _REQUIRED or plain in _OPTIONAL:
            for name, needed in _read_list(value):
                if _NAME.match(name):
                    yield name, needed and plain in _REQUIRED


def _read_list(value: object) -> Iterator[tuple[str, bool]]:
    if isinstance(value, str):
        yield from ((name, True) for name in value.replace(",", " ").split())
    elif isinstance(value, Mapping):
        yield from ((str(name), _is_needed(one)) for name, one in value.items())
    elif isinstance(value, list | tuple):
        for one in value:
            if isinstance(one, str):
                yield one.strip(), True
            elif isinstance(one, Mapping):
                named = next((one[key] for key in _NAMING if key in one), "")
                yield str(named).strip(), _is_needed(one)


def _is_needed(says: object) -> bool:
    if not isinstance(says, Mapping):
        return True
    purpose = str(says.get("required_for", says.get("required-for", ""))).lower()
    no = says.get("required") is False or says.get("optional") is True
    return not (no or purpose.startswith("optional"))
