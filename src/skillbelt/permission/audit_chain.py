"""The chain that binds the records of the log to each other, and the check of it.

Each record has a number and the hash of the one before. The head, which is kept apart from the
records, has those of the last one, so that an end that was cut off shows; and those of the last one
that was let go, so that a log whose oldest file is gone can still be checked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from skillbelt.files.contain import READ_FILE
from skillbelt.untrusted_json import read_json

NONE = "0" * 64
# What a record has beside the event.
FIELDS = ("seq", "prev", "torn")
_MOST_FAULTS = 100
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Head(NamedTuple):
    """Where the chain ends: number and hash of the last record, and the size of its file then.

    `gone` and `gone_hash` are those of the last record that was let go. `older` says how many lines
    there were before there was a chain; -1 where a version began it that did not count them.
    """

    seq: int = 0
    hash: str = NONE
    size: int = 0
    gone: int = 0
    gone_hash: str = NONE
    older: int = -1


class Link(NamedTuple):
    """What binds a record: its number and the hash of the one before.

    `torn` says that what stands before it was left half by a crash, and is no record.
    """

    seq: int
    prev: str
    torn: bool = False


class Fault(NamedTuple):
    """Where the chain is broken, and how. Line 0 is the file as a whole."""

    path: str
    line: int
    message: str


class Verified(NamedTuple):
    """What a check found: how many records are bound, and how many stand before the first such.

    `faults` are the first hundred of `broken`.
    """

    records: int
    unbound: int
    broken: int
    faults: tuple[Fault, ...]


def hash_of(line: bytes) -> str:
    """The hash of a record, whether its line has its end or not."""
    return sha256(line.removesuffix(b"\n")).hexdigest()


def bound(line: bytes, head: Head, *, torn: bool) -> bytes:
    """The line of an event, as the record that follows the head."""
    mark = b'"torn":true,' if torn else b""
    return b'{"seq":%d,"prev":"%s",%s%s' % (head.seq + 1, head.hash.encode(), mark, line[1:])


def link_of(line: bytes) -> Link | None:
    """What binds the record of a line; None when nothing does."""
    try:
        found = read_json(line)
    except ValueError:
        return None
    return link_in(found) if isinstance(found, dict) else None


def link_in(record: Mapping[str, object]) -> Link | None:
    """What binds a record; None when nothing does, or it is not as it must be."""
    match record:
        case {"seq": int(seq), "prev": str(prev)} if seq > 0 and len(prev) == len(NONE):
            return Link(seq, prev, record.get("torn") is True)
    return None


def follows(line: bytes, head: Head) -> bool:
    """Whether it is the record after the head: its writer was ended before it moved that."""
    link = link_of(line)
    return link is not None and (link.seq, link.prev) == (head.seq + 1, head.hash)


class HeadFile:
    """The file of the head, open, while the log is locked. It never grows, so it fits a full disk.

    OSError when it can not be used.
    """

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, _OPEN, 0o600)
        try:
            # So that what is written later needs no more room.
            if not os.fstat(self._handle).st_size:
                os.pwrite(self._handle, b" " * len(_encoded(Head())), 0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)

    def read(self) -> Head | None:
        """The head; None when there is none yet, or what is there is none."""
        return _decoded(os.pread(self._handle, 4096, 0))

    def write(self, head: Head) -> None:
        """Move the head."""
        data = _encoded(head)
        if os.pwrite(self._handle, data, 0) != len(data):
            raise OSError(0, "the head of the audit log was written in part")
        os.ftruncate(self._handle, len(data))


def read_head(path: str) -> Head | None:
    """The head in that file; None when there is none."""
    try:
        handle = os.open(path, READ_FILE)
    except FileNotFoundError:
        return None
    try:
        return _decoded(os.read(handle, 4096))
    finally:
        os.close(handle)


def _encoded(head: Head) -> bytes:
    """Always as long."""
    return _before(head).encode() + f" {head.older:020d}\n".encode()


def _before(head: Head) -> str:
    """The head as it was written before older lines were counted."""
    return f"{head.seq:020d} {head.hash} {head.size:020d} {head.gone:020d} {head.gone_hash}"


def _decoded(data: bytes) -> Head | None:
    try:
        seq, last, size, gone, gone_hash, *older = data.decode("ascii").split()
        head = Head(
            seq=int(seq),
            hash=last,
            size=int(size),
            gone=int(gone),
            gone_hash=gone_hash,
            older=int(older[0]) if older else -1,
        )
    except (ValueError, TypeError):
        return None
    whole = _encoded(head) if older else f"{_before(head)}\n".encode()
    return head if whole == data else None


class Check:
    """Goes through the lines of a log, oldest first, and tells where the chain is broken."""

    def __init__(self, head: Head | None, head_path: str) -> None:
        self._head, self._head_path = head, head_path
        self._last: Link | None = None
        self._hash, self._at = NONE, ("", 0)
        self._odd: tuple[str, int] | None = None  # a line that may be what a crash left
        self._records = self._unbound = self._broken = 0
        self._faults: list[Fault] = []

    def take(self, path: str, number: int, line: bytes) -> None:
        """The next line of all."""
        link = link_of(line)
        if link is None:
            self._take_unbound(path, number)
            return
        if self._odd is not None and not link.torn:
            self._blame(self._odd, "is no record of this log: it was changed or added")
        self._odd = None
        self._compare(link, (path, number))
        self._last, self._hash, self._at = link, hash_of(line), (path, number)
        self._records += 1

    def end(self, *, torn: bool = False) -> Verified:
        """What was found; `torn`: the last line has no end, as a crash leaves one."""
        if self._odd is not None and not torn:
            self._blame(self._odd, "is no record of this log: it was changed or added")
        self._compare_head()
        return Verified(self._records, self._unbound, self._broken, tuple(self._faults))

    def _take_unbound(self, path: str, number: int) -> None:
        if self._last is None:
            self._unbound += 1
            if self._head is not None and -1 < self._head.older < self._unbound:
                self._blame((path, number), "was added before the first record of the log")
            return
        if self._odd is not None:
            self._blame(self._odd, "is no record of this log: it was changed or added")
        self._odd = (path, number)

    def _compare(self, link: Link, at: tuple[str, int]) -> None:
        """Say what is wrong between the record before and this one."""
        last = self._last or self._start(link)
        missing = link.seq - last.seq - 1
        if missing > 0:
            self._blame(at, f"{missing} records are missing before this one (number {link.seq})")
        elif missing < 0 and link.prev == NONE:
            self._blame(at, "a new chain begins here: the head of the one before was lost")
        elif missing < 0:
            self._blame(at, f"record {link.seq} stands in the wrong place, after {last.seq}")
        elif link.prev != self._hash:
            blamed = self._at if self._last is not None else at
            self._blame(blamed, "is not what was written: the record after it was bound to another")

    def _start(self, link: Link) -> Link:
        """What must stand before the first record that there is."""
        head = self._head or Head()
        if link.seq > head.gone:
            self._hash = head.gone_hash
            return Link(head.gone, NONE)
        # A file that was about to go is still there: what it was bound to went earlier.
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
