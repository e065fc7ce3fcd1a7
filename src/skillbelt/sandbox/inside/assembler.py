"""A small assembler for x86-64 and arm64: the few instructions that `entry` needs.

A program is a list of system calls with tests of their results. All its state is in memory, at
addresses that are known while it is written, so each instruction below uses the same registers.
A test compares every encoding with what LLVM's assembler gives for the line in its comment.
"""

import struct
from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

from skillbelt.sandbox.linux import syscalls

_CODE_BASE, _DATA_BASE = 0x400000, 0x10000000
_PAGE = 0x10000  # the largest page size of both processors
_FILE_HEADER, _SEGMENT_HEADER = 64, 56
_HEADERS = _FILE_HEADER + 3 * _SEGMENT_HEADER
_READ_EXECUTE, _READ_WRITE = 5, 6
_LOADED, _STACK = 1, 0x6474E551  # PT_LOAD, PT_GNU_STACK
_X86_REGISTERS = (7, 6, 2, 10, 8)  # rdi, rsi, rdx, r10, r8
_X86_JUMPS = {"equal": b"\x0f\x84", "not equal": b"\x0f\x85", "negative": b"\x0f\x88"}
_ARM_JUMPS = {"equal": 0, "not equal": 1, "negative": 4}

Condition = Literal["always", "equal", "not equal", "negative"]


class Value(NamedTuple):
    """The eight bytes at an address, as an argument of a system call."""

    address: int


class Stack(NamedTuple):
    """An address some bytes above the stack pointer, as an argument of a system call."""

    offset: int


class _Jump(NamedTuple):
    condition: Condition
    label: str


Argument = int | Value | Stack


