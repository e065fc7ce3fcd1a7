"""The filter answers each call as it should, on both processors. It is run here, call by call."""

from __future__ import annotations

import errno
import struct
from types import SimpleNamespace

import pytest

from skillbelt.sandbox.linux import seccomp, syscalls
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.protocol import run
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Limits

ALLOWED, KILLED = 0, -1
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003


def answer(program: bytes, number: int, *arguments: int, arch: int) -> int:
    """The decision of the kernel: 0, the error, or -1 when the process is killed."""
    padded = [value % 2**64 for value in (*arguments, *(0,) * 6)][:6]
    data = struct.pack("<IIQ6Q", number % 2**32, arch, 0, *padded)
    steps = list(struct.iter_unpack("<HBBI", program))
    at = value = 0
    while True:
        code, if_true, if_false, operand = steps[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, operand)
        elif code == 0x54:
            value &= operand
        elif code == 0x05:
            at += operand
        elif code == 0x06:
            plain = {0x7FFF0000: ALLOWED, 0x80000000: KILLED}
            return plain.get(operand, int(operand & 0xFFFF))
        else:
            tests = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}
            at += if_true if tests[code] else if_false


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ask(machine: str, numbers: tuple[int, int], *arguments: int, **kind: bool) -> int:
    settings = {"processes": True, "network": False, **kind}
    program = seccomp.program(machine=machine, **settings)
    number = numbers[0 if machine == "x86_64" else 1]
    return answer(program, number, *arguments, arch=AUDIT[machine])


READ, EXECVE, MOUNT, PTRACE = (0, 63), (59, 221), (165, 40), (101, 117)
CLONE, CLONE3, SOCKET, SOCKETPAIR = (56, 220), (435, 435), (41, 198), (53, 199)
IOCTL, CHMOD, OPENAT, OPENAT2 = (16, 29), (268, 53), (257, 56), (437, 437)
PERSONALITY, CONNECT, URING = (135, 92), (42, 203), (425, 425)
FORK = 17  # the signal that a plain fork asks for


def test_ordinary_calls_are_allowed(machine: str) -> None:
    for numbers in (READ, EXECVE, (1, 64), (9, 222), (202, 98), (318, 278)):
        assert ask(machine, numbers) == ALLOWED


def test_doors_into_the_kernel_are_shut(machine: str) -> None:
    for numbers in (MOUNT, PTRACE, (321, 280), (272, 97), (308, 268), (310, 270), (250, 219)):
        assert ask(machine, numbers) == errno.EPERM


def test_only_what_is_in_the_table_is_allowed(machine: str) -> None:
    """Attack 79. Every number there can be, and far beyond: a new call opens no door."""
    column = 0 if machine == "x86_64" else 1
    known = {numbers[column] for numbers in syscalls.ALLOWED.values()}
    refused = {numbers[column] for numbers in syscalls.REFUSED.values()}
    program = seccomp.program(True, True, machine)
    for number in (*range(700), 0x0FFFFFFF, 0x3FFFFFFF):
        said = answer(program, number, arch=AUDIT[machine])
        if number in refused:
            assert said == errno.EPERM
        elif number not in known:
            assert said == errno.ENOSYS


def test_each_call_has_its_own_number(machine: str) -> None:
    column = 0 if machine == "x86_64" else 1
    tables = (syscalls.ALLOWED, syscalls.REFUSED, syscalls.ABSENT)
    numbers = [each[column] for table in tables for each in table.values() if each[column] >= 0]
    assert len(numbers) == len(set(numbers))


