"""The audit log: every decision, load and run, one line of JSON each, in files that only grow.

Whatever is appended is in the file when `append` returns, and outlives the process. Many processes
append at once; none of them ever sees half a line of another. The records are bound to each other
by a `chain` of hashes, so that what is changed or taken away afterwards shows.
"""

from __future__ import annotations

import json
import os
import pwd
import stat
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from skillbelt.errors import ConfigError
from skillbelt.files.contain import READ_FILE
from skillbelt.files.locks import locked
from skillbelt.files.private import make_folder
from skillbelt.permission import audit_chain
from skillbelt.untrusted_json import read_json

if TYPE_CHECKING:
    import threading

    from skillbelt.settings import Settings

# A file of the log; then a new one is begun. About 200,000 events.
MAX_AUDIT_BYTES = 64 * 2**20
# Files of the log that are kept; bounds what an unattended machine collects.
MAX_AUDIT_FILES = 4

TYPES = ("decision", "load", "run", "trust", "remembered", "revoked")
MAX_BYTES = 64 * 2**20
MAX_FILES = 4
_NOTHING: Mapping[str, object] = MappingProxyType({})
_LOG, _LOCK = "log.jsonl", "lock"
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 2**16
_MAX_LINE_BYTES = 2**20
_HEAD_CHARS = 4_000  # of what is left of an event that is too long
_MAX_DEPTH = 32  # of data, so that whoever prints it needs no care
_FOLLOW_SECONDS = 0.5


