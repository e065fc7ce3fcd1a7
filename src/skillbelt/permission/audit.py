"""The audit log: every decision, load and run, as one JSON line each in append-only files.

An event is in the file when `append` returns, even if the process dies then. Many processes may
append at once; none of them ever reads a partial line of another.

A hash chain links the records, so that a later change or removal is detected: each record has a
number and the hash of the one before. The head, a file of its own, has those of the last record,
so that truncation is detected, and those of the last record deleted by rotation, so that the rest
of the log can still be checked.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from skillbelt.errors import ConfigError
from skillbelt.files.contain import READ_FILE, READ_WRITE_FILE
from skillbelt.files.locks import locked
from skillbelt.files.private import is_missing, make_folder
from skillbelt.permission.audit_events import (
    FOLLOW_SECONDS,
    AuditFilter,
    AuditStore,
    Check,
    Head,
    bind_record,
    decode_event,
    encode_event,
    follows,
    hash_of,
    is_newer,
    link_of,
)
from skillbelt.permission.audit_events import TYPES as TYPES
from skillbelt.permission.audit_events import AuditEvent as AuditEvent
from skillbelt.permission.audit_events import Verified as Verified
from skillbelt.permission.audit_events import machine_name as machine_name
from skillbelt.records import NamedTuple
from skillbelt.store import open_postgres

if TYPE_CHECKING:
    import threading

    from skillbelt.settings import Settings

# The log rotates at this size, about 200,000 events.
MAX_AUDIT_BYTES = 64 * 2**20
# The number of log files; bounds the disk space on an unattended machine.
MAX_AUDIT_FILES = 4

_LOG, _LOCK = "log.jsonl", "lock"
_CHUNK = 2**16
_OLDER_IN_A_ROW = 1_000
# Longer than any head, so that extra bytes after one make it invalid.
_MAX_HEAD_BYTES = 4096
# The first format had no `older`.
_HEAD = rb"(\d{20}) ([0-9a-f]{64}) (\d{20}) (\d{20}) ([0-9a-f]{64})(?: (-?\d{19,20}))?\n"


class AuditLog:
    """A log in a folder private to the user; the first append creates both.

    A file of `max_bytes` is rotated to `log.1.jsonl` and so on; `max_files` are kept in all.
    """

    def __init__(
        self, folder: str, *, max_bytes: int = MAX_AUDIT_BYTES, max_files: int = MAX_AUDIT_FILES
    ) -> None:
        self.folder = os.path.abspath(folder)
        self.head_path = f"{self.folder}.head"
        self._max_bytes, self._max_files = max_bytes, max(max_files, 1)
        self._has_folder = False

    def append(self, event: AuditEvent) -> None:
        """Write the event; ConfigError when that fails, so that no action goes unrecorded."""
        line = encode_event(event)
        try:
            if not self._has_folder:
                self._make_folders()
            try:
                self._append(line)
            except FileNotFoundError:  # the folder was removed while the log was in use
                self._make_folders()
                self._append(line)
        except OSError as error:
            raise ConfigError(
                f"{self.folder}: the audit log cannot be written: {error.strerror or error}; "
                "no action may go unrecorded: make the folder writable, free space on its disk, or "
                "set state_dir to another folder"
            ) from error

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
        """Yield the current events, oldest first; at most the newest `limit`.

        `tenant` is the app and the user whose conversations count, and no others. With `until` none
        is newer.
        """
        chosen = AuditFilter(
            session=session, type=type, skill=skill, since=since, tenant=tenant, until=until
        )
        files = self._open_files()
        try:
            yield from _select(files, chosen, limit)
        finally:
            _close(files)

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
        """Yield the events of `read`, then each new event, until `stop` is set."""
        chosen = AuditFilter(session=session, type=type, skill=skill, since=since, tenant=tenant)
        files = self._open_files()
        try:
            yield from _select(files, chosen, limit)
            while not _wait_for_stop(stop, seconds):
                if files and not self._has_changed(files[-1]):
                    continue
                before, files = files, self._open_files()
                fresh = _skip_read(files, before)
                _close(before)
                yield from filter(chosen.takes, _forward(fresh))
        finally:
            _close(files)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def verify(self) -> Verified:
        """Check that all records are there, unchanged and in order.

        Lines from before the chain began are counted and not checked.
        """
        heads: list[Head | None] = []
        files = self._open_files(lambda: heads.append(read_head(self.head_path)))
        try:
            check, torn = Check(heads[0], self.head_path), False
            for file in files:
                for number, line in enumerate(_lines(file), 1):
                    check.take(file.path, number, line)
                    torn = not line.endswith(b"\n")
            return check.end(torn=torn)
        finally:
            _close(files)

    def expire(self, before: float) -> int:
        """Raise ConfigError: the files of the log bound themselves."""
        raise ConfigError(
            f"{self.folder}: the log in files deletes its oldest file by itself; only a log in"
            " PostgreSQL, of the setting store, is cut by time"
        )

    def _make_folders(self) -> None:
        """Create the missing folders; no other user can write there."""
        make_folder(os.path.dirname(self.folder))
        make_folder(self.folder)
        self._has_folder = True

    def _append(self, line: bytes) -> None:
        with locked(self._path(_LOCK)):
            keeper = HeadFile(self.head_path)
            try:
                self._bind(line, keeper)
            finally:
                keeper.close()

    def _bind(self, line: bytes, keeper: HeadFile) -> None:
        """Write the record that follows the head and move the head to it, or do neither."""
        handle, size = _open_log(self._path(_LOG))
        try:
            head, torn = _find_head(handle, size, keeper.read() or Head(older=self._count_older()))
            record = bind_record(line, head, torn=torn)
            if size and size + len(record) > self._max_bytes:
                os.close(handle)
                handle, size = -1, 0
                head = self._rotate(head, keeper)
                handle, size = _open_log(self._path(_LOG))
            end = _write(handle, size, record)
            try:
                keeper.write(head._replace(seq=head.seq + 1, hash=hash_of(record), size=end))
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(handle, size)
                raise
        finally:
            if handle >= 0:
                os.close(handle)

    def _count_older(self) -> int:
        """Count the lines before the first record, when a chain begins."""
        count = 0
        for _, name in sorted(_list_files(self.folder), reverse=True):
            file = _File.opened(self._path(name))
            try:
                for line in _lines(file):
                    if link_of(line) is not None:
                        return count
                    count += 1
            finally:
                os.close(file.handle)
        return count

    def _rotate(self, head: Head, keeper: HeadFile) -> Head:
        """Rotate the files; note the last deleted record in the head."""
        there = sorted(_list_files(self.folder), reverse=True)
        going = [name for number, name in there if number + 1 >= self._max_files]
        if going:
            last = _last_line(self._path(going[-1]))
            link = link_of(last)
            if link is not None:
                head = head._replace(gone=link.seq, gone_hash=hash_of(last))
                keeper.write(head)
        for number, name in there:
            if name in going:
                os.unlink(self._path(name))
            else:
                os.replace(self._path(name), self._path(f"log.{number + 1}.jsonl"))
        return head

    def _open_files(self, look: Callable[[], object] = lambda: None) -> list[_File]:
        """Open all files, oldest first, under the lock, so that rotation skips or repeats none.

        `look` runs under the same lock.
        """
        files: list[_File] = []
        try:
            with self._hold_shared():
                look()
                for _, name in sorted(_list_files(self.folder), reverse=True):
                    files.append(_File.opened(self._path(name)))
        except OSError as error:
            _close(files)
            raise ConfigError(
                f"{self.folder}: the audit log cannot be read: {error.strerror or error}; "
                "fix the permissions of the folder and of the files in it"
            ) from error
        return files

    @contextmanager
    def _hold_shared(self) -> Iterator[None]:
        """Hold the lock shared, so that no process writes; without a lock file the log is empty."""
        if is_missing(self._path(_LOCK)):
            yield
            return
        with locked(self._path(_LOCK), shared=True):
            yield

    def _has_changed(self, last: _File) -> bool:
        """Whether the log changed since the last file was opened."""
        try:
            now = os.stat(self._path(_LOG))
        except OSError:
            return False
        return (now.st_dev, now.st_ino, now.st_size) != (*last.identity, last.size)


class _File(NamedTuple):
    """An open file of the log and its size then. While it is open its inode is not reused."""

    handle: int
    identity: tuple[int, int]
    size: int
    start: int = 0
    path: str = ""

    @classmethod
    def opened(cls, path: str) -> _File:
        handle = os.open(path, READ_FILE)
        info = os.fstat(handle)
        size = info.st_size if stat.S_ISREG(info.st_mode) else 0
        return cls(handle, (info.st_dev, info.st_ino), size, path=path)


def read_records(log: AuditLog) -> Generator[tuple[int, bytes], None, None]:
    """Yield number and text of each record of the chain, oldest first."""
    files = log._open_files()
    try:
        for file in files:
            for line in _lines(file):
                if (link := link_of(line)) is not None:
                    yield link.seq, line.removesuffix(b"\n")
    finally:
        _close(files)


def _close(files: list[_File]) -> None:
    for file in files:
        os.close(file.handle)


def open_audit(settings: Settings) -> AuditStore:
    """Return the log in the state folder, or in the database of the setting `store`."""
    if settings.store:
        return _open_shared(settings.store)
    return AuditLog(
        os.path.join(settings.state_dir, "audit"),
        max_bytes=MAX_AUDIT_BYTES,
        max_files=MAX_AUDIT_FILES,
    )


def _open_shared(url: str) -> AuditStore:
    """Return the log in the PostgreSQL database at the URL."""
    database = open_postgres(url).database
    from skillbelt.permission.postgres_audit import PostgresAuditLog  # extra: postgres

    return PostgresAuditLog(database)


def user_name() -> str:
    """Return the name of the user who runs this process, or the user id if it has no name."""
    return _name_of(os.getuid())


@cache
def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _open_log(path: str) -> tuple[int, int]:
    """Open the file for appending; return its handle and size."""
    handle = os.open(path, READ_WRITE_FILE | os.O_APPEND, 0o600)
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode):
        os.close(handle)
        raise OSError(0, f"{path} is not a file")
    return handle, info.st_size


def _find_head(handle: int, size: int, head: Head) -> tuple[Head, bool]:
    """Return the head that the next record follows, and whether a crash left a partial line.

    The chain continues from the head even after tampering, so that `verify` detects it.
    """
    if size in (0, head.size):
        return head, False
    last = next(iter(_lines_backward(handle, size)))
    ended = not last  # the empty line after the last newline
    if ended:
        last = next(iter(_lines_backward(handle, size - 1)))
    if follows(last, head):
        # Its writer was killed before it moved the head.
        return head._replace(seq=head.seq + 1, hash=hash_of(last)), False
    return head, not ended and hash_of(last) != head.hash


def _last_line(path: str) -> bytes:
    """Return the last non-empty line of a file."""
    file = _File.opened(path)
    try:
        lines = _lines_backward(file.handle, file.size)
        return next((line for line in lines if line), b"")
    finally:
        os.close(file.handle)


def _write(handle: int, size: int, line: bytes) -> int:
    """Write all of the line or nothing; first end a partial line that a crash left.

    Return the new size of the file.
    """
    torn = size and os.pread(handle, 1, size - 1) != b"\n"
    line = b"\n" + line if torn else line
    left = memoryview(line)
    try:
        while left:
            left = left[os.write(handle, left) :]
    except BaseException:
        with suppress(OSError):
            os.ftruncate(handle, size)
        raise
    return size + len(line)


def _list_files(folder: str) -> list[tuple[int, str]]:
    """Return the log's files with their number; 0 is the current one."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        number = name.removeprefix("log.").removesuffix(".jsonl")
        if name == _LOG:
            found.append((0, name))
        elif number.isascii() and number.isdigit() and name == f"log.{int(number) or ''}.jsonl":
            found.append((int(number), name))
    return found


