"""Remove any tree, even one that a skill made hard to remove, and nothing beside it.

The walk does not descend: each folder is first moved up to the top, then emptied there. So a tree
of any depth needs only a few handles, and an entry that cannot be moved (a mount) is never entered.
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

GONE = ".gone-"  # prefix of trees that are being removed
_AT_A_TIME = 1000
_MAX_REPORTED = 100  # entries that could not be removed


def open_anyhow(dir_fd: int, name: str) -> int:
    """Open a folder of ours; if its mode does not allow that, set it to 0700."""
    try:
        handle = os.open(name, READ_FOLDER, dir_fd=dir_fd)
        if os.geteuid() == 0 or os.fstat(handle).st_mode & 0o700 == 0o700:
            return handle
        os.close(handle)
    except PermissionError:
        pass
    set_folder_mode(dir_fd, name, 0o700)
    return os.open(name, READ_FOLDER, dir_fd=dir_fd)


def remove_tree(path: str, *, seconds: float = 600.0, prefix: str = GONE) -> tuple[str, ...]:
    """Remove a folder; return what could not be removed with the reasons, at most a hundred.

    Follows no link, enters no other file system, and uses a bounded number of handles and little
    memory for any tree. The parent of `path` must belong to the caller. Entries that cannot be
    removed stay in `path`, maybe in a folder of another name. Stops after `seconds`; only a tree
    that is still being filled takes that long. Meanwhile it has a name that begins with `prefix`,
    by which one finds what a killed process left.
    """
    parent, name = os.path.split(os.path.abspath(path))
    holder = os.open(parent, FOLLOW_FOLDER)
    try:
        return _remove(holder, name, seconds, prefix)
    finally:
        os.close(holder)


def _remove(holder: int, name: str, seconds: float, prefix: str) -> tuple[str, ...]:
    """Move the folder aside, which fails for a mount, then empty and remove it."""
    aside = f"{prefix}{os.urandom(8).hex()}"
    try:
        if not _is_folder(holder, name):
            os.unlink(name, dir_fd=holder)
            return ()
        _move(holder, name, holder, aside)
    except FileNotFoundError:
        return ()
    except OSError as error:
        return (_describe(name, error),)
    left = _empty(holder, aside, seconds)
    try:
        os.rmdir(aside, dir_fd=holder)
    except OSError as error:
        with suppress(OSError):
            os.rename(aside, name, src_dir_fd=holder, dst_dir_fd=holder)
        return left or (_describe(name, error),)
    return ()


def _describe(name: str, error: OSError) -> str:
    return f"{name}: {error.strerror or error}"


def _is_folder(dir_fd: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)


def _move(source: int, name: str, target: int, to: str) -> None:
    """Rename a folder; one without write permission gets it first."""
    move = partial(os.rename, name, to, src_dir_fd=source, dst_dir_fd=target)
    try:
        move()
    except PermissionError:
        set_folder_mode(source, name, 0o700)
        move()


class _Sweep:
    """The removal of one tree; `top` is its handle."""

    def __init__(self, top: int, seconds: float) -> None:
        self.top, self.until = top, monotonic() + seconds
        self.device = os.fstat(top).st_dev
        self.stuck: set[str] = set()
        self.left: list[str] = []
        self.names = (f"{GONE}{os.urandom(8).hex()}-{number}" for number in count())

    def run(self) -> None:
        """Remove everything that can be removed."""
        while len(self.left) < _MAX_REPORTED and self.look(self.top, self.stuck, self.dissolve):
            pass

    def look(self, folder: int, stuck: set[str], take: Callable[[str], None]) -> bool:
        """Unlink the files and call `take` for each folder; return whether there were any."""
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
        """Run the action; on an error record the reason, so that it is not tried again."""
        try:
            action()
        except FileNotFoundError:
            return False
        except OSError as error:
            stuck.add(name)
            self.left.append(_describe(name, error))
            return False
        return True

    def dissolve(self, name: str) -> None:
        """Rename a folder of the top to a name of ours, move its subfolders up, and remove it."""
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


def _empty(holder: int, name: str, seconds: float) -> tuple[str, ...]:
    """Empty the folder; return what could not be removed."""
    try:
        top = open_anyhow(holder, name)
    except OSError as error:
        return (_describe(name, error),)
    try:
        sweep = _Sweep(top, seconds)
        sweep.run()
        return tuple(sweep.left[:_MAX_REPORTED])
    except OSError as error:
        return (_describe(name, error),)
    finally:
        os.close(top)


def remove_leftovers(folder: str) -> tuple[str, ...]:
    """Remove the trees that a killed process left half removed in a folder of ours."""
    left: tuple[str, ...] = ()
    with suppress(FileNotFoundError), os.scandir(folder) as listing:
        for entry in listing:
            left += remove_tree(entry.path)
    return left
