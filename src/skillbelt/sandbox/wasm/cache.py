"""Compiled modules: machine code, kept so that a module is compiled once.

Whoever can write here decides what runs. So the folder and every file in it must belong to whoever
runs this and be writable by nobody else; what is not so is not used. The runtime alone writes: a
worker is given a handle of one new file to fill, and what becomes of that file is named by the hash
of the module it was made of. A guest that had broken out could at most spoil its own module.

The name of a file also holds the hash of its contents, which is compared before it is used: against
a damaged disk, not against somebody with the same rights.
"""

import fcntl
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from skillbelt.files.contain import LOCK_FILE, NEW_FILE_TO_READ, READ_FILE, READ_FOLDER
from skillbelt.files.private import make_folder

_NAME = re.compile(r"([0-9a-f]{64})\.(module|component)\.([0-9a-f]{64})")
_PART = ".part-"
_PART_SECONDS = 24 * 3600.0
_CHUNK = 2**20
# A worker of another user opens the handle that it is given anew, so it must be able to read it;
# nobody else gets past the folder.
_FILE_MODE = 0o444


class Code(NamedTuple):
    """The machine code of a module: which kind of module, and a handle that is the receiver's."""

    kind: str
    handle: int


class _Fault(Exception):
    """Why something that is kept can not be used."""


class Cache:
    """A folder of compiled modules. Safe to use from threads and from several processes."""

    def __init__(self, folder: str, max_bytes: int, tell: Callable[[str], None]) -> None:
        """`folder` is made when it is first needed; `tell` is told what is refused."""
        self._folder, self._max_bytes, self._tell = folder, max_bytes, tell

    def _open(self) -> int:
        """A handle of the folder; _Fault when it can not be trusted."""
        try:
            make_folder(os.path.dirname(self._folder))
            with suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)
            handle = os.open(self._folder, READ_FOLDER)
        except OSError as error:
            raise _Fault(f"can not be opened: {error.strerror}") from error
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            os.close(handle)
            raise _Fault("belongs to somebody else, or others may use it")
        return handle

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A handle of a folder to keep code in: this one, or one that is gone afterwards."""
        try:
            handle = self._open()
        except _Fault as fault:
            self._tell(f"{self._folder} {fault}: what is compiled is not kept")
            with tempfile.TemporaryDirectory(prefix="skillbelt-") as aside:
                handle = os.open(aside, READ_FOLDER)
                try:
                    yield handle
                finally:
                    os.close(handle)
            return
        try:
            yield handle
        finally:
            os.close(handle)

    def find(self, folder: int, key: str) -> Code | None:
        """What was compiled under the key; what can not be trusted is removed and told."""
        for name in os.listdir(folder):
            match = _NAME.fullmatch(name)
            if match is not None and match[1] == key:
                try:
                    return Code(match[2], _checked(folder, name, match[3]))
                except (_Fault, OSError) as fault:
                    self._tell(f"{os.path.join(self._folder, name)} is not used: {fault}")
                    with suppress(OSError):
                        os.unlink(name, dir_fd=folder)
        return None

    def new_file(self, folder: int) -> tuple[str, int]:
        """The name of a new file and a handle to write to it."""
        name = f"{_PART}{os.urandom(8).hex()}"
        return name, os.open(name, NEW_FILE_TO_READ, 0o600, dir_fd=folder)

    def add(self, folder: int, part: str, key: str, kind: str) -> Code:
        """Keep what was written to the new file, in one step; nobody writes to it any more."""
        handle = os.open(part, READ_FILE, dir_fd=folder)
        try:
            os.fchmod(handle, _FILE_MODE)
            os.fsync(handle)
            name = f"{key}.{kind}.{_digest(handle)}"
            os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.close(handle)
            raise
        self._make_room(folder)
        return Code(kind, handle)

    def discard(self, folder: int, part: str) -> None:
        """Remove a new file that came to nothing."""
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)

    def lock(self, folder: int, key: str) -> int | None:
        """A handle that keeps others from compiling the same; None while somebody else has it."""
        handle = os.open(f".lock-{key[:2]}", LOCK_FILE,
                         0o600, dir_fd=folder)  # fmt: skip
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return handle

    def _make_room(self, folder: int) -> None:
        """Remove what was not used for longest, and what a killed runtime left half-written."""
        kept = []
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if _NAME.fullmatch(name):
                    kept.append((found.st_mtime, found.st_blocks * 512, name))
                elif name.startswith(_PART) and found.st_mtime < time.time() - _PART_SECONDS:
                    os.unlink(name, dir_fd=folder)
        size = sum(each[1] for each in kept)
        for _, bytes_, name in sorted(kept):
            if size <= self._max_bytes:
                return
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            size -= bytes_


def _checked(folder: int, name: str, digest: str) -> int:
    """A handle of a file that is what its name says; its time is set to now."""
    handle = os.open(name, READ_FILE, dir_fd=folder)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise _Fault("it is no file of its own")
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != _FILE_MODE:
            raise _Fault("it belongs to somebody else, or others may write to it")
        if _digest(handle) != digest:
            raise _Fault("it was changed since it was written")
        os.utime(handle)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _digest(handle: int) -> str:
    digest = hashlib.sha256()
    at = 0
    while data := os.pread(handle, _CHUNK, at):
        digest.update(data)
        at += len(data)
    return digest.hexdigest()
