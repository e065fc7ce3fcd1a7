"""What a person who is asked for permission has to know: everything that the request carries.

One list for every door that shows a question, whole and escaped. `shown` makes it short where a
person can ask for the rest; it says how much is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from skillbelt.permission import TYPES, Request
from skillbelt.redact import is_secret, redacted, secrets_of
from skillbelt.text import exact

SECRET = "(secret)"
_NOT_TOLD = ("mcp_call",)  # how a host finds its own call again
_ENVIRONMENTS = ("env", "environment", "variables")
_BEGINNING_BYTES = 200
_MAX_DEPTH = 8
_HEAD_CHARS, _TAIL_CHARS = 240, 60
_MOST_VALUES = 8


class Fact(NamedTuple):
    """One thing to know, on one line, with nothing in it that a terminal would act on."""

    label: str
    value: str


class Shown(NamedTuple):
    """Facts in short, and how many of them are not whole."""

    facts: list[Fact]
    hidden: int


def facts(request: Request) -> list[Fact]:
    """All that the request carries; several of a kind have the same label."""
    secrets = _secrets(request.metadata)
    return [
        Fact(exact(label), exact(redacted(value, secrets)))
        for label, value in _told(request)
        if value
    ]


def shown(told: Iterable[Fact]) -> Shown:
    """The facts, long ones cut in their middle and many of a kind after the first few."""
    short: list[Fact] = []
    hidden = 0
    for label, values in _by_label(told).items():
        for value in values[:_MOST_VALUES]:
            cut = _cut(value)
            hidden += cut != value
            short.append(Fact(label, cut))
        if len(values) > _MOST_VALUES:
            left = len(values) - _MOST_VALUES
            hidden += left
            short.append(Fact(label, f"(and {left} more)"))
    return Shown(short, hidden)


def _by_label(told: Iterable[Fact]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for label, value in told:
        found.setdefault(label, []).append(value)
    return found


def _cut(value: str) -> str:
    left = len(value) - _HEAD_CHARS - _TAIL_CHARS
    if left <= _TAIL_CHARS:
        return value
    return f"{value[:_HEAD_CHARS]} [... {left} characters ...] {value[-_TAIL_CHARS:]}"


def _told(request: Request) -> Iterator[tuple[str, str]]:
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
    for key, value in request.metadata.items():
        if key not in _NOT_TOLD:
            for text in _texts(value, str(key) in _ENVIRONMENTS):
                yield str(key).replace("_", " "), text


def _texts(value: object, environment: bool = False, depth: int = 0) -> Iterator[str]:
    """A value of the metadata, in as many texts as it has parts."""
    if isinstance(value, bytes):
        yield _bytes(value)
    elif depth > _MAX_DEPTH:
        yield repr(value)
    elif isinstance(value, Mapping):
        for name, one in value.items():
            hide = environment and is_secret(str(name))
            told = SECRET if hide else ", ".join(_texts(one, environment, depth + 1))
            yield f"{name}={told}"
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
    """The values that must not be shown, wherever they stand."""
    found: dict[str, str] = {}
    for key in _ENVIRONMENTS:
        values = metadata.get(key)
        if isinstance(values, Mapping):
            found |= {str(name): one for name, one in values.items() if isinstance(one, str)}
    return secrets_of(found)
