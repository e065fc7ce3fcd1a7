"""The resource limits of a run, and their description in results.

They are set inside the user namespace, if there is one: the number of processes then counts for
this run alone, and not together with the user's other processes.
"""

import math
import resource
from functools import lru_cache

from skillbelt.values import Limits

# The default soft limit of Linux, which programs expect.
MAX_OPEN_FILES = 1024

_ALLOWED = "allowed"
# Memory is watched over all processes of a run; one process may reserve more than it uses.
_RESERVE = 4
CPU_GRACE_SECONDS = 1
_KINDS = (
    *(resource.RLIMIT_CORE, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE),
    *(resource.RLIMIT_DATA, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC),
)
Bounds = tuple[tuple[int, tuple[int, int]], ...]  # the kind of each limit, soft and hard
OWN_PROCESSES = 1  # the first process of the pid namespace counts too


def programs_enforced(processes: bool, locked: bool) -> dict[str, str]:
    """Return what is enforced about child processes and other programs."""
    if processes:
        return {"child processes": _ALLOWED, "other programs": _ALLOWED}
    open_way = "not enforced: a program can put another in its own place"
    return {
        "child processes": "none: seccomp",
        "other programs": "none: seccomp" if locked else open_way,
    }


def counted_enforced(group: str, seen: bool, sockets: bool = True) -> dict[str, str]:
    """Return what is enforced for a run as a whole.

    `group` names its cgroup, if it has one; `seen` is whether we may inspect its processes, and
    `sockets` whether that includes their sockets.
    """
    memory = "watched, all processes together; rlimit for each"
    unseen = "not enforced: what the processes hold cannot be seen (root needs CAP_SYS_PTRACE)"
    uncounted = "not enforced: without a control group, what the kernel keeps for locks, timers, "
    uncounted += "watches and names of files is not counted"
    beside = "watched: shared memory, and what waits in sockets and pipes" if seen else unseen
    if seen and not sockets:
        beside = "not enforced: what waits in sockets cannot be seen (seccomp denies pidfd_getfd); "
        beside += "watched: shared memory, and what waits in pipes"
    return {
        "memory": f"{memory}; {group}" if group else memory,
        "memory beside processes": group or beside,
        "kernel memory": group or uncounted,
        "files without a name": "watched, as handles and mappings show them" if seen else unseen,
    }


def process_limits(limits: Limits, tasks: int) -> Bounds:
    """Return the resource limits; `tasks` is the number of existing tasks of the user."""
    hard = tuple(resource.getrlimit(kind)[1] for kind in _KINDS)
    return _soft_and_hard(limits, tasks, MAX_OPEN_FILES, hard)


@lru_cache(maxsize=16)
def _soft_and_hard(limits: Limits, tasks: int, files: int, hard: tuple[int, ...]) -> Bounds:
    cpu = max(1, math.ceil(limits.max_cpu_seconds))
    wanted = (
        (0, 0),
        (cpu, cpu + CPU_GRACE_SECONDS),
        (limits.max_written_file_bytes,) * 2,
        (limits.max_memory_bytes * _RESERVE,) * 2,
        (files,) * 2,
        (limits.max_processes + tasks,) * 2,
    )
    return tuple(
        (kind, (_at_most(soft, bound) if soft else 0, _at_most(high, bound) if high else 0))
        for kind, (soft, high), bound in zip(_KINDS, wanted, hard, strict=True)
    )


def _at_most(amount: int, hard: int) -> int:
    """Cap the amount at our own hard limit: a process can only lower its limits."""
    return amount if hard == resource.RLIM_INFINITY else max(1, min(amount, hard))
