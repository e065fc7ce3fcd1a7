"""The seccomp filter: a BPF program, built here so that no library is needed.

It allows the calls in `syscalls` and nothing else. See docs/security.md.
"""

import errno
import os
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from skillbelt.sandbox.linux import syscalls
from skillbelt.sandbox.linux.syscalls import Rights

_LOAD, _JUMP, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x05, 0x15, 0x45, 0x35, 0x06
_AND = 0x54
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
LOCK_AT = (5 * 8 + 4, 7 * 8 + 4)  # the offsets of the halves of a lock's number
_LOCK_STEPS = 10  # instructions for starting a program
_MAX_STEP = 255  # how far a test can jump
# A filter that is followed by another must allow loading that one.
FOLLOWED = tuple(syscalls.FILTERS)


class Machine(NamedTuple):
    """A processor that has a filter: its audit number, and its column in `syscalls`."""

    audit: int
    column: int


MACHINES = {
    "x86_64": Machine(0xC000003E, 0),
    "aarch64": Machine(0xC00000B7, 1),
}
MACHINES["amd64"], MACHINES["arm64"] = MACHINES["x86_64"], MACHINES["aarch64"]


def supported() -> bool:
    """Whether there is a table for this machine."""
    return os.uname().machine.lower() in MACHINES


@lru_cache(maxsize=16)
def program(
    processes: bool,
    network: bool,
    machine: str = "",
    *,
    named_sockets: bool = True,
    programs: bool = True,
    shared: bool = False,
    more: tuple[str, ...] = (),
    listens: bool = False,
) -> bytes:
    """Return the filter. Without `processes` fork fails; with `network` IP sockets are allowed.

    With a network, sockets with a path are allowed too, unless `named_sockets` is false. The rest
    is as in `Rights`. `machine` is a key of MACHINES; this machine by default.
    """
    chosen = MACHINES[(machine or os.uname().machine).lower()]
    rights = Rights(
        processes=processes,
        network=network,
        named_sockets=network and named_sockets,
        programs=programs,
        shared=shared,
        more=more,
        listens=listens and not network and not shared,
    )
    start = [
        _instruction(_LOAD, _ARCH_AT),
        _instruction(_EQUAL, chosen.audit, 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER_AT),
    ]
    return b"".join(start + _tree(_intervals(chosen.column, rights)))


@lru_cache(maxsize=4)
def lock(machine: str = "") -> bytes:
    """Return a filter that allows exec only with a secret fourth argument.

    The kernel ignores that argument. It is 0 here: the program that loads the filter writes a
    random number into the two tests at LOCK_AT. No other filter can be loaded after it.
    """
    column = MACHINES[(machine or os.uname().machine).lower()].column
    execve, execveat, seccomp, prctl = (
        syscalls.numbers_of(name)[column] for name in ("execve", "execveat", "seccomp", "prctl")
    )
    number = _ARGUMENTS_AT + 8 * 3
    return b"".join(
        (
            _instruction(_LOAD, _NUMBER_AT),
            _instruction(_EQUAL, execve, 2, 0),
            _instruction(_EQUAL, execveat, 6, 0),
            _instruction(_JUMP, 6),
            _instruction(_LOAD, number),
            _instruction(_EQUAL, 0, 0, 3),
            _instruction(_LOAD, number + 4),
            _instruction(_EQUAL, 0, 0, 1),
            _instruction(_RETURN, _ALLOW),
            _fail(errno.EACCES),
            _instruction(_EQUAL, seccomp, 4, 0),
            _instruction(_EQUAL, prctl, 0, 2),
            _argument(0),
            _instruction(_EQUAL, syscalls.SET_SECCOMP, 1, 0),
            _instruction(_RETURN, _ALLOW),
            _fail(errno.EPERM),
        )
    )


@lru_cache(maxsize=4)
def alone(machine: str = "") -> bytes:
    """Return the lock that refuses child processes too; the filter below must refuse clone3."""
    column = MACHINES[(machine or os.uname().machine).lower()].column
    clone, *numbers = (syscalls.numbers_of(name)[column] for name in ("clone", *syscalls.FORKS))
    forks = [number for number in numbers if number >= 0]
    locked = lock(machine)
    # The lock's answer to all other calls comes after these tests.
    head, other = (
        locked[: _LOCK_STEPS * 8],
        locked[_LOCK_STEPS * 8 :] or _instruction(_RETURN, _ALLOW),
    )
    threads = [
        _argument(0),
        _instruction(_ANY_BIT, syscalls.THREAD, 1, 0),
        _fail(errno.EPERM),
        _instruction(_RETURN, _ALLOW),
    ]
    tests = [
        _instruction(_EQUAL, clone, len(forks) + 1, 0),
        *(
            _instruction(_EQUAL, fork, len(forks) + 2 - place, 0)
            for place, fork in enumerate(forks)
        ),
        _instruction(_JUMP, len(threads)),
    ]
    onward = _instruction(_JUMP, _LOCK_STEPS - 4)
    return b"".join((head[:24], onward, head[32:], *tests, *threads, other))


