"""Audit events, the interface of an audit log, and the hash chain that detects changes to it.

`audit` keeps them in files, `postgres_audit` in a database.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from skillbelt.records import NamedTuple
from skillbelt.untrusted_json import read_json

if TYPE_CHECKING:
    import threading

TYPES = ("decision", "load", "run", "trust", "remembered", "revoked", "secret")
_NOTHING: Mapping[str, object] = MappingProxyType({})
_MAX_LINE_BYTES = 2**20
_HEAD_CHARS = 4_000  # characters of an event that is too long
_MAX_DEPTH = 32  # levels of nested data; below the recursion limit of readers
FOLLOW_SECONDS = 0.5
NONE = "0" * 64  # the hash before the first record
# The time of a record comes right after its link, before any text of a skill.
_MOST_BEFORE_TIME = 128
_LINK_FIELDS = ("seq", "prev", "torn")  # keys of a record that are not part of the event
_MOST_FAULTS = 100
_encode = json.JSONEncoder(allow_nan=False, default=str, separators=(",", ":")).encode


class AuditEvent(NamedTuple):
    """An event of the log. `time` is in Unix seconds; `hash` is that of the skill's content.

    `type` is one of `TYPES`. `initiator` is the requester: the model or the user. `machine` is the
    name of the machine, in a log that several machines share.
    """

    time: float
    type: str
    project: str = ""
    user: str = ""
    session: str = ""
    agent: str = ""
    initiator: str = ""
    skill: str = ""
    hash: str = ""
    data: Mapping[str, object] = _NOTHING
    machine: str = ""


class AuditFilter(NamedTuple):
    """A filter for events; None matches all. `tenant` is the app and the user of a conversation."""

    session: str | None = None
    type: str | None = None
    skill: str | None = None
    since: float | None = None
    tenant: tuple[str, str] | None = None
    until: float | None = None

    def takes(self, event: AuditEvent) -> bool:
        """Whether the event matches."""
        return (
            self.session in (None, event.session)
            and self.type in (None, event.type)
            and self.skill in (None, event.skill)
            and (self.since is None or event.time >= self.since)
            and (self.until is None or event.time <= self.until)
            and (self.tenant is None or self.tenant == tenant_of(event.session))
        )


def machine_name() -> str:
    """Return the name of this machine, which each record of a shared log has."""
    return os.uname().nodename


def tenant_of(session: str) -> tuple[str, str] | None:
    """Return the app and the user of a conversation; None if that is not certain.

    A slash in one of the names makes the split ambiguous, and a wrong split would show one user's
    events to another.
    """
    parts = session.split("/")
    return (parts[0], parts[1]) if len(parts) == 3 else None


class AuditStore(Protocol):
    """A log of audit events: append-only, with a hash chain that detects changes.

    Safe to use from many threads and processes. `skillbelt.testing.suites.AuditConformance` tests
    each of these promises.
    """

    def append(self, event: AuditEvent) -> None:
        """Store the event durably: after this returns, it survives the process.

        ConfigError, and nothing is stored, when that fails: no action may go unrecorded. Data that
        JSON cannot express is stored as text; an event that is too long is cut, and marked as cut.
        """

    def read(
        self,
        *,
        session: str | None = None,
        type: str | None = None,
        skill: str | None = None,
        since: float | None = None,
        limit: int | None = None,
        tenant: tuple[str, str] | None = None,
        until: float | None = None,
    ) -> Iterator[AuditEvent]:
        """Yield the current events, oldest first; at most the newest `limit`, in little memory.

        `tenant` limits them to the conversations of that app and user. With `until` none is newer,
        so that older ones can be read page by page.
        """

    def follow(
        self,
        *,
        session: str | None = None,
        type: str | None = None,
        skill: str | None = None,
        since: float | None = None,
        limit: int | None = None,
        tenant: tuple[str, str] | None = None,
        stop: threading.Event | None = None,
        seconds: float = FOLLOW_SECONDS,
    ) -> Generator[AuditEvent, None, None]:
        """Yield the events of `read`, then each new event once, until `stop` is set.

        A new event arrives after `seconds` at most.
        """

    def verify(self) -> Verified:
        """Check that all records are there, unchanged and in order."""

    def expire(self, before: float) -> int:
        """Delete the oldest records, up to that time; return how many.

        The rest can still be verified. ConfigError for a log that limits its own size.
        """


def encode_event(event: AuditEvent) -> bytes:
    """Return the event as an ASCII line; data that is not JSON is written as text."""
    line = _line(event)
    if len(line) > _MAX_LINE_BYTES:
        cut = {"cut": len(line), "head": line[:_HEAD_CHARS].decode()}
        short = {
            name: value[:_HEAD_CHARS]
            for name, value in event._asdict().items()
            if isinstance(value, str)
        }
        line = _line(AuditEvent(time=event.time, data=cut, **short))
    return line


def _line(event: AuditEvent) -> bytes:
    fields = {key: value for key, value in event._asdict().items() if value}
    fields["time"] = _finite(event.time)
    if event.data:
        try:
            fields["data"] = dict(event.data)
            text = _encode(fields)
            if not _is_too_deep(text):
                return text.encode() + b"\n"
        except (ValueError, TypeError, RecursionError):
            pass
        fields["data"] = {"text": _repr(event.data)}
    return _encode(fields).encode() + b"\n"


def _repr(data: object) -> str:
    try:
        return repr(data)[:_HEAD_CHARS]
    except RecursionError:
        return "nested too deeply to be written"


def _is_too_deep(text: str) -> bool:
    """Whether the JSON text may be nested too deeply; most texts need only a count."""
    if text.count("[") + text.count("{") <= _MAX_DEPTH:
        return False
    depth, quoted = 0, False
    before = ""
    for char in text:
        if char == '"' and before != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (char in "[{") - (char in "]}")
            if depth > _MAX_DEPTH:
                return True
        before = "" if before == char == "\\" else char
    return False


def _finite(seconds: float) -> float:
    return seconds if abs(seconds) < float("inf") else 0.0


def is_newer(line: bytes, until: float) -> bool:
    """Whether the event of a line is certainly newer, without parsing the whole line."""
    start = line.find(b'"time":')
    if start < 0 or start > _MOST_BEFORE_TIME:
        return False
    try:
        return float(line[start + 7 : line.find(b",", start)].rstrip(b"}\n")) > until
    except ValueError:
        return False


def decode_event(line: bytes) -> AuditEvent | None:
    """Return the event of a line; None for an invalid or partial one."""
    try:
        text = line.decode("utf-8")
        found = None if _is_too_deep(text) else read_json(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    if link_in(found) is not None:
        found = {key: value for key, value in found.items() if key not in _LINK_FIELDS}
    if not found.keys() <= _FIELDS.keys():
        return None
    if not all(isinstance(value, _FIELDS[key]) for key, value in found.items()):
        return None
    try:
        event = AuditEvent(**{**found, "time": float(found["time"])})
    except (KeyError, TypeError, OverflowError):
        return None
    return event if abs(event.time) < float("inf") else None


_FIELDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(AuditEvent._fields, str),
    "time": (int, float),
    "data": dict,
}


class Head(NamedTuple):
    """The end of the chain: number and hash of the last record, and the size of its file then.

    `gone` and `gone_hash` are those of the last record deleted by rotation. `older` counts the
    lines from before the chain began; -1 if a version that did not count them began it.
    """

    seq: int = 0
    hash: str = NONE
    size: int = 0
    gone: int = 0
    gone_hash: str = NONE
    older: int = -1


class Link(NamedTuple):
    """The link of a record to the one before: its own number and that record's hash.

    `torn` marks that the line before it is a partial write left by a crash, not a record.
    """

    seq: int
    prev: str
    torn: bool = False


class Fault(NamedTuple):
    """A break of the hash chain: the place and the reason. Line 0 means the whole file."""

    path: str
    line: int
    message: str


class Verified(NamedTuple):
    """The result of a check: the number of chained records, and of lines before the first one.

    `faults` are the first hundred of `broken`.
    """

    records: int
    unbound: int
    broken: int
    faults: tuple[Fault, ...]


def hash_of(line: bytes) -> str:
    """Return the hash of a record, with or without its newline."""
    return sha256(line.removesuffix(b"\n")).hexdigest()


def bind_record(line: bytes, head: Head, *, torn: bool) -> bytes:
    """Return the line of an event as the record that follows the head."""
    mark = b'"torn":true,' if torn else b""
    return b'{"seq":%d,"prev":"%s",%s%s' % (head.seq + 1, head.hash.encode(), mark, line[1:])


def link_of(line: bytes) -> Link | None:
    """Return the link of the record in a line, or None."""
    try:
        found = read_json(line)
    except ValueError:
        return None
    return link_in(found) if isinstance(found, dict) else None


def link_in(record: Mapping[str, object]) -> Link | None:
    """Return the link of a record; None when it is missing or invalid."""
    match record:
        case {"seq": int(seq), "prev": str(prev)} if seq > 0 and len(prev) == len(NONE):
            return Link(seq, prev, record.get("torn") is True)
    return None


def follows(line: bytes, head: Head) -> bool:
    """Whether the line is the next record: a crash before the head was moved leaves one."""
    link = link_of(line)
    return link is not None and (link.seq, link.prev) == (head.seq + 1, head.hash)


class Check:
    """Checks the lines of a log, oldest first, and reports where the chain is broken."""

    def __init__(self, head: Head | None, head_path: str) -> None:
        self._head, self._head_path = head, head_path
        self._last: Link | None = None
        self._hash, self._at = NONE, ("", 0)
        self._odd: tuple[str, int] | None = None  # a line that may be a partial write of a crash
        self._records = self._unbound = self._broken = 0
        self._faults: list[Fault] = []

    def take(self, path: str, number: int, line: bytes) -> None:
        """Check the next line."""
        link = link_of(line)
        if link is None:
            self._count_unbound(path, number)
            return
        if self._odd is not None and not link.torn:
            self._blame(self._odd, "is not a record of this log: it was changed or added")
        self._odd = None
        self._compare(link, (path, number))
        self._last, self._hash, self._at = link, hash_of(line), (path, number)
        self._records += 1

    def end(self, *, torn: bool = False) -> Verified:
        """Return the result; `torn` when the last line has no newline, as after a crash."""
        if self._odd is not None and not torn:
            self._blame(self._odd, "is not a record of this log: it was changed or added")
        self._compare_head()
        return Verified(self._records, self._unbound, self._broken, tuple(self._faults))

    def _count_unbound(self, path: str, number: int) -> None:
        if self._last is None:
            self._unbound += 1
            if self._head is not None and -1 < self._head.older < self._unbound:
                self._blame((path, number), "was added before the first record of the log")
            return
        if self._odd is not None:
            self._blame(self._odd, "is not a record of this log: it was changed or added")
        self._odd = (path, number)

    def _compare(self, link: Link, at: tuple[str, int]) -> None:
        """Report a fault between the previous record and this one."""
        last = self._last or self._start(link)
        missing = link.seq - last.seq - 1
        if missing > 0:
            self._blame(at, f"{missing} records are missing before this one (number {link.seq})")
        elif missing < 0 and link.prev == NONE:
            self._blame(at, "a new chain begins here: the head of the one before was lost")
        elif missing < 0:
            self._blame(at, f"record {link.seq} is in the wrong place, after {last.seq}")
        elif link.prev != self._hash:
            blamed = self._at if self._last is not None else at
            self._blame(blamed, "is not what was written: the record after it was bound to another")

    def _start(self, link: Link) -> Link:
        """Return the link that must come before the first record."""
        head = self._head or Head()
        if link.seq > head.gone:
            self._hash = head.gone_hash
            return Link(head.gone, NONE)
        # Rotation was interrupted before this file was deleted; the record before it is gone.
        self._hash = link.prev
        return Link(link.seq - 1, NONE)

    def _compare_head(self) -> None:
        head, last = self._head, self._last
        if head is None:
            if last is not None:
                text = "the head is missing or damaged; an end that was cut off would not show"
                self._blame((self._head_path, 0), text)
            return
        seen = last.seq if last is not None else head.gone
        at = self._at if last is not None else (self._head_path, 0)
        if seen < head.seq:
            text = f"the last {head.seq - seen} records are missing after this: the end was cut off"
            self._blame(at, text)
        elif last is None:
            return
        elif seen == head.seq and self._hash != head.hash:
            self._blame(at, "is not what was written: the head was bound to another text")
        elif seen > head.seq and last[:2] != (head.seq + 1, head.hash):
            self._blame(at, f"was added by something else: the head ends with record {head.seq}")

    def _blame(self, at: tuple[str, int], message: str) -> None:
        self._broken += 1
        if len(self._faults) < _MOST_FAULTS:
            self._faults.append(Fault(*at, message))