class Assembler(ABC):
    """Collects code and data, and builds an executable file from them.

    "The result" is the return value of the last system call, or the last loaded value.
    """

    elf_machine: int
    column: int  # of this processor in the tables of system calls

    def __init__(self) -> None:
        self._parts: list[bytes | _Jump | str] = []
        self._data = bytearray()

    def data(self, content: bytes) -> int:
        """Add writable data; return its address."""
        self._data += bytes(-len(self._data) % 8)
        address = _DATA_BASE + _HEADERS + len(self._data)
        self._data += content
        return address

    def label(self, name: str) -> None:
        """Name the next instruction, for jumps."""
        self._parts.append(name)

    def call(self, name: str, *arguments: Argument) -> None:
        """Make a system call."""
        for place, argument in enumerate(arguments):
            self._parts.append(self._argument(place, argument))
        self._parts.append(self._enter(syscalls.numbers_of(name)[self.column]))

    def jump(self, label: str, condition: Condition = "always") -> None:
        """Jump to the label, if the last comparison gave that."""
        self._parts.append(_Jump(condition, label))

    def require(self, expected: int) -> None:
        """Jump to the label `fail` unless this is the result."""
        self.compare(expected)
        self.jump("fail", "not equal")

    def compare(self, expected: int | Value) -> None:
        """Compare the lower half of the result with a number, or with a value in memory."""
        if isinstance(expected, Value):
            self._parts.append(self._compare_value(expected.address))
        else:
            self._parts.append(self._compare_number(expected))

    def store(self, address: int) -> None:
        """Write the eight bytes of the result."""
        self._parts.append(self._store(address))

    def store_word(self, address: int) -> None:
        """Write the lower four bytes of the result."""
        self._parts.append(self._store_word(address))

    def load_word(self, address: int) -> None:
        """Load four bytes as the result."""
        self._parts.append(self._load_word(address))

    def load_byte(self, address: int) -> None:
        """Load one byte as the result."""
        self._parts.append(self._load_byte(address))

    def set_bits(self, bits: int) -> None:
        """Set these bits of the result."""
        self._parts.append(self._set_bits(bits))

    def load_environment(self) -> None:
        """Load the address of the environment as the result.

        The kernel starts a program with the number of its arguments at the top of the stack, then
        the addresses of the arguments, a zero, and the addresses of the variables.
        """
        self._parts.append(self._load_environment())

    def executable(self) -> bytes:
        """Return an ELF file. Its data is mapped writable, its code is not."""
        code = self._code()
        size = _HEADERS + len(self._data)
        whole = size + len(code)
        return b"".join(
            (
                struct.pack(
                    "<16sHHIQQQIHHHHHH",
                    *(b"\x7fELF\2\1\1".ljust(16, b"\0"), 2, self.elf_machine, 1),
                    *(_CODE_BASE + size, _FILE_HEADER, 0, 0),
                    *(_FILE_HEADER, _SEGMENT_HEADER, 3, 0, 0, 0),
                ),
                _segment(_LOADED, _READ_EXECUTE, _CODE_BASE, whole),
                _segment(_LOADED, _READ_WRITE, _DATA_BASE, size),
                _segment(_STACK, _READ_WRITE, 0, 0),
                self._data,
                code,
            )
        )

    def _code(self) -> bytes:
        """Resolve the jumps. The size of an instruction does not depend on how far it jumps."""
        places: dict[str, int] = {}
        size = 0
        for part in self._parts:
            if isinstance(part, str):
                places[part] = size
            else:
                size += len(part if isinstance(part, bytes) else self._jump(part.condition, 0))
        code = b""
        for part in self._parts:
            if isinstance(part, _Jump):
                code += self._jump(part.condition, places[part.label] - len(code))
            elif isinstance(part, bytes):
                code += part
        return code

    @abstractmethod
    def _argument(self, place: int, argument: Argument) -> bytes: ...

    @abstractmethod
    def _enter(self, number: int) -> bytes: ...

    @abstractmethod
    def _jump(self, condition: Condition, distance: int) -> bytes:
        """Encode a jump; the distance counts from the beginning of this instruction."""

    @abstractmethod
    def _compare_number(self, number: int) -> bytes: ...

    @abstractmethod
    def _compare_value(self, address: int) -> bytes: ...

    @abstractmethod
    def _store(self, address: int) -> bytes: ...

    @abstractmethod
    def _load_word(self, address: int) -> bytes: ...

    @abstractmethod
    def _store_word(self, address: int) -> bytes: ...

    @abstractmethod
    def _load_byte(self, address: int) -> bytes: ...

    @abstractmethod
    def _set_bits(self, bits: int) -> bytes: ...

    @abstractmethod
    def _load_environment(self) -> bytes: ...


class X86Assembler(Assembler):
    """The result is in rax. Addresses are below 2^31, so they fit into an instruction."""

    elf_machine, column = 62, 0

    def _argument(self, place: int, argument: Argument) -> bytes:
        register = _X86_REGISTERS[place]
        low, high = register % 8, register // 8
        if isinstance(argument, Value):  # mov rdi, [ADDRESS]
            return bytes((0x48 | high << 2, 0x8B, 0x04 | low << 3, 0x25)) + _encode_word(
                argument.address
            )
        if isinstance(argument, Stack):  # lea rdi, [rsp + OFFSET]
            return bytes((0x48 | high << 2, 0x8D, 0x84 | low << 3, 0x24)) + _encode_word(
                argument.offset
            )
        return b"\x41" * high + bytes((0xB8 | low,)) + _encode_word(argument)  # mov edi, NUMBER

    def _enter(self, number: int) -> bytes:
        return b"\xb8" + _encode_word(number) + b"\x0f\x05"  # mov eax, NUMBER; syscall

    def _jump(self, condition: Condition, distance: int) -> bytes:
        code = _X86_JUMPS.get(condition, b"\xe9")  # je, jne, js; jmp
        return code + _encode_word(distance - len(code) - 4)  # counted from the next instruction

    def _compare_number(self, number: int) -> bytes:
        return b"\x3d" + _encode_word(number)  # cmp eax, NUMBER

    def _compare_value(self, address: int) -> bytes:
        return b"\x3b\x04\x25" + _encode_word(address)  # cmp eax, [ADDRESS]

    def _store(self, address: int) -> bytes:
        return b"\x48\x89\x04\x25" + _encode_word(address)  # mov [ADDRESS], rax

    def _load_word(self, address: int) -> bytes:
        return b"\x8b\x04\x25" + _encode_word(address)  # mov eax, [ADDRESS]

    def _store_word(self, address: int) -> bytes:
        return b"\x89\x04\x25" + _encode_word(address)  # mov [ADDRESS], eax

    def _load_byte(self, address: int) -> bytes:
        return b"\x0f\xb6\x04\x25" + _encode_word(address)  # movzx eax, byte ptr [ADDRESS]

    def _set_bits(self, bits: int) -> bytes:
        return b"\x0d" + _encode_word(bits)  # or eax, BITS

    def _load_environment(self) -> bytes:
        # mov rax, [rsp]; lea rax, [rsp + 8*rax + 16]
        return bytes.fromhex("488b0424 488d44c410")


