"""What a folder takes on disk, whatever was done to it.

A skill can nest folders without end and close them, so neither may hide anything: the way up is by
`..`, which needs one handle for any depth, and what is closed is opened as long as it is looked at.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from typing import NamedTuple

from skillbelt.files.contain import READ_FOLDER, set_folder_mode

_BLOCK = 512  # what st_blocks counts in, whatever the disk does
_READABLE = stat.S_IRUSR | stat.S_IXUSR


class Folder(NamedTuple):
    """What lies in a folder. `hidden`: some of it could not be seen. `largest`: of one file."""

    bytes: int = 0
    files: int = 0
    largest: int = 0
    hidden: bool = False


class _Level(NamedTuple):
    """A folder on the way down: which it is, its mode if that was changed, what is still to do."""

    identity: tuple[int, int]
    mode: int | None
    folders: list[str]


def measure_folder(path: str, max_bytes: int, max_files: int = sys.maxsize) -> Folder:
    """Sum up a folder without following any link; stops as soon as one bound is passed."""
    total = Folder()
    linked: set[int] = set()
    try:
        handle = os.open(path, READ_FOLDER)
    except OSError:
        return Folder(hidden=True)
    with closing(_Walk(handle).all()) as walk:
        for found in walk:
            total = _plus(total, found, linked)
            if total.bytes > max_bytes or total.files > max_files:
                break
    return total


def _plus(total: Folder, found: os.stat_result | None, linked: set[int]) -> Folder:
    if found is None:
        return total._replace(hidden=True)
    if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
        if found.st_ino in linked:
            return total
        linked.add(found.st_ino)
    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    return Folder(
        total.bytes + found.st_blocks * _BLOCK,
        total.files + 1,
        max(total.largest, size),
        total.hidden,
    )


class _Walk:
    """Everything below a folder: one handle, and the trail that leads to it."""

    def __init__(self, top: int) -> None:
        """The handle is closed at the end."""
        self._here, self._trail = top, [_Level(_identity(top), None, [])]

    def all(self) -> Generator[os.stat_result | None]:
        """What is there; None for what is there but can not be seen."""
        try:
            yield from self._listed()
            while self._trail[-1].folders or len(self._trail) > 1:
                if self._trail[-1].folders:
                    yield from self._down(self._trail[-1].folders.pop())
                elif not self._up():
                    yield None
                    return
        finally:
            self._end()

    def _listed(self) -> Iterator[os.stat_result | None]:
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

    def _down(self, name: str) -> Iterator[os.stat_result | None]:
        try:
            handle, mode = _entered(self._here, name)
        except FileNotFoundError:
            return
        except OSError:
            yield None
            return
        os.close(self._here)
        self._here = handle
        self._trail.append(_Level(_identity(handle), mode, []))
        yield from self._listed()

    def _up(self) -> bool:
        """Back to the folder above; false when that is another by now."""
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
        """Whoever stops on the way gives the folders above their modes back too."""
        changed = any(level.mode is not None for level in self._trail)
        while changed and len(self._trail) > 1 and self._up():
            pass
        os.close(self._here)


def _identity(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino


def _entered(parent: int, name: str) -> tuple[int, int | None]:
    """A handle of the folder, and the mode to give back where another was needed to look."""
    with suppress(PermissionError):
        handle = os.open(name, READ_FOLDER, dir_fd=parent)
        if os.geteuid() == 0 or os.fstat(handle).st_mode & _READABLE == _READABLE:
            return handle, None
        os.close(handle)
    mode = stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    set_folder_mode(parent, name, mode | _READABLE)
    return os.open(name, READ_FOLDER, dir_fd=parent), mode
