"""The cache of pulled sources: complete copies only, whoever reads and whenever a writer dies.

    <cache_dir>/<sha256 of the URL>/
        .ready          names the generation in use; replaced by one rename, after all is written
        lock            held while a source is pulled
        g<random>/      a generation: skills/ (what is scanned) and entries.json (what it holds)
        new-<random>/   a generation in the making; rubbish unless the lock is held

A reader follows `.ready`. The generation before the current one stays for readers that have just
followed it; older ones and rubbish go when the next writer holds the lock.
"""

from __future__ import annotations

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
from skillbelt.values import Diagnostic, OriginKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skillbelt.discovery.sources.bounds import Deadline

READY, LOCK, SKILLS, PARTS, ENTRIES = ".ready", "lock", "skills", "parts", "entries.json"
_NEW = "new-"
_GENERATION = "g"
_LOCK_POLL_SECONDS = 0.05
_MAX_PROBLEMS = 200
_MAX_STATE_BYTES = 2**20
_FLUSHED_SINGLY = 32


class Ready(NamedTuple):
    """What `.ready` says: the copy in use and what is known of it."""

    url: str
    kind: OriginKind
    generation: str = ""
    previous: str = ""
    checked: float = 0.0  # when its server last confirmed it, in seconds since the epoch
    document: str = ""  # the URL whose answer `etag` and `modified` belong to
    etag: str = ""
    modified: str = ""
    problems: tuple[Diagnostic, ...] = ()
    gave_up: float = 0.0  # when its server last took too long, and what was said then
    trouble: tuple[Diagnostic, ...] = ()


class Stage:
    """A generation in the making. Only `Entry.publish` makes it visible."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.skills = os.path.join(path, SKILLS)
        self._parts = 0
        for folder in (path, os.path.join(path, PARTS)):
            os.mkdir(folder, 0o700)

    def part(self) -> str:
        """A new empty folder for one skill or archive; it counts only once it was adopted."""
        self._parts += 1
        path = os.path.join(self.path, PARTS, str(self._parts))
        os.mkdir(path, 0o700)
        return path

    def spool(self) -> IO[bytes]:
        """A file for a download, gone when it is closed."""
        self._parts += 1
        path = os.path.join(self.path, PARTS, f"{self._parts}.download")
        fd = os.open(path, NEW_FILE_TO_READ, 0o600)
        os.unlink(path)
        return os.fdopen(fd, "w+b")

    def adopt(self, part: str, name: str = "") -> None:
        """Make the part the skill folder `name`, or with no name all that is scanned."""
        if name:
            os.makedirs(self.skills, 0o700, exist_ok=True)
        os.rename(part, os.path.join(self.skills, name) if name else self.skills)

    def finish(self, entries: dict[str, Any]) -> None:
        """Leave nothing but what a generation holds, on the disk."""
        shutil.rmtree(os.path.join(self.path, PARTS))
        os.makedirs(self.skills, 0o700, exist_ok=True)
        _write(os.path.join(self.path, ENTRIES), json.dumps(entries).encode())
        _flush(self.path)


class Entry:
    """The place of one source in the cache."""

    def __init__(self, cache_dir: str, url: str) -> None:
        self.url = url
        key = hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()
        self.path = os.path.join(os.path.abspath(cache_dir), key)

    def read(self) -> Ready | None:
        """The copy in use; None when there is none, or `.ready` can not be read or understood."""
        try:
            return self._load()
        except OSError:
            return None

    def _load(self) -> Ready | None:
        """As `read`, but a disk that fails is no proof that there is no copy: raises OSError."""
        try:
            with open(os.path.join(self.path, READY), "rb") as file:
                ready = _decoded(json.loads(file.read(_MAX_STATE_BYTES)))
            os.stat(self.folder(ready))
        except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
            return None
        return ready

    def folder(self, ready: Ready) -> str:
        """The folder that is scanned for skills."""
        return os.path.join(self.path, ready.generation, SKILLS)

    def entries(self, ready: Ready) -> dict[str, Any]:
        """What was written into the generation's list; empty when that can not be read."""
        try:
            with open(os.path.join(self.path, ready.generation, ENTRIES), "rb") as file:
                found = json.loads(file.read())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @contextmanager
    def locked(self, deadline: Deadline) -> Iterator[None]:
        """Alone among all processes; raises OutOfTime when others take until the deadline."""
        fd = self._acquire(deadline)
        try:
            self.sweep()
            yield
        finally:
            self._vacate()
            os.close(fd)

    def tidy(self, ready: Ready) -> None:
        """Remove what a killed writer left, if no writer is at work now."""
        with suppress(OSError):
            if not set(os.listdir(self.path)) <= _needed(ready):
                fd = self._try_lock()
                if fd is not None:
                    self.sweep()
                    os.close(fd)

    def sweep(self) -> None:
        """Remove all that neither the current copy nor the one before it needs (locked)."""
        kept = _needed(self._load())
        for item in os.scandir(self.path):
            if item.name in kept:
                continue
            if item.is_dir(follow_symlinks=False):
                shutil.rmtree(item.path, ignore_errors=True)
            else:
                os.unlink(item.path)

    @contextmanager
    def stage(self) -> Iterator[Stage]:
        """A new generation to fill (locked). What was not published is removed."""
        path = os.path.join(self.path, _NEW + os.urandom(8).hex())
        try:
            yield Stage(path)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def publish(self, stage: Stage, ready: Ready, entries: dict[str, Any]) -> Ready:
        """Put the new generation in the place of the old one (locked); what is in use then."""
        stage.finish(entries)
        old = self.read()
        name = _GENERATION + os.urandom(8).hex()
        os.rename(stage.path, os.path.join(self.path, name))
        new = ready._replace(generation=name, previous=old.generation if old else "")
        self.write(new)
        return new

    def write(self, ready: Ready) -> None:
        """Replace `.ready` at once (locked)."""
        ready = ready._replace(problems=ready.problems[:_MAX_PROBLEMS])
        temporary = os.path.join(self.path, f"{_NEW}{READY}")
        _write(temporary, json.dumps(ready._asdict()).encode())
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
        except FileNotFoundError:  # its folder was vacated in this moment
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(fd)
        return None

    def _vacate(self) -> None:
        """Leave no trace of a source that never gave a copy (locked)."""
        with suppress(OSError):
            if self._load() is None:
                self.sweep()
                os.unlink(os.path.join(self.path, LOCK))
                os.rmdir(self.path)


