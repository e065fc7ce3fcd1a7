"""Cgroups: the kernel's own bound on the memory and the processes of a whole run."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from skillbelt.values import Limits

MOUNT = "/sys/fs/cgroup"
_PREFIX = "skillbelt-"
# The child group for our own process and its siblings in a delegated group: version 2 enables
# controllers for child groups only in a group without processes.
_OWN = f"{_PREFIX}runtime"
_REMOVE_SECONDS = 2.0
_SWEEP_SECONDS = 60.0
_ROUNDS = 20
_DELEGATED = ("user.delegate", "trusted.delegate")
_WANTED = ("memory", "pids")
HOW_TO_HAVE_ONE = "systemd-run --user --scope -p Delegate=yes"
_number = count()
_next_sweep = 0.0
_left: set[str] = set()


class Hierarchy(NamedTuple):
    """The place to create groups: the parent folder of each controller, and the cgroup version."""

    version: int
    parents: tuple[str, ...]

    @property
    def label(self) -> str:
        """Return its name in results."""
        return f"cgroup v{self.version} for all but the shortest runs"


class ControlGroup:
    """The cgroup of one run, removed when the run is over."""

    def __init__(self, hierarchy: Hierarchy, limits: Limits) -> None:
        self._version, self._refused, self._halted = hierarchy.version, False, False
        name = f"{_PREFIX}{os.getpid()}-{next(_number)}"
        self._folders = tuple(os.path.join(parent, name) for parent in hierarchy.parents)
        try:
            for folder in self._folders:
                os.mkdir(folder)
            for file, value in _values(self._version, limits):
                self._set(file, value)
        except OSError:
            self.remove()
            raise

    def join(self, pid: int) -> None:
        """Add the process, and with it all processes that it will start."""
        for folder in self._folders:
            _write(os.path.join(folder, "cgroup.procs"), str(pid))

    def take_in(self, pids: Iterable[int]) -> None:
        """Add the processes that are missing: their parents were not members when they started."""
        for pid in set(pids) - self._members():
            with suppress(OSError):
                self.join(pid)

    def halt(self) -> None:
        """Forbid new processes, so that killing the members terminates."""
        self._refused = "max_processes" in self.hits()
        self._halted = True
        with suppress(OSError):
            self._set("pids.max", "0")

    def end(self) -> None:
        """Kill all members."""
        self.halt()
        for pid in self._members():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _members(self) -> set[int]:
        """Return its processes; the last folder is joined last."""
        return {int(pid) for pid in _words_of(os.path.join(self._folders[-1], "cgroup.procs"))}

    def hits(self) -> tuple[str, ...]:
        """Return the limits that the kernel has enforced."""
        memory = "memory.events" if self._version == 2 else "memory.oom_control"
        found = []
        if self._has_counted(memory, "oom_kill"):
            found.append("max_memory_bytes")
        # A refusal after `halt` is not a limit that the run reached.
        if self._refused or (not self._halted and self._has_counted("pids.events", "max")):
            found.append("max_processes")
        return tuple(found)

    def remove(self) -> None:
        """Remove it; the kernel may need a moment after the last process."""
        until = time.monotonic() + _REMOVE_SECONDS
        for folder in self._folders:
            while not (gone := _try_remove(folder)) and time.monotonic() < until:
                time.sleep(0.001)
            if not gone:
                _left.add(folder)

    def _set(self, file: str, value: str) -> None:
        path = self._path(file)
        # Not every kernel has a limit for swap.
        if os.path.exists(path) or ("swap" not in file and "memsw" not in file):
            _write(path, value)

    def _path(self, file: str) -> str:
        place = 0 if self._version == 2 else _WANTED.index(file.partition(".")[0])
        return os.path.join(self._folders[place], file)

    def _has_counted(self, file: str, key: str) -> bool:
        try:
            with open(self._path(file), encoding="utf-8") as lines:
                values = dict(line.split() for line in lines)
        except (OSError, ValueError):
            return False
        return int(values.get(key, "0")) > 0


def _values(version: int, limits: Limits) -> tuple[tuple[str, str], ...]:
    # The first process of a pid namespace is one of them.
    memory, processes = str(limits.max_memory_bytes), str(limits.max_processes + 1)
    if version == 2:
        return ("memory.max", memory), ("memory.swap.max", "0"), ("pids.max", processes)
    return (
        ("memory.limit_in_bytes", memory),
        ("memory.memsw.limit_in_bytes", memory),
        ("pids.max", processes),
    )


def open_group(limits: Limits) -> ControlGroup | None:
    """Create a group for one run; None where that is not possible."""
    global _next_sweep
    found = hierarchy()
    if found is None:
        return None
    if time.monotonic() > _next_sweep:
        _sweep(found)
        _next_sweep = time.monotonic() + _SWEEP_SECONDS
    try:
        return ControlGroup(found, limits)
    except OSError:
        return None


@lru_cache(maxsize=1)
def hierarchy() -> Hierarchy | None:
    """Return where this process may create groups; None if it may not. Tries it once."""
    for found in (_second_version(), _first_version()):
        if found is not None and _works(found):
            _sweep(found)
            return found
    return None


def _works(found: Hierarchy) -> bool:
    try:
        ControlGroup(found, Limits()).remove()
    except OSError:
        return False
    return True


def _sweep(found: Hierarchy) -> None:
    """Remove the groups that a killed runtime left; the kernel refuses to remove a group in use."""
    for parent in found.parents:
        for name in os.listdir(parent):
            owner = name.removeprefix(_PREFIX).partition("-")[0]
            gone = owner.isdigit() and not os.path.exists(f"/proc/{owner}")
            if name.startswith(_PREFIX) and gone:
                _try_remove(os.path.join(parent, name))
    for folder in tuple(_left):
        if _try_remove(folder):
            _left.discard(folder)


def _second_version() -> Hierarchy | None:
    """Return our own group or its parent, if child groups there can have both controllers."""
    own = _own_groups().get("", None)
    if own is None:
        return None
    root = MOUNT if os.path.exists(f"{MOUNT}/cgroup.controllers") else f"{MOUNT}/unified"
    here = os.path.normpath(f"{root}/{own}")
    for folder in (here, os.path.dirname(here)):
        inside = folder.startswith(root)
        if inside and (
            _has_controllers(folder) or (folder != root and _delegate_controllers(folder))
        ):
            return Hierarchy(2, (folder,))
    if here.startswith(f"{root}/") and _is_delegated(here) and _move_down(here):
        return Hierarchy(2, (here,))
    return None


def _is_delegated(folder: str) -> bool:
    """Whether the group is delegated to us, and not only happens to be writable.

    A service manager marks delegated groups; without a mark it is the topmost one we can write.
    """
    files = ("cgroup.procs", "cgroup.subtree_control")
    if not all(os.access(os.path.join(folder, file), os.W_OK) for file in files):
        return False
    for name in _DELEGATED:
        with suppress(OSError):
            return os.getxattr(folder, name) == b"1"
    return not os.access(os.path.dirname(folder), os.W_OK)


def _move_down(folder: str) -> bool:
    """Move all processes of the group into a child group, then enable its controllers."""
    own = os.path.join(folder, _OWN)
    try:
        os.makedirs(own, exist_ok=True)
        _move(folder, own)
    except OSError:
        pass
    else:
        if _delegate_controllers(folder):
            return True
    with suppress(OSError):
        _move(own, folder)
        os.rmdir(own)
    return False


def _move(source: str, target: str) -> None:
    for _ in range(_ROUNDS):
        pids = _words_of(f"{source}/cgroup.procs")
        for pid in pids:
            with suppress(ProcessLookupError):
                _write(f"{target}/cgroup.procs", pid)
        if not pids:
            return


def _has_controllers(folder: str) -> bool:
    return set(_WANTED) <= _words_of(f"{folder}/cgroup.subtree_control")


def _delegate_controllers(folder: str) -> bool:
    """Enable the controllers for child groups; False when this cgroup is not delegated to us."""
    with suppress(OSError):
        if set(_WANTED) <= _words_of(f"{folder}/cgroup.controllers"):
            _write(f"{folder}/cgroup.subtree_control", " ".join(f"+{name}" for name in _WANTED))
            return True
    return False


def _words_of(path: str) -> set[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return set(file.read().split())
    except OSError:
        return set()


def _first_version() -> Hierarchy | None:
    own = _own_groups()
    if not set(_WANTED) <= set(own):
        return None
    return Hierarchy(1, tuple(os.path.normpath(f"{MOUNT}/{name}/{own[name]}") for name in _WANTED))


def _own_groups() -> dict[str, str]:
    """Return the group of this process by controller; version 2 has an empty name."""
    found = {}
    with suppress(OSError), open("/proc/self/cgroup", encoding="utf-8") as lines:
        for line in lines:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for name in controllers.split(","):
                found[name] = path
    return found


def _try_remove(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _write(path: str, value: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(value)
