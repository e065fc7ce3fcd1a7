"""The limits of a run that the kernel does not enforce: polled while it lasts.

Each check first reads what is cheap: how much disk and memory the whole machine lost since the last
check. Only when that is a good part of the rest are the folder and the processes of the run
measured.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from skillbelt.files.contain import PATH_ONLY_FOLDER
from skillbelt.files.usage import FolderUsage, measure_folder
from skillbelt.sandbox.linux.cgroups import ControlGroup, open_group
from skillbelt.sandbox.process.hidden_usage import HiddenUsage, measure_hidden
from skillbelt.sandbox.process.limits import CPU_GRACE_SECONDS, MAX_OPEN_FILES
from skillbelt.sandbox.process.spawn import descendants
from skillbelt.sandbox.process.usage import (
    Memory,
    Space,
    free_memory,
    free_space,
    machine_memory,
    measure_processes,
)
from skillbelt.values import Limits

FOLDER_SECONDS = 1.0  # how long a folder is not measured when the disk shows no change
PROCESS_SECONDS = 0.25
_COST_SHARE = 20  # a measurement that takes a second is not repeated within twenty
_FIRST_SHARE = 64
_SHARED = "/dev/shm"
_BY_SIGNAL = {
    128 + signal.SIGXCPU: "max_cpu_seconds",
    128 + signal.SIGXFSZ: "max_written_file_bytes",
}


class _Mark(NamedTuple):
    """The free amount at the last measurement, and how much may be used until the next one."""

    free: Space
    left: Space
    time: float


class DiskWatch:
    """Limits a folder, in bytes and in files."""

    def __init__(self, folder: str, limits: Limits) -> None:
        self._folder, self._limits = folder, limits
        self._start = free_space(folder)
        first = Space(
            limits.max_workspace_bytes // _FIRST_SHARE, limits.max_workspace_files // _FIRST_SHARE
        )
        self._mark = _Mark(self._start, first, time.monotonic() + FOLDER_SECONDS)
        self.seen: set[str] = set()

    def look(self, hidden: Callable[[], HiddenUsage] = HiddenUsage) -> str | None:
        """Return the limit that is exceeded; None when there is none or nothing has changed.

        `hidden` finds files without a name.
        """
        try:
            free = free_space(self._folder)
        except OSError:
            return None
        lost = Space(self._mark.free.bytes - free.bytes, self._mark.free.files - free.files)
        quiet = lost.bytes <= self._mark.left.bytes and lost.files <= self._mark.left.files
        return None if quiet and time.monotonic() < self._mark.time else self._measure(free, hidden)

    def finish(self) -> None:
        """Measure once more, for data written since the last time.

        The free disk space is not enough: others free space while a run takes it.
        """
        self._mark = self._mark._replace(time=0)
        limit = self.look()
        self.seen |= {limit} if limit else set()

    def _measure(self, free: Space, hidden: Callable[[], HiddenUsage]) -> str | None:
        limits, begun = self._limits, time.monotonic()
        # First: a file that loses its name meanwhile is then counted at least once.
        held = hidden()
        found = measure_folder(self._folder, limits.max_workspace_bytes, limits.max_workspace_files)
        found = found._replace(bytes=found.bytes + held.file_bytes, files=found.files + held.files)
        if found.hidden or held.more_files or held.more_handles:
            found = self._estimate_from_disk(found, free)
        left = Space(
            (limits.max_workspace_bytes - found.bytes) // 2,
            (limits.max_workspace_files - found.files) // 2,
        )
        now = time.monotonic()
        again = now + max(FOLDER_SECONDS, (now - begun) * _COST_SHARE)
        self._mark = _Mark(free, left, again)
        if found.largest == limits.max_written_file_bytes:
            # The largest possible file. Some programs survive the signal.
            self.seen.add("max_written_file_bytes")
        if found.bytes > limits.max_workspace_bytes:
            return "max_workspace_bytes"
        return "max_workspace_files" if found.files > limits.max_workspace_files else None

    def _estimate_from_disk(self, found: FolderUsage, free: Space) -> FolderUsage:
        """Use the disk space lost since the start where not everything can be read."""
        return found._replace(
            bytes=max(found.bytes, self._start.bytes - free.bytes),
            files=max(found.files, self._start.files - free.files),
        )


class ProcessWatch:
    """Limits all processes of a run together, and records the limits that they reach."""

    def __init__(
        self,
        limits: Limits,
        temporary: str | None,
        members: Callable[[int], list[int]] = descendants,
    ) -> None:
        self._limits, self._temporary, self._members = limits, temporary, members
        self._free = free_memory()
        self._best: Memory | None = None
        self._next = time.monotonic() + PROCESS_SECONDS
        self.seen: set[str] = set()

    def look(self, pid: int, hidden: Callable[[], HiddenUsage] = HiddenUsage) -> str | None:
        """Return the limit that the processes of the run exceed, with everything they hold."""
        if self._best is None:
            self._best = machine_memory()
        lost = self._free - free_memory()
        if lost < self._limits.max_memory_bytes // 8 and time.monotonic() < self._next:
            return None
        begun = time.monotonic()
        limit = self._measure(self._members(pid), hidden())
        self._free, now = free_memory(), time.monotonic()
        self._next = now + max(PROCESS_SECONDS, (now - begun) * _COST_SHARE)
        return limit

    def _measure(self, pids: list[int], held: HiddenUsage) -> str | None:
        limits, lost = self._limits, self._lost_memory()
        shared = max(held.shared_bytes, lost.shared_bytes if held.more_shared else 0)
        used = measure_processes(pids, limits.max_memory_bytes, shared, held.buffer_bytes)
        full = self._temporary_limit(pids)
        taken = max(used.memory_bytes, lost.available_bytes if held.more_handles else 0)
        if used.tasks >= limits.max_processes:
            self.seen.add("max_processes")
        if used.most_files >= MAX_OPEN_FILES:
            self.seen.add("max_open_files")
        # The kernel signals a single process at its limit before this ends the run.
        if used.cpu_seconds > limits.max_cpu_seconds + CPU_GRACE_SECONDS:
            return "max_cpu_seconds"
        return "max_memory_bytes" if taken > limits.max_memory_bytes else full

    def _lost_memory(self) -> Memory:
        """Return how much memory the machine lost since the best moment of the run."""
        now = machine_memory()
        best = self._best or now
        self._best = Memory(
            max(best.available_bytes, now.available_bytes), min(best.shared_bytes, now.shared_bytes)
        )
        return Memory(
            self._best.available_bytes - now.available_bytes,
            now.shared_bytes - self._best.shared_bytes,
        )

    def _temporary_limit(self, pids: list[int]) -> str | None:
        """Check the tmpfs: its size is limited, but even an empty file takes memory beside it."""
        for folder in (self._temporary, _SHARED) if self._temporary is not None else ():
            found = _room(pids, folder)
            if found is None:
                continue
            if found.f_bavail == 0:
                self.seen.add("max_temporary_bytes")
            # The job may have mounted a folder of the disk there, which has other files.
            size, most = found.f_blocks * found.f_frsize, self._limits.max_temporary_bytes
            own = 0 <= size - most < found.f_frsize
            if own and found.f_files - found.f_ffree > self._limits.max_workspace_files:
                return "max_workspace_files"
        return None


def _room(pids: list[int], folder: str) -> os.statvfs_result | None:
    """Return how full a folder inside is, through a process that we may inspect."""
    for pid in reversed(pids):
        with suppress(OSError):
            # Not through a link, which would lead to a folder of the host.
            handle = os.open(f"/proc/{pid}/root{folder}", PATH_ONLY_FOLDER)
            try:
                return os.statvfs(handle)
            finally:
                os.close(handle)
    return None


class Guard:
    """Checks all limits of one run, with a cgroup where one can be created.

    The processes join the group at the first check, since the kernel may take longer for that than
    a short command runs. `temporary` is the path inside of the folder for temporary files, if it
    has a size limit. `members` returns the processes of the run: all descendants by default.
    """

    def __init__(
        self,
        limits: Limits,
        workspace: str,
        temporary: str | None = None,
        members: Callable[[int], list[int]] = descendants,
    ) -> None:
        self._limits, self._members = limits, members
        self._workspace, self._temporary = workspace, temporary
        self._disk = DiskWatch(workspace, limits)
        self._processes = ProcessWatch(limits, temporary, self._list_members)
        self._group: ControlGroup | None = None
        self._looked = False

    def look(self, pid: int) -> str | None:
        """Return the limit that was exceeded, so that the run must end."""
        if not self._looked:
            self._looked = True
            self._group = open_group(self._limits)
            self._list_members(pid)

        def hidden() -> HiddenUsage:
            return measure_hidden(self._members(pid), self._workspace, self._temporary)

        return self._disk.look(hidden) or self._group_limit() or self._processes.look(pid, hidden)

    def _list_members(self, pid: int) -> list[int]:
        """Return all processes, and add them to the group; their children join by themselves.

        Processes that were started meanwhile join at a later check.
        """
        pids = self._members(pid)
        if self._group is not None:
            self._group.take_in(pids)
        return pids

    def halt(self) -> None:
        """Forbid new processes, if there is a group; the run is about to be killed."""
        if self._group is not None:
            self._group.halt()

    def _group_limit(self) -> str | None:
        """Kill the whole run when the kernel has killed one process for its memory."""
        hits = self._group.hits() if self._group is not None else ()
        return "max_memory_bytes" if "max_memory_bytes" in hits else None

    def finish(self, exit_code: int, cpu_seconds: float) -> tuple[str, ...]:
        """Return all limits that were reached, and remove the cgroup."""
        self._disk.finish()
        hit = self._disk.seen | self._processes.seen
        if self._group is not None:
            hit |= set(self._group.hits())
            self._group.end()
            self._group.remove()
        hit |= {_BY_SIGNAL[exit_code]} if exit_code in _BY_SIGNAL else set()
        hit |= {"max_cpu_seconds"} if cpu_seconds >= self._limits.max_cpu_seconds else set()
        return tuple(hit)
