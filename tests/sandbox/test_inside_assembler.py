"""Each instruction is what an assembler makes of the line in the comment; jumps arrive."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Callable

import pytest

from skillbelt.sandbox.inside.assembler import (
    ASSEMBLERS,
    ArmAssembler,
    Assembler,
    Stack,
    Value,
    X86Assembler,
)
from skillbelt.sandbox.inside.entry import program
from skillbelt.sandbox.linux import seccomp
from tests import needs

AT = 0x10000108
HEADERS = 64 + 3 * 56
Write = Callable[[Assembler], None]
# What to write, and for each processor the text and what LLVM makes of it.
CASES: list[tuple[Write, str, str, str, str]] = [
    (
        lambda code: code.call("getpid", 0x12345678),
        "mov edi, 0x12345678; mov eax, 39; syscall",
        "bf78563412b8270000000f05",
        "movz w0, #0x5678; movk w0, #0x1234, lsl #16; movz w8, #172; movk w8, #0, lsl #16; svc #0",
        "00cf8a528046a272881580520800a072010000d4",
    ),
    (
        lambda code: code.call("getpid", 1, 2, 3, 4, -1),
        "mov edi, 1; mov esi, 2; mov edx, 3; mov r10d, 4; mov r8d, -1; mov eax, 39; syscall",
        "bf01000000be02000000ba0300000041ba0400000041b8ffffffffb8270000000f05",
        "movz w0, #1; movk w0, #0, lsl #16; movz w1, #2; movk w1, #0, lsl #16; movz w2,"
        " #3; movk w2, #0, lsl #16; movz w3, #4; movk w3, #0, lsl #16; movz w4, #65535;"
        " movk w4, #65535, lsl #16; movz w8, #172; movk w8, #0, lsl #16; svc #0",
        "200080520000a072410080520100a072620080520200a072830080520300a072e4ff9f52e4ffbf"
        "72881580520800a072010000d4",
    ),
    (
        lambda code: code.call("getpid", Value(AT), Stack(8), Value(AT), Value(AT)),
        "mov rdi, [0x10000108]; {disp32} lea rsi, [rsp + 8]; mov rdx, [0x10000108]; mov"
        " r10, [0x10000108]; mov eax, 39; syscall",
        "488b3c2508010010488db42408000000488b1425080100104c8b142508010010b8270000000f05",
        "movz w9, #0x108; movk w9, #0x1000, lsl #16; ldr x0, [x9]; add x1, sp, #8; movz"
        " w9, #0x108; movk w9, #0x1000, lsl #16; ldr x2, [x9]; movz w9, #0x108; movk "
        "w9, #0x1000, lsl #16; ldr x3, [x9]; movz w8, #172; movk w8, #0, lsl #16; svc "
        "#0",
        "092180520900a272200140f9e1230091092180520900a272220140f9092180520900a272230140"
        "f9881580520800a072010000d4",
    ),
    (
        lambda code: code.compare(0x12345678),
        "cmp eax, 0x12345678",
        "3d78563412",
        "movz w9, #0x5678; movk w9, #0x1234, lsl #16; cmp w0, w9",
        "09cf8a528946a2721f00096b",
    ),
    (
        lambda code: code.compare(Value(AT)),
        "cmp eax, [0x10000108]",
        "3b042508010010",
        "movz w9, #0x108; movk w9, #0x1000, lsl #16; ldr w9, [x9]; cmp w0, w9",
        "092180520900a272290140b91f00096b",
    ),
    (
        lambda code: code.store(AT),
        "mov [0x10000108], rax",
        "4889042508010010",
        "movz w9, #0x108; movk w9, #0x1000, lsl #16; str x0, [x9]",
        "092180520900a272200100f9",
    ),
    (
        lambda code: code.store_word(AT),
        "mov [0x10000108], eax",
        "89042508010010",
        "movz w9, #0x108; movk w9, #0x1000, lsl #16; str w0, [x9]",
        "092180520900a272200100b9",
    ),
    (
        lambda code: code.load_word(AT),
        "mov eax, [0x10000108]",
        "8b042508010010",
        "movz w9, #0x108; movk w9, #0x1000, lsl #16; ldr w0, [x9]",
        "092180520900a272200140b9",
    ),
    (
        lambda code: code.load_byte(AT),
        "movzx eax, byte ptr [0x10000108]",
        "0fb6042508010010",
        "movz w9, #0x108; movk w9, #0x1000, lsl #16; ldrb w0, [x9]",
        "092180520900a27220014039",
    ),
    (
        lambda code: code.set_bits(0x12345678),
        "or eax, 0x12345678",
        "0d78563412",
        "movz w9, #0x5678; movk w9, #0x1234, lsl #16; orr w0, w0, w9",
        "09cf8a528946a2720000092a",
    ),
    (
        lambda code: code.load_environment(),
        "mov rax, [rsp]; lea rax, [rsp + 8*rax + 16]",
        "488b0424488d44c410",
        "ldr x0, [sp]; add x0, sp, x0, lsl #3; add x0, x0, #16",
        "e00340f9e06f208b00400091",
    ),
]


def written(kind: type[Assembler], write: Write) -> str:
    code = kind()
    write(code)
    return code._code().hex()


@pytest.mark.parametrize(("write", "_x86", "x86", "_arm", "arm"), CASES)
def test_each_instruction_is_encoded(
    write: Write, _x86: str, x86: str, _arm: str, arm: str
) -> None:
    assert (written(X86Assembler, write), written(ArmAssembler, write)) == (x86, arm)


@needs.llvm_mc
@pytest.mark.parametrize(("_write", "x86_text", "x86", "arm_text", "arm"), CASES)
def test_the_encodings_are_those_of_llvm(
    _write: Write, x86_text: str, x86: str, arm_text: str, arm: str
) -> None:
    assert assembled("x86-64", ".intel_syntax noprefix; " + x86_text) == x86
    assert assembled("aarch64", arm_text) == arm


def assembled(processor: str, text: str) -> str:
    command = ["llvm-mc", f"--arch={processor}", "--show-encoding"]
    lines = text.replace(";", "\n") + "\n"
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return "".join(re.findall(r"0x(..)", "".join(re.findall(r"encoding: (.*)", done.stdout))))


@pytest.mark.parametrize(
    ("condition", "x86_back", "x86_on", "arm_back", "arm_on"),
    [
        ("always", "e9f6ffffff", "e905000000", "fdffff17", "04000014"),
        ("equal", "0f84f5ffffff", "0f8405000000", "a0ffff54", "80000054"),
        ("not equal", "0f85f5ffffff", "0f8505000000", "a1ffff54", "81000054"),
        ("negative", "0f88f5ffffff", "0f8805000000", "a4ffff54", "84000054"),
    ],
)
def test_jumps_both_ways(
    condition: str, x86_back: str, x86_on: str, arm_back: str, arm_on: str
) -> None:
    def write(code: Assembler) -> None:
        code.label("back")
        code.compare(0)
        code.jump("back", condition)  # type: ignore[arg-type]
        code.jump("on", condition)  # type: ignore[arg-type]
        code.compare(0)
        code.label("on")

    x86, arm = "3d00000000", "090080520900a0721f00096b"
    assert written(X86Assembler, write) == x86 + x86_back + x86_on + x86
    assert written(ArmAssembler, write) == arm + arm_back + arm_on + arm


@pytest.mark.parametrize("processor", ASSEMBLERS)
def test_code_is_not_writable_and_data_not_executable(processor: str) -> None:
    made = program(("/bin/sh",), processor=processor)
    rights = [struct.unpack_from("<II", made, 64 + 56 * place) for place in range(3)]
    assert rights == [(1, 5), (1, 6), (0x6474E551, 6)]


class Machine:
    """Runs a program for arm64, as far as our instructions go; system calls are answered here."""

    def __init__(self, file: bytes, answers: dict[int, list[int]]) -> None:
        self.calls: list[tuple[int, ...]] = []
        self.memory = bytearray(file)  # the data is where the file has it
        self._file, self._answers = file, answers
        self._x = [0] * 32
        self._difference = 0

    def text(self, address: int) -> bytes:
        at = address - 0x10000000
        return bytes(self.memory[at : self.memory.index(b"\0", at)])

    def run(self) -> list[tuple[int, ...]]:
        """Give all calls, each with its number and four arguments, until the program ends."""
        (at,) = struct.unpack_from("<Q", self._file, 24)
        at -= 0x400000
        while True:
            (word,) = struct.unpack_from("<I", self._file, at)
            if word == 0xD4000001:
                self.calls.append((self._x[8], *self._x[:4]))
                if self._x[8] == 94:
                    return self.calls
                self._x[0] = self._answers[self._x[8]].pop(0) & (2**64 - 1)
                at += 4
            else:
                at += self._step(word)

    def _step(self, word: int) -> int:
        low, x = word & 31, self._x
        if word >> 23 == 0x52800000 >> 23:
            x[low] = word >> 5 & 0xFFFF
        elif word >> 21 == 0x72A00000 >> 21:
            x[low] = x[low] & 0xFFFF | (word >> 5 & 0xFFFF) << 16
        elif word >> 26 == 0x14000000 >> 26:
            return signed(word, 26) * 4
        elif word >> 24 == 0x54:
            negative = bool(self._difference >> 31 & 1)
            holds = {0: not self._difference, 1: bool(self._difference), 4: negative}
            return signed(word >> 5, 19) * 4 if holds[word & 15] else 4
        elif word == 0x6B09001F:
            self._difference = (x[0] - x[9]) & 0xFFFFFFFF
        elif word == 0x2A090000:
            x[0] |= x[9]
        elif word & 0xFFC003E0 == 0x910003E0 or word in (0xF94003E0, 0x8B206FE0):
            x[low] = 0x7000
        elif word != 0x91004000:
            self._access(word, low)
        return 4

    def _access(self, word: int, register: int) -> None:
        size = {0xF9: 8, 0xB9: 4, 0x39: 1}[word >> 24]
        at = self._x[9] - 0x10000000
        if word >> 22 & 1:
            self._x[register] = int.from_bytes(self.memory[at : at + size], "little")
        else:
            self.memory[at : at + size] = self._x[register].to_bytes(8, "little")[:size]


def signed(number: int, bits: int) -> int:
    number &= 2**bits - 1
    return number - 2**bits if number >> (bits - 1) else number


READ, WRITE, CLOSE, DUP, CONTROL, WAIT = 63, 64, 57, 24, 29, 260
LIMIT, PRCTL, CLONE, RANDOM, SECCOMP, EXECVE, SETSID = 261, 167, 220, 278, 277, 221, 157
PATHS = ("/a/tool", "/b/tool")


def arm(answers: dict[int, list[int]], **how: bool) -> Machine:
    ready = {WRITE: [1], READ: [3], LIMIT: [0], PRCTL: [0], RANDOM: [8], SECCOMP: [0]}
    limits = ((7, (50, 60)),)
    lock = seccomp.alone("aarch64")
    made = program(PATHS, limits, "aarch64", stays=True, lock=lock, **how)
    return Machine(made, {**ready, **answers})


def test_arm64_as_the_child_tries_each_path_with_the_number() -> None:
    machine = arm({CLONE: [0], EXECVE: [-2, -13, -2]})
    calls = machine.run()
    numbers = [call[0] for call in calls]
    assert numbers == [WRITE, READ, LIMIT, PRCTL, CLONE, RANDOM, SECCOMP, *[EXECVE] * 3, 94]
    tried = [call for call in calls if call[0] == EXECVE]
    assert [machine.text(call[1]) for call in tried] == [b"/a/tool", b"/b/tool", b"/bin/sh"]
    assert calls[-1][1] == 125


def test_arm64_asks_the_shell_when_a_path_is_no_program() -> None:
    machine = arm({CLONE: [0], EXECVE: [-8, -2]})
    tried = [machine.text(call[1]) for call in machine.run() if call[0] == EXECVE]
    assert tried == [b"/a/tool", b"/bin/sh"]


def test_arm64_takes_the_terminal_below_alone() -> None:
    answers = {SETSID: [5], CONTROL: [0], DUP: [0, 1], EXECVE: [-8, -8]}
    calls = arm({CLONE: [0], **answers}, terminal=True).run()
    assert [call[0] for call in calls][5:9] == [SETSID, CONTROL, DUP, DUP]
    above = arm({CLONE: [7], CLOSE: [0] * 3, WAIT: [-10]}, terminal=True).run()
    assert SETSID not in [call[0] for call in above]


@pytest.mark.parametrize(("status", "code"), [(0x0300, 3), (9, 137), (0x8B, 139), (0, 0)])
def test_arm64_above_waits_for_its_child(status: int, code: int) -> None:
    machine = arm({CLONE: [7], CLOSE: [0] * 3, WAIT: [6, 7]})
    (end,) = struct.unpack_from("<Q", machine.memory, 64 + 56 + 32)
    machine.memory[end - 8 : end] = struct.pack("<Q", status)  # the last word of the data
    calls = machine.run()
    assert [call[0] for call in calls][7:] == [CLOSE, CLOSE, CLOSE, WAIT, WAIT, 94]
    assert calls[-1][1] == code


FAILURES = [(WRITE, [-32]), (READ, [0]), (LIMIT, [-1]), (PRCTL, [-22]), (CLONE, [-11]),
            (RANDOM, [-11]), (SECCOMP, [-22])]  # fmt: skip


@pytest.mark.parametrize(("call", "answer"), FAILURES)
def test_arm64_ends_when_anything_fails(call: int, answer: list[int]) -> None:
    calls = arm({CLONE: [0], call: answer}).run()
    assert (calls[-2][0], calls[-1][:2]) == (call, (94, 125))


def test_arm64_puts_the_number_into_the_lock() -> None:
    machine = arm({CLONE: [0], EXECVE: [-8, -8]})
    wanted = seccomp.alone("aarch64")
    at = machine.memory.index(wanted)
    # The first words of the data are the child, the number and the environment.
    machine.memory[HEADERS + 8 : HEADERS + 16] = b"abcdefgh"
    machine.run()
    halves = [bytes(machine.memory[at + place : at + place + 4]) for place in seccomp.LOCK_AT]
    assert halves == [b"abcd", b"efgh"]
    assert [call[4] for call in machine.calls if call[0] == EXECVE] == [
        int.from_bytes(b"abcdefgh", "little")
    ] * 2