def _select(files: list[_File], chosen: AuditFilter, limit: int | None) -> Iterator[AuditEvent]:
    if limit is not None or chosen.since is not None:
        files = _files_from_first(files, chosen, limit)
    # With `until`, count from the last event that is old enough; newer ones are not read.
    most = limit if chosen.until is not None else None
    yield from islice(filter(chosen.takes, _forward(files, chosen.until)), most)


def _files_from_first(files: list[_File], chosen: AuditFilter, limit: int | None) -> list[_File]:
    """Return the files from the first wanted event on, without keeping events in memory.

    The search goes backward from the end. It stops after this many older events in a row: a few may
    have wrong times because the clock was changed.
    """
    begins: list[_File] = []
    taken = older = 0
    for place in range(len(files) - 1, -1, -1):
        for start, line in _places_backward(files[place]):
            if taken == limit or older > _OLDER_IN_A_ROW:
                return begins
            if chosen.until is not None and is_newer(line, chosen.until):
                continue
            event = decode_event(line)
            if event is None:
                continue
            older = older + 1 if chosen.since is not None and event.time < chosen.since else 0
            if chosen.takes(event):
                taken += 1
                begins = [files[place]._replace(start=start), *files[place + 1 :]]
    return begins


def _forward(files: list[_File], until: float | None = None) -> Iterator[AuditEvent]:
    for file in files:
        for line in _lines(file):
            if until is not None and is_newer(line, until):
                continue
            if (event := decode_event(line)) is not None:
                yield event