def _needed(ready: Ready | None) -> set[str]:
    return {READY, LOCK, *((ready.generation, ready.previous) if ready else ())}


def _decoded(state: dict[str, Any]) -> Ready:
    problems = tuple(Diagnostic(*problem) for problem in state["problems"])
    trouble = tuple(Diagnostic(*problem) for problem in state["trouble"])
    ready = Ready(**{**state, "problems": problems, "trouble": trouble})
    texts = (ready.url, ready.previous, ready.document, ready.etag, ready.modified)
    if not all(isinstance(text, str) for text in texts) or ready.kind not in get_args(OriginKind):
        raise ValueError("not a state of this cache")
    if not (ready.generation[:1] == _GENERATION and ready.generation.isalnum()):
        raise ValueError("not a generation")
    return ready._replace(checked=float(ready.checked), gave_up=float(ready.gave_up))


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
    """Everything below the folder is on the disk.

    Few files are flushed one by one, so that nobody else's writes are waited for; for many, one
    call for the whole file system is ten times faster.
    """
    paths = [os.path.join(base, name) for base, _, names in os.walk(path) for name in ("", *names)]
    if len(paths) > _FLUSHED_SINGLY:
        return _flush_all(path)
    for name in paths:
        fd = os.open(name, READ_FILE)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _flush_all(path: str) -> None:
    import ctypes

    syncfs = getattr(ctypes.CDLL(None), "syncfs", None)
    with _handle(path) as folder:
        if syncfs is None or syncfs(folder) != 0:
            os.sync()


def link_tree(source: str, target: str) -> int:
    """The folder again at a new place, sharing the files, which nobody changes; their bytes."""
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
    """The file again at a new place; its size."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
    return os.stat(target).st_size
