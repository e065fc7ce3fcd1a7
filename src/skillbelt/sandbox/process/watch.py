"""The limits of a run that the kernel does not keep: looked at from outside while it lasts.

The cheap questions are asked every time: how much the disk and the memory of the whole machine lost
since the last look. Only when that is a good part of what is left are the folder and the processes
of the run measured.
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
from skillbelt.sandbox.process.hidden import Hoard, find_hoard
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

FOLDER_SECONDS = 1.0  # how long a folder goes unmeasured when the disk shows nothing
PROCESS_SECONDS = 0.25
_COST_SHARE = 20  # a measurement that takes a second is not repeated within twenty
_FIRST_SHARE = 64
_SHARED = "/dev/shm"
_BY_SIGNAL = {
    128 + signal.SIGXCPU: "max_cpu_seconds",
    128 + signal.SIGXFSZ: "max_written_file_bytes",
}


class _Mark(NamedTuple):
    """What was free when something was measured, and how much of it may go until the next time."""

    free: Space
    left: Space
    time: float


class DiskWatch:
    """Bounds what a folder takes, in bytes and in files."""

    def __init__(self, folder: str, limits: Limits) -> None:
        self._folder, self._limits = folder, limits
        self._start = free_space(folder)
        first = Space(
            limits.max_workspace_bytes // _FIRST_SHARE, limits.max_workspace_files // _FIRST_SHARE
        )
        self._mark = _Mark(self._start, first, time.monotonic() + FOLDER_SECONDS)
        self.seen: set[str] = set()

    def look(self, hoard: Callable[[], Hoard] = Hoard) -> str | None:
        """The limit that is passed; None when all is well or nothing has changed.

        `hoard` finds what is held without a name.
        """
        try:
            free = free_space(self._folder)
        except OSError:
            return None
        lost = Space(self._mark.free.bytes - free.bytes, self._mark.free.files - free.files)
        quiet = lost.bytes <= self._mark.left.bytes and lost.files <= self._mark.left.files
        return None if quiet and time.monotonic() < self._mark.time else self._measure(free, hoard)

    def finish(self) -> None:
        """Look once more, for what was written just before the end."""
        self._mark = self._mark._replace(time=float("inf"))
        limit = self.look()
        self.seen |= {limit} if limit else set()

    def _measure(self, free: Space, hoard: Callable[[], Hoard]) -> str | None:
        limits, begun = self._limits, time.monotonic()
        # First, since what has lost its name does not get one again.
        held = hoard()
        found = measure_folder(self._folder, limits.max_workspace_bytes, limits.max_workspace_files)
        found = found._replace(bytes=found.bytes + held.file_bytes, files=found.files + held.files)
        if found.hidden or held.more_files or held.more_handles:
            found = self._guess(found, free)
        left = Space(
            (limits.max_workspace_bytes - found.bytes) // 2,
            (limits.max_workspace_files - found.files) // 2,
        )
        now = time.monotonic()
        again = now + max(FOLDER_SECONDS, (now - begun) * _COST_SHARE)
        self._mark = _Mark(free, left, again)
        if found.largest == limits.max_written_file_bytes:
            # As long as a file can get. Some programs survive the signal.
            self.seen.add("max_written_file_bytes")
        if found.bytes > limits.max_workspace_bytes:
            return "max_workspace_bytes"
        return "max_workspace_files" if found.files > limits.max_workspace_files else None

    def _guess(self, found: FolderUsage, free: Space) -> FolderUsage:
        """What the disk lost since the start counts where not everything can be seen."""
        return found._replace(
            bytes=max(found.bytes, self._start.bytes - free.bytes),
            files=max(found.files, self._start.files - free.files),
        )


class ProcessWatch:
    """Bounds what all processes of a run take together, and sees the limits they run into."""

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

    def look(self, pid: int, hoard: Callable[[], Hoard] = Hoard) -> str | None:
        """The limit that is passed by all processes of the run, with what they hold beside."""
        if self._best is None:
            self._best = machine_memory()
        lost = self._free - free_memory()
        if lost < self._limits.max_memory_bytes // 8 and time.monotonic() < self._next:
            return None
        begun = time.monotonic()
        limit = self._measure(self._members(pid), hoard())
        self._free, now = free_memory(), time.monotonic()
        self._next = now + max(PROCESS_SECONDS, (now - begun) * _COST_SHARE)
        return limit

    def _measure(self, pids: list[int], held: Hoard) -> str | None:
        limits, lost = self._limits, self._lost()
        shared = max(held.shared_bytes, lost.shared_bytes if held.more_shared else 0)
        used = measure_processes(pids, limits.max_memory_bytes, shared, held.buffer_bytes)
        full = self._temporary_limit(pids)
        taken = max(used.memory_bytes, lost.available_bytes if held.more_handles else 0)
        if used.tasks >= limits.max_processes:
            self.seen.add("max_processes")
        if used.most_files >= MAX_OPEN_FILES:
            self.seen.add("max_open_files")
        # A process that took all of it alone is told by the kernel before it is ended from here.
        if used.cpu_seconds > limits.max_cpu_seconds + CPU_GRACE_SECONDS:
            return "max_cpu_seconds"
        return "max_memory_bytes" if taken > limits.max_memory_bytes else full

    def _lost(self) -> Memory:
        """What the machine has less and shares more than at the best moment of the run."""
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
        """What is in memory has a size; but a file takes some of it beside, even an empty one."""
        for folder in (self._temporary, _SHARED) if self._temporary is not None else ():
            found = _room(pids, folder)
            if found is None:
                continue
            if found.f_bavail == 0:
                self.seen.add("max_temporary_bytes")
            # The job may have put a folder of the disk there, which has files of others.
            size, most = found.f_blocks * found.f_frsize, self._limits.max_temporary_bytes
            own = 0 <= size - most < found.f_frsize
            if own and found.f_files - found.f_ffree > self._limits.max_workspace_files:
                return "max_workspace_files"
        return None


def _room(pids: list[int], folder: str) -> os.statvfs_result | None:
    """How full a folder is that only the processes see; one of them must let us look."""
    for pid in reversed(pids):
        with suppress(OSError):
            # Not through a link: that would lead to a folder of ours.
            handle = os.open(f"/proc/{pid}/root{folder}", PATH_ONLY_FOLDER)
            try:
                return os.statvfs(handle)
            finally:
                os.close(handle)
    return None


class Guard:
    """Everything that looks after one run; with a control group where one can be made.

    A process is put into its group at the first look, since the kernel may take longer for that
    than a short command runs. `temporary` is the path inside of the folder for temporary files, if
    it has a size. `members` gives the processes of the run: all below the first, by default.
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
        self._processes = ProcessWatch(limits, temporary, self._all)
        self._group: ControlGroup | None = None
        self._looked = False

    def look(self, pid: int) -> str | None:
        """The limit that was passed, so that the run must end."""
        if not self._looked:
            self._looked = True
            self._group = open_group(self._limits)
            self._all(pid)

        def hoard() -> Hoard:
            return find_hoard(self._members(pid), self._workspace, self._temporary)

        return self._disk.look(hoard) or self._group_limit() or self._processes.look(pid, hoard)

    def _all(self, pid: int) -> list[int]:
        """All that is there. What they start is in the group from its birth, if they are.

        Those who got away by starting others meanwhile are met at one of the next looks.
        """
        pids = self._members(pid)
        if self._group is not None:
            self._group.take_in(pids)
        return pids

    def halt(self) -> None:
        """Let the run start no process any more, where that can be; it is about to be ended."""
        if self._group is not None:
            self._group.halt()

    def _group_limit(self) -> str | None:
        """The kernel ends one process for memory; what is left of the run must go too."""
        hits = self._group.hits() if self._group is not None else ()
        return "max_memory_bytes" if "max_memory_bytes" in hits else None

    def finish(self, exit_code: int, cpu_seconds: float) -> tuple[str, ...]:
        """All limits that fired; the control group is gone afterwards."""
        self._disk.finish()
        hit = self._disk.seen | self._processes.seen
        if self._group is not None:
            hit |= set(self._group.hits())
            self._group.end()
            self._group.remove()
        hit |= {_BY_SIGNAL[exit_code]} if exit_code in _BY_SIGNAL else set()
        hit |= {"max_cpu_seconds"} if cpu_seconds >= self._limits.max_cpu_seconds else set()
        return tuple(hit)
