"""Values and helpers of session stores; `protocol` is their contract."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal

from skillbelt.errors import LeaseLost
from skillbelt.records import NamedTuple
from skillbelt.untrusted_json import read_json

Scope = Literal["app", "user", "session"]
NO_CHANGE: Mapping[str, str | None] = MappingProxyType({})
_ESCAPES = str.maketrans({"\0": "\x01\x01", "\x01": "\x01\x02"})
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class SessionKey(NamedTuple):
    """The key of a conversation. Any text is valid; two users may have sessions of one name."""

    app: str
    user: str
    session: str


class SessionInfo(NamedTuple):
    """The entry of a session, known without reading its events; times in Unix seconds."""

    key: SessionKey
    created: float
    updated: float
    events: int


class EventRow(NamedTuple):
    """An event with its data as the JSON text that is kept."""

    seq: int
    time: float
    type: str
    agent: str
    data: str


class SharedEntry(NamedTuple):
    """An entry of the state of an app, or of a user in it; None for the app's own."""

    app: str
    user: str | None
    key: str
    value: str


class Lease(NamedTuple):
    """The right to a session for one turn: its holder, and until when by the clock of the store.

    `number` is a random text, unique to this lease.
    """

    number: str
    holder: str
    until: float


def lease_topic(key: SessionKey) -> str:
    """Return the topic that is woken when a lease of the session is released."""
    return json.dumps(["lease", *key])


def check_lease(found: Lease | None, number: str) -> None:
    """Raise LeaseLost if a number is given and that lease does not hold the session."""
    if number and (found is None or found.number != number):
        raise LeaseLost


def encoded(data: Mapping[str, object]) -> str:
    """Return the data as JSON; TypeError or ValueError when JSON cannot hold it.

    Letters of all scripts stay as they are. An escape for each surrogate would turn two adjacent
    ones into one other character.
    """
    try:
        return _ENCODER.encode(dict(data))
    except RecursionError as error:
        raise ValueError("the data of an event is nested too deeply") from error


def decoded(data: str) -> dict[str, object]:
    """Return the data that `encoded` was given; ValueError for any other text."""
    value: object = read_json(data)
    if not isinstance(value, dict):
        raise ValueError("the data of an event is not an object")
    return value


def changes(delta: Mapping[str, str | None]) -> Iterator[tuple[Scope, str, str | None]]:
    """Yield each change with the scope that its key names."""
    for key, value in delta.items():
        if not (isinstance(key, str) and (value is None or isinstance(value, str))):
            raise TypeError(f"state is text by text, not {key!r}: {value!r}")
        yield scope(key), key, value


def scope(key: str) -> Scope:
    """Return the scope of a state key."""
    if key.startswith("app:"):
        return "app"
    return "user" if key.startswith("user:") else "session"


def hash_texts(*parts: str) -> str:
    """Return 32 hex digits for the parts of a key, for paths and topics.

    Different texts give different digits, even with a NUL.
    """
    whole = "\0".join(part.translate(_ESCAPES) for part in parts)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:32]
