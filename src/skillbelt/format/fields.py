"""The known fields of a frontmatter: their types, their names, and the id of a skill."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from unicodedata import normalize

from skillbelt.errors import closest
from skillbelt.format.variables import needed_variables
from skillbelt.format.yaml_fast import METADATA, TEXT_KEYS, AsWritten
from skillbelt.records import NamedTuple
from skillbelt.text import Lazy, one_line, shorten
from skillbelt.values import Diagnostic, Frontmatter, Requirements


class Named(NamedTuple):
    """A skill's id, safe as a path and a shell word, and its name as it is written."""

    id: str
    title: str
    diagnostics: tuple[Diagnostic, ...] = ()


# --- types ---------------------------------------------------------------------------------------

_TRUE = frozenset(("true", "yes", "on", "1"))
_FALSE = frozenset(("false", "no", "off", "0"))
_TOOL = Lazy(r"(?:[^\s,(]|\((?:[^()]|\([^()]*\))*\)?)+")


def _as_flag(value: object) -> bool | None:
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    return True if word in _TRUE else False if word in _FALSE else None


def _as_words(value: object, separate: Callable[[str], list[str]]) -> list[str] | None:
    if isinstance(value, str):
        return separate(value)
    if not isinstance(value, list) or any(isinstance(item, dict | list) for item in value):
        return None
    return [str(item).strip() for item in value if item is not None and str(item).strip()]


def _as_tools(value: object) -> list[str] | None:
    return _as_words(value, _TOOL.findall)


def _as_names(value: object) -> list[str] | None:
    return _as_words(
        value, lambda text: [part for item in text.split(",") if (part := item.strip())]
    )


def _as_mapping(value: object) -> dict[str, object] | None:
    return value if isinstance(value, dict) else None


def _as_metadata(value: object) -> dict[str, object] | None:
    """Return a mapping whose texts are plain `str`: libraries refuse subclasses."""
    if not isinstance(value, dict):
        return None
    return {key: str(one) if isinstance(one, AsWritten) else one for key, one in value.items()}


def _as_text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return "; ".join(str(item) for item in value if item is not None)
    return None


_Kind = tuple[Callable[[object], object], str]
_TEXT: _Kind = (_as_text, "text")
_KINDS: dict[str, _Kind] = {
    **dict.fromkeys(TEXT_KEYS, _TEXT),
    **dict.fromkeys(("allowed-tools", "disallowed-tools"), (_as_tools, "a list of tools")),
    **dict.fromkeys(("arguments", "paths"), (_as_names, "a list")),
    **dict.fromkeys(("metadata", "hooks"), (_as_mapping, "a mapping")),
    **dict.fromkeys(
        ("disable-model-invocation", "user-invocable", "user-invokable", "background"),
        (_as_flag, "true or false"),
    ),
}
_KINDS.update({key.replace("-", "_"): kind for key, kind in list(_KINDS.items())})
_ALIASES = {"user_invokable": "user_invocable"}


def settle(fields: dict[str, object], path: str) -> tuple[Diagnostic, ...]:
    """Convert known fields to their types in place, and report what is wrong with them."""
    notes: list[Diagnostic] = []
    for key, value in fields.items():
        kind = _KINDS.get(key)
        if kind and value is not None and not (kind is _TEXT and type(value) is str):
            _convert(fields, key, value, path, notes)
    described = fields.get("description")
    if not described or (isinstance(described, str) and not described.strip()):
        message = "there is no description, so the skill is not shown to models"
        remedy = "add `description: what it does and when to use it`"
        notes.append(
            Diagnostic(
                code="description-missing",
                severity="error",
                path=path,
                line=1,
                message=message,
                remedy=remedy,
            )
        )
    return tuple(notes)


def _convert(
    fields: dict[str, object], key: str, value: object, path: str, notes: list[Diagnostic]
) -> None:
    to_type, wanted = _KINDS[key]
    typed = to_type(value)
    if typed is not None:
        fields[key] = typed
    if typed is None or (isinstance(typed, str) and not isinstance(value, str)):
        message = f"{key} is not {wanted}" + (" and is ignored" if typed is None else "")
        notes.append(
            Diagnostic(
                code="field-type",
                severity="warning",
                path=path,
                line=None,
                message=message,
                remedy=f"write {wanted}",
            )
        )


def to_frontmatter(fields: Mapping[str, object]) -> Frontmatter:
    """Return the known fields by type; unknown fields and wrong types are verbatim in `extra`."""
    known: dict[str, object] = {}
    extra: dict[str, object] = {}
    for key, value in fields.items():
        kind = _KINDS.get(key)
        typed = kind[0](value) if kind else None
        if key == METADATA:
            typed = _as_metadata(value)
        name = key.replace("-", "_")
        name = _ALIASES.get(name, name)
        if typed is None:
            if value is not None or not kind:
                extra[key] = value
        elif name not in known or "-" in key:
            known[name] = tuple(typed) if isinstance(typed, list) else typed
    return Frontmatter(**known, extra=extra)  # type: ignore[arg-type]