def test_no_filter_and_no_rules_are_loaded(machine: str) -> None:
    """Attack 80. Only a filter that is followed by one of ours lets that one in."""
    seccomp_call, prctl, landlock = (317, 277), (157, 167), ((444, 444), (445, 445), (446, 446))
    assert ask(machine, seccomp_call, 1) == errno.ENOSYS
    assert ask(machine, prctl, 22, 2) == errno.EINVAL
    assert ask(machine, prctl, 22 + 2**32, 2) == errno.EINVAL
    assert [ask(machine, each) for each in landlock] == [errno.ENOSYS] * 3
    program = seccomp.program(True, False, machine, more=seccomp.FOLLOWED)
    column = 0 if machine == "x86_64" else 1
    for numbers, first in ((seccomp_call, 1), (prctl, 22)):
        assert answer(program, numbers[column], first, arch=AUDIT[machine]) == ALLOWED
        assert answer(seccomp.lock(machine), numbers[column], first, arch=0) == errno.EPERM
    assert answer(seccomp.lock(machine), prctl[column], 15, arch=0) == ALLOWED


def test_what_a_process_says_of_itself(machine: str) -> None:
    prctl = (157, 167)
    for option in (1, 4, 15, 16, 36, 38):
        assert ask(machine, prctl, option) == ALLOWED
    for option in (0, 22, 26, 35, 59, 62, 0x53564D41, 0xFFFFFFFF):
        assert ask(machine, prctl, option) == errno.EINVAL


def test_what_it_can_not_look_into_is_not_there(machine: str) -> None:
    for numbers in (CLONE3, OPENAT2, URING, (319, 279)):
        assert ask(machine, numbers) == errno.ENOSYS


def test_another_processor_is_killed(machine: str) -> None:
    program = seccomp.program(True, False, machine)
    assert answer(program, 0, arch=I386) == KILLED


def test_the_other_table_of_the_same_processor_is_not_there() -> None:
    program = seccomp.program(True, False, "x86_64")
    for number in (0x40000000, 0x40000000 + 41, 0x7FFFFFFF, -1):
        assert answer(program, number, arch=AUDIT["x86_64"]) == errno.ENOSYS


def test_a_new_process_but_no_new_namespace(machine: str) -> None:
    assert ask(machine, CLONE, FORK) == ALLOWED
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert ask(machine, CLONE, flag | FORK) == errno.EPERM


def test_without_processes_there_are_threads_only(machine: str) -> None:
    assert ask(machine, CLONE, FORK, processes=False) == errno.EPERM
    assert ask(machine, CLONE, 0x3D0F00, processes=False) == ALLOWED
    if machine == "x86_64":
        for number in (57, 58):
            assert ask(machine, (number, -1), processes=False) == errno.EPERM
            assert ask(machine, (number, -1)) == ALLOWED


@pytest.mark.parametrize("family", range(46))
def test_no_family_of_sockets_without_a_network(machine: str, family: int) -> None:
    assert ask(machine, SOCKET, family, 1) == errno.EACCES
    reachable = family in (1, 2, 10)
    wanted = ALLOWED if reachable else errno.EACCES
    assert ask(machine, SOCKET, family, 1, network=True) == wanted


@pytest.mark.parametrize("kind", range(16))
def test_only_some_kinds_of_sockets(machine: str, kind: int) -> None:
    """Attack 78. The kernel makes a datagram socket of a raw one."""
    for flags in (0, 0o2000000, 0o4000, 0o2004000):
        unix = ask(machine, SOCKET, 1, kind | flags, network=True)
        assert unix == (ALLOWED if kind in (1, 5) else errno.EACCES)
        for family in (2, 10):
            inet = ask(machine, SOCKET, family, kind | flags, network=True)
            assert inet == (ALLOWED if kind in (1, 2) else errno.EACCES)
        for network in (False, True):
            pair = ask(machine, SOCKETPAIR, 1, kind | flags, network=network)
            assert pair == (ALLOWED if kind in (1, 5) else errno.EACCES)
    assert ask(machine, SOCKETPAIR, 1, kind | 0x10) == errno.EACCES


def test_only_the_usual_protocols(machine: str) -> None:
    for protocol, wanted in ((0, ALLOWED), (6, ALLOWED), (17, ALLOWED), (132, 13), (256, 13)):
        assert ask(machine, SOCKET, 2, 1, protocol, network=True) == wanted


