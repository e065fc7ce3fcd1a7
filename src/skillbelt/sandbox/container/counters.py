"""What the kernel counts for a container and what it lets it have, read from outside."""

import os
from typing import NamedTuple

from skillbelt.sandbox.linux.cgroups import MOUNT
from skillbelt.sandbox.process.hidden import Hoard, can_see, find_hoard, user_of
from skillbelt.sandbox.process.limits import counted_enforced
from skillbelt.sandbox.process.looks import TICK_SECONDS
from skillbelt.sandbox.process.spawn import descendants
from skillbelt.sandbox.process.watch import DiskWatch, ProcessWatch
from skillbelt.sandbox.protocol import Job
from skillbelt.values import Limits

_TABLE = "/proc/{pid}/cgroup"
_UNIFIED = (MOUNT, f"{MOUNT}/unified")
_BY_SIGNAL = {152: "max_cpu_seconds", 153: "max_written_file_bytes"}


class Counts(NamedTuple):
    """What has happened so far in a container."""

    memory_kills: int = 0
    process_refusals: int = 0
    cpu_seconds: float = 0.0


class Group:
    """The control groups of a container. All is empty or 0 where they can not be read."""

    def __init__(self, pid: int) -> None:
        self._memory, self._pids, self._cpu = (
            _folder(pid, name, file)
            for name, file in (
                ("memory", ("memory.max", "memory.limit_in_bytes")),
                ("pids", ("pids.max",)),
                ("cpuacct", ("cpu.stat", "cpuacct.usage")),
            )
        )

    @property
    def memory_bytes(self) -> int:
        """How much memory all processes together may have; 0 when that is not known."""
        return _number(self._memory, "memory.max") or _number(self._memory, "memory.limit_in_bytes")

    @property
    def processes(self) -> int:
        """How many processes there may be; 0 when that is not known."""
        return _number(self._pids, "pids.max")

    def counts(self) -> Counts:
        """What was counted up to now."""
        kills = _table(self._memory, "memory.events") or _table(self._memory, "memory.oom_control")
        micro = _table(self._cpu, "cpu.stat").get("usage_usec", 0)
        nano = 0 if micro else _number(self._cpu, "cpuacct.usage")
        return Counts(
            kills.get("oom_kill", 0),
            _table(self._pids, "pids.events").get("max", 0),
            micro / 10**6 or nano / 10**9,
        )


def in_group(pid: int, name: str) -> bool:
    """Whether the process is in a control group of that name, so that it is no other's."""
    return name in _text(*os.path.split(_TABLE.format(pid=pid)))


def _folder(pid: int, controller: str, files: tuple[str, ...]) -> str:
    """Where the controller counts for the process; empty when it does not, or can not be seen."""
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


def _text(folder: str, file: str) -> str:
    try:
        with open(os.path.join(folder, file), encoding="utf-8") as found:
            return found.read() if folder else ""
    except OSError:
        return ""


def _number(folder: str, file: str) -> int:
    text = _text(folder, file).strip()
    return int(text) if text.isdigit() else 0


def _table(folder: str, file: str) -> dict[str, int]:
    rows = (line.split() for line in _text(folder, file).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


class ContainerWatch:
    """Looks after the limits of one run; `pid` is that of the container's first process."""

    def __init__(self, job: Job, temporary: str, group: Group, pid: int) -> None:
        self._limits, self._group, self._pid = job.limits, group, pid
        self._workspace, self._temporary = job.workspace, temporary
        self._disk = DiskWatch(job.workspace, job.limits)
        self._processes = ProcessWatch(job.limits, temporary)
        self._before = self._latest = group.counts()

    def look(self) -> str | None:
        """The limit that was passed, so that the run must end."""
        return (
            self._disk.look(self._hoard)
            or self._counted()
            or self._processes.look(self._pid, self._hoard)
        )

    def _hoard(self) -> Hoard:
        pids = descendants(self._pid) if _visible(self._pid) else []
        return find_hoard(pids, self._workspace, self._temporary)

    def _counted(self) -> str | None:
        # The counters are gone with the container.
        found, last = self._group.counts(), self._latest
        now = self._latest = Counts(
            max(found.memory_kills, last.memory_kills),
            max(found.process_refusals, last.process_refusals),
            max(found.cpu_seconds, last.cpu_seconds),
        )
        if now.memory_kills > self._before.memory_kills:
            return "max_memory_bytes"
        spent = now.cpu_seconds - self._before.cpu_seconds
        return "max_cpu_seconds" if spent > self._limits.max_cpu_seconds else None

    def finish(self, exit_code: int, cpu_seconds: float) -> set[str]:
        """All limits that fired, once the command is gone."""
        self._disk.finish()
        hit = self._disk.seen | self._processes.seen
        hit |= {limit} if (limit := self._counted()) else set()
        if self._latest.process_refusals > self._before.process_refusals:
            hit.add("max_processes")
        hit |= {_BY_SIGNAL[exit_code]} if exit_code in _BY_SIGNAL else set()
        return hit | ({"max_cpu_seconds"} if cpu_seconds >= self._limits.max_cpu_seconds else set())


def _visible(pid: int) -> bool:
    """Whether we may look at what the processes of the container hold."""
    return pid > 0 and can_see(user_of(pid))


def limits_enforced(limits: Limits, group: Group, pid: int, own_users: bool) -> dict[str, str]:
    """What holds each limit, as the kernel shows it; without a `pid` it shows nothing."""
    held = 0 < group.memory_bytes <= limits.max_memory_bytes
    counted = 0 < group.processes <= limits.max_processes + 1
    uncounted = "rlimit in a user namespace" if own_users else "not enforced: the engine does not"
    unseen = "not enforced for all together; rlimit for each process"
    name = "cgroup of the container"
    whole = counted_enforced(name if held else "", _visible(pid))
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
