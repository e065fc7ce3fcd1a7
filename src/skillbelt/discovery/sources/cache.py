"""The cache of pulled sources: readers see complete copies only, even when a writer is killed.

    <cache_dir>/<sha256 of the URL>/
        .ready          names the generation in use; replaced by one rename, written last
        lock            held while a source is pulled
        g<random>/      a generation: skills/ (scanned) and entries.json (its contents)
        new-<random>/   a generation being written; garbage unless the lock is held

A reader follows `.ready`. The previous generation stays for readers that have just opened it; the
next writer that holds the lock removes older ones and garbage.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import time
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple, get_args

from skillbelt.discovery.sources.failure import OutOfTime
from skillbelt.files.contain import (
    LOCK_FILE,
    NEW_FILE_TO_READ,
    READ_FILE,
    REPLACE_FILE,
    open_folder,
)
from skillbelt.files.private import make_folder
from skillbelt.untrusted_json import read_json
from skillbelt.values import Diagnostic, OriginKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from skillbelt.discovery.sources.bounds import Deadline

READY, LOCK, SKILLS, PARTS, ENTRIES = ".ready", "lock", "skills", "parts", "entries.json"
_NEW = "new-"
_GENERATION = "g"
_LOCK_POLL_SECONDS = 0.05
_MAX_PROBLEMS = 200
_MAX_STATE_BYTES = 2**20
_CHUNK = 64 * 2**10
_MAX_FLUSHED_SINGLY = 32


class CopyState(NamedTuple):
    """The content of `.ready`: the copy in use and how it was obtained."""

    url: str
    kind: OriginKind
    generation: str = ""
    previous: str = ""
    checked: float = 0.0  # when its server last confirmed it, in seconds since the epoch
    document: str = ""  # the URL whose response had `etag` and `modified`
    etag: str = ""
    modified: str = ""
    problems: tuple[Diagnostic, ...] = ()
    gave_up: float = 0.0  # when its server last timed out, with the diagnostics of then
    trouble: tuple[Diagnostic, ...] = ()
    fresh_seconds: float = -1.0  # for how long its server lets it be used; below 0: not said


class Update(NamedTuple):
    """The outcome of a pull. The stage holds a complete new copy if `changed`."""

    kind: OriginKind
    changed: bool
    document: str = ""
    etag: str = ""
    modified: str = ""
    finished: bool = True  # False when some skills were postponed for lack of time
    problems: tuple[Diagnostic, ...] = ()
    entries: dict[str, Any] = {}  # noqa: RUF012 - never written to
    fresh_seconds: float = -1.0


class Generation:
    """A generation being written. Only `CachedSource.publish` makes it visible."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.skills = os.path.join(path, SKILLS)
        self._parts = 0
        for folder in (path, os.path.join(path, PARTS)):
            os.mkdir(folder, 0o700)

    def part(self) -> str:
        """Create an empty folder for one skill or archive; `adopt` makes it part of the copy."""
        self._parts += 1
        path = os.path.join(self.path, PARTS, str(self._parts))
        os.mkdir(path, 0o700)
        return path

    def spool(self) -> IO[bytes]:
        """Open a temporary file for a download; closing it deletes it."""
        self._parts += 1
        path = os.path.join(self.path, PARTS, f"{self._parts}.download")
        fd = os.open(path, NEW_FILE_TO_READ, 0o600)
        os.unlink(path)
        return os.fdopen(fd, "w+b")

    def adopt(self, part: str, name: str = "") -> None:
        """Make the part the skill folder `name`, or without a name the whole scanned folder."""
        if name:
            os.makedirs(self.skills, 0o700, exist_ok=True)
        os.rename(part, os.path.join(self.skills, name) if name else self.skills)

    def finish(self, entries: dict[str, Any]) -> None:
        """Remove temporary files, write the entries and flush everything to disk."""
        shutil.rmtree(os.path.join(self.path, PARTS))
        os.makedirs(self.skills, 0o700, exist_ok=True)
        _write(os.path.join(self.path, ENTRIES), json.dumps(entries).encode())
        _flush(self.path)


