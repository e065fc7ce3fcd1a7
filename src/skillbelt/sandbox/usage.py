"""What is free on the machine, and what processes take of it, seen from outside."""

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
_CLOCK = os.sysconf("SC_CLK_TCK")


class Space(NamedTuple):
    """What is free on a disk."""

    bytes: int
    files: int


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
