"""Removing any tree, whatever was done to it, and nothing beside it.

A tree is not walked down: each folder in it is first moved up to the top, then emptied there. So no
depth matters, a few handles are enough, and what can not be moved (a mount) is never entered.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from time import monotonic

from skillbelt.files.contain import FOLLOW_FOLDER, READ_FOLDER, set_folder_mode

GONE = ".gone-"  # what is being removed
_AT_A_TIME = 1000
_MOST_LEFT = 100  # of what can not be removed, so many are named


def open_anyhow(dir_fd: int, name: str) -> int:
    """A handle of a folder of ours whatever its mode, which becomes 0700 where it hid something."""
    try:
        handle = os.open(name, READ_FOLDER, dir_fd=dir_fd)
        if os.geteuid() == 0 or os.fstat(handle).st_mode & 0o700 == 0o700:
            return handle
        os.close(handle)
    except PermissionError:
        pass
    set_folder_mode(dir_fd, name, 0o700)
    return os.open(name, READ_FOLDER, dir_fd=dir_fd)


def remove_tree(path: str, *, seconds: float = 600.0) -> tuple[str, ...]:
    """Remove the folder and all in it; what could not be removed, the first hundred, with why.

    Follows no link, enters no other file system, and needs neither depth nor memory for the size of
    the tree. The folder that holds `path` must be the caller's own. What stays, stays in
    `path`, maybe in a folder of another name; so does the rest after so many seconds, which only a
    tree that is still being filled takes.
    """
    parent, name = os.path.split(os.path.abspath(path))
    holder = os.open(parent, FOLLOW_FOLDER)
    try:
        return _remove(holder, name, seconds)
    finally:
        os.close(holder)


def _remove(holder: int, name: str, seconds: float) -> tuple[str, ...]:
    """Move it aside, which a mount does not let itself, then empty and remove it."""
    aside = f"{GONE}{os.urandom(8).hex()}"
    try:
        if not _is_folder(holder, name):
            os.unlink(name, dir_fd=holder)
            return ()
        _move(holder, name, holder, aside)
    except FileNotFoundError:
        return ()
    except OSError as error:
        return (_said(name, error),)
    left = _emptied(holder, aside, seconds)
    try:
        os.rmdir(aside, dir_fd=holder)
    except OSError as error:
        with suppress(OSError):
            os.rename(aside, name, src_dir_fd=holder, dst_dir_fd=holder)
        return left or (_said(name, error),)
    return ()


def _said(name: str, error: OSError) -> str:
    return f"{name}: {error.strerror or error}"


def _is_folder(dir_fd: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)


def _move(source: int, name: str, target: int, to: str) -> None:
    """Rename a folder; one that may not be written can only be moved once it may."""
    move = partial(os.rename, name, to, src_dir_fd=source, dst_dir_fd=target)
    try:
        move()
    except PermissionError:
        set_folder_mode(source, name, 0o700)
        move()


class _Sweep:
    """One tree that is being removed: `top` is a handle of it."""

    def __init__(self, top: int, seconds: float) -> None:
        self.top, self.until = top, monotonic() + seconds
        self.device = os.fstat(top).st_dev
        self.stuck: set[str] = set()
        self.left: list[str] = []
        self.names = (f"{GONE}{os.urandom(8).hex()}-{number}" for number in count())

    def run(self) -> None:
        """Remove everything that can be."""
        while len(self.left) < _MOST_LEFT and self.look(self.top, self.stuck, self.dissolve):
            pass

    def look(self, folder: int, stuck: set[str], take: Callable[[str], None]) -> bool:
        """Unlink what is no folder and take each folder; whether there was anything to do."""
        found = False
        folders: list[str] = []
        with os.scandir(folder) as listing:
            for entry in listing:
                if monotonic() > self.until:
                    raise TimeoutError(errno.ETIMEDOUT, "took too long")
                if entry.name in stuck:
                    continue
                found = True
                if not entry.is_dir(follow_symlinks=False):
                    self.attempt(partial(os.unlink, entry.name, dir_fd=folder), entry.name, stuck)
                elif len(folders) < _AT_A_TIME:
                    folders.append(entry.name)
        for name in folders:
            take(name)
        return found

    def attempt(self, action: Callable[[], None], name: str, stuck: set[str]) -> bool:
        """Do it, or remember why not, so that it is not tried again."""
        try:
            action()
        except FileNotFoundError:
            return False
        except OSError as error:
            stuck.add(name)
            self.left.append(_said(name, error))
            return False
        return True

    def dissolve(self, name: str) -> None:
        """Move a folder of the top to a name of ours, its folders to the top, and remove it."""
        own = next(self.names)
        if not self.attempt(partial(_move, self.top, name, self.top, own), name, self.stuck):
            return
        stuck: set[str] = set()
        if not self.attempt(partial(self.lift, own, stuck), own, self.stuck):
            return
        if stuck:
            self.stuck.add(own)
        else:
            self.attempt(partial(os.rmdir, own, dir_fd=self.top), own, self.stuck)

    def lift(self, name: str, stuck: set[str]) -> None:
        folder = open_anyhow(self.top, name)
        try:
            if os.fstat(folder).st_dev != self.device:
                raise OSError(errno.EXDEV, "is another file system")
            while self.look(folder, stuck, partial(self.move_up, folder, stuck)):
                pass
        finally:
            os.close(folder)

    def move_up(self, folder: int, stuck: set[str], name: str) -> None:
        self.attempt(partial(_move, folder, name, self.top, next(self.names)), name, stuck)


def _emptied(holder: int, name: str, seconds: float) -> tuple[str, ...]:
    """Empty the folder; what could not be removed from it."""
    try:
        top = open_anyhow(holder, name)
    except OSError as error:
        return (_said(name, error),)
    try:
        sweep = _Sweep(top, seconds)
        sweep.run()
        return tuple(sweep.left[:_MOST_LEFT])
    except OSError as error:
        return (_said(name, error),)
    finally:
        os.close(top)


def remove_leftovers(folder: str) -> tuple[str, ...]:
    """Remove what lies in a folder of ours, as an earlier process that was killed left it."""
    left: tuple[str, ...] = ()
    with suppress(FileNotFoundError), os.scandir(folder) as listing:
        for entry in listing:
            left += remove_tree(entry.path)
    return left
