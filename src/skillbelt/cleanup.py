"""Taking away what is needed no more: any tree, whatever was done to it, and nothing beside it.

A tree is not walked down: each folder in it is first moved up to the top, then emptied there. So no
depth matters, a few handles are enough, and what can not be moved (a mount) is never entered.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from time import monotonic, sleep
from typing import Literal, NamedTuple

from skillbelt.environments import FOLDER, HALF_MADE, LOCK, Environment
from skillbelt.paths import set_folder_mode
from skillbelt.sizes import measure_folder

LOCKS = ".locks"
REMOVED = ".removed"
METADATA = "metadata.json"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_PAUSE_SECONDS = 0.05
_AT_A_TIME = 1000
_MOST_LEFT = 100  # of what can not be removed, so many are named

_USE = ".use"
_GONE = ".gone-"  # what is being removed

Reason = Literal["idle", "size", "unfinished"]


class Cleaned(NamedTuple):
    """A workspace or an environment that was removed; `left` names what of it could not be."""

    name: str
    reason: Reason
    size_bytes: int
    left: tuple[str, ...] = ()


# Locks


def hold(path: str, operation: int) -> int:
    """A handle of the locked file; BlockingIOError when it is not to be waited for and taken."""
    while True:
        handle = os.open(path, _LOCK_FILE, 0o600)
        try:
            fcntl.flock(handle, operation)
            if _is_at(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: str) -> bool:
    """Whether the file is still the one of that path: the lock of a removed one holds nobody."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    return False


def release(handle: int) -> None:
    """Let go at once, even when a child that was forked meanwhile still has the handle."""
    fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


@contextmanager
def held(path: str, seconds: float, error: Exception) -> Iterator[None]:
    """One process at a time; the others wait for it, and raise the error after so long."""
    end = monotonic() + seconds
    while (handle := _taken(path)) is None:
        if monotonic() > end:
            raise error
        sleep(_LOCK_PAUSE_SECONDS)
    try:
        yield
    finally:
        release(handle)


