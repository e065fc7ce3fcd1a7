"""Measure the disk usage of a folder, even when a skill tries to hide it.

A skill can nest folders without end and remove their permissions. So the walk goes up by `..`,
which needs one handle for any depth, and gives an unreadable folder permissions while it is read.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, suppress

from skillbelt.files.contain import READ_FOLDER, set_folder_mode
from skillbelt.records import NamedTuple

_BLOCK = 512  # the unit of st_blocks on every file system
_READABLE = stat.S_IRUSR | stat.S_IXUSR


class FolderUsage(NamedTuple):
    """The totals of a folder.

    `hidden`: some of it could not be read. `largest`: the size of the largest file.
    """

    bytes: int = 0
    files: int = 0
    largest: int = 0
    hidden: bool = False


class _Level(NamedTuple):
    """A folder on the way down.

    Its identity, the mode to restore, and the subfolders left to visit.
    """

    identity: tuple[int, int]
    mode: int | None
    folders: list[str]


def measure_folder(path: str, max_bytes: int, max_files: int = sys.maxsize) -> FolderUsage:
    """Sum up a folder without following any link; stop as soon as a bound is exceeded."""
    total = FolderUsage()
    linked: set[int] = set()
    try:
        handle = os.open(path, READ_FOLDER)
    except OSError:
        return FolderUsage(hidden=True)
    with closing(_Walk(handle).all()) as walk:
        for found in walk:
            total = _add(total, found, linked)
            if total.bytes > max_bytes or total.files > max_files:
                break
    return total


def _add(total: FolderUsage, found: os.stat_result | None, linked: set[int]) -> FolderUsage:
    if found is None:
        return total._replace(hidden=True)
    if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
        if found.st_ino in linked:
            return total
        linked.add(found.st_ino)
    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    return FolderUsage(
        total.bytes + found.st_blocks * _BLOCK,
        total.files + 1,
        max(total.largest, size),
        total.hidden,
    )


class _Walk:
    """A walk of everything below a folder, with one handle and the list of folders above it."""

    def __init__(self, top: int) -> None:
        """Take the folder's handle, which is closed at the end."""
        self._here, self._trail = top, [_Level(_identity(top), None, [])]

    def all(self) -> Generator[os.stat_result | None]:
        """Yield the stat of each entry; None for one that cannot be read."""
        try:
            yield from self._list()
            while self._trail[-1].folders or len(self._trail) > 1:
                if self._trail[-1].folders:
                    yield from self._descend(self._trail[-1].folders.pop())
                elif not self._ascend():
                    yield None
                    return
        finally:
            self._end()

    def _list(self) -> Iterator[os.stat_result | None]:
        folders, device = self._trail[-1].folders, self._trail[0].identity[0]
        try:
            with os.scandir(self._here) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(found.st_mode) and found.st_dev == device:
                            folders.append(entry.name)
                        yield found
        except OSError:
            yield None

    def _descend(self, name: str) -> Iterator[os.stat_result | None]:
        try:
            handle, mode = _enter(self._here, name)
        except FileNotFoundError:
            return
        except OSError:
            yield None
            return
        os.close(self._here)
        self._here = handle
        self._trail.append(_Level(_identity(handle), mode, []))
        yield from self._list()

    def _ascend(self) -> bool:
        """Go back to the parent folder; False when another folder has taken its place."""
        left = self._trail.pop()
        try:
            above = os.open("..", READ_FOLDER, dir_fd=self._here)
        except OSError:
            above = -1
        if left.mode is not None:
            with suppress(OSError):
                os.fchmod(self._here, left.mode)
        if above < 0:
            return False
        os.close(self._here)
        self._here = above
        return _identity(above) == self._trail[-1].identity

    def _end(self) -> None:
        """Close the handle; after an early stop, restore the modes of the folders above."""
        changed = any(level.mode is not None for level in self._trail)
        while changed and len(self._trail) > 1 and self._ascend():
            pass
        os.close(self._here)


def _identity(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino


def _enter(parent: int, name: str) -> tuple[int, int | None]:
    """Open the folder; also return the mode to restore, if it had to be changed to read it."""
    with suppress(PermissionError):
        handle = os.open(name, READ_FOLDER, dir_fd=parent)
        if os.geteuid() == 0 or os.fstat(handle).st_mode & _READABLE == _READABLE:
            return handle, None
        os.close(handle)
    mode = stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    set_folder_mode(parent, name, mode | _READABLE)
    return os.open(name, READ_FOLDER, dir_fd=parent), mode
