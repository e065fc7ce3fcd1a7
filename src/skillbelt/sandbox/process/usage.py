"""Free disk and memory of the machine, and the usage of a set of processes."""

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
_CLOCK = os.sysconf("SC_CLK_TCK")


class Space(NamedTuple):
    """The free space on a disk."""

    bytes: int
    files: int


class Memory(NamedTuple):
    """Available memory of the machine, and its shared memory including tmpfs."""

    available_bytes: int
    shared_bytes: int


class Used(NamedTuple):
    """The usage of processes together; `most_files` is of the one with the most open files."""

    memory_bytes: int = 0
    cpu_seconds: float = 0.0
    tasks: int = 0
    most_files: int = 0


def free_space(path: str) -> Space:
    """Return the free space of the file system of the path; the cost is constant."""
    found = os.statvfs(path)
    return Space(found.f_bfree * found.f_frsize, found.f_ffree)


def free_memory() -> int:
    """Return memory that is not even used as a cache."""
    return os.sysconf("SC_AVPHYS_PAGES") * _PAGE


def machine_memory() -> Memory:
    """Return the memory of the whole machine; caches count as available."""
    found = _table("/proc/meminfo", (b"MemAvailable:", b"Shmem:"))
    return Memory(found.get(b"MemAvailable:", 0), found.get(b"Shmem:", 0))


def measure_processes(
    pids: Iterable[int], max_memory_bytes: int, shared_bytes: int = 0, buffer_bytes: int = 0
) -> Used:
    """Return the current usage of the processes. Shared memory is counted once when near the limit.

    `shared_bytes` are in unnamed memory files, touched by one of the processes or not;
    `buffer_bytes` is what the kernel buffers for them.
    """
    total = Used(shared_bytes + buffer_bytes)
    known = list(pids)
    for pid in known:
        with suppress(OSError, ValueError):
            total = _with_process(total, pid)
    if total.memory_bytes > max_memory_bytes:
        exact = [_measure_memory(pid) for pid in known]
        own, touched = sum(each[0] for each in exact), sum(each[1] for each in exact)
        total = total._replace(memory_bytes=own + max(touched, shared_bytes) + buffer_bytes)
    return total


def _with_process(total: Used, pid: int) -> Used:
    fields = _fields(f"{pid}")
    ticks = sum(map(int, fields[11:15]))
    return Used(
        total.memory_bytes + _estimate_memory(pid, fields),
        total.cpu_seconds + ticks / _CLOCK,
        total.tasks + int(fields[17]),
        max(total.most_files, _open_files(pid)),
    )


def _fields(name: str) -> list[bytes]:
    with open(f"/proc/{name}/stat", "rb") as file:
        # The name before may contain anything, even a bracket.
        return file.read().rpartition(b")")[2].split()


def _estimate_memory(pid: int, fields: list[bytes]) -> int:
    """Return the resident memory of a process, with its page tables and swap."""
    where = _memory_thread(pid, fields)
    if where != f"{pid}":
        fields = _fields(where)
    tables = _table(f"/proc/{where}/status", (b"VmPTE:", b"VmSwap:"))
    return int(fields[21]) * _PAGE + sum(tables.values())


def _memory_thread(pid: int, fields: list[bytes]) -> str:
    """Return the thread that shows the memory: the first one may have ended while others run."""
    if fields[0] == b"Z" and int(fields[17]) > 1:
        for thread in os.listdir(f"/proc/{pid}/task"):
            name = f"{pid}/task/{thread}"
            if thread != str(pid) and _fields(name)[0] not in (b"Z", b"X"):
                return name
    return f"{pid}"


def _open_files(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/fd").st_size  # 0 before Linux 6.2
    except OSError:
        return 0


def _measure_memory(pid: int) -> tuple[int, int]:
    """Return its own pages with their tables, and its share of memory files."""
    try:
        fields = _fields(f"{pid}")
        where = _memory_thread(pid, fields)
        tables = _table(f"/proc/{where}/status", (b"VmPTE:",))
    except (OSError, ValueError):
        return 0, 0
    try:
        kinds = (b"Pss:", b"SwapPss:", b"Pss_Shmem:")
        found = _table(f"/proc/{where}/smaps_rollup", kinds)
    except OSError:
        # It may have made itself unreadable; then all its memory counts as its own.
        with suppress(OSError, ValueError):
            return _estimate_memory(pid, fields), 0
        return 0, 0
    shared = found.get(b"Pss_Shmem:", 0)
    whole = found.get(b"Pss:", 0) + found.get(b"SwapPss:", 0) + sum(tables.values())
    return whole - shared, shared


def _table(path: str, wanted: tuple[bytes, ...]) -> dict[bytes, int]:
    """Return the lines with a name and a number of KiB."""
    with open(path, "rb") as file:
        rows = (line.split() for line in file.read().splitlines() if line.startswith(wanted))
        return {row[0]: int(row[1]) * 1024 for row in rows}
