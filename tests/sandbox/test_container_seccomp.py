"""The filter for engines answers each call as the native one does."""

from __future__ import annotations

import errno
import json
from itertools import product
from typing import Any

import pytest

from skillbelt.sandbox.container.seccomp import profile
from skillbelt.sandbox.linux import seccomp, syscalls
from tests.sandbox.test_linux_seccomp import AUDIT, answer

COLUMNS = {"x86_64": 0, "aarch64": 1}
# The calls whose arguments decide: where those are, and what is worth trying there.
_MODE = (0, 0o644, 0o755, 0o1777, 0o2755, 0o4755, 0o6000)
_FLAGS = (0, 0o1, 0o100, 0o101, 0o2000000, 0o20200000, 0o20000000)
ARGUMENTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "clone": ((17, 0, 0x10000, *(1 << bit for bit in range(32)), 0x7E020000),),
    "socket": (tuple(range(64)), (1, 2, 3, 5, 0x80801, 0x11), (0, 6, 17, 132)),
    "socketpair": (tuple(range(48)), (1, 2, 3, 5, 7, 0x80002, 0x801)),
    "ioctl": ((0,), (0x5401, *range(0x5410, 0x5420), 0x100005412, 0x25412, 0)),
    "fallocate": ((0,), (*range(128), 0x80000000)), "prctl": (tuple(range(80)),),
    "personality": ((0, 0xFFFFFFFF, 1, 8, 0x40000, 0x80000000, 0x7FFFFFFF, 0xFFFFFFFE),),
    "prlimit64": ((0, 1, 2, 4096, 0x80000000),),
    "chmod": ((0,), _MODE), "fchmod": ((0,), _MODE), "creat": ((0,), _MODE),
    "mknod": ((0,), _MODE), "fchmodat": ((0,), (0,), _MODE), "fchmodat2": ((0,), (0,), _MODE),
    "mknodat": ((0,), (0,), _MODE), "open": ((0,), _FLAGS, _MODE),
    "openat": ((0,), (0,), _FLAGS, _MODE),
}  # fmt: skip


def engine_answer(rules: list[dict[str, Any]], name: str, arguments: tuple[int, ...]) -> int:
    """The decision of an engine's library by the rules: the first that matches, else refused."""
    for rule in rules:
        if name in rule["names"] and all(matches(one, arguments) for one in rule["args"]):
            return int(rule.get("errnoRet", 0))
    return errno.EPERM


def matches(condition: dict[str, Any], arguments: tuple[int, ...]) -> bool:
    value: int = (*arguments, *(0,) * 6)[condition["index"]]
    assert condition["op"] == "SCMP_CMP_MASKED_EQ"
    return value & int(condition["value"]) == int(condition["valueTwo"])


@pytest.fixture(params=[False, True])
def network(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=sorted(COLUMNS))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_argument_is_judged_alike(machine: str, network: bool) -> None:
    # The first process of a container has filters to load for its commands.
    program = seccomp.program(True, network, machine, more=seccomp.FOLLOWED, listens=True)
    rules = json.loads(profile(network, machine))["syscalls"]
    for name, values in ARGUMENTS.items():
        number = syscalls.numbers_of(name)[COLUMNS[machine]]
        for arguments in product(*values) if number >= 0 else ():
            native = answer(program, number, *arguments, arch=AUDIT[machine])
            said = engine_answer(rules, name, arguments)
            assert bool(said) == bool(native), (name, arguments)


def test_every_call_is_answered_as_natively(machine: str, network: bool) -> None:
    program = seccomp.program(True, network, machine, more=seccomp.FOLLOWED, listens=True)
    rules = json.loads(profile(network, machine))["syscalls"]
    for table in (syscalls.ALLOWED, syscalls.REFUSED, syscalls.ABSENT):
        for name in table:
            number = syscalls.numbers_of(name)[COLUMNS[machine]]
            # What a command may set of itself alone, its own filter sees to.
            if number >= 0 and name not in (*ARGUMENTS, *syscalls.OWN_STANDING):
                native = answer(program, number, arch=AUDIT[machine])
                assert engine_answer(rules, name, ()) == native, name


def test_what_it_does_not_name_is_refused(machine: str, network: bool) -> None:
    """Attack 79."""
    assert json.loads(profile(network, machine))["defaultAction"] == "SCMP_ACT_ERRNO"


def test_no_condition_speaks_twice_of_one_argument(machine: str, network: bool) -> None:
    """Engines take such for alternatives."""
    for rule in json.loads(profile(network, machine))["syscalls"]:
        places = [condition["index"] for condition in rule["args"]]
        assert len(places) == len(set(places)), rule


def test_another_table_of_calls_is_not_named(machine: str) -> None:
    """An engine's library kills a call of an architecture that is not listed."""
    wanted = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}[machine]
    assert json.loads(profile(False, machine))["architectures"] == [wanted]
