"""The filter for system calls: a BPF program, built here so that no library is needed.

It allows what it does not know, since programs use many calls; the namespaces and the uid hold the
rest. What it denies are doors into the kernel that no skill needs. See docs/security.md.
"""

import errno
import platform
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_LOAD, _JUMP, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x05, 0x15, 0x45, 0x35, 0x06
_AND = 0x54
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_X32 = 0x40000000
LOCK_AT = (5 * 8 + 4, 7 * 8 + 4)  # where the halves of a lock's number are
_LOCK_STEPS = 10  # those for starting a program
_MAX_STEP = 255  # how far a test can jump

NAMESPACES = 0x7E020000  # every CLONE_NEW* that clone knows
_THREAD = 0x00010000
SET_ID_BITS = 0o6000
MAKES_FILE = 0o20000000 | 0o100  # O_TMPFILE and O_CREAT
TERMINAL_INPUT, TERMINAL_LINUX = 0x5412, 0x541C  # TIOCSTI and TIOCLINUX put words in its mouth
UNIX, INET, INET6 = 1, 2, 10
DATAGRAM = 2
_SAME_PERSONALITY = (0, 0xFFFFFFFF)
_PRLIMIT = (302, 261)

# Each call: its number on x86-64 and on arm64, -1 where it does not exist.
_DENIED: dict[str, tuple[int, int]] = {
    # mounts and roots
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "statmount": (457, 457), "listmount": (458, 458),
    "open_tree_attr": (467, 467), "swapon": (167, 224), "swapoff": (168, 225),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "uselib": (134, -1),
    "ustat": (136, -1), "sysfs": (139, -1), "lookup_dcookie": (212, 18),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    # namespaces
    "unshare": (272, 97), "setns": (308, 268),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # the kernel itself
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "create_module": (174, -1),
    "query_module": (178, -1), "get_kernel_syms": (177, -1), "reboot": (169, 142),
    "syslog": (103, 116), "_sysctl": (156, -1), "nfsservctl": (180, 42), "iopl": (172, -1),
    "ioperm": (173, -1), "modify_ldt": (154, -1), "remap_file_pages": (216, 234),
    "vmsplice": (278, 75), "vhangup": (153, 58),
    # clocks and names of the machine
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162),
    # memory that belongs to no process: no limit would see it
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186),
    "msgsnd": (69, 189), "msgctl": (71, 187), "semget": (64, 190), "semctl": (66, 191),
    "memfd_secret": (447, 447),
}  # fmt: skip
# Answered as if the kernel were older, so that a program takes its other way. The filter can not
# look into the structures that openat2 and clone3 are given.
UNKNOWN: dict[str, tuple[int, int]] = {
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "memfd_create": (319, 279), "openat2": (437, 437), "clone3": (435, 435),
}  # fmt: skip
_WITHOUT_NETWORK: dict[str, tuple[int, int]] = {
    "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242),
}  # fmt: skip
_FORKS: dict[str, tuple[int, int]] = {"fork": (57, -1), "vfork": (58, -1)}
_PROGRAMS: dict[str, tuple[int, int]] = {"execve": (59, 221), "execveat": (322, 281)}
_CLONE, _SOCKET, _SOCKETPAIR = (56, 220), (41, 198), (53, 199)
_IOCTL, _PERSONALITY = (16, 29), (135, 92)
# Where the mode of a new or changed file is among the arguments; the flags that make it count.
MODES: dict[str, tuple[int, int, int]] = {
    "chmod": (90, -1, 1), "fchmod": (91, 52, 1), "fchmodat": (268, 53, 2),
    "fchmodat2": (452, 452, 2), "creat": (85, -1, 1), "mknod": (133, -1, 1),
    "mknodat": (259, 33, 2),
}  # fmt: skip
OPENS: dict[str, tuple[int, int, int, int]] = {"open": (2, -1, 1, 2), "openat": (257, 56, 2, 3)}


class Machine(NamedTuple):
    """A processor the filter can be built for: its number for the kernel, its column above."""

    audit: int
    column: int


MACHINES = {
    "x86_64": Machine(0xC000003E, 0),
    "aarch64": Machine(0xC00000B7, 1),
}
MACHINES["amd64"], MACHINES["arm64"] = MACHINES["x86_64"], MACHINES["aarch64"]


def supported() -> bool:
    """Whether there is a table for this machine."""
    return platform.machine().lower() in MACHINES