def lock_task() -> dict[str, object]:
    """Return the lock for this machine, as `load_lock` takes it."""
    column = MACHINES[os.uname().machine.lower()].column
    number = syscalls.numbers_of("execve")[column]
    return {"rules": lock().hex(), "places": LOCK_AT, "number": number}


def described(
    processes: bool,
    network: bool,
    *,
    programs: bool = True,
    shared: bool = False,
    listens: bool = False,
) -> str:
    """Return a short description of the filter."""
    rights = Rights(
        processes=processes, network=network, programs=programs, shared=shared, listens=listens
    )
    return f"seccomp, {len(rights.allowed())} allowed"


class _Interval(NamedTuple):
    """The code for all calls from this number up to the next interval."""

    number: int
    code: list[bytes]


def _intervals(column: int, rights: Rights) -> list[_Interval]:
    """Return intervals for all numbers, in order; neighbours with the same code are merged.

    The x32 calls of x86-64 have numbers above all that are allowed.
    """
    answers = _answers(column, rights)
    absent = [_fail(errno.ENOSYS)]
    found = [_Interval(0, answers.get(0, absent))]
    for number in sorted({*answers, *(each + 1 for each in answers)} - {0}):
        code = answers.get(number, absent)
        if code != found[-1].code:
            found.append(_Interval(number, code))
    return found


def _answers(column: int, rights: Rights) -> dict[int, list[bytes]]:
    """Return the code for each call that is in a table."""
    found: dict[int, list[bytes]] = {}
    for name, code in syscalls.refusals(rights).items():
        found[syscalls.numbers_of(name)[column]] = [_fail(code)]
    checks = dict(_checks(rights))
    for name, numbers in rights.allowed().items():
        found[numbers[column]] = [*checks.get(name, ()), _instruction(_RETURN, _ALLOW)]
    found.pop(-1, None)
    return found


def _tree(intervals: list[_Interval]) -> list[bytes]:
    """Return a binary search for the number.

    The kernel runs the program for every call when it is loaded; a plain list would be slow.
    """
    if len(intervals) == 1:
        return intervals[0].code
    middle = len(intervals) // 2
    lower, upper = _tree(intervals[:middle]), _tree(intervals[middle:])
    number = intervals[middle].number
    if len(lower) <= _MAX_STEP:
        return [_instruction(_AT_LEAST, number, len(lower), 0), *lower, *upper]
    return [_instruction(_AT_LEAST, number, 0, 1), _instruction(_JUMP, len(lower)), *lower, *upper]


