"""Containment: the only place where a path from outside is joined to a folder.

Names are checked as text first; then everything is opened relative to a directory handle, so that
nothing between the check and the use can lead elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from skillbelt.errors import PathEscape

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_PATH_PARTS = 64
_CONTROL = frozenset(map(chr, (*range(32), 127)))
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SHOWN = 200  # a hostile name may be as long as the archive

_OPENAT2 = 437  # the same number on every Linux architecture but alpha
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_RACES = 8  # the kernel gives EAGAIN while a folder on the way is being renamed


def inside(path: str, folder: str) -> bool:
    """Whether the path, with all links resolved, lies in the folder; to tell, not to open."""
    return bool(below(os.path.realpath(path), os.path.realpath(folder)))


def below(path: str, folder: str) -> str:
    """The path as seen from the folder, `.` for the folder itself, empty when it is not below.

    By their text: for whoever opens the result beneath a handle of the folder.
    """
    if path == folder:
        return "."
    start = os.path.join(folder, "")
    return path[len(start) :] if path.startswith(start) else ""


def check_relative(name: str, root: str = ".") -> str:
    """The name as a plain relative path with `/`; raises PathEscape with the reason otherwise.

    A leading `./` is dropped. What comes back names the same thing on every system: no empty or
    dot component, no drive, no backslash, no control character.
    """
    plain = name[2:] if name.startswith("./") else name
    reason = _text_fault(plain) or _parts_fault(plain)
    if reason:
        raise PathEscape(name[:_SHOWN], root, reason)
    return plain


def check_segment(name: str, root: str = ".") -> str:
    """The name as one component that is not hidden; raises PathEscape otherwise."""
    if "/" in name or name.startswith("."):
        raise PathEscape(name[:_SHOWN], root, "is not a single plain name")
    return check_relative(name, root)


def _text_fault(name: str) -> str:
    if not name:
        return "is empty"
    if not _CONTROL.isdisjoint(name):
        return "holds a NUL or another control character"
    for mark, reason in (("\\", "holds a backslash"), (":", "holds a colon or a drive letter")):
        if mark in name:
            return reason
    return "is absolute" if name.startswith("/") else ""


def _parts_fault(name: str) -> str:
    parts = name.split("/")
    if ".." in parts:
        return "leads out of the folder"
    if "" in parts or "." in parts:
        return "has an empty component"
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if max(sizes) > MAX_NAME_BYTES or sum(sizes) + len(sizes) > MAX_PATH_BYTES:
        return "is too long"
    return "is too deep" if len(parts) > MAX_PATH_PARTS else ""


class NameTable:
    """The names given out in one tree: no two may be the same on a disk that folds case."""

    def __init__(self, root: str = ".") -> None:
        self._root = root
        self._folders: set[str] = set()
        self._taken: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def add_file(self, name: str) -> None:
        """Take a checked name for a file; raises PathEscape when it meets another."""
        self._add_parent(name)
        self._take(name)

    def add_folder(self, name: str) -> None:
        """Take a checked name for a folder; the same folder may be named again."""
        if name not in self._folders:
            self._add_parent(name)
            self._take(name)
            self._folders.add(name)

    def _add_parent(self, name: str) -> None:
        parent = name.rpartition("/")[0]
        if parent:
            self.add_folder(parent)

    def _take(self, name: str) -> None:
        key = _folded(name)
        if key in self._taken:
            raise PathEscape(name[:_SHOWN], self._root, f"meets {self._taken[key][:_SHOWN]!r}")
        self._taken[key] = name


def _folded(name: str) -> str:
    from unicodedata import normalize

    return normalize("NFC", normalize("NFC", name).casefold())


def open_folder(path: str) -> int:
    """A handle of the folder, for the functions below. The path itself is trusted."""
    return os.open(path, _FOLDER)


def open_beneath(dir_fd: int, relative: str, flags: int) -> int:
    """A handle of what `relative` names below the folder; raises PathEscape if it leads out.

    A link that stays below is followed where the kernel can promise that it does (openat2);
    elsewhere every link is refused. Not for making files: see `create_beneath`.
    """
    if "\0" in relative or relative.startswith("/") or ".." in relative.split("/"):
        raise PathEscape(relative[:_SHOWN], ".")
    call = _openat2()
    if call is not None:
        for _ in range(_RACES):
            result = call(dir_fd, relative, flags)
            if result >= 0:
                return result
            if -result != errno.EAGAIN:
                break
        if -result not in (errno.EAGAIN, errno.ENOSYS, errno.EPERM):
            raise _failure(-result, relative)
    return _walk(dir_fd, relative, flags)


def _failure(code: int, relative: str) -> Exception:
    if code in (errno.EXDEV, errno.ELOOP):
        return PathEscape(relative[:_SHOWN], ".", "is a link that leads out of the folder")
    return OSError(code, os.strerror(code), relative)


@lru_cache(maxsize=1)
def _openat2() -> Callable[[int, str, int], int] | None:
    """The system call as a function that gives the handle or minus the error; None without it."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes
    except ImportError:  # not every Python has it
        return None

    class OpenHow(ctypes.Structure):
        _fields_ = (
            ("flags", ctypes.c_uint64),
            ("mode", ctypes.c_uint64),
            ("resolve", ctypes.c_uint64),
        )

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long

    def call(dir_fd: int, relative: str, flags: int) -> int:
        how = OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
        size = ctypes.c_size_t(ctypes.sizeof(how))
        path = ctypes.c_char_p(os.fsencode(relative))
        number = ctypes.c_long(_OPENAT2)
        result = syscall(number, ctypes.c_int(dir_fd), path, ctypes.byref(how), size)
        return int(result) if result >= 0 else -ctypes.get_errno()

    return call


