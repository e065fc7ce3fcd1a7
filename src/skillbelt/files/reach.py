"""Opening what others wrote: regular files alone, and none that lies outside the fence.

A fence is a folder that no link leads a reader out of: the project, for what lies in one. What the
user keeps in folders of their own has none, so that it may be linked from anywhere. Discovery,
loading, checking and searching all open here.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import Self

from skillbelt.errors import PathEscape
from skillbelt.files.contain import below, open_beneath, open_folder

# A pipe that lies there is not waited for, a terminal not taken.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CHUNK = 2**20
# File systems whose files are made up by the kernel as they are read: processes with their
# environment and memory, keys, settings. By the number that statfs gives, from linux/magic.h.
_PROC = 0x9FA0
_MADE_UP = frozenset(
    (_PROC, 0x62656572, 0x27E0EB, 0x63677270, 0x64626720, 0x74726163, 0x73636673, 0xF97CFF8C,
     0x43415D53, 0xCAFE4A11, 0x6165676C, 0xDE5E81E4, 0x62656570, 0x1CD1, 0x42494E4D, 0x6E736673,
     0x19800202, 0x50495045, 0x534F434B, 0x09041934, 0x65735543, 0x6C6F6F70, 0xABBA1974)
)  # fmt: skip
_SECRET = "is a link to what looks like a secret"
_known: dict[int, bool] = {}


class Fence:
    """The folder that nothing may be outside of, for as long as it is open; "" for none at all."""

    __slots__ = ("_handle", "folder")

    def __init__(self, folder: str = "") -> None:
        self.folder, self._handle = folder, -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder; the next use opens it again."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def open_file(self, path: str) -> int:
        """A handle of a regular file; PathEscape if it strays, OSError if it is none.

        A link inside a fence may only lead to a file of its own name: see `astray`.
        """
        handle = self._open(path, _FILE)
        try:
            _check_regular(handle, path)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def open_dir(self, path: str) -> int:
        """A handle of a folder; PathEscape if it leads out."""
        return self._open(path, _FOLDER)

    def _open(self, path: str, flags: int) -> int:
        if not self.folder:
            return os.open(path, flags)
        if self._handle < 0:
            self._handle = open_folder(self.folder)
        sys.audit("open", path, None, flags)  # as `os.open` does for whoever listens
        said = below(path, self.folder)
        if said:
            try:
                once = flags if flags & os.O_DIRECTORY else flags | os.O_NOFOLLOW
                return open_beneath(self._handle, said, once)
            except PathEscape:
                pass
        # A link that names its target from the root of the disk may lead inside all the same. What
        # it comes to is opened through no further link, whatever was put there meanwhile.
        real = below(os.path.realpath(path), os.path.realpath(self.folder))
        if not real:
            raise PathEscape(path, self.folder, "is a link that leads out")
        if flags & os.O_DIRECTORY:
            return open_beneath(self._handle, real, flags | os.O_NOFOLLOW)
        return self._linked(path, real, flags)

    def _linked(self, path: str, real: str, flags: int) -> int:
        """A handle of the file that a link leads to, inside; PathEscape if it is none of these."""
        from skillbelt.files.sensitive import HEAD_BYTES, looks_secret

        why = _misled(path, real)
        if why:
            raise PathEscape(path, self.folder, why)
        handle = open_beneath(self._handle, real, flags | os.O_NOFOLLOW)
        try:
            secret = looks_secret(real, os.pread(handle, HEAD_BYTES, 0))
        except OSError:
            secret = False  # a pipe or the like, which is told apart later
        if secret:
            os.close(handle)
            raise PathEscape(path, self.folder, _SECRET)
        return handle


def astray(path: str, fence: str) -> str:
    """Why the link at that path is not followed to a file, if there is a fence; "" if it may be.

    Whoever wrote a checkout could else have any file of the project told as one of a skill: what
    the user keeps there for themselves, and what git does.
    """
    if not fence:
        return ""
    real = below(os.path.realpath(path), os.path.realpath(fence))
    if not real:
        return f"is or lies behind a link that leads out of {fence}"
    return _misled(path, real) if os.path.exists(path) else ""


def _misled(path: str, real: str) -> str:
    from skillbelt.files.sensitive import looks_secret

    name = os.path.basename(path)
    if os.path.basename(real).casefold() != name.casefold():
        return f"is a link to a file that is not called {name}"
    return _SECRET if looks_secret(real) else ""


def open_file(path: str, fence: str = "") -> int:
    """A handle of a regular file; PathEscape if it leads out, OSError if it is none."""
    with Fence(fence) as opener:
        return opener.open_file(path)


def open_dir(path: str, fence: str = "") -> int:
    """A handle of a folder; PathEscape if it leads out of the fence."""
    with Fence(fence) as opener:
        return opener.open_dir(path)


def read_handle(handle: int, most: int) -> bytes:
    """What is left of a file, at most so many bytes; the handle is closed."""
    parts: list[bytes] = []
    try:
        while most > 0 and (part := os.read(handle, min(most, _CHUNK))):
            parts.append(part)
            most -= len(part)
    finally:
        os.close(handle)
    return b"".join(parts)


def _check_regular(handle: int, path: str) -> None:
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    # What lies on a disk has its number; memory, networks and what is made up have none.
    if not os.major(info.st_dev) and _is_made_up(handle, info.st_dev):
        raise OSError(errno.EINVAL, "not a file on any disk: the kernel makes it up", path)


def _is_made_up(handle: int, device: int) -> bool:
    known = _known.get(device)
    if known is None:
        known = _known[device] = _kind(handle, device) in _MADE_UP
    return known


def _kind(handle: int, device: int) -> int:
    """The number of the file system; zero where there is no such call."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        import ctypes
    except ImportError:  # not every Python has it; these two are told apart by their devices
        return _PROC if device in (os.stat("/proc").st_dev, os.stat("/sys").st_dev) else 0
    told = (ctypes.c_long * 32)()  # more than any form of the structure; the number comes first
    if ctypes.CDLL(None, use_errno=True).fstatfs(ctypes.c_int(handle), ctypes.byref(told)):
        raise OSError(ctypes.get_errno(), "can not tell what file system it lies on")
    return told[0] & 0xFFFF_FFFF


def made_up(handle: int) -> bool:
    """Whether the kernel makes up what lies there, as it is read."""
    device = os.fstat(handle).st_dev
    return not os.major(device) and _is_made_up(handle, device)