def _lines(opened: _File) -> Iterator[bytes]:
    with open(opened.handle, "rb", closefd=False) as file:
        at = file.seek(opened.start)
        while at < opened.size and (line := file.readline(opened.size - at)):
            at += len(line)
            yield line


def _places_backward(file: _File) -> Iterator[tuple[int, bytes]]:
    """Yield each line with where it begins, the last one first."""
    end = file.size
    for line in _lines_backward(file.handle, file.size):
        yield end - len(line), line
        end -= len(line) + 1


def _lines_backward(handle: int, size: int) -> Iterator[bytes]:
    # Pieces of a line that spans many chunks are joined once, when its start is found.
    pieces: list[bytes] = []
    for at in range((size - 1) // _CHUNK * _CHUNK, -1, -_CHUNK):
        first, *others = os.pread(handle, min(_CHUNK, size - at), at).split(b"\n")
        if others:
            yield others.pop() + b"".join(reversed(pieces))
            yield from reversed(others)
            pieces.clear()
        pieces.append(first)
    yield b"".join(reversed(pieces))


def _skip_read(files: list[_File], before: list[_File]) -> list[_File]:
    """Return the parts of the files that were not read before."""
    for place, file in enumerate(files):
        if before and file.identity == before[-1].identity:
            return [file._replace(start=before[-1].size), *files[place + 1 :]]
    return files


def _wait_for_stop(stop: threading.Event | None, seconds: float) -> bool:
    if stop is not None:
        return stop.wait(seconds)
    time.sleep(seconds)
    return False


# The chain


class HeadFile:
    """The open file of the head, used under the log's lock. Its size is fixed, for a full disk.

    OSError when it cannot be used.
    """

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, READ_WRITE_FILE, 0o600)
        try:
            self._data = os.pread(self._handle, _MAX_HEAD_BYTES, 0)
            # Reserve the space, so that later writes need no more.
            if not self._data:
                os.pwrite(self._handle, b" " * len(_encode_head(Head())), 0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def read(self) -> Head | None:
        """Return the head; None when it is missing or invalid."""
        return _decode_head(self._data)

    def write(self, head: Head) -> None:
        """Replace the head."""
        before, self._data = self._data, _encode_head(head)
        if os.pwrite(self._handle, self._data, 0) != len(self._data):
            raise OSError(0, "the head of the audit log was only partly written")
        if len(before) > len(self._data):
            os.ftruncate(self._handle, len(self._data))


def read_head(path: str) -> Head | None:
    """Return the head in a file; None when it is missing or invalid."""
    try:
        handle = os.open(path, READ_FILE)
    except FileNotFoundError:
        return None
    try:
        return _decode_head(os.read(handle, _MAX_HEAD_BYTES))
    finally:
        os.close(handle)


def _encode_head(head: Head) -> bytes:
    """Return the head as text of a fixed length."""
    first = f"{head.seq:020d} {head.hash} {head.size:020d} {head.gone:020d} {head.gone_hash}"
    return f"{first} {head.older:020d}\n".encode()


def _decode_head(data: bytes) -> Head | None:
    found = re.fullmatch(_HEAD, data)
    if found is None:
        return None
    seq, last, size, gone, gone_hash, older = found.groups(b"-1")
    return Head(
        seq=int(seq),
        hash=last.decode(),
        size=int(size),
        gone=int(gone),
        gone_hash=gone_hash.decode(),
        older=int(older),
    )