def _walk(dir_fd: int, relative: str, flags: int) -> int:
    """Open component by component, through no link at all."""
    *folders, last = relative.split("/")
    here = os.dup(dir_fd)
    try:
        for folder in folders:
            here = _step(here, folder, _FOLDER)
        return _open_unlinked(here, last or ".", flags | os.O_CLOEXEC)
    finally:
        os.close(here)


def _step(here: int, name: str, flags: int) -> int:
    """The handle one component further down; the one before it is closed."""
    deeper = _open_unlinked(here, name or ".", flags)
    os.close(here)
    return deeper


def _open_unlinked(here: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=here)
    except OSError as error:
        # With O_DIRECTORY a link is reported as "not a directory".
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(here, name):
            raise PathEscape(name[:_SHOWN], ".", "is a link") from error
        raise


def _is_link(here: int, name: str) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)


def make_folders(dir_fd: int, relative: str) -> int:
    """A handle of the folder below `dir_fd`, made private with its parents where missing."""
    here = os.dup(dir_fd)
    try:
        for name in check_relative(relative).split("/"):
            _make_folder(here, name)
            here = _step(here, name, _FOLDER)
    except BaseException:
        os.close(here)
        raise
    return here


def _make_folder(here: int, name: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=here)


def create_beneath(dir_fd: int, relative: str, *, executable: bool = False) -> int:
    """A handle for writing a new private file below the folder; its parents are made.

    Raises PathEscape for an unsafe name or a link on the way, FileExistsError for anything there.
    """
    parent, _, name = check_relative(relative).rpartition("/")
    here = make_folders(dir_fd, parent) if parent else os.dup(dir_fd)
    try:
        return os.open(name, _NEW_FILE, 0o700 if executable else 0o600, dir_fd=here)
    finally:
        os.close(here)


def set_folder_mode(dir_fd: int, name: str, mode: int) -> None:
    """Give the folder of that name a mode; never what a link of that name leads to."""
    platform: str = sys.platform
    if not platform.startswith("linux"):
        os.chmod(name, mode, dir_fd=dir_fd, follow_symlinks=False)
        return
    # There is no chmod that does not follow links; a handle that needs no permission is one.
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.chmod(f"/proc/self/fd/{handle}", mode)
    finally:
        os.close(handle)