def _taken(path: str) -> int | None:
    with suppress(BlockingIOError):
        return hold(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return None


# Trees


def open_anyhow(dir_fd: int, name: str) -> int:
    """A handle of a folder of ours whatever its mode, which becomes 0700 where it hid something."""
    try:
        handle = os.open(name, _FOLDER, dir_fd=dir_fd)
        if os.geteuid() == 0 or os.fstat(handle).st_mode & 0o700 == 0o700:
            return handle
        os.close(handle)
    except PermissionError:
        pass
    set_folder_mode(dir_fd, name, 0o700)
    return os.open(name, _FOLDER, dir_fd=dir_fd)


def remove_tree(path: str, *, seconds: float = 600.0) -> tuple[str, ...]:
    """Remove the folder and all in it; what could not be removed, the first hundred, with why.

    Follows no link, enters no other file system, and needs neither depth nor memory for the size of
    the tree. The folder that holds `path` must be the caller's own. What stays, stays in
    `path`, maybe in a folder of another name; so does the rest after so many seconds, which only a
    tree that is still being filled takes.
    """
    parent, name = os.path.split(os.path.abspath(path))
    holder = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _remove(holder, name, seconds)
    finally:
        os.close(holder)


def _remove(holder: int, name: str, seconds: float) -> tuple[str, ...]:
    """Move it aside, which a mount does not let itself, then empty and remove it."""
    aside = f"{_GONE}{os.urandom(8).hex()}"
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
        self.names = (f"{_GONE}{os.urandom(8).hex()}-{number}" for number in count())

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


# Workspaces


def clean_workspaces(
    folder_of_all: str, *, idle_seconds: float, max_bytes: int, now: float
) -> list[Cleaned]:
    """Remove workspaces that nobody uses: the idle ones, then the least recently used ones.

    The second until what is left has no more than `max_bytes`. One in use is never touched.
    """
    if not os.path.isdir(folder_of_all):
        return []
    remove_leftovers(os.path.join(folder_of_all, REMOVED))
    by_age = sorted(_last_uses(folder_of_all))
    cleaned = []
    sizes = {name: _size(os.path.join(folder_of_all, name)) for _, name in by_age}
    total = sum(sizes.values())
    for used, name in by_age:
        idle = now - used > idle_seconds
        if not idle and total <= max_bytes:
            continue
        left = retire(folder_of_all, name)
        if left is not None:
            total -= sizes[name]
            cleaned.append(Cleaned(name, "idle" if idle else "size", sizes[name], left))
    return cleaned


def remove_leftovers(folder: str) -> tuple[str, ...]:
    """Remove what lies in a folder of ours, as an earlier process that was killed left it."""
    left: tuple[str, ...] = ()
    with suppress(FileNotFoundError), os.scandir(folder) as listing:
        for entry in listing:
            left += remove_tree(entry.path)
    return left


def _last_uses(folder_of_all: str) -> Iterator[tuple[float, str]]:
    with os.scandir(folder_of_all) as listing:
        for entry in listing:
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                # Another process may remove it first.
                with suppress(FileNotFoundError):
                    yield _last_use(entry.path), entry.name


def _last_use(path: str) -> float:
    try:
        return os.lstat(os.path.join(path, METADATA)).st_mtime
    except FileNotFoundError:
        return os.lstat(path).st_mtime


def retire(folder_of_all: str, name: str) -> tuple[str, ...] | None:
    """Move the workspace away in one step, then remove it; None when it is in use."""
    lock = os.path.join(folder_of_all, LOCKS, name)
    removed = os.path.join(folder_of_all, REMOVED)
    aside = os.path.join(removed, f"{name}-{os.urandom(4).hex()}")
    os.makedirs(os.path.dirname(lock), 0o700, exist_ok=True)
    os.makedirs(removed, 0o700, exist_ok=True)
    try:
        handle = hold(f"{lock}.use", fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    try:
        os.rename(os.path.join(folder_of_all, name), aside)
        for path in (lock, f"{lock}.use"):
            with suppress(FileNotFoundError):
                os.unlink(path)
    except FileNotFoundError:
        return None
    finally:
        release(handle)
    return remove_tree(aside)


# Environments


@contextmanager
def held_environment(make: Callable[[], Environment]) -> Iterator[Environment]:
    """The environment that `make` gives; nobody clears it away before the block ends."""
    while True:
        made = make()
        with _held(_beside(made.path, _USE), fcntl.LOCK_SH) as handle:
            if not os.path.isdir(made.path):
                continue  # it was cleared away before it was held
            if handle is not None:
                os.utime(handle)
            yield made
            return


@contextmanager
def _held(path: str, operation: int) -> Iterator[int | None]:
    """The lock, for the block; None when somebody else has it, or it is not ours to take."""
    handle: int | None = None
    with suppress(BlockingIOError, PermissionError):
        handle = hold(path, operation)
    try:
        yield handle
    finally:
        if handle is not None:
            release(handle)


def clean_environments(cache_dir: str, *, max_bytes: int) -> list[Cleaned]:
    """Remove environments that nobody uses, the least recently used first, until the rest fits.

    Before that goes what was not finished by whoever made or removed it, and is no more.
    """
    folder = os.path.join(cache_dir, FOLDER)
    if not os.path.isdir(folder) or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return []
    cleaned = [*_remove_unfinished(folder)]
    by_age = sorted((_last_held(path), path) for path in _listed(folder, ""))
    sizes = {path: _size(path) for _, path in by_age}
    total = sum(sizes.values())
    for _, path in by_age:
        if total > max_bytes:
            left = _retire_environment(path)
            if left is not None:
                total -= sizes[path]
                cleaned.append(Cleaned(os.path.basename(path), "size", sizes[path], left))
    return cleaned


def _beside(path: str, ending: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}{ending}")


def _listed(folder: str, mark: str) -> list[str]:
    """The paths of what has the mark in its name; without one, of the environments."""
    names = sorted(os.listdir(folder))
    wanted = [name for name in names if (mark in name if mark else not name.startswith("."))]
    return [os.path.join(folder, name) for name in wanted]


def _last_held(path: str) -> float:
    times = [0.0]
    for place in (path, _beside(path, _USE)):
        with suppress(FileNotFoundError):
            times.append(os.lstat(place).st_mtime)
    return max(times)


def _retire_environment(path: str) -> tuple[str, ...] | None:
    """Move it aside in one step, then remove it; None when it is in use, or not ours."""
    aside = os.path.join(os.path.dirname(path), f"{_GONE}{os.urandom(8).hex()}")
    use = _beside(path, _USE)
    with _held(use, fcntl.LOCK_EX | fcntl.LOCK_NB) as handle:
        if handle is None:
            return None
        try:
            os.rename(path, aside)
        except OSError:
            return None
        os.unlink(use)
    return remove_tree(aside)


def _remove_unfinished(folder: str) -> Iterator[Cleaned]:
    """Trees that nobody is at any more, and the locks of environments that there are not."""
    for path in _listed(folder, _GONE):
        yield _unfinished(path)
    alone = fcntl.LOCK_EX | fcntl.LOCK_NB
    for path in _listed(folder, HALF_MADE):
        name = os.path.basename(path).partition(HALF_MADE)[0]
        with _held(os.path.join(folder, name + LOCK), alone) as handle:
            if handle is not None:
                yield _unfinished(path)
    for ending in (LOCK, _USE):
        for path in _listed(folder, ending):
            name = os.path.basename(path).removesuffix(ending)[1:]
            if not os.path.isdir(os.path.join(folder, name)):
                with _held(path, alone) as handle:
                    if handle is not None:
                        os.unlink(path)


def _unfinished(path: str) -> Cleaned:
    return Cleaned(os.path.basename(path), "unfinished", _size(path), remove_tree(path))


def _size(path: str) -> int:
    return measure_folder(path, sys.maxsize).bytes
