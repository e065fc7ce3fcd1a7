"""The filter for engines answers each call as the native one does."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from skillbelt.sandbox import seccomp
from skillbelt.sandbox.container_seccomp import profile
from tests.sandbox.test_seccomp import AUDIT, answer

COLUMNS = {"x86_64": 0, "aarch64": 1}
# The calls whose arguments decide: where those are, and what is worth trying there.
_MODE = (0, 0o644, 0o755, 0o1777, 0o2755, 0o4755, 0o6000)
_FLAGS = (0, 0o1, 0o100, 0o101, 0o2000000, 0o20200000, 0o20000000)
ARGUMENTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "clone": ((17, 0, 0x10000, *(1 << bit for bit in range(32)), 0x7E020000),),
    "socket": (tuple(range(64)), (1, 2, 3)),
    "socketpair": (tuple(range(48)), (1, 2, 5, 0x80002, 0x801)),
    "ioctl": ((0,), (0x5401, 0x5412, 0x541C, 0x100005412, 0x5413)),
    "personality": ((0, 0xFFFFFFFF, 1, 8, 0x40000, 0x80000000, 0x7FFFFFFF, 0xFFFFFFFE),),
    "prlimit64": ((0, 1, 2, 4096, 0x80000000),),
    "chmod": ((0,), _MODE), "fchmod": ((0,), _MODE), "creat": ((0,), _MODE),
    "mknod": ((0,), _MODE), "fchmodat": ((0,), (0,), _MODE), "fchmodat2": ((0,), (0,), _MODE),
    "mknodat": ((0,), (0,), _MODE), "open": ((0,), _FLAGS, _MODE),
    "openat": ((0,), (0,), _FLAGS, _MODE),
}  # fmt: skip
NUMBERS = {
    "clone": (56, 220), "socket": (41, 198), "socketpair": (53, 199), "ioctl": (16, 29),
    "personality": (135, 92), "prlimit64": (302, 261), "chmod": (90, -1), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "creat": (85, -1), "mknod": (133, -1),
    "mknodat": (259, 33), "open": (2, -1), "openat": (257, 56),
}  # fmt: skip


def engine_answer(rules: list[dict[str, Any]], name: str, arguments: tuple[int, ...]) -> int:
    """What the library of an engine makes of the rules: the first that matches, else allowed."""
    for rule in rules:
        if name in rule["names"] and all(matches(one, arguments) for one in rule["args"]):
            return int(rule["errnoRet"])
    return 0


def matches(condition: dict[str, Any], arguments: tuple[int, ...]) -> bool:
    value: int = (*arguments, *(0,) * 6)[condition["index"]]
    wanted = int(condition["value"])
    if condition["op"] == "SCMP_CMP_MASKED_EQ":
        return value & wanted == int(condition["valueTwo"])
    return {"SCMP_CMP_GT": value > wanted, "SCMP_CMP_NE": value != wanted}[condition["op"]]


@pytest.fixture(params=[False, True])
def network(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=sorted(COLUMNS))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_argument_is_judged_alike(machine: str, network: bool) -> None:
    program = seccomp.program(True, network, machine)
    rules = json.loads(profile(network, machine))["syscalls"]
    for name, values in ARGUMENTS.items():
        number = NUMBERS[name][COLUMNS[machine]]
        for arguments in product(*values) if number >= 0 else ():
            native = answer(program, number, *arguments, arch=AUDIT[machine])
            assert engine_answer(rules, name, arguments) == native, (name, arguments)


def test_every_call_that_is_denied_natively_is_denied(machine: str, network: bool) -> None:
    program = seccomp.program(True, network, machine)
    rules = json.loads(profile(network, machine))["syscalls"]
    whole = {name: rule["errnoRet"] for rule in rules if not rule["args"] for name in rule["names"]}
    assert len(whole) >= 70
    tables = {**seccomp.denied_calls(True, network), **seccomp.UNKNOWN}
    for name, numbers in tables.items():
        number = numbers[COLUMNS[machine]]
        if number >= 0:
            assert whole[name] == answer(program, number, arch=AUDIT[machine]), name


def test_no_condition_speaks_twice_of_one_argument(machine: str, network: bool) -> None:
    """Engines take such for alternatives."""
    for rule in json.loads(profile(network, machine))["syscalls"]:
        places = [condition["index"] for condition in rule["args"]]
        assert len(places) == len(set(places)), rule


def test_another_table_of_calls_is_not_named(machine: str) -> None:
    """What is not among the architectures is killed by the engine's library."""
    wanted = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}[machine]
    assert json.loads(profile(False, machine))["architectures"] == [wanted]
