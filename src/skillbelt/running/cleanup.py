"""Remove unused workspaces and package environments; never one in use."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from skillbelt.files.locks import hold, release
from skillbelt.files.private import make_folder
from skillbelt.files.remove import GONE, remove_leftovers, remove_tree
from skillbelt.files.usage import measure_folder
from skillbelt.permission.packages import FOLDER, HALF_MADE, LOCK, Environment
from skillbelt.records import NamedTuple

LOCKS = ".locks"
REMOVED = ".removed"
# A note in a place that replaces an unreachable folder: the path of that folder.
BELONGS = ".belongs"
# The name prefix of staged copies in a workspace.
COPIES = "skills-"
METADATA = "metadata.json"
_USE = ".use"
_ALONE = fcntl.LOCK_EX | fcntl.LOCK_NB

Reason = Literal["idle", "size", "unfinished", "deleted"]


class Cleaned(NamedTuple):
    """A removed workspace or environment; `left` names files that could not be removed."""

    name: str
    reason: Reason
    size_bytes: int
    left: tuple[str, ...] = ()


# Workspaces


def clean_workspaces(
    folder_of_all: str, *, idle_seconds: float, max_bytes: int, now: float
) -> list[Cleaned]:
    """Remove idle workspaces, then the least recently used ones until the rest fits in `max_bytes`.

    A workspace in use is never touched.
    """
    if not os.path.isdir(folder_of_all):
        return []
    remove_leftovers(os.path.join(folder_of_all, REMOVED))
    by_age = sorted(last_uses(folder_of_all))
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


def clean_orphans(shelters: Iterable[str], *, idle_seconds: float, now: float) -> list[Cleaned]:
    """Remove idle places in the shelters whose own folders are gone.

    No other process removes them. A place without a note of its folder is left alone.
    """
    cleaned = []
    for shelter in filter(os.path.isdir, shelters):
        for name in sorted(os.listdir(shelter)):
            place = os.path.join(shelter, name)
            if _is_orphan(place, now - idle_seconds) and _empty_place(place):
                cleaned.append(Cleaned(name, "idle", _size(place), remove_tree(place)))
    return cleaned


def _is_orphan(place: str, before: float) -> bool:
    note = os.path.join(place, BELONGS)
    try:
        if not stat.S_ISREG(os.lstat(note).st_mode) or os.lstat(note).st_mtime >= before:
            return False
        with open(note, "rb") as file:
            folder = file.read()
    except OSError:
        return False
    # The folder itself may never have been created, but its parent was there.
    return os.path.isabs(folder) and not os.path.lexists(os.path.dirname(folder))


def _empty_place(place: str) -> bool:
    """Remove its workspaces and environments; return whether none was in use."""
    clean_environments(place, max_bytes=-1)
    if os.path.isdir(os.path.join(place, FOLDER)) and _list_paths(os.path.join(place, FOLDER), ""):
        return False
    for _, name in [*last_uses(place)]:
        if name != FOLDER and retire(place, name) is None:
            return False
    return True


def last_uses(folder_of_all: str) -> Iterator[tuple[float, str]]:
    """Yield when each workspace was used last, and its name."""
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
    """Move the workspace aside atomically, then remove it; None when it is in use."""
    lock = os.path.join(folder_of_all, LOCKS, name)
    removed = os.path.join(folder_of_all, REMOVED)
    aside = os.path.join(removed, f"{name}-{os.urandom(4).hex()}")
    make_folder(os.path.dirname(lock))
    make_folder(removed)
    try:
        handle = hold(f"{lock}.use", _ALONE)
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


def clean_copies(workspace: str, kept: Container[str]) -> None:
    """Remove the staged copies that are not `kept`; the caller holds the workspace alone."""
    for name in os.listdir(workspace):
        if name.startswith(COPIES) and name not in kept:
            remove_tree(os.path.join(workspace, name))


# Environments


@contextmanager
def held_environment(make: Callable[[], Environment]) -> Iterator[Environment]:
    """Yield the environment from `make`; clean-up does not remove it before the block ends."""
    while True:
        made = make()
        with _try_hold(_hidden_name(made.path, _USE), fcntl.LOCK_SH) as handle:
            if not os.path.isdir(made.path):
                continue  # it was removed before it was locked
            if handle is not None:
                os.utime(handle)
            yield made
            return


@contextmanager
def _try_hold(path: str, operation: int) -> Iterator[int | None]:
    """Hold the lock for the block; yields None when it is taken, or not ours to take."""
    handle: int | None = None
    with suppress(BlockingIOError, PermissionError):
        handle = hold(path, operation)
    try:
        yield handle
    finally:
        if handle is not None:
            release(handle)


def clean_environments(cache_dir: str, *, max_bytes: int) -> list[Cleaned]:
    """Remove unused environments, the least recently used first, until the rest fits.

    Before that, remove environments that a dead process left half created or half removed.
    """
    folder = os.path.join(cache_dir, FOLDER)
    if not os.path.isdir(folder) or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return []
    cleaned = [*_remove_unfinished(folder)]
    _remove_needless_locks(folder)
    by_age = sorted((_last_environment_use(path), path) for path in _list_paths(folder, ""))
    sizes = {path: _size(path) for _, path in by_age}
    total = sum(sizes.values())
    for _, path in by_age:
        if total > max_bytes:
            left = _retire_environment(path)
            if left is not None:
                total -= sizes[path]
                cleaned.append(Cleaned(os.path.basename(path), "size", sizes[path], left))
    return cleaned


def _hidden_name(path: str, ending: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}{ending}")


def _list_paths(folder: str, mark: str) -> list[str]:
    """Return the paths whose names contain the mark; without a mark, the environments."""
    names = sorted(os.listdir(folder))
    wanted = [name for name in names if (mark in name if mark else not name.startswith("."))]
    return [os.path.join(folder, name) for name in wanted]


def _last_environment_use(path: str) -> float:
    times = [0.0]
    for place in (path, _hidden_name(path, _USE)):
        with suppress(FileNotFoundError):
            times.append(os.lstat(place).st_mtime)
    return max(times)


def _retire_environment(path: str) -> tuple[str, ...] | None:
    """Move it aside atomically, then remove it; None when it is in use, or not ours."""
    aside = os.path.join(os.path.dirname(path), f"{GONE}{os.urandom(8).hex()}")
    use = _hidden_name(path, _USE)
    with _try_hold(use, _ALONE) as handle:
        if handle is None:
            return None
        try:
            os.rename(path, aside)
        except OSError:
            return None
        os.unlink(use)
    return remove_tree(aside)


def _remove_unfinished(folder: str) -> Iterator[Cleaned]:
    """Remove trees of processes that died."""
    for path in _list_paths(folder, GONE):
        yield _remove_tree(path)
    for path in _list_paths(folder, HALF_MADE):
        name = os.path.basename(path).partition(HALF_MADE)[0]
        with _try_hold(os.path.join(folder, name + LOCK), _ALONE) as handle:
            if handle is not None:
                yield _remove_tree(path)


def _remove_needless_locks(folder: str) -> None:
    """Remove the locks of environments that do not exist."""
    for path, ending in [(path, end) for end in (LOCK, _USE) for path in _list_paths(folder, end)]:
        name = os.path.basename(path).removesuffix(ending)[1:]
        if os.path.isdir(os.path.join(folder, name)):
            continue
        with _try_hold(path, _ALONE) as handle:
            if handle is not None:
                os.unlink(path)


def _remove_tree(path: str) -> Cleaned:
    return Cleaned(os.path.basename(path), "unfinished", _size(path), remove_tree(path))


def _size(path: str) -> int:
    return measure_folder(path, sys.maxsize).bytes
