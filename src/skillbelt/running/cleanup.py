"""Clearing away workspaces and environments that nobody uses; never one in use."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal, NamedTuple

from skillbelt.files.locks import hold, release
from skillbelt.files.private import make_folder
from skillbelt.files.remove import GONE, remove_leftovers, remove_tree
from skillbelt.files.usage import measure_folder
from skillbelt.permission.packages import FOLDER, HALF_MADE, LOCK, Environment

LOCKS = ".locks"
REMOVED = ".removed"
# A note in a place that stands in for a folder elsewhere: which folder that is.
BELONGS = ".belongs"
# What the name of a staged copy begins with, in a workspace.
COPIES = "skills-"
METADATA = "metadata.json"
_USE = ".use"
_ALONE = fcntl.LOCK_EX | fcntl.LOCK_NB

Reason = Literal["idle", "size", "unfinished"]


class Cleaned(NamedTuple):
    """A workspace or an environment that was removed; `left` names what of it could not be."""

    name: str
    reason: Reason
    size_bytes: int
    left: tuple[str, ...] = ()


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


def clean_orphans(shelters: Iterable[str], *, idle_seconds: float, now: float) -> list[Cleaned]:
    """Remove the places in the shelters whose own folders are gone, once they are idle.

    Nobody else would ever clear them away. One that does not say what it belongs to is left alone.
    """
    cleaned = []
    for shelter in filter(os.path.isdir, shelters):
        for name in sorted(os.listdir(shelter)):
            place = os.path.join(shelter, name)
            if _is_orphan(place, now - idle_seconds) and _emptied(place):
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
    # The folder itself need never have been made, but what it was to be in.
    return os.path.isabs(folder) and not os.path.lexists(os.path.dirname(folder))


def _emptied(place: str) -> bool:
    """Whether nobody uses anything there; workspaces and environments are gone then."""
    clean_environments(place, max_bytes=-1)
    if os.path.isdir(os.path.join(place, FOLDER)) and _listed(os.path.join(place, FOLDER), ""):
        return False
    for _, name in [*_last_uses(place)]:
        if name != FOLDER and retire(place, name) is None:
            return False
    return True


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
    """Remove the staged copies that are not to be kept; the caller alone uses the workspace."""
    for name in os.listdir(workspace):
        if name.startswith(COPIES) and name not in kept:
            remove_tree(os.path.join(workspace, name))


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
    _remove_needless_locks(folder)
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
    aside = os.path.join(os.path.dirname(path), f"{GONE}{os.urandom(8).hex()}")
    use = _beside(path, _USE)
    with _held(use, _ALONE) as handle:
        if handle is None:
            return None
        try:
            os.rename(path, aside)
        except OSError:
            return None
        os.unlink(use)
    return remove_tree(aside)


def _remove_unfinished(folder: str) -> Iterator[Cleaned]:
    """Trees that nobody is at any more."""
    for path in _listed(folder, GONE):
        yield _unfinished(path)
    for path in _listed(folder, HALF_MADE):
        name = os.path.basename(path).partition(HALF_MADE)[0]
        with _held(os.path.join(folder, name + LOCK), _ALONE) as handle:
            if handle is not None:
                yield _unfinished(path)


def _remove_needless_locks(folder: str) -> None:
    """The locks of environments that there are not."""
    for path, ending in [(path, end) for end in (LOCK, _USE) for path in _listed(folder, end)]:
        name = os.path.basename(path).removesuffix(ending)[1:]
        if os.path.isdir(os.path.join(folder, name)):
            continue
        with _held(path, _ALONE) as handle:
            if handle is not None:
                os.unlink(path)


def _unfinished(path: str) -> Cleaned:
    return Cleaned(os.path.basename(path), "unfinished", _size(path), remove_tree(path))


def _size(path: str) -> int:
    return measure_folder(path, sys.maxsize).bytes
