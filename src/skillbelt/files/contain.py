"""Open untrusted paths: the only module that joins a path from outside to a folder.

Names are checked as text first. Then everything is opened relative to a directory handle, so that a
change between the check and the use cannot lead elsewhere. A fence is a folder that no link may
lead out of, such as the project. The user's own folders have no fence, so that skills there may be
linked from anywhere.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self
from unicodedata import normalize

from skillbelt.errors import PathEscape
from skillbelt.files.sensitive import HEAD_BYTES, looks_secret
from skillbelt.text import Lazy

if TYPE_CHECKING:
    from collections.abc import Callable

# The flags for opening untrusted files; no other module builds its own. Reading never waits for a
# pipe and never makes a terminal the controlling one. Only the FOLLOW sets follow a link in the
# last component, for `open_beneath` and `Fence`, which check where it leads.
FOLLOW_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
READ_FILE = FOLLOW_FILE | os.O_NOFOLLOW
FOLLOW_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
READ_FOLDER = FOLLOW_FOLDER | os.O_NOFOLLOW
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE_TO_READ = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
READ_WRITE_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
LOCK_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
APPEND_FILE = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
REPLACE_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
# A handle that needs no permission to read; only Linux has it.
_PATH_ONLY = getattr(os, "O_PATH", 0)
FOLLOW_PATH = _PATH_ONLY | os.O_CLOEXEC
PATH_ONLY = FOLLOW_PATH | os.O_NOFOLLOW
PATH_ONLY_FOLDER = PATH_ONLY | os.O_DIRECTORY

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_PATH_PARTS = 64
_CONTROL = frozenset(map(chr, (*range(32), 127)))
_NOT_ON_WINDOWS = frozenset('<>:"|?*')
_DEVICES = frozenset(("con", "prn", "aux", "nul", "com", "lpt"))
# Windows opens a device by these names, also with an ending.
_DEVICE = Lazy(r"(?:con|prn|aux|nul|con(?:in|out)\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3]) *(?:\.|\Z)")
_MAX_SHOWN = 200  # a hostile name may be as long as the archive
_CHUNK = 2**20

_OPENAT2 = 437  # the same number on every Linux architecture except alpha
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_SHORT_PATH = 3  # slashes; a longer path is opened faster by one call of the kernel
_RACES = 8  # the kernel returns EAGAIN while a folder on the way is being renamed

# File systems whose files the kernel generates on reading: processes with their environment and
# memory, keys, settings. The numbers are those that statfs returns, from linux/magic.h.
_PROC = 0x9FA0
_GENERATED = frozenset(
    (_PROC, 0x62656572, 0x27E0EB, 0x63677270, 0x64626720, 0x74726163, 0x73636673, 0xF97CFF8C,
     0x43415D53, 0xCAFE4A11, 0x6165676C, 0xDE5E81E4, 0x62656570, 0x1CD1, 0x42494E4D, 0x6E736673,
     0x19800202, 0x50495045, 0x534F434B, 0x09041934, 0x65735543, 0x6C6F6F70, 0xABBA1974)
)  # fmt: skip
_SECRET = "is a link to what looks like a secret"
_generated_devices: dict[int, bool] = {}


def inside(path: str, folder: str) -> bool:
    """Whether the path, with all links resolved, lies in the folder.

    Not enough to open it safely.
    """
    return bool(below(os.path.realpath(path), os.path.realpath(folder)))


def below(path: str, folder: str) -> str:
    """Return the path relative to the folder, `.` for the folder itself, "" when it is not below.

    Compares text only: open the result beneath a handle of the folder.
    """
    if path == folder:
        return "."
    start = os.path.join(folder, "")
    return path[len(start) :] if path.startswith(start) else ""


def check_relative(name: str, root: str = ".") -> str:
    """Return the name as a plain relative path with `/`; raise PathEscape with the reason if not.

    A leading `./` is dropped. The result names the same file on every system: no empty or dot
    component, no drive, no backslash, no control character.
    """
    plain = name[2:] if name.startswith("./") else name
    reason = name_fault(plain)
    if reason:
        raise PathEscape(name[:_MAX_SHOWN], root, reason)
    return plain


def name_fault(path: str) -> str:
    """Return why the path is not a plain relative path; "" if it is one."""
    return _text_fault(path) or _parts_fault(path)


def entry_fault(path: str) -> str:
    """Return why no entry of a tree can have that path; "" if one can.

    Accepts every name that a disk accepts, even one that `name_fault` refuses because no caller can
    ask for it.
    """
    if "\0" in path:
        return "holds a NUL"
    return _parts_fault(path, errors="surrogateescape", most=MAX_NAME_BYTES * MAX_PATH_PARTS)


def windows_fault(name: str) -> str:
    """Return why Windows cannot have a file of that name; "" if it can."""
    if name.endswith((".", " ")):
        return "ends in a dot or a blank"
    if not _NOT_ON_WINDOWS.isdisjoint(name):
        return 'holds one of < > : " | ? *'
    return "is that of a device" if is_device(name) else ""


def is_device(name: str) -> bool:
    """Whether Windows opens a device by that name."""
    text = name.lower()
    return text[:3] in _DEVICES and bool(_DEVICE.match(text))


def check_segment(name: str, root: str = ".") -> str:
    """Return the name as one component that is not hidden; raise PathEscape otherwise."""
    if "/" in name or name.startswith("."):
        raise PathEscape(name[:_MAX_SHOWN], root, "is not a single plain name")
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


def _parts_fault(name: str, *, errors: str = "strict", most: int = MAX_PATH_BYTES) -> str:
    parts = name.split("/")
    if ".." in parts:
        return "leads out of the folder"
    if "" in parts or "." in parts:
        return "has an empty component"
    try:
        sizes = [len(part.encode("utf-8", errors)) for part in parts]
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if max(sizes) > MAX_NAME_BYTES or sum(sizes) + len(sizes) > most:
        return "is too long"
    return "is too deep" if len(parts) > MAX_PATH_PARTS else ""


class NameTable:
    """The names used in one tree: no two may be equal on a disk that ignores case."""

    def __init__(self, root: str = ".") -> None:
        self._root = root
        self._folders: set[str] = set()
        self._taken: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def add_file(self, name: str) -> None:
        """Add a checked name of a file; raise PathEscape when it collides with another."""
        self._add_parent(name)
        self._add(name)

    def add_folder(self, name: str) -> None:
        """Add a checked name of a folder; the same folder may be added again."""
        if name not in self._folders:
            self._add_parent(name)
            self._add(name)
            self._folders.add(name)

    def _add_parent(self, name: str) -> None:
        parent = name.rpartition("/")[0]
        if parent:
            self.add_folder(parent)

    def _add(self, name: str) -> None:
        key = _fold(name)
        if key in self._taken:
            raise PathEscape(
                name[:_MAX_SHOWN], self._root, f"meets {self._taken[key][:_MAX_SHOWN]!r}"
            )
        self._taken[key] = name


def _fold(name: str) -> str:
    return normalize("NFC", normalize("NFC", name).casefold())


def open_folder(path: str) -> int:
    """Open a folder for the functions below. The path itself is trusted."""
    return os.open(path, FOLLOW_FOLDER)


def open_beneath(dir_fd: int, relative: str, flags: int) -> int:
    """Open what `relative` names below the folder; raise PathEscape if it leads out.

    A link that stays below is followed where the kernel can enforce that (openat2); elsewhere
    every link is refused. To create a file, use `create_beneath`.
    """
    if "\0" in relative or relative.startswith("/") or ".." in relative.split("/"):
        raise PathEscape(relative[:_MAX_SHOWN], ".")
    # Without a link nothing leads out, and few paths have one: openat2 needs ctypes, which takes
    # 2 ms to import. It also passes folders that may be searched and not read.
    if relative and relative.count("/") < _SHORT_PATH and not flags & _PATH_ONLY:
        try:
            return _walk(dir_fd, relative, flags)
        except (PathEscape, PermissionError):
            pass
        except OSError as error:
            raise _failure(error.errno or errno.EIO, relative) from error
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
        return PathEscape(relative[:_MAX_SHOWN], ".", "is a link that leads out of the folder")
    return OSError(code, os.strerror(code), relative)


def load_ctypes() -> Any:
    """Return the `ctypes` module; None for a Python built without it."""
    try:
        import ctypes  # cost: 4 ms, only for calls that Python itself does not have
    except ImportError:
        return None
    return ctypes


@lru_cache(maxsize=1)
def _openat2() -> Callable[[int, str, int], int] | None:
    """Return openat2 as a function that returns the handle or -errno; None without it."""
    ctypes = load_ctypes()
    if ctypes is None or not sys.platform.startswith("linux"):
        return None
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    rules = ctypes.c_uint64 * 3  # flags, mode, resolve
    size, resolve = ctypes.sizeof(rules), _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS
    syscall.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.POINTER(rules),
        ctypes.c_size_t,
    )

    def call(dir_fd: int, relative: str, flags: int) -> int:
        how = rules(flags | os.O_CLOEXEC, 0, resolve)
        result: int = syscall(_OPENAT2, dir_fd, os.fsencode(relative), how, size)
        return result if result >= 0 else -ctypes.get_errno()

    return call


def _walk(dir_fd: int, relative: str, flags: int) -> int:
    """Open component by component, following no link."""
    *folders, last = relative.split("/")
    if not folders:
        return _open_unlinked(dir_fd, last or ".", flags | os.O_CLOEXEC)
    here = os.dup(dir_fd)
    try:
        for folder in folders:
            here = _step(here, folder, FOLLOW_FOLDER)
        return _open_unlinked(here, last or ".", flags | os.O_CLOEXEC)
    finally:
        os.close(here)


def _step(here: int, name: str, flags: int) -> int:
    """Open the next component and close the handle of the one above."""
    deeper = _open_unlinked(here, name or ".", flags)
    os.close(here)
    return deeper


def _open_unlinked(here: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=here)
    except OSError as error:
        # With O_DIRECTORY a link is reported as "not a directory".
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(here, name):
            raise PathEscape(name[:_MAX_SHOWN], ".", "is a link") from error
        raise


def _is_link(here: int, name: str) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)


def make_folders(dir_fd: int, relative: str) -> int:
    """Open the folder below `dir_fd`; create it and its parents with mode 0700 where missing."""
    here = os.dup(dir_fd)
    try:
        for name in check_relative(relative).split("/"):
            _make_folder(here, name)
            here = _step(here, name, FOLLOW_FOLDER)
    except BaseException:
        os.close(here)
        raise
    return here


def _make_folder(here: int, name: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=here)


def create_beneath(dir_fd: int, relative: str, *, executable: bool = False) -> int:
    """Create a private file below the folder, with its parents, and open it for writing.

    Raises PathEscape for an unsafe name or a link on the way, FileExistsError if the name is taken.
    """
    parent, _, name = check_relative(relative).rpartition("/")
    here = make_folders(dir_fd, parent) if parent else os.dup(dir_fd)
    try:
        return os.open(name, NEW_FILE, 0o700 if executable else 0o600, dir_fd=here)
    finally:
        os.close(here)


def set_folder_mode(dir_fd: int, name: str, mode: int) -> None:
    """Set the mode of a folder by its name, without following a link."""
    platform: str = sys.platform
    if not platform.startswith("linux"):
        os.chmod(name, mode, dir_fd=dir_fd, follow_symlinks=False)
        return
    # Linux has no chmod that does not follow links, except through a handle of the folder.
    handle = os.open(name, PATH_ONLY_FOLDER, dir_fd=dir_fd)
    try:
        os.chmod(f"/proc/self/fd/{handle}", mode)
    finally:
        os.close(handle)


class Fence:
    """Opens files and folders, none of them outside the folder; "" means no boundary.

    The folder's handle stays open until `close`.
    """

    __slots__ = ("_handle", "folder")

    def __init__(self, folder: str = "") -> None:
        self.folder, self._handle = folder, -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the folder's handle; the next use opens it again."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def open_file(self, path: str) -> int:
        """Open a regular file; PathEscape if it lies outside, OSError if it is not a regular file.

        A link inside a fence may only lead to a file of the same name: see `astray`.
        """
        handle = self._open(path, FOLLOW_FILE)
        try:
            _check_regular(handle, path)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def open_dir(self, path: str) -> int:
        """Open a folder; PathEscape if it lies outside."""
        return self._open(path, FOLLOW_FOLDER)

    def _open(self, path: str, flags: int) -> int:
        if not self.folder:
            return os.open(path, flags)
        if self._handle < 0:
            self._handle = open_folder(self.folder)
        sys.audit("open", path, None, flags)  # `os.open` raises this event, openat2 does not
        relative = below(path, self.folder)
        if relative:
            try:
                once = flags if flags & os.O_DIRECTORY else flags | os.O_NOFOLLOW
                return open_beneath(self._handle, relative, once)
            except PathEscape:
                pass  # a link that may still lead inside
        # A link with an absolute target may still lead inside. Its target is opened without
        # following further links, so a swap after this check cannot lead elsewhere.
        real = below(os.path.realpath(path), os.path.realpath(self.folder))
        if not real:
            raise PathEscape(path, self.folder, "is a link that leads out")
        if flags & os.O_DIRECTORY:
            return open_beneath(self._handle, real, flags | os.O_NOFOLLOW)
        return self._open_linked(path, real, flags)

    def _open_linked(self, path: str, real: str, flags: int) -> int:
        """Open the file inside the fence that a link leads to.

        PathEscape if it must not be read.
        """
        why = _link_fault(path, real)
        if why:
            raise PathEscape(path, self.folder, why)
        handle = open_beneath(self._handle, real, flags | os.O_NOFOLLOW)
        try:
            secret = looks_secret(real, os.pread(handle, HEAD_BYTES, 0))
        except OSError:
            secret = False  # a pipe or the like, which `_check_regular` refuses
        if secret:
            os.close(handle)
            raise PathEscape(path, self.folder, _SECRET)
        return handle


def astray(path: str, fence: str) -> str:
    """Return why the link must not be followed to a file inside the fence; "" if it may be.

    Without this check the author of a checkout could publish any file of the project
    as part of a skill: the user's private files, and those in `.git`.
    """
    if not fence:
        return ""
    real = below(os.path.realpath(path), os.path.realpath(fence))
    if not real:
        return f"is or lies behind a link that leads out of {fence}"
    return _link_fault(path, real) if os.path.exists(path) else ""


def _link_fault(path: str, real: str) -> str:
    name = os.path.basename(path)
    if os.path.basename(real).casefold() != name.casefold():
        return f"is a link to a file that is not called {name}"
    return _SECRET if looks_secret(real) else ""


def open_file(path: str, fence: str = "") -> int:
    """Open a regular file; PathEscape if it leads out of the fence, OSError if it is not one."""
    with Fence(fence) as opener:
        return opener.open_file(path)


def open_dir(path: str, fence: str = "") -> int:
    """Open a folder; PathEscape if it leads out of the fence."""
    with Fence(fence) as opener:
        return opener.open_dir(path)


def read_handle(handle: int, most: int) -> bytes:
    """Read the rest of a file, at most `most` bytes, and close the handle."""
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
    # A disk has a major device number; memory, network and generated file systems have none.
    if not os.major(info.st_dev) and _is_generated(handle, info.st_dev):
        raise OSError(errno.EINVAL, "not a file on any disk: the kernel generates it", path)


def is_generated(handle: int) -> bool:
    """Whether the kernel generates the file's content as it is read, as in /proc."""
    device = os.fstat(handle).st_dev
    return not os.major(device) and _is_generated(handle, device)


def _is_generated(handle: int, device: int) -> bool:
    known = _generated_devices.get(device)
    if known is None:
        known = _generated_devices[device] = _file_system(handle, device) in _GENERATED
    return known


def _file_system(handle: int, device: int) -> int:
    """Return the type number of the file system; 0 on systems without statfs."""
    if not sys.platform.startswith("linux"):
        return 0
    ctypes = load_ctypes()
    if ctypes is None:  # then only /proc and /sys are recognised, by their devices
        return _PROC if device in (os.stat("/proc").st_dev, os.stat("/sys").st_dev) else 0
    answer = (ctypes.c_long * 32)()  # larger than any form of the structure; the number comes first
    if ctypes.CDLL(None, use_errno=True).fstatfs(ctypes.c_int(handle), ctypes.byref(answer)):
        raise OSError(ctypes.get_errno(), "cannot determine its file system")
    return int(answer[0]) & 0xFFFF_FFFF