def test_no_filter_on_a_socket(machine: str) -> None:
    setsockopt = (54, 208)
    assert ask(machine, setsockopt, 3, 1, 26) == ask(machine, setsockopt, 3, 1, 52) == errno.EPERM
    assert ask(machine, setsockopt, 3, 1, 2) == ask(machine, setsockopt, 3, 6, 26) == ALLOWED


def test_behind_a_bridge_no_socket_has_a_name(machine: str) -> None:
    program = seccomp.program(True, True, machine, named_sockets=False)
    number = SOCKET[0 if machine == "x86_64" else 1]
    for family, wanted in ((1, errno.EACCES), (2, ALLOWED), (10, ALLOWED), (16, errno.EACCES)):
        assert answer(program, number, family, 1, arch=AUDIT[machine]) == wanted


def test_a_run_may_listen_at_a_socket_with_a_name_and_connect_to_none(machine: str) -> None:
    """LibreOffice needs it. Neither with a network nor without namespaces, and no datagrams."""
    column = 0 if machine == "x86_64" else 1
    connect, others = (
        (42, 203)[column],
        [pair[column] for pair in ((49, 200), (50, 201), (43, 202))],
    )

    def ask_for(program: bytes, number: int, *arguments: int) -> int:
        return answer(program, number, *arguments, arch=AUDIT[machine])

    listens = seccomp.program(True, False, machine, listens=True)
    for kind in range(16):
        wanted = ALLOWED if kind == 1 else errno.EACCES
        assert ask_for(listens, SOCKET[column], 1, kind) == wanted
    assert ask_for(listens, SOCKET[column], 2, 1) == errno.EACCES
    assert ask_for(listens, connect) == errno.EPERM
    assert [ask_for(listens, number) for number in others] == [ALLOWED] * 3
    for held in (
        seccomp.program(True, True, machine, named_sockets=False, listens=True),
        seccomp.program(True, False, machine, shared=True, listens=True),
    ):
        assert ask_for(held, SOCKET[column], 1, 1) == errno.EACCES


def test_the_upper_half_of_an_argument_changes_nothing(machine: str) -> None:
    assert ask(machine, SOCKET, 2 + 2**32) == errno.EACCES
    assert ask(machine, IOCTL, 0, 0x5412 + 2**32) == errno.EPERM


def test_pairs_of_connected_sockets(machine: str) -> None:
    """A pair of datagram sockets could send to any name, so it is refused."""
    assert ask(machine, SOCKETPAIR, 1, 1) == ALLOWED
    assert ask(machine, SOCKETPAIR, 1, 1 | 0o2000000) == ALLOWED
    assert ask(machine, SOCKETPAIR, 1, 2 | 0o2000000) == errno.EACCES
    assert ask(machine, SOCKETPAIR, 2, 1) == errno.EACCES
    assert ask(machine, SOCKETPAIR, 1, 2, network=True) == errno.EACCES


def test_nobody_is_called_without_a_network(machine: str) -> None:
    assert ask(machine, CONNECT) == errno.EPERM
    assert ask(machine, CONNECT, network=True) == ALLOWED


def test_a_terminal_is_not_typed_into(machine: str) -> None:
    assert ask(machine, IOCTL, 0, 0x5412) == errno.EPERM
    assert ask(machine, IOCTL, 0, 0x541C) == errno.EPERM
    assert ask(machine, IOCTL, 0, 0x5413) == ALLOWED


def test_no_file_takes_on_the_rights_of_its_owner(machine: str) -> None:
    assert ask(machine, CHMOD, 0, 0, 0o755) == ALLOWED
    assert ask(machine, CHMOD, 0, 0, 0o4755) == errno.EPERM
    assert ask(machine, CHMOD, 0, 0, 0o2755) == errno.EPERM
    assert ask(machine, OPENAT, 0, 0, 0o101, 0o644) == ALLOWED
    assert ask(machine, OPENAT, 0, 0, 0o101, 0o4755) == errno.EPERM
    assert ask(machine, OPENAT, 0, 0, 0o20200001, 0o4755) == errno.EPERM
    assert ask(machine, OPENAT, 0, 0, 0, 0o4755) == ALLOWED  # makes no file: the mode is nothing