@lru_cache(maxsize=16)
def program(
    processes: bool,
    network: bool,
    machine: str = "",
    *,
    named_sockets: bool = True,
    programs: bool = True,
) -> bytes:
    """The filter. Without `processes` nothing can be forked; with `network` IP sockets are there.

    A network comes with sockets that have a name in the file system, unless `named_sockets` is
    false. Without `programs` a process can not put another program in its place. `machine` is a key
    of MACHINES; this one by default.
    """
    chosen = MACHINES[(machine or platform.machine()).lower()]
    families: tuple[int, ...] = (INET, INET6) if network else ()
    if network and named_sockets:
        families += (UNIX,)
    flat = denied_calls(processes, bool(families), programs)
    return b"".join(_instructions(chosen, processes, families, flat))


@lru_cache(maxsize=4)
def lock(machine: str = "") -> bytes:
    """A filter that starts a program only for who gives a number as the fourth argument.

    The kernel has no use for that argument. The number is 0 here: whoever loads the filter puts
    another one, that nobody can guess, into the two tests at LOCK_AT.
    """
    column = MACHINES[(machine or platform.machine()).lower()].column
    execve, execveat = (numbers[column] for numbers in _PROGRAMS.values())
    number = _ARGUMENTS_AT + 8 * 3
    return b"".join(
        (
            _one(_LOAD, _NUMBER_AT),
            _one(_EQUAL, execve, 2, 0),
            _one(_EQUAL, execveat, 6, 0),
            _one(_RETURN, _ALLOW),
            _one(_LOAD, number),
            _one(_EQUAL, 0, 0, 3),
            _one(_LOAD, number + 4),
            _one(_EQUAL, 0, 0, 1),
            _one(_RETURN, _ALLOW),
            _fail(errno.EACCES),
        )
    )


@lru_cache(maxsize=4)
def alone(machine: str = "") -> bytes:
    """The lock, for who may start no process either; the filter below it must refuse clone3."""
    column = MACHINES[(machine or platform.machine()).lower()].column
    forks = [numbers[column] for numbers in _FORKS.values() if numbers[column] >= 0]
    locked = lock(machine)
    # What the lock answers to all other calls comes after these tests.
    head, other = locked[: _LOCK_STEPS * 8], locked[_LOCK_STEPS * 8 :] or _one(_RETURN, _ALLOW)
    threads = [
        _argument(0),
        _one(_ANY_BIT, _THREAD, 1, 0),
        _fail(errno.EPERM),
        _one(_RETURN, _ALLOW),
    ]
    tests = [
        _one(_EQUAL, _CLONE[column], len(forks) + 1, 0),
        *(_one(_EQUAL, fork, len(forks) + 2 - place, 0) for place, fork in enumerate(forks)),
        _one(_JUMP, len(threads)),
    ]
    onward = _one(_JUMP, _LOCK_STEPS - 4)
    return b"".join((head[:24], onward, head[32:], *tests, *threads, other))


def lock_task() -> dict[str, object]:
    """The lock for this machine, as a launcher is told of it."""
    column = MACHINES[platform.machine().lower()].column
    return {"filter": lock().hex(), "at": LOCK_AT, "call": _PROGRAMS["execve"][column]}


def denied_count(processes: bool, network: bool, programs: bool = True) -> int:
    """How many calls are denied whatever their arguments are."""
    return len(denied_calls(processes, network, programs)) + len(UNKNOWN)


def denied_calls(
    processes: bool, network: bool, programs: bool = True
) -> dict[str, tuple[int, int]]:
    """The system calls that are denied whatever their arguments, with their two numbers."""
    return {
        **_DENIED,
        **({} if network else _WITHOUT_NETWORK),
        **({} if processes else _FORKS),
        **({} if programs else _PROGRAMS),
    }


def _instructions(
    machine: Machine,
    processes: bool,
    families: tuple[int, ...],
    flat: dict[str, tuple[int, int]],
) -> list[bytes]:
    start = [
        _one(_LOAD, _ARCH_AT),
        _one(_EQUAL, machine.audit, 1, 0),
        _one(_RETURN, _KILL),
        _one(_LOAD, _NUMBER_AT),
    ]
    return start + _tree(_intervals(machine.column, processes, families, flat))


class _Interval(NamedTuple):
    """What is done with all calls from this number to that of the next interval."""

    number: int
    code: list[bytes]