_REQUIRING = ("openclaw", "clawdbot", "moltbot")  # one client under its three names
_NEEDS = {"bins": "bins", "anyBins": "any_bins", "config": "config"}


def requirements(frontmatter: Frontmatter) -> Requirements:
    """Return the skill's requirements in its frontmatter; values that are not lists are ignored."""
    env, optional_env = needed_variables(frontmatter)
    for client in _REQUIRING:
        says = frontmatter.metadata.get(client)
        if isinstance(says, dict):
            needs = says.get("requires")
            listed = needs if isinstance(needs, dict) else {}
            found = {name: _as_needs(listed.get(key)) for key, name in _NEEDS.items()}
            return Requirements(
                **found, env=env, os=_as_needs(says.get("os")), optional_env=optional_env
            )
    return Requirements(env=env, optional_env=optional_env)


def _as_needs(value: object) -> tuple[str, ...]:
    return tuple(_as_names(value) or ())


# --- names ---------------------------------------------------------------------------------------

_MAX_NAME = 128
_SAFE = Lazy(rf"[^\W_][\w.-]{{0,{_MAX_NAME - 1}}}\Z")
_UNSAFE_RUN = Lazy(r"[^\w.-]+")


def skill_name(fields: Mapping[str, object], folder: str, path: str = "") -> Named:
    """Return the id and the title of a skill, with a diagnostic where they or the folder differ."""
    written = fields.get("name")
    title = written.strip() if isinstance(written, str) else ""
    wanted = _normal(title or folder)
    name = wanted if _SAFE.match(wanted) else _folder_id(folder)
    if name == title == folder:
        return Named(name, name)
    if name == (title or folder):
        return Named(name, name, _diagnose_folder(title, folder, path))
    shown = shorten(one_line(title or folder), 80)
    message = f"{shown!r} is not a safe name; it is called {name!r}"
    remedy = "use letters, digits, `-`, `_` and `.`, without blanks"
    note = Diagnostic(
        code="name-unsafe", severity="warning", path=path, line=None, message=message, remedy=remedy
    )
    return Named(name, title or folder, (note,))


def _diagnose_folder(title: str, folder: str, path: str) -> tuple[Diagnostic, ...]:
    if not title or not folder:
        return ()
    message = f"the name {title!r} differs from the folder's, {shorten(one_line(folder), 80)!r}"
    remedy = "give both the same name"
    return (
        Diagnostic(
            code="name-folder",
            severity="info",
            path=path,
            line=None,
            message=message,
            remedy=remedy,
        ),
    )


def _folder_id(folder: str) -> str:
    name = _normal(folder)
    if _SAFE.match(name):
        return name
    slug = _UNSAFE_RUN.sub("-", name).strip("-._")[:_MAX_NAME].rstrip("-._")
    return slug if _SAFE.match(slug) else "skill"


def _normal(text: str) -> str:
    if text.isascii():
        return text
    return normalize("NFC", text)


# --- names of fields ------------------------------------------------------------------------------

SPECIFIED = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
# Fields of clients that this runtime supports; none is in the specification.
EXTENSIONS = (
    "when_to_use",
    "argument-hint",
    "arguments",
    "disable-model-invocation",
    "user-invocable",
    "disallowed-tools",
    "model",
    "effort",
    "context",
    "agent",
    "background",
    "hooks",
    "paths",
    "shell",
    "version",
)
KNOWN = (*SPECIFIED, *EXTENSIONS)
_VARIANTS = {"user-invokable": "user-invocable", "licence": "license"}
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LEAST_CHARS = 4  # shorter words are close to too many others
_LIKENESS = 0.85


def _plain_key(key: str) -> str:
    """Return the key in lower case with hyphens, from any of camelCase, `_` and blanks."""
    return re.sub(r"[\s_-]+", "-", _HUMP.sub("-", key.strip())).lower()


_BY_PLAIN = {_plain_key(key): key for key in KNOWN} | _VARIANTS


def correct_spelling(key: str, present: Container[str]) -> str:
    """Return the known field that the key spells differently; "" if none, or it is present."""
    known = _BY_PLAIN.get(_plain_key(key), "")
    return known if known != key and known not in present else ""


def closest_field(key: str, present: Container[str]) -> str:
    """Return the known field that the key probably misspells; "" if none, or it is present."""
    plain = _plain_key(key)
    near = closest(plain, _BY_PLAIN, most=1, cutoff=_LIKENESS)
    if not near or len(plain) < _LEAST_CHARS or abs(len(plain) - len(near[0])) > 2:
        return ""
    known = _BY_PLAIN[near[0]]
    return known if known != key and known not in present else ""
