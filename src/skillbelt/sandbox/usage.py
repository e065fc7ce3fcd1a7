"""What a folder takes on disk and what processes take of the machine, seen from outside."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

_BLOCK = 512  # what st_blocks counts in, whatever the disk does
_MAX_DEPTH = 100  # each level holds a handle
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CLOCK = os.sysconf("SC_CLK_TCK")


class Space(NamedTuple):
    """What is free on a disk."""

    bytes: int
    files: int


class Folder(NamedTuple):
    """What lies in a folder. `hidden`: some of it could not be seen. `largest`: of one file."""

    bytes: int = 0
    files: int = 0
    largest: int = 0
    hidden: bool = False


class Used(NamedTuple):
    """What some processes take together; `most_files` is of the one that has the most open."""

    memory_bytes: int = 0
    cpu_seconds: float = 0.0
    tasks: int = 0
    most_files: int = 0


def free_space(path: str) -> Space:
    """What is free where the path lies; costs the same however much is there."""
    found = os.statvfs(path)
    return Space(found.f_bfree * found.f_frsize, found.f_ffree)


def free_memory() -> int:
    """Memory that nothing uses, not even as a cache."""
    return os.sysconf("SC_AVPHYS_PAGES") * _PAGE


def measure_folder(path: str, max_bytes: int, max_files: int) -> Folder:
    """Sum up a folder without following any link; stops as soon as one bound is passed."""
    total = Folder()
    linked: set[int] = set()
    try:
        handle = os.open(path, _FOLDER)
    except OSError:
        return Folder(hidden=True)
    try:
        for found in _walk(handle, 0):
            total = _plus(total, found, linked)
            if total.bytes > max_bytes or total.files > max_files:
                break
    finally:
        os.close(handle)
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


def _walk(handle: int, depth: int) -> Iterator[os.stat_result | None]:
    """Everything below the folder; None for what is there but can not be seen."""
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    yield (found := entry.stat(follow_symlinks=False))
                    if stat.S_ISDIR(found.st_mode):
                        yield from _below(handle, entry.name, depth + 1)
    except OSError:
        yield None


def _below(parent: int, name: str, depth: int) -> Iterator[os.stat_result | None]:
    try:
        if depth > _MAX_DEPTH:
            raise PermissionError
        handle = os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        return
    except OSError:
        yield None
        return
    try:
        yield from _walk(handle, depth)
    finally:
        os.close(handle)


def measure_processes(pids: Iterable[int], max_memory_bytes: int) -> Used:
    """What the processes take now. Memory they share is counted once where that matters."""
    total = Used()
    known = list(pids)
    for pid in known:
        with suppress(OSError, ValueError):
            total = _with_process(total, pid)
    if total.memory_bytes > max_memory_bytes:
        total = total._replace(memory_bytes=sum(map(_exact_memory, known)))
    return total


def _with_process(total: Used, pid: int) -> Used:
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name before may hold anything, a bracket too.
        fields = file.read().rpartition(b")")[2].split()
    ticks = sum(map(int, fields[11:15]))
    return Used(
        total.memory_bytes + int(fields[21]) * _PAGE,
        total.cpu_seconds + ticks / _CLOCK,
        total.tasks + int(fields[17]),
        max(total.most_files, _open_files(pid)),
    )


def _open_files(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/fd").st_size  # 0 before Linux 6.2
    except OSError:
        return 0


def _exact_memory(pid: int) -> int:
    """Its own pages, its share of the common ones, and what lies in the swap."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return 0
    return sum(
        int(line.split()[1]) * 1024 for line in lines if line.startswith((b"Pss:", b"SwapPss:"))
    )