class AuditEvent(NamedTuple):
    """One thing that happened. `time` in Unix seconds; `hash` is that of the skill's content.

    `type` is one of `TYPES`. `initiator` says who wanted it: the model or the user.
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


class _Filter(NamedTuple):
    session: str | None
    type: str | None
    skill: str | None
    since: float | None

    def takes(self, event: AuditEvent) -> bool:
        return (
            self.session in (None, event.session)
            and self.type in (None, event.type)
            and self.skill in (None, event.skill)
            and (self.since is None or event.time >= self.since)
        )


class AuditLog:
    """A log in a folder, private to the user; both are made by the first append.

    A file of `max_bytes` is put aside as `log.1.jsonl` and so on; `max_files` are kept in all.
    """

    def __init__(
        self, folder: str, *, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES
    ) -> None:
        self.folder = os.path.abspath(folder)
        self.head_path = f"{self.folder}.head"
        self._max_bytes, self._max_files = max_bytes, max(max_files, 1)

    def append(self, event: AuditEvent) -> None:
        """Write the event; ConfigError when that is impossible, for nothing is done unrecorded."""
        line = _encoded(event)
        try:
            make_folder(os.path.dirname(self.folder))
            make_folder(self.folder)
            self._append(line)
        except OSError as error:
            raise ConfigError(
                f"{self.folder}: the audit log can not be written: {error.strerror or error}; "
                "nothing is done unrecorded: make the folder writable with room on its disk, or "
                "set state_dir to another"
            ) from error

    def read(
        self,
        *,
        session: str | None = None,
        type: str | None = None,
        skill: str | None = None,
        since: float | None = None,
        limit: int | None = None,
    ) -> Iterator[AuditEvent]:
        """The events, oldest first, as of now; of many the newest `limit`."""
        files = self._opened_files()
        try:
            yield from _chosen(files, _Filter(session, type, skill, since), limit)
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
        stop: threading.Event | None = None,
        seconds: float = _FOLLOW_SECONDS,
    ) -> Generator[AuditEvent, None, None]:
        """What `read` gives, then each new event as it comes, until `stop` is set."""
        chosen = _Filter(session, type, skill, since)
        files = self._opened_files()
        try:
            yield from _chosen(files, chosen, limit)
            while not _stopped(stop, seconds):
                if files and not self._grown(files[-1]):
                    continue
                before, files = files, self._opened_files()
                fresh = _after(files, before)
                _close(before)
                yield from filter(chosen.takes, _forward(fresh))
        finally:
            _close(files)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def verify(self) -> audit_chain.Verified:
        """Whether the records are those that were written, all of them and in their order.

        Those from before there was a chain are counted and not checked.
        """
        heads: list[audit_chain.Head | None] = []
        files = self._opened_files(lambda: heads.append(audit_chain.read_head(self.head_path)))
        try:
            check, torn = audit_chain.Check(heads[0], self.head_path), False
            for file in files:
                for number, line in enumerate(_lines(file), 1):
                    check.take(file.path, number, line)
                    torn = not line.endswith(b"\n")
            return check.end(torn=torn)
        finally:
            _close(files)

    def _append(self, line: bytes) -> None:
        with locked(self._path(_LOCK)):
            keeper = audit_chain.HeadFile(self.head_path)
            try:
                self._bind(line, keeper)
            finally:
                keeper.close()

    def _bind(self, line: bytes, keeper: audit_chain.HeadFile) -> None:
        """Write the record that follows the head, and move the head to it; or do neither."""
        handle, size = _opened(self._path(_LOG))
        try:
            head, torn = _found(
                handle, size, keeper.read() or audit_chain.Head(older=self._older())
            )
            record = audit_chain.bound(line, head, torn=torn)
            if size and size + len(record) > self._max_bytes:
                os.close(handle)
                handle, size = -1, 0
                head = self._rotate(head, keeper)
                handle, size = _opened(self._path(_LOG))
            end = _write(handle, size, record)
            try:
                keeper.write(
                    head._replace(seq=head.seq + 1, hash=audit_chain.hash_of(record), size=end)
                )
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(handle, size)
                raise
        finally:
            if handle >= 0:
                os.close(handle)

    def _older(self) -> int:
        """How many lines there are before the first record, as a chain begins."""
        count = 0
        for _, name in sorted(_numbered(self.folder), reverse=True):
            file = _File.opened(self._path(name))
            try:
                for line in _lines(file):
                    if audit_chain.link_of(line) is not None:
                        return count
                    count += 1
            finally:
                os.close(file.handle)
        return count

    def _rotate(self, head: audit_chain.Head, keeper: audit_chain.HeadFile) -> audit_chain.Head:
        """Put the files aside; the head then tells which records went with those that were kept."""
        there = sorted(_numbered(self.folder), reverse=True)
        going = [name for number, name in there if number + 1 >= self._max_files]
        if going:
            last = _last_line(self._path(going[-1]))
            link = audit_chain.link_of(last)
            if link is not None:
                head = head._replace(gone=link.seq, gone_hash=audit_chain.hash_of(last))
                keeper.write(head)
        for number, name in there:
            if name in going:
                os.unlink(self._path(name))
            else:
                os.replace(self._path(name), self._path(f"log.{number + 1}.jsonl"))
        return head

    def _opened_files(self, look: Callable[[], object] = lambda: None) -> list[_File]:
        """Every file there is, oldest first, opened at one moment: none is seen twice or missed.

        `look` is called at that moment.
        """
        files: list[_File] = []
        try:
            with self._settled():
                look()
                for _, name in sorted(_numbered(self.folder), reverse=True):
                    files.append(_File.opened(self._path(name)))
        except OSError as error:
            _close(files)
            raise ConfigError(
                f"{self.folder}: the audit log can not be read: {error.strerror or error}; "
                "mend the permissions of the folder and of the files in it"
            ) from error
        return files

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """While nobody writes. Without the lock's file nobody ever did."""
        if not os.path.lexists(self._path(_LOCK)):
            yield
            return
        with locked(self._path(_LOCK), shared=True):
            yield

    def _grown(self, last: _File) -> bool:
        """Whether there is more than was read when the file was last looked at."""
        try:
            now = os.stat(self._path(_LOG))
        except OSError:
            return False
        return (now.st_dev, now.st_ino, now.st_size) != (*last.identity, last.size)


class _File(NamedTuple):
    """A file of the log, open, and how much of it there was. Its inode is not used again."""

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


def _close(files: list[_File]) -> None:
    for file in files:
        os.close(file.handle)


def open_audit(settings: Settings) -> AuditLog:
    """The log in the state folder."""
    return AuditLog(
        os.path.join(settings.state_dir, "audit"),
        max_bytes=MAX_AUDIT_BYTES,
        max_files=MAX_AUDIT_FILES,
    )


def user_name() -> str:
    """Return who runs this process, by name if the machine knows one."""
    return _name_of(os.getuid())


@cache
def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _opened(path: str) -> tuple[int, int]:
    """A handle of the file to append to, and its size."""
    handle = os.open(path, _APPEND, 0o600)
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode):
        os.close(handle)
        raise OSError(0, f"{path} is not a file")
    return handle, info.st_size