def _intervals(
    column: int,
    processes: bool,
    families: tuple[int, ...],
    flat: dict[str, tuple[int, int]],
) -> list[_Interval]:
    """Every number there can be, in order; neighbours with the same answer are one."""
    answers = dict(_checks(column, processes, families))
    for table, reason in ((flat, errno.EPERM), (UNKNOWN, errno.ENOSYS)):
        answers.update({numbers[column]: [_fail(reason)] for numbers in table.values()})
    answers.pop(-1, None)
    allowed = [_one(_RETURN, _ALLOW)]
    found = [_Interval(0, answers.get(0, allowed))]
    for number in sorted({*answers, *(each + 1 for each in answers)} - {0}):
        code = answers.get(number, allowed)
        if code != found[-1].code:
            found.append(_Interval(number, code))
    # The second table of x86-64, with pointers of half the size, would be a way round this one.
    return [*found, _Interval(_X32, [_fail(errno.ENOSYS)])] if column == 0 else found


def _tree(intervals: list[_Interval]) -> list[bytes]:
    """A search for the number.

    The kernel tries the program with every call when it is loaded; a plain list would take long.
    """
    if len(intervals) == 1:
        return intervals[0].code
    middle = len(intervals) // 2
    lower, upper = _tree(intervals[:middle]), _tree(intervals[middle:])
    number = intervals[middle].number
    if len(lower) <= _MAX_STEP:
        return [_one(_AT_LEAST, number, len(lower), 0), *lower, *upper]
    return [_one(_AT_LEAST, number, 0, 1), _one(_JUMP, len(lower)), *lower, *upper]


def _checks(
    column: int, processes: bool, families: tuple[int, ...]
) -> Iterator[tuple[int, list[bytes]]]:
    """The calls whose arguments decide, and how."""
    clone = list(_answer_if(_ANY_BIT, NAMESPACES, errno.EPERM))
    if not processes:
        clone += [_one(_ANY_BIT, _THREAD, 1, 0), _fail(errno.EPERM)]
    yield _block(_CLONE[column], [_argument(0), *clone])
    yield _block(_SOCKET[column], [_argument(0), *_only(families, errno.EACCES)])
    # A pair of datagram sockets could still be sent from to any other socket with a name.
    kind = [_argument(1), _one(_AND, 0xF), *_answer_if(_EQUAL, DATAGRAM, errno.EACCES)]
    pair = kind if UNIX not in families else []
    yield _block(_SOCKETPAIR[column], [*pair, _argument(0), *_only((UNIX,), errno.EACCES)])
    terminal = [
        *_answer_if(_EQUAL, TERMINAL_INPUT, errno.EPERM),
        *_answer_if(_EQUAL, TERMINAL_LINUX, errno.EPERM),
    ]
    yield _block(_IOCTL[column], [_argument(1), *terminal])
    personality = [_argument(0), *_only(_SAME_PERSONALITY, errno.EPERM)]
    yield _block(_PERSONALITY[column], personality)
    # On another process of the same user, which the runtime may be, a limit can be an end.
    yield _block(_PRLIMIT[column], [_argument(0), *_only((0,), errno.EPERM)])
    yield from _set_id_checks(column)


def _set_id_checks(column: int) -> Iterator[tuple[int, list[bytes]]]:
    """A file that takes on its owner's rights must not be left behind in a workspace."""
    for *numbers, place in MODES.values():
        refused = _answer_if(_ANY_BIT, SET_ID_BITS, errno.EPERM)
        yield _block(numbers[column], [_argument(place), *refused])
    for *numbers, flags, mode in OPENS.values():
        refused = _answer_if(_ANY_BIT, SET_ID_BITS, errno.EPERM)
        inner = [_argument(mode), *refused]
        test = _one(_ANY_BIT, MAKES_FILE, 0, len(inner))
        yield _block(numbers[column], [_argument(flags), test, *inner])


def _block(number: int, body: list[bytes]) -> tuple[int, list[bytes]]:
    """The body for this call alone; what it does not answer is allowed."""
    return number, [*body, _one(_RETURN, _ALLOW)]


def _only(values: tuple[int, ...], code: int) -> list[bytes]:
    """Goes on for one of the values, fails for all others."""
    count = len(values)
    tests = [_one(_EQUAL, value, count - place, 0) for place, value in enumerate(values)]
    return [*tests, _fail(code)]


def _answer_if(test: int, value: int, code: int) -> Iterator[bytes]:
    yield _one(test, value, 0, 1)
    yield _fail(code)


def _argument(place: int) -> bytes:
    """Load the lower half of an argument; for all that are looked at the kernel drops the other."""
    return _one(_LOAD, _ARGUMENTS_AT + 8 * place)


def _fail(code: int) -> bytes:
    return _one(_RETURN, _FAIL | code)


def _one(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