class CachedSource:
    """The folder of one source in the cache."""

    def __init__(self, cache_dir: str, url: str) -> None:
        self.url = url
        key = hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()
        self.path = os.path.join(os.path.abspath(cache_dir), key)

    def read(self) -> CopyState | None:
        """Return the copy in use; None when there is none or `.ready` cannot be read or parsed."""
        try:
            return self._load()
        except OSError:
            return None

    def _load(self) -> CopyState | None:
        """Like `read`, but raise OSError when the disk fails: there may still be a copy."""
        try:
            with open(os.path.join(self.path, READY), "rb") as file:
                state = _decode(read_json(file.read(_MAX_STATE_BYTES)))
            os.stat(self.folder(state))
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None
        return state

    def folder(self, state: CopyState) -> str:
        """Return the folder to scan for skills."""
        return os.path.join(self.path, state.generation, SKILLS)

    def entries(self, state: CopyState) -> dict[str, Any]:
        """Return the generation's entries; empty when they cannot be read."""
        try:
            with open(os.path.join(self.path, state.generation, ENTRIES), "rb") as file:
                found = read_json(file.read())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @contextmanager
    def locked(self, deadline: Deadline) -> Iterator[None]:
        """Hold the lock between processes; raises OutOfTime at the deadline."""
        fd = self._acquire(deadline)
        try:
            self.sweep()
            yield
        finally:
            self._remove_if_empty()
            os.close(fd)

    def tidy(self, state: CopyState) -> None:
        """Remove what a killed writer left, unless a writer is active. Best effort."""
        with suppress(OSError):
            if not set(os.listdir(self.path)) <= _needed_names(state):
                fd = self._try_lock()
                if fd is not None:
                    self.sweep()
                    os.close(fd)

    def sweep(self) -> None:
        """Remove everything but the current copy and the previous one (locked)."""
        kept = _needed_names(self._load())
        for item in os.scandir(self.path):
            if item.name in kept:
                continue
            if item.is_dir(follow_symlinks=False):
                shutil.rmtree(item.path, ignore_errors=True)
            else:
                os.unlink(item.path)

    @contextmanager
    def stage(self) -> Iterator[Generation]:
        """Create a generation to fill (locked); it is removed unless published."""
        path = os.path.join(self.path, _NEW + os.urandom(8).hex())
        try:
            yield Generation(path)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def publish(self, stage: Generation, state: CopyState, entries: dict[str, Any]) -> CopyState:
        """Replace the current generation by the new one (locked) and return the new state."""
        stage.finish(entries)
        old = self.read()
        name = _GENERATION + os.urandom(8).hex()
        os.rename(stage.path, os.path.join(self.path, name))
        new = state._replace(generation=name, previous=old.generation if old else "")
        self.write(new)
        return new

    def write(self, state: CopyState) -> None:
        """Replace `.ready` atomically (locked)."""
        state = state._replace(problems=state.problems[:_MAX_PROBLEMS])
        temporary = os.path.join(self.path, f"{_NEW}{READY}")
        _write(temporary, json.dumps(state._asdict()).encode())
        os.replace(temporary, os.path.join(self.path, READY))
        with _handle(self.path) as folder:
            os.fsync(folder)

    def _acquire(self, deadline: Deadline) -> int:
        while (fd := self._try_lock()) is None:
            if deadline.left() <= _LOCK_POLL_SECONDS:
                raise OutOfTime(self.url, "another process is still pulling it")
            time.sleep(_LOCK_POLL_SECONDS)
        return fd

    def _try_lock(self) -> int | None:
        path = os.path.join(self.path, LOCK)
        make_folder(os.path.dirname(self.path))
        try:
            with suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
            fd = os.open(path, LOCK_FILE, 0o600)
        except FileNotFoundError:  # its folder was removed just now
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(fd)
        return None

    def _remove_if_empty(self) -> None:
        """Remove the folder of a source that never had a copy (locked). Best effort."""
        with suppress(OSError):
            if self._load() is None:
                self.sweep()
                os.unlink(os.path.join(self.path, LOCK))
                os.rmdir(self.path)


def _needed_names(state: CopyState | None) -> set[str]:
    return {READY, LOCK, *((state.generation, state.previous) if state else ())}


def _decode(data: dict[str, Any]) -> CopyState:
    problems = tuple(Diagnostic(*problem) for problem in data["problems"])
    trouble = tuple(Diagnostic(*problem) for problem in data["trouble"])
    state = CopyState(**{**data, "problems": problems, "trouble": trouble})
    texts = (state.url, state.previous, state.document, state.etag, state.modified)
    if not all(isinstance(text, str) for text in texts) or state.kind not in get_args(OriginKind):
        raise ValueError("not a state of this cache")
    if not (state.generation[:1] == _GENERATION and state.generation.isalnum()):
        raise ValueError("not a generation")
    return state._replace(
        checked=float(state.checked),
        gave_up=float(state.gave_up),
        fresh_seconds=float(state.fresh_seconds),
    )


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, REPLACE_FILE, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


@contextmanager
def _handle(path: str) -> Iterator[int]:
    fd = open_folder(path)
    try:
        yield fd
    finally:
        os.close(fd)


def _flush(path: str) -> None:
    """Flush everything below the folder to disk.

    Few files are flushed one by one, which does not wait for writes of other programs; for many,
    one call for the whole file system is ten times faster.
    """
    paths = [os.path.join(base, name) for base, _, names in os.walk(path) for name in ("", *names)]
    if len(paths) > _MAX_FLUSHED_SINGLY:
        return _flush_file_system(path)
    for name in paths:
        fd = os.open(name, READ_FILE)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _flush_file_system(path: str) -> None:
    syncfs = getattr(ctypes.CDLL(None), "syncfs", None)
    with _handle(path) as folder:
        if syncfs is None or syncfs(folder) != 0:
            os.sync()


def link_tree(source: str, target: str) -> int:
    """Copy the folder with hard links, as its files never change; return their total size."""
    total = 0
    os.mkdir(target, 0o700)
    for item in os.scandir(source):
        place = os.path.join(target, item.name)
        if item.is_dir(follow_symlinks=False):
            total += link_tree(item.path, place)
        else:
            total += link_file(item.path, place)
    return total


def link_file(source: str, target: str) -> int:
    """Hard-link or copy the file; return its size."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
    return os.stat(target).st_size


def copy_chunks(read: Callable[[int], bytes], write: Callable[[bytes], None]) -> None:
    """Copy to the end in pieces of bounded size."""
    while chunk := read(_CHUNK):
        write(chunk)