def _checks(rights: Rights) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the calls whose arguments are checked, and how; the rest is allowed."""
    clone = [_argument(0), *_answer_if(_ANY_BIT, syscalls.NAMESPACES, errno.EPERM)]
    if not rights.processes:
        clone += [_instruction(_ANY_BIT, syscalls.THREAD, 1, 0), _fail(errno.EPERM)]
    yield "clone", clone
    yield from _socket_checks(rights)
    terminal = [
        *_answer_if(_EQUAL, syscalls.TERMINAL_INPUT, errno.EPERM),
        *_answer_if(_EQUAL, syscalls.TERMINAL_LINUX, errno.EPERM),
    ]
    reserves = _refuse_any_of(syscalls.RESERVES, errno.EOPNOTSUPP)
    yield "ioctl", [_argument(1), *terminal, *reserves]
    yield "fallocate", [_argument(1), *_require_one_of(syscalls.ALLOCATIONS, errno.EOPNOTSUPP)]
    yield "personality", [_argument(0), *_require_one_of(syscalls.SAME_PERSONALITY, errno.EPERM)]
    yield "prctl", [_argument(0), *_require_one_of(rights.prctl(), errno.EINVAL)]
    # A limit can kill another process of the same user, such as the runtime.
    yield "prlimit64", [_argument(0), *_require_one_of((0,), errno.EPERM)]
    yield from _standing_checks(rights)
    yield from _mode_checks()


def _standing_checks(rights: Rights) -> Iterator[tuple[str, list[bytes]]]:
    """Check priorities: those of the first process must stay, or it could not end others in time.

    Without namespaces, a run may have the same user as the runtime.
    """
    for name, wanted in syscalls.OWN_STANDING.items():
        *kinds, (whose, _) = wanted
        steps = [step for at, value in kinds for step in _must_be(at, value)]
        if rights.shared:
            yield name, [*steps, *_must_be(whose, 0)]
        else:
            yield name, [*steps, _argument(whose), *_answer_if(_EQUAL, 1, errno.EPERM)]


def _socket_checks(rights: Rights) -> Iterator[tuple[str, list[bytes]]]:
    """Check sockets: one that can send to a path would reach any listener there."""
    kind = [_argument(1), _instruction(_AND, 0xFFFFFFFF & ~syscalls.SOCKET_FLAGS)]
    unix = [*kind, *_require_one_of(syscalls.UNIX_KINDS, errno.EACCES)]
    inet = [*kind, *_require_one_of(syscalls.INET_KINDS, errno.EACCES), _argument(2)]
    inet += _require_one_of(syscalls.PROTOCOLS, errno.EACCES)
    socket = [_argument(0)]
    if rights.named_sockets:
        socket += _case((syscalls.UNIX,), unix)
    elif rights.listens:  # a stream socket reaches nothing unless it connects, which is refused
        socket += _case(
            (syscalls.UNIX,), [*kind, *_require_one_of((syscalls.STREAM,), errno.EACCES)]
        )
    if rights.network:
        socket += _case((syscalls.INET, syscalls.INET6), inet)
    yield "socket", [*socket, _fail(errno.EACCES)]
    yield "socketpair", [_argument(0), *_case((syscalls.UNIX,), unix), _fail(errno.EACCES)]
    refused = [*_refuse_any_of(syscalls.SOCKET_FILTERS, errno.EPERM)]
    level = _instruction(_EQUAL, syscalls.SOCKET_LEVEL, 0, len(refused) + 1)
    yield "setsockopt", [_argument(1), level, _argument(2), *refused]


def _mode_checks() -> Iterator[tuple[str, list[bytes]]]:
    """Refuse to create devices and set-id files."""
    for name, (place, bits) in syscalls.MODES.items():
        yield name, [_argument(place), *_answer_if(_ANY_BIT, bits, errno.EPERM)]
    for name, (flags, mode) in syscalls.OPENS.items():
        inner = [_argument(mode), *_answer_if(_ANY_BIT, syscalls.SET_ID_BITS, errno.EPERM)]
        test = _instruction(_ANY_BIT, syscalls.MAKES_FILE, 0, len(inner))
        yield name, [_argument(flags), test, *inner]


def _case(values: tuple[int, ...], body: list[bytes]) -> list[bytes]:
    """Run the body and allow, for one of the values; continue for all others."""
    whole = [*body, _instruction(_RETURN, _ALLOW)]
    count = len(values)
    tests = [_instruction(_EQUAL, value, count - place, 0) for place, value in enumerate(values)]
    return [*tests, _instruction(_JUMP, len(whole)), *whole]


def _require_one_of(values: tuple[int, ...], code: int) -> list[bytes]:
    """Continue for one of the values, fail for all others."""
    count = len(values)
    tests = [_instruction(_EQUAL, value, count - place, 0) for place, value in enumerate(values)]
    return [*tests, _fail(code)]


def _refuse_any_of(values: tuple[int, ...], code: int) -> Iterator[bytes]:
    """Fail for one of the values, continue for all others."""
    for value in values:
        yield from _answer_if(_EQUAL, value, code)


def _must_be(place: int, value: int) -> Iterator[bytes]:
    """Continue when the argument has the value, else fail."""
    yield _argument(place)
    yield from _require_one_of((value,), errno.EPERM)


def _answer_if(test: int, value: int, code: int) -> Iterator[bytes]:
    yield _instruction(test, value, 0, 1)
    yield _fail(code)


def _argument(place: int) -> bytes:
    """Load the lower half of an argument.

    The kernel ignores the upper half of all checked arguments.
    """
    return _instruction(_LOAD, _ARGUMENTS_AT + 8 * place)


def _fail(code: int) -> bytes:
    return _instruction(_RETURN, _FAIL | code)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
