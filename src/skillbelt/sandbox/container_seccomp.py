"""Our filter for system calls in the form that container engines take, from the same tables.

It is the outer of two: what an engine's library does not know yet is denied by the filter that each
command gets besides, which is the very one of the native sandbox.
"""

import errno
import json
import platform
from collections.abc import Iterator
from functools import lru_cache

from skillbelt.sandbox import seccomp

Rule = dict[str, object]
_WHOLE = 0xFFFFFFFF  # the kernel looks at the lower half only, an engine at all of it
_ARCHITECTURES = ("SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64")
_STREAM_KINDS = 0xF


@lru_cache(maxsize=4)
def profile(network: bool, machine: str = "") -> str:
    """The filter as JSON; with `network` there are IP sockets, and such with a name."""
    column = seccomp.MACHINES[(machine or platform.machine()).lower()].column
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ALLOW",
            "architectures": [_ARCHITECTURES[column]],
            "syscalls": list(_rules(column, network)),
        }
    )


def _rules(column: int, network: bool) -> Iterator[Rule]:
    denied = seccomp.denied_calls(True, network)
    for table, code in ((denied, errno.EPERM), (seccomp.UNKNOWN, errno.ENOSYS)):
        yield _rule([name for name, numbers in table.items() if numbers[column] >= 0], code)
    for bit in _bits(seccomp.NAMESPACES):
        yield _rule(["clone"], errno.EPERM, _masked(0, bit, bit))
    yield from _socket_rules(network)
    for command in (seccomp.TERMINAL_INPUT, seccomp.TERMINAL_LINUX):
        yield _rule(["ioctl"], errno.EPERM, _masked(1, _WHOLE, command))
    yield from _personality_rules()
    other = {"index": 0, "value": 0, "op": "SCMP_CMP_NE"}
    yield _rule(["prlimit64"], errno.EPERM, other)
    yield from _set_id_rules(column)


def _socket_rules(network: bool) -> Iterator[Rule]:
    named = (seccomp.INET, seccomp.INET6, seccomp.UNIX)
    yield from _all_but("socket", named if network else ())
    if not network:
        kind = _masked(1, _STREAM_KINDS, seccomp.DATAGRAM)
        yield _rule(["socketpair"], errno.EACCES, kind)
    yield from _all_but("socketpair", (seccomp.UNIX,))


def _all_but(name: str, families: tuple[int, ...]) -> Iterator[Rule]:
    """Several rules: an engine reads conditions on one argument as alternatives."""
    highest = max(families, default=-1)
    for family in set(range(highest)) - set(families):
        yield _rule([name], errno.EACCES, _masked(0, _WHOLE, family))
    above = {"index": 0, "value": highest, "op": "SCMP_CMP_GT"}
    yield _rule([name], errno.EACCES, *([above] if families else []))


def _personality_rules() -> Iterator[Rule]:
    """All but none and all bits: somewhere a bit is set and its neighbour is not."""
    bits = list(_bits(_WHOLE))
    for bit, neighbour in zip(bits, [*bits[1:], bits[0]], strict=True):
        yield _rule(["personality"], errno.EPERM, _masked(0, bit | neighbour, bit))


def _set_id_rules(column: int) -> Iterator[Rule]:
    for name, (*numbers, place) in seccomp.MODES.items():
        for bit in _bits(seccomp.SET_ID_BITS) if numbers[column] >= 0 else ():
            yield _rule([name], errno.EPERM, _masked(place, bit, bit))
    for name, (*numbers, flags, mode) in seccomp.OPENS.items():
        for makes in _bits(seccomp.MAKES_FILE) if numbers[column] >= 0 else ():
            for bit in _bits(seccomp.SET_ID_BITS):
                both = _masked(flags, makes, makes), _masked(mode, bit, bit)
                yield _rule([name], errno.EPERM, *both)


def _bits(mask: int) -> Iterator[int]:
    return (1 << place for place in range(32) if mask >> place & 1)


def _rule(names: list[str], code: int, *conditions: Rule) -> Rule:
    return {
        "names": names,
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": code,
        "args": list(conditions),
    }


def _masked(place: int, mask: int, value: int) -> Rule:
    return {"index": place, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
