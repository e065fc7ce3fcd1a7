"""The limits that a process carries with it, as the last program of a chain sets them.

They are set inside, when the user namespace exists: the number of processes then counts for this
run alone, however many its user has elsewhere.
"""

import resource

from skillbelt.values import Limits

_ALLOWED = "allowed"
FILE_SIZE_UNIT = 512  # what a POSIX shell counts file sizes in
_MEMORY_UNIT = 1024
# Memory is watched over all processes of a run; one alone may reserve more than it uses.
_RESERVE = 4
_CPU_GRACE_SECONDS = 1
OWN_PROCESSES = 1  # the first process of the pid namespace counts too


def programs_enforced(processes: bool, locked: bool) -> dict[str, str]:
    """What is held of starting processes, and of becoming another program."""
    if processes:
        return {"child processes": _ALLOWED, "other programs": _ALLOWED}
    open_way = "not enforced: a program can put another in its own place"
    return {
        "child processes": "none: seccomp",
        "other programs": "none: seccomp" if locked else open_way,
    }


def shell_lines(limits: Limits) -> str:
    """Commands for a POSIX shell, joined so that the first that fails ends it with 125."""
    cpu = _whole(limits.max_cpu_seconds, 1)
    file_size = _whole(limits.max_written_file_bytes, FILE_SIZE_UNIT)
    data = _whole(limits.max_memory_bytes * _RESERVE, _MEMORY_UNIT)
    count = _capped(limits.max_processes + OWN_PROCESSES, resource.RLIMIT_NPROC, 1)
    commands = (
        "ulimit -c 0",
        f"ulimit -S -t {_capped(cpu, resource.RLIMIT_CPU, 1)}",
        f"ulimit -H -t {_capped(cpu + _CPU_GRACE_SECONDS, resource.RLIMIT_CPU, 1)}",
        f"ulimit -f {_capped(file_size, resource.RLIMIT_FSIZE, FILE_SIZE_UNIT)}",
        f"ulimit -d {_capped(data, resource.RLIMIT_DATA, _MEMORY_UNIT)}",
        f"ulimit -n {_capped(limits.max_open_files, resource.RLIMIT_NOFILE, 1)}",
        # The letter differs: dash and ash, then bash.
        f"{{ ulimit -p {count} || ulimit -u {count}; }} 2>/dev/null",
    )
    return " && ".join(commands) + " || exit 125"


def process_limits(limits: Limits, tasks: int) -> list[tuple[int, tuple[int, int]]]:
    """The same for a program that sets them itself; `tasks` is what the user has already."""
    cpu = _whole(limits.max_cpu_seconds, 1)
    wanted = {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_CPU: (cpu, cpu + _CPU_GRACE_SECONDS),
        resource.RLIMIT_FSIZE: (limits.max_written_file_bytes,) * 2,
        resource.RLIMIT_DATA: (limits.max_memory_bytes * _RESERVE,) * 2,
        resource.RLIMIT_NOFILE: (limits.max_open_files,) * 2,
        resource.RLIMIT_NPROC: (limits.max_processes + tasks,) * 2,
    }
    return [
        (kind, (_capped(soft, kind, 1) if soft else 0, _capped(hard, kind, 1) if hard else 0))
        for kind, (soft, hard) in wanted.items()
    ]


def _whole(amount: float, unit: int) -> int:
    return max(1, -int(-amount // unit))


def _capped(amount: int, kind: int, unit: int) -> int:
    """Not above what we ourselves may have: a limit can be lowered only."""
    hard = resource.getrlimit(kind)[1]
    return amount if hard == resource.RLIM_INFINITY else max(1, min(amount, hard // unit))