class ArmAssembler(Assembler):
    """The result is in x0. Addresses and numbers go through w9."""

    elf_machine, column = 183, 1

    def _argument(self, place: int, argument: Argument) -> bytes:
        if isinstance(argument, Value):  # ldr x0, [x9]
            return self._at(argument.address, 0xF9400120 | place)
        if isinstance(argument, Stack):  # add x0, sp, #OFFSET
            return _encode_word(0x910003E0 | argument.offset << 10 | place)
        return self._number(place, argument)

    @staticmethod
    def _number(register: int, number: int) -> bytes:
        low, high = number & 0xFFFF, number >> 16 & 0xFFFF
        # movz w0, #LOW; movk w0, #HIGH, lsl #16
        return _encode_word(0x52800000 | low << 5 | register) + _encode_word(
            0x72A00000 | high << 5 | register
        )

    def _at(self, address: int, instruction: int) -> bytes:
        return self._number(9, address) + _encode_word(instruction)

    def _enter(self, number: int) -> bytes:
        return self._number(8, number) + _encode_word(0xD4000001)  # svc #0

    def _jump(self, condition: Condition, distance: int) -> bytes:
        steps = distance // 4
        if condition == "always":
            return _encode_word(0x14000000 | steps & 0x3FFFFFF)  # b LABEL
        assert -(2**18) <= steps < 2**18, "too far for a conditional jump"
        # b.eq, b.ne, b.mi LABEL
        return _encode_word(0x54000000 | (steps & 0x7FFFF) << 5 | _ARM_JUMPS[condition])

    def _compare_number(self, number: int) -> bytes:
        return self._number(9, number) + _encode_word(0x6B09001F)  # cmp w0, w9

    def _compare_value(self, address: int) -> bytes:
        return self._at(address, 0xB9400129) + _encode_word(0x6B09001F)  # ldr w9, [x9]; cmp w0, w9

    def _store(self, address: int) -> bytes:
        return self._at(address, 0xF9000120)  # str x0, [x9]

    def _load_word(self, address: int) -> bytes:
        return self._at(address, 0xB9400120)  # ldr w0, [x9]

    def _store_word(self, address: int) -> bytes:
        return self._at(address, 0xB9000120)  # str w0, [x9]

    def _load_byte(self, address: int) -> bytes:
        return self._at(address, 0x39400120)  # ldrb w0, [x9]

    def _set_bits(self, bits: int) -> bytes:
        return self._number(9, bits) + _encode_word(0x2A090000)  # orr w0, w0, w9

    def _load_environment(self) -> bytes:
        # ldr x0, [sp]; add x0, sp, x0, lsl #3; add x0, x0, #16
        return _encode_word(0xF94003E0) + _encode_word(0x8B206FE0) + _encode_word(0x91004000)


ASSEMBLERS: dict[str, type[Assembler]] = {"x86_64": X86Assembler, "aarch64": ArmAssembler}


def _encode_word(number: int) -> bytes:
    return struct.pack("<I", number & 0xFFFFFFFF)


def _segment(kind: int, rights: int, address: int, size: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, rights, 0, address, address, size, size, _PAGE)
