"""Our seccomp filter in the format of container engines, from the same tables.

It is the outer of two: each command also gets the filter of the native sandbox, which blocks calls
that this one must allow for the first process of the container.
"""

import errno
import json
import platform
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product

from skillbelt.sandbox.linux import seccomp, syscalls
from skillbelt.sandbox.linux.syscalls import Rights

Rule = dict[str, object]
_WHOLE = 0xFFFFFFFF  # the kernel compares the lower half only, an engine the whole value
_ARCHITECTURES = ("SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64")


@lru_cache(maxsize=4)
def profile(network: bool, machine: str = "") -> str:
    """Return the profile as JSON; `network` allows IP sockets and named Unix sockets."""
    column = seccomp.MACHINES[(machine or platform.machine()).lower()].column
    rights = Rights(
        processes=True,
        network=network,
        named_sockets=network,
        more=seccomp.FOLLOWED,
        listens=not network,
    )
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "defaultErrnoRet": errno.EPERM,
            "architectures": [_ARCHITECTURES[column]],
            "syscalls": list(_rules(column, rights)),
        }
    )


def _rules(column: int, rights: Rights) -> Iterator[Rule]:
    allowed = {name for name, numbers in rights.allowed().items() if numbers[column] >= 0}
    absent = [
        name
        for name, numbers in syscalls.ABSENT.items()
        if numbers[column] >= 0 and name not in allowed
    ]
    yield {"names": absent, "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS, "args": []}
    decided = {"socket"}  # without network no argument allows it
    for name, conditions in _checks(rights):
        decided.add(name)
        if name in allowed:
            yield _rule([name], *conditions)
    yield _rule(sorted(allowed - decided))


def _checks(rights: Rights) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    """Yield the calls that are allowed by their arguments, each in a separate rule.

    An engine treats several conditions on one argument as alternatives, so there is at most one.
    """
    yield "clone", (_masked_rule(0, syscalls.NAMESPACES, 0),)
    yield from _socket_checks(rights)
    for condition in _all_but(1, syscalls.TERMINAL_INPUT, syscalls.TERMINAL_LINUX):
        yield "ioctl", (condition,)
    for mode in syscalls.ALLOCATIONS:
        yield "fallocate", (_masked_rule(1, _WHOLE, mode),)
    for value in syscalls.SAME_PERSONALITY:
        yield "personality", (_masked_rule(0, _WHOLE, value),)
    for option in rights.prctl():
        yield "prctl", (_masked_rule(0, _WHOLE, option),)
    yield "prlimit64", (_masked_rule(0, _WHOLE, 0),)
    for name, (place, bits) in syscalls.MODES.items():
        yield name, (_masked_rule(place, bits, 0),)
    for name, (flags, mode) in syscalls.OPENS.items():
        yield name, (_masked_rule(flags, syscalls.MAKES_FILE, 0),)
        yield name, (_masked_rule(mode, syscalls.SET_ID_BITS, 0),)


def _socket_checks(rights: Rights) -> Iterator[tuple[str, tuple[Rule, ...]]]:
    unix = list(_sockets((syscalls.UNIX,), syscalls.UNIX_KINDS))
    inet = _sockets((syscalls.INET, syscalls.INET6), syscalls.INET_KINDS)
    for pair in unix:
        yield "socketpair", pair
    for one in unix if rights.named_sockets else ():
        yield "socket", one
    for one in _sockets((syscalls.UNIX,), (syscalls.STREAM,)) if rights.listens else ():
        yield "socket", one
    for (family, kind), protocol in product(inet if rights.network else (), syscalls.PROTOCOLS):
        yield "socket", (family, kind, _masked_rule(2, _WHOLE, protocol))


def _sockets(families: Iterable[int], kinds: Iterable[int]) -> Iterator[tuple[Rule, Rule]]:
    for family, kind in product(families, kinds):
        yield (
            _masked_rule(0, _WHOLE, family),
            _masked_rule(1, _WHOLE & ~syscalls.SOCKET_FLAGS, kind),
        )


def _all_but(place: int, one: int, other: int) -> Iterator[Rule]:
    """Yield conditions, one of which holds for every value but two, by the lower half.

    Any other value differs in a bit where the two agree, or combines the other bits differently.
    """
    apart = one ^ other
    for bit in _bits(_WHOLE & ~apart):
        yield _masked_rule(place, bit, bit & ~one)
    for chosen in product(*((0, bit) for bit in _bits(apart))):
        mixture = sum(chosen)
        if mixture not in (one & apart, other & apart):
            yield _masked_rule(place, apart, mixture)


def _bits(mask: int) -> Iterator[int]:
    return (1 << place for place in range(32) if mask >> place & 1)


def _rule(names: list[str], *conditions: Rule) -> Rule:
    return {"names": names, "action": "SCMP_ACT_ALLOW", "args": list(conditions)}


def _masked_rule(place: int, mask: int, value: int) -> Rule:
    return {"index": place, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
