"""The facts of a permission request for the person who decides: everything that it contains.

One list for every user interface, complete and escaped. `shown` shortens it where a person can ask
for the rest, and says how much is missing.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Iterator, Mapping

from skillbelt.permission.rules import TYPES, Request
from skillbelt.records import NamedTuple
from skillbelt.running.secrets import is_secret, redacted, secrets_of
from skillbelt.text import exact

SECRET = "(secret)"
_INTERNAL = ("mcp_call",)  # for the MCP server, not for a person
_CALL = "call"  # the facts of a run
_NO_SANDBOX = "none"
_ENVIRONMENTS = ("env", "environment", "variables")
_BEGINNING_BYTES = 200
_MAX_DEPTH = 8
_HEAD_CHARS, _TAIL_CHARS = 240, 60
_MOST_VALUES = 8


class Fact(NamedTuple):
    """One fact, on one line, without characters that a terminal would interpret."""

    label: str
    value: str


class Shown(NamedTuple):
    """Shortened facts, and how many of them are incomplete."""

    facts: list[Fact]
    hidden: int


def facts(request: Request) -> list[Fact]:
    """Return everything that the request contains; several facts may share a label."""
    secrets = _secrets(request.metadata)
    return [
        Fact(exact(label), exact(redacted(value, secrets)))
        for label, value in _list_facts(request)
        if value
    ]


def covered(request: Request, *, whole: bool = True) -> str:
    """Describe what the answer "always" would cover; "" where it cannot be remembered."""
    if not request.always:
        return ""
    listed = [Fact("", exact(text)) for text in request.always]
    texts = ", ".join(value for _, value in (listed if whole else shown(listed).facts))
    # An exact request is bound to a digest over all facts: it covers this call only.
    alone = ", with all that is shown here and nothing else," if _is_exact(request) else ""
    named = request.type == "skill" and tuple(request.always) == (request.skill,)
    of = f" of {exact(request.skill)}" if request.skill and not named else ""
    until = ", until the skill changes" if request.skill else ""
    return f"would cover {exact(request.type)} {texts}{of}{alone} in this project{until}"


def _is_exact(request: Request) -> bool:
    # A secret is given to every call of a script, which the text names.
    return bool(request.exact) and request.type != "secret"


def shown(listed: Iterable[Fact]) -> Shown:
    """Shorten the facts: cut long ones in the middle, and long lists after the first few."""
    short: list[Fact] = []
    hidden = 0
    for label, values in _by_label(listed).items():
        for value in values[:_MOST_VALUES]:
            cut = _cut(value)
            hidden += cut != value
            short.append(Fact(label, cut))
        if len(values) > _MOST_VALUES:
            left = len(values) - _MOST_VALUES
            hidden += left
            short.append(Fact(label, f"(and {left} more)"))
    return Shown(short, hidden)


def _by_label(listed: Iterable[Fact]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for label, value in listed:
        found.setdefault(label, []).append(value)
    return found


def _cut(value: str) -> str:
    left = len(value) - _HEAD_CHARS - _TAIL_CHARS
    if left <= _TAIL_CHARS:
        return value
    return f"{value[:_HEAD_CHARS]} [... {left} characters ...] {value[-_TAIL_CHARS:]}"


def _list_facts(request: Request) -> Iterator[tuple[str, str]]:
    what = request.summary or f"{request.type}: {', '.join(request.patterns)}"
    yield "what", what
    for text in request.patterns:
        yield request.type, "" if text in what else text
    if request.type not in TYPES:
        yield "type", f"{request.type}: this version does not know what that is"
    yield "skill", request.skill
    yield "from", f"{request.origin}{'' if request.trusted else ' (not trusted)'}".strip()
    yield "content", request.hash
    yield "agent", request.agent
    yield "session", request.session
    for key, value in _flatten(request.metadata):
        for text in _values(key, value):
            yield key.replace("_", " "), text


def _flatten(metadata: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the metadata, with the facts of a call instead of the call itself."""
    for key, value in metadata.items():
        if key == _CALL and isinstance(value, Mapping):
            yield from ((str(name), one) for name, one in value.items())
        elif key not in _INTERNAL:
            yield str(key), value


def _values(key: str, value: object) -> Iterator[str]:
    if key == "command" and isinstance(value, list | tuple):
        yield shlex.join(map(str, value))
    elif key == "sandbox" and value == _NO_SANDBOX:
        yield f"{_NO_SANDBOX}: no isolation, it may do everything that you may do"
    else:
        yield from _texts(value, key in _ENVIRONMENTS)


def _texts(value: object, environment: bool = False, depth: int = 0) -> Iterator[str]:
    """Yield the texts of a metadata value, one for each part."""
    if isinstance(value, bytes):
        yield _bytes(value)
    elif depth > _MAX_DEPTH:
        yield repr(value)
    elif isinstance(value, Mapping):
        for name, one in value.items():
            hide = environment and is_secret(str(name))
            listed = SECRET if hide else ", ".join(_texts(one, environment, depth + 1))
            yield f"{name}={listed}"
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield ", ".join(_texts(one, environment, depth + 1))
    elif value is None or value is False or value == "":
        return
    else:
        yield "yes" if value is True else str(value)


def _bytes(data: bytes) -> str:
    begin = data[:_BEGINNING_BYTES].decode("utf-8", "backslashreplace")
    whole = "" if len(data) <= _BEGINNING_BYTES else ", beginning"
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}{whole}: {begin}"


def _secrets(metadata: Mapping[str, object]) -> dict[str, str]:
    """Return the secret values, which must not be shown in any fact."""
    found: dict[str, str] = {}
    for key, values in _flatten(metadata):
        if key in _ENVIRONMENTS and isinstance(values, Mapping):
            found |= {str(name): one for name, one in values.items() if isinstance(one, str)}
    return secrets_of(found)
