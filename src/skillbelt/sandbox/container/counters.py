"""Cgroup counters and limits of a container, read from outside."""

import os
from typing import NamedTuple

from skillbelt.sandbox.linux.cgroups import MOUNT
from skillbelt.sandbox.process.hidden_usage import (
    HiddenUsage,
    can_see,
    measure_hidden,
    user_of,
)
from skillbelt.sandbox.process.limit_checks import TICK_SECONDS
from skillbelt.sandbox.process.limits import counted_enforced
from skillbelt.sandbox.process.spawn import descendants
from skillbelt.sandbox.process.watch import DiskWatch, ProcessWatch
from skillbelt.sandbox.protocol import Job
from skillbelt.values import Limits

_TABLE = "/proc/{pid}/cgroup"
_UNIFIED = (MOUNT, f"{MOUNT}/unified")
_BY_SIGNAL = {152: "max_cpu_seconds", 153: "max_written_file_bytes"}


class CgroupCounts(NamedTuple):
    """Counters of a container so far."""

    memory_kills: int = 0
    process_refusals: int = 0
    cpu_seconds: float = 0.0


class ContainerCgroup:
    """The cgroups of a container. Values are empty or 0 when they cannot be read."""

    def __init__(self, pid: int) -> None:
        self._memory, self._pids, self._cpu = (
            _controller_folder(pid, name, file)
            for name, file in (
                ("memory", ("memory.max", "memory.limit_in_bytes")),
                ("pids", ("pids.max",)),
                ("cpuacct", ("cpu.stat", "cpuacct.usage")),
            )
        )

    @property
    def memory_bytes(self) -> int:
        """Return the memory limit of all processes together; 0 when unknown."""
        return _read_number(self._memory, "memory.max") or _read_number(
            self._memory, "memory.limit_in_bytes"
        )

    @property
    def processes(self) -> int:
        """Return the limit of processes; 0 when unknown."""
        return _read_number(self._pids, "pids.max")

    def counts(self) -> CgroupCounts:
        """Read the counters."""
        kills = _read_table(self._memory, "memory.events") or _read_table(
            self._memory, "memory.oom_control"
        )
        micro = _read_table(self._cpu, "cpu.stat").get("usage_usec", 0)
        nano = 0 if micro else _read_number(self._cpu, "cpuacct.usage")
        return CgroupCounts(
            kills.get("oom_kill", 0),
            _read_table(self._pids, "pids.events").get("max", 0),
            micro / 10**6 or nano / 10**9,
        )


def in_group(pid: int, name: str) -> bool:
    """Whether the process is in a cgroup of that name, so that the pid is the container's."""
    return name in _read_text(*os.path.split(_TABLE.format(pid=pid)))


def _controller_folder(pid: int, controller: str, files: tuple[str, ...]) -> str:
    """Return the controller's folder for the process; empty without one."""
    try:
        with open(_TABLE.format(pid=pid), encoding="utf-8") as lines:
            rows = [line.rstrip("\n").split(":", 2) for line in lines]
    except OSError:
        return ""
    for _, names, path in rows:
        places = [f"{MOUNT}/{controller}"] if controller in names.split(",") else []
        for place in places or (() if names else _UNIFIED):
            folder = os.path.normpath(f"{place}/{path}")
            if any(os.path.exists(os.path.join(folder, file)) for file in files):
                return folder
    return ""


def _read_text(folder: str, file: str) -> str:
    try:
        with open(os.path.join(folder, file), encoding="utf-8") as found:
            return found.read() if folder else ""
    except OSError:
        return ""


def _read_number(folder: str, file: str) -> int:
    text = _read_text(folder, file).strip()
    return int(text) if text.isdigit() else 0


def _read_table(folder: str, file: str) -> dict[str, int]:
    rows = (line.split() for line in _read_text(folder, file).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


class ContainerWatch:
    """Watches the limits of one run; `pid` is the container's first process."""

    def __init__(self, job: Job, temporary: str, group: ContainerCgroup, pid: int) -> None:
        self._limits, self._group, self._pid = job.limits, group, pid
        self._workspace, self._temporary = job.workspace, temporary
        self._disk = DiskWatch(job.workspace, job.limits)
        self._processes = ProcessWatch(job.limits, temporary)
        self._before = self._latest = group.counts()

    def look(self) -> str | None:
        """Return the limit that was exceeded, if any."""
        return (
            self._disk.look(self._measure_hidden)
            or self._check_counters()
            or self._processes.look(self._pid, self._measure_hidden)
        )

    def _measure_hidden(self) -> HiddenUsage:
        pids = descendants(self._pid) if _can_inspect(self._pid) else []
        return measure_hidden(pids, self._workspace, self._temporary)

    def _check_counters(self) -> str | None:
        # The counters vanish with the container, so keep the highest values.
        found, last = self._group.counts(), self._latest
        now = self._latest = CgroupCounts(
            max(found.memory_kills, last.memory_kills),
            max(found.process_refusals, last.process_refusals),
            max(found.cpu_seconds, last.cpu_seconds),
        )
        if now.memory_kills > self._before.memory_kills:
            return "max_memory_bytes"
        spent = now.cpu_seconds - self._before.cpu_seconds
        return "max_cpu_seconds" if spent > self._limits.max_cpu_seconds else None

    def finish(self, exit_code: int, cpu_seconds: float) -> set[str]:
        """Return all limits that were exceeded, after the command has ended."""
        self._disk.finish()
        hit = self._disk.seen | self._processes.seen
        hit |= {limit} if (limit := self._check_counters()) else set()
        if self._latest.process_refusals > self._before.process_refusals:
            hit.add("max_processes")
        hit |= {_BY_SIGNAL[exit_code]} if exit_code in _BY_SIGNAL else set()
        return hit | ({"max_cpu_seconds"} if cpu_seconds >= self._limits.max_cpu_seconds else set())


def _can_inspect(pid: int) -> bool:
    """Whether we may inspect the processes of the container."""
    return pid > 0 and can_see(user_of(pid))


def limits_enforced(
    limits: Limits, group: ContainerCgroup, pid: int, own_users: bool
) -> dict[str, str]:
    """Return what enforces each limit; without a `pid` the kernel shows nothing."""
    held = 0 < group.memory_bytes <= limits.max_memory_bytes
    counted = 0 < group.processes <= limits.max_processes + 1
    uncounted = "rlimit in a user namespace" if own_users else "not enforced: the engine does not"
    unseen = "not enforced for all together; rlimit for each process"
    name = "cgroup of the container"
    whole = counted_enforced(name if held else "", _can_inspect(pid))
    watched = whole["memory"] if pid else unseen
    return {
        **whole,
        "memory": f"{name}; rlimit for each process" if held else watched,
        "process count": name if counted else uncounted,
        "cpu": "rlimit for each process, watched for all" if pid else "rlimit for each process",
        "file size": "rlimit",
        "open files": "rlimit",
        "disk": f"watched every {TICK_SECONDS * 1000:.0f} ms",
        "temporary files": "sized tmpfs",
    }