def _found(handle: int, size: int, head: audit_chain.Head) -> tuple[audit_chain.Head, bool]:
    """What the next record follows, and whether a crash left half a record before it.

    What was tampered with is not mended: the chain goes on from the head, so that it shows.
    """
    if size in (0, head.size):
        return head, False
    last = next(iter(_lines_backward(handle, size)))
    ended = not last  # the empty line after the last end
    if ended:
        last = next(iter(_lines_backward(handle, size - 1)))
    if audit_chain.follows(last, head):
        # Its writer was ended before it moved the head.
        return head._replace(seq=head.seq + 1, hash=audit_chain.hash_of(last)), False
    return head, not ended and audit_chain.hash_of(last) != head.hash


def _last_line(path: str) -> bytes:
    """The last line of a file that has an end."""
    file = _File.opened(path)
    try:
        lines = _lines_backward(file.handle, file.size)
        return next((line for line in lines if line), b"")
    finally:
        os.close(file.handle)


def _write(handle: int, size: int, line: bytes) -> int:
    """All of the line or nothing; a line that a crash left without its end is ended first.

    The size of the file with it.
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


def _numbered(folder: str) -> list[tuple[int, str]]:
    """The log's files with their age: 0 is the one that is written."""
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


def _encoded(event: AuditEvent) -> bytes:
    """The event as a line of ASCII; what JSON can not hold is written as text, never refused."""
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
            text = json.dumps(fields, allow_nan=False, default=str, separators=(",", ":"))
            if not _too_deep(text):
                return text.encode() + b"\n"
        except (ValueError, TypeError, RecursionError):
            pass
        fields["data"] = {"text": _shown(event.data)}
    return json.dumps(fields, default=str, separators=(",", ":")).encode() + b"\n"


def _shown(data: object) -> str:
    try:
        return repr(data)[:_HEAD_CHARS]
    except RecursionError:
        return "nested too deeply to be written"


def _too_deep(text: str) -> bool:
    """Whether the JSON text may be nested deeper than anybody needs; one look for most."""
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


def _chosen(files: list[_File], chosen: _Filter, limit: int | None) -> Iterator[AuditEvent]:
    if limit is None:
        yield from filter(chosen.takes, _forward(files))
        return
    newest: deque[AuditEvent] = deque()
    for event in _backward(files) if limit > 0 else ():
        if chosen.takes(event):
            newest.appendleft(event)
            if len(newest) >= limit:
                break
    yield from newest


def _forward(files: list[_File]) -> Iterator[AuditEvent]:
    for file in files:
        for line in _lines(file):
            if (event := _decoded(line)) is not None:
                yield event


def _lines(opened: _File) -> Iterator[bytes]:
    with open(opened.handle, "rb", closefd=False) as file:
        at = file.seek(opened.start)
        while at < opened.size and (line := file.readline(opened.size - at)):
            at += len(line)
            yield line


def _backward(files: list[_File]) -> Iterator[AuditEvent]:
    for file in reversed(files):
        for line in _lines_backward(file.handle, file.size):
            if (event := _decoded(line)) is not None:
                yield event


def _lines_backward(handle: int, size: int) -> Iterator[bytes]:
    # Pieces of a line that goes over many chunks are joined once, when its start is found.
    pieces: list[bytes] = []
    for at in range((size - 1) // _CHUNK * _CHUNK, -1, -_CHUNK):
        first, *others = os.pread(handle, min(_CHUNK, size - at), at).split(b"\n")
        if others:
            yield others.pop() + b"".join(reversed(pieces))
            yield from reversed(others)
            pieces.clear()
        pieces.append(first)
    yield b"".join(reversed(pieces))


def _decoded(line: bytes) -> AuditEvent | None:
    """The event of a line; None for one that a crash or somebody else left there."""
    try:
        text = line.decode("utf-8")
        found = None if _too_deep(text) else read_json(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    if audit_chain.link_in(found) is not None:
        found = {key: value for key, value in found.items() if key not in audit_chain.FIELDS}
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


def _after(files: list[_File], before: list[_File]) -> list[_File]:
    """What of the files was not read before."""
    for place, file in enumerate(files):
        if before and file.identity == before[-1].identity:
            return [file._replace(start=before[-1].size), *files[place + 1 :]]
    return files


def _stopped(stop: threading.Event | None, seconds: float) -> bool:
    if stop is not None:
        return stop.wait(seconds)
    time.sleep(seconds)
    return False