def test_no_device_is_made(machine: str) -> None:
    mknodat = (259, 33)
    for mode in (0o644, 0o10644, 0o100644, 0o140755):
        assert ask(machine, mknodat, 0, 0, mode) == ALLOWED
    for mode in (0o20644, 0o60644, 0o104755):
        assert ask(machine, mknodat, 0, 0, mode) == errno.EPERM


def test_personality_can_be_asked_for(machine: str) -> None:
    assert ask(machine, PERSONALITY, 0xFFFFFFFF) == ALLOWED
    assert ask(machine, PERSONALITY, 0) == ALLOWED
    assert ask(machine, PERSONALITY, 0x0040000) == errno.EPERM


def test_the_kernel_takes_it(place: Place) -> None:
    """And says so of the process."""
    job = place.shell("grep Seccomp: /proc/self/status")
    assert run(LinuxSandbox(), job).stdout.data.split() == [b"Seccomp:", b"2"]


def test_the_number_of_allowed_calls_is_told() -> None:
    def counted(*rights: bool) -> int:
        return int(seccomp.described(*rights).removeprefix("seccomp, ").removesuffix(" allowed"))

    assert counted(True, True) > counted(True, False) > counted(False, False) > 200


def test_a_machine_without_a_table_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seccomp.supported()
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(machine="vax"))
    assert not seccomp.supported()


def test_limits_are_set_for_oneself_alone(machine: str) -> None:
    prlimit = (302, 261)
    assert ask(machine, prlimit, 0, 0, 0, 0) == ALLOWED
    assert ask(machine, prlimit, 1234, 0, 0, 0) == errno.EPERM


def test_how_much_the_first_process_counts_is_not_set(machine: str) -> None:
    """It ends the others; that of a thread or another process of the run can be set."""
    priority, affinity = (141, 140), (203, 122)
    assert [ask(machine, affinity, pid) for pid in (0, 1, 2)] == [ALLOWED, errno.EPERM, ALLOWED]
    assert [ask(machine, priority, 0, pid) for pid in (0, 1, 2)] == [ALLOWED, errno.EPERM, ALLOWED]
    assert [ask(machine, priority, kind, 0) for kind in (1, 2)] == [errno.EPERM] * 2


def test_no_file_takes_more_than_its_size_may_be(machine: str) -> None:
    """KEEP_SIZE and INSERT_RANGE pass by the limit for a file; to give room back is all right."""
    fallocate = syscalls.numbers_of("fallocate")
    for mode in (0, 0x3, 0x8, 0x10):
        assert ask(machine, fallocate, 3, mode) == ALLOWED
    for mode in (0x1, 0x11, 0x20, 0x41, 0x100000001):
        assert ask(machine, fallocate, 3, mode) == errno.EOPNOTSUPP
    for request in (0x40305828, 0x4030582A, 0x40305839, 0xFF4030582A):
        assert ask(machine, IOCTL, 3, request) == errno.EOPNOTSUPP


def test_a_limit_for_files_holds_for_what_is_reserved(place: Place) -> None:
    code = """
import ctypes, fcntl, os, struct
handle = os.open("k", os.O_CREAT | os.O_RDWR)
size = 64 * 2**20
for mode in (1, 0x11):
    ctypes.CDLL(None).fallocate(handle, mode, ctypes.c_long(0), ctypes.c_long(size))
for request in (0x40305828, 0x4030582A, 0x40305839):
    try:
        fcntl.ioctl(handle, request, struct.pack("hhqqiIqqqq", 0, 0, 0, size, 0, 0, 0, 0, 0, 0))
    except OSError:
        pass
print(os.fstat(handle).st_blocks * 512)
os.posix_fallocate(handle, 0, 2**20)
"""
    outcome = run(LinuxSandbox(), place.python(code, limits=Limits(max_written_file_bytes=2**21)))
    assert (outcome.exit_code, outcome.stdout.data) == (0, b"0\n"), outcome
