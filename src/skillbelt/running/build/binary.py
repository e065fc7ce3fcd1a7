"""Edit WASM binaries: sections, function bodies, the memory of a snapshot."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

_MODULE = b"\0asm\x01\0\0\0"
_COMPONENT = b"\0asm\x0d\0\x01\0"
_CUSTOM, _IMPORT, _EXPORT, _CODE, _DATA, _TAG = 0, 2, 7, 10, 11, 13
_CORE_MODULE, _INNER_COMPONENT = 1, 4  # sections of a component
_FUNCTION_KIND, _TABLE_KIND, _MEMORY_KIND, _GLOBAL_KIND = range(4)
_UNREACHABLE, _NOP = 0x00, 0x01
_I32_CONST, _END, _CALL, _DROP, _LOOP, _BR_IF, _NO_VALUE = 0x41, 0x0B, 0x10, 0x1A, 0x03, 0x0D, 0x40
_LOCAL_GET, _LOCAL_TEE, _I32 = 0x20, 0x22, 0x7F
_POST = "cabi_post_"
_GAP = 16  # zeros that separate two data segments
_WORD, _PAGE = 8, 4096
_MAX_BITS = 70
_MAX_MEMORY = 2**29
_CLOCK_WORDS = 8  # words that the build time may leave in a snapshot


class BinaryFault(Exception):
    """The binary does not have the expected form."""


class WasmSection(NamedTuple):
    """One section: its number and content."""

    number: int
    content: bytes


class WasmReader:
    """Reads a binary from an offset."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        """Read one byte."""
        if not self.more:
            raise BinaryFault("it ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """Read an unsigned LEB128 number."""
        value = 0
        for shift in range(0, _MAX_BITS, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise BinaryFault("a number is too long")

    def signed(self) -> int:
        """Read a signed LEB128 number."""
        value = 0
        for shift in range(0, _MAX_BITS, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value - (1 << shift + 7) if byte & 0x40 else value
        raise BinaryFault("a number is too long")

    def take(self, size: int) -> bytes:
        """Read that many bytes."""
        self.at += size
        if self.at > len(self.data):
            raise BinaryFault("it ends too early")
        return self.data[self.at - size : self.at]

    def name(self) -> str:
        """Read a name with its length."""
        return self.take(self.number()).decode("utf-8", "replace")

    @property
    def more(self) -> bool:
        """Whether there are more bytes."""
        return self.at < len(self.data)


def number(value: int) -> bytes:
    """Encode an unsigned LEB128 number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _encode_signed(value: int) -> bytes:
    out = bytearray()
    while not -0x40 <= value < 0x40:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value & 0x7F])


def sections(data: bytes) -> Iterator[WasmSection]:
    """Yield the sections of a module or a component."""
    if data[:8] not in (_MODULE, _COMPONENT):
        raise BinaryFault("it is not a WASM module or component")
    reader = WasmReader(data, 8)
    while reader.more:
        kind = reader.byte()
        yield WasmSection(kind, reader.take(reader.number()))


def join_sections(head: bytes, parts: Sequence[WasmSection]) -> bytes:
    """Join the sections to a module or component, with the header of `head`."""
    return head[:8] + b"".join(
        bytes([part.number]) + number(len(part.content)) + part.content for part in parts
    )


def change_modules(component: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Apply `change` to each core module of the component, at any depth."""
    changed = []
    for part in sections(component):
        if part.number == _CORE_MODULE:
            part = part._replace(content=change(part.content))
        elif part.number == _INNER_COMPONENT:
            part = part._replace(content=change_modules(part.content, change))
        changed.append(part)
    return join_sections(component, changed)


def modules(component: bytes) -> list[bytes]:
    """Return the core modules of a component, at any depth, in order."""
    found: list[bytes] = []

    def keep(module: bytes) -> bytes:
        found.append(module)
        return module

    change_modules(component, keep)
    return found


def exports(module: bytes) -> dict[str, int]:
    """Return the exported functions of a module by name."""
    found: dict[str, int] = {}
    for part in sections(module):
        if part.number == _EXPORT:
            reader = WasmReader(part.content)
            for _ in range(reader.number()):
                name, kind, index = reader.name(), reader.byte(), reader.number()
                if kind == _FUNCTION_KIND:
                    found[name] = index
    return found


def imported_functions(module: bytes) -> int:
    """Count the imported functions of a module; its own are numbered after them."""
    count = 0
    for part in sections(module):
        if part.number == _IMPORT:
            reader = WasmReader(part.content)
            for _ in range(reader.number()):
                count += _skip_import(reader) == _FUNCTION_KIND
    return count


def rename_import(module: bytes, old: tuple[str, str], new: tuple[str, str]) -> bytes:
    """Replace one import by another of the same type."""
    parts = []
    for part in sections(module):
        if part.number == _IMPORT:
            part = part._replace(content=_rename_in_section(part.content, old, new))
        parts.append(part)
    return join_sections(module, parts)


def _rename_in_section(imports: bytes, old: tuple[str, str], new: tuple[str, str]) -> bytes:
    reader, found = WasmReader(imports), 0
    out = [number(reader.number())]
    while reader.more:
        named = (reader.name(), reader.name())
        rest = reader.at
        _skip_kind(reader)
        found += named == old
        for name in new if named == old else named:
            out.append(number(len(name.encode())) + name.encode())
        out.append(imports[rest : reader.at])
    if found != 1:
        raise BinaryFault(f"{':'.join(old)} is imported {found} times")
    return b"".join(out)


def without_call(module: bytes, name: tuple[str, str]) -> bytes:
    """Replace the only call of this import by a trap."""
    call = bytes([_CALL]) + number(_import_index(module, name))
    trap = bytes([_UNREACHABLE]).ljust(len(call), bytes([_NOP]))
    parts = []
    for part in sections(module):
        if part.number == _CODE:
            # Instructions are not decoded, so the bytes of the call must occur exactly once.
            if (found := part.content.count(call)) != 1:
                raise BinaryFault(f"{':'.join(name)} may be called in {found} places")
            part = part._replace(content=part.content.replace(call, trap))
        parts.append(part)
    return join_sections(module, parts)


def _import_index(module: bytes, name: tuple[str, str]) -> int:
    """Return the index of the imported function of this name."""
    index = 0
    for part in sections(module):
        if part.number == _IMPORT:
            reader = WasmReader(part.content)
            for _ in range(reader.number()):
                named = (reader.name(), reader.name())
                if _skip_kind(reader) == _FUNCTION_KIND:
                    if named == name:
                        return index
                    index += 1
    raise BinaryFault(f"{':'.join(name)} is not imported")


def embedded_modules(data: bytes) -> Iterator[bytes]:
    """Yield the core modules embedded in a file, such as a native library."""
    at = data.find(_MODULE)
    while at >= 0:
        yield data[at : _module_end(data, at)]
        at = data.find(_MODULE, at + 1)


def _module_end(data: bytes, at: int) -> int:
    """Return the end of the module: before the first bytes that cannot be a section."""
    reader, end = WasmReader(data, at + 8), at + 8
    try:
        while True:
            kind, size = reader.byte(), reader.number()
            content = reader.take(size)
            if kind > _TAG or (kind == _CUSTOM and not _is_custom(content)):
                return end
            end = reader.at
    except BinaryFault:
        return end


def _is_custom(content: bytes) -> bool:
    try:
        name = WasmReader(content).name()
    except BinaryFault:
        return False
    return bool(name) and name.isprintable()


def _skip_import(reader: WasmReader) -> int:
    reader.name(), reader.name()
    return _skip_kind(reader)


def _skip_kind(reader: WasmReader) -> int:
    kind = reader.byte()
    if kind == _FUNCTION_KIND:
        reader.number()
    elif kind == _GLOBAL_KIND:
        reader.take(2)
    elif kind in (_TABLE_KIND, _MEMORY_KIND):
        reader.take(1 if kind == _TABLE_KIND else 0)
        limits = reader.byte()
        for _ in range(2 if limits & 1 else 1):
            reader.number()
    else:
        raise BinaryFault(f"an import of kind {kind}")
    return kind


def check(data: bytes) -> None:
    """Raise BinaryFault unless the sections form a module or a component."""
    for _ in sections(data):
        pass


def with_custom(data: bytes, name: str, content: bytes) -> bytes:
    """Append a custom section of that name, with a hash of everything before it."""
    whole = hashlib.sha256(data).digest() + content
    return join_sections(data, [*sections(data), WasmSection(_CUSTOM, _encode_name(name) + whole)])


def custom(data: bytes, name: str) -> bytes:
    """Return the content of the last custom section; raises BinaryFault for a changed binary."""
    parts = list(sections(data))
    head = _encode_name(name) + hashlib.sha256(join_sections(data, parts[:-1])).digest()
    if not parts or parts[-1].number != _CUSTOM or not parts[-1].content.startswith(head):
        raise BinaryFault(f"there is no {name}")
    return parts[-1].content[len(head) :]


def _encode_name(name: str) -> bytes:
    return number(len(name.encode())) + name.encode()


# The event loop


def with_event_loop(component: bytes, run: str, start: str, turn: str, pump: str) -> bytes:
    """Make `run` first call `start`, then `pump` and `turn` while `turn` returns true.

    The four are exports of one core module; the post-return functions of `start` and `turn` are
    called after each of them. So a JavaScript engine that resolves promises only in an
    asynchronous export does so in a synchronous one.
    """
    done = 0

    def change(module: bytes) -> bytes:
        nonlocal done
        named = exports(module)
        if run not in named:
            return module
        done += 1
        names = (start, f"{_POST}{start}", pump, turn, f"{_POST}{turn}")
        return _prepend(module, named[run], tuple(named[name] for name in names))

    try:
        changed = change_modules(component, change)
    except KeyError as error:
        raise BinaryFault(f"nothing is exported as {error}") from error
    if done != 1:
        raise BinaryFault(f"{done} modules export {run}")
    return changed


def _loop(functions: tuple[int, ...], local: int) -> bytes:
    begin, begun, pump, turn, turned = (bytes([_CALL]) + number(one) for one in functions)
    again = number(local)
    return b"".join(
        (
            begin, begun, bytes([_LOOP, _NO_VALUE]), pump, bytes([_DROP]), turn,
            bytes([_LOCAL_TEE]), again, turned, bytes([_LOCAL_GET]), again,
            bytes([_BR_IF, 0, _END]),
        )
    )  # fmt: skip


def _prepend(module: bytes, function: int, functions: tuple[int, ...]) -> bytes:
    wanted = function - imported_functions(module)
    parts = []
    for part in sections(module):
        if part.number == _CODE:
            part = part._replace(content=_with_body(part.content, wanted, functions))
        parts.append(part)
    return join_sections(module, parts)


def _with_body(bodies: bytes, wanted: int, functions: tuple[int, ...]) -> bytes:
    reader = WasmReader(bodies)
    count = reader.number()
    out = [number(count)]
    for index in range(count):
        body = reader.take(reader.number())
        if index == wanted:
            body = _with_loop(body, functions)
        out.append(number(len(body)) + body)
    return b"".join(out)


def _with_loop(body: bytes, functions: tuple[int, ...]) -> bytes:
    """Add one local and the loop to the body of a function without parameters."""
    reader = WasmReader(body)
    groups = reader.number()
    first, local = reader.at, 0
    for _ in range(groups):
        local += reader.number()
        reader.byte()
    head = number(groups + 1) + body[first : reader.at] + bytes([1, _I32])
    return head + _loop(functions, local) + body[reader.at :]


# The memory of a snapshot


def steady(component: bytes, again: bytes) -> bytes:
    """Remove traces of the clock: words of memory that differ in `again` become zero.

    Both are builds of the same source, so all other words are equal.
    """
    others = iter(modules(again))

    def change(module: bytes) -> bytes:
        parts, other = [], next(others, b"")
        theirs = {part.number: part.content for part in sections(other) if part.number == _DATA}
        for part in sections(module):
            if part.number == _DATA and part.content != theirs.get(_DATA):
                image = _pad_to_common(_image(part.content), _image(theirs.get(_DATA, b"\0")))
                part = part._replace(content=_data(image))
            elif part.number == _DATA and len(part.content) > 2**12:
                part = part._replace(content=_data(_image(part.content)))
            parts.append(part)
        return join_sections(module, parts)

    return change_modules(component, change)


def _image(content: bytes) -> tuple[int, bytes]:
    """Return the start of the memory, and its content up to the last segment."""
    reader = WasmReader(content)
    pieces = [_read_segment(reader) for _ in range(reader.number())]
    if not pieces:
        return 0, b""
    start = min(at for at, _ in pieces) & -_WORD
    size = max(at + len(piece) for at, piece in pieces) - start
    if start < 0 or size > _MAX_MEMORY:
        raise BinaryFault("data segments are too far apart")
    memory = bytearray(size)
    for at, piece in pieces:
        memory[at - start : at - start + len(piece)] = piece
    return start, bytes(memory)


def _read_segment(reader: WasmReader) -> tuple[int, bytes]:
    if reader.number() != 0 or reader.byte() != _I32_CONST:
        raise BinaryFault("a data segment without a fixed offset")
    at = reader.signed()
    if reader.byte() != _END:
        raise BinaryFault("a data segment without a fixed offset")
    return at, reader.take(reader.number())


def _pad_to_common(one: tuple[int, bytes], other: tuple[int, bytes]) -> tuple[int, bytes]:
    start = min(one[0], other[0])
    end = max(at + len(memory) for at, memory in (one, other))
    size = -(-(end - start) // _WORD) * _WORD
    left, right = (
        bytes(at - start) + memory + bytes(size - len(memory) - (at - start))
        for at, memory in (one, other)
    )
    kept, unsteady = bytearray(left), 0
    for at in range(0, size, _PAGE):
        if left[at : at + _PAGE] != right[at : at + _PAGE]:
            unsteady += _blank(kept, right, range(at, min(at + _PAGE, size), _WORD))
    if unsteady > _CLOCK_WORDS:
        raise BinaryFault(f"two builds of the same differ in {unsteady} words of memory")
    return start, bytes(kept)


def _blank(kept: bytearray, other: bytes, places: range) -> int:
    found = [at for at in places if kept[at : at + _WORD] != other[at : at + _WORD]]
    for at in found:
        kept[at : at + _WORD] = bytes(_WORD)
    return len(found)


def _data(image: tuple[int, bytes]) -> bytes:
    start, memory = image
    pieces = [
        (start + found.start(), found[0].rstrip(b"\0"))
        for found in re.finditer(rb"[^\0](?:(?!\0{%d}).)*" % _GAP, memory, re.DOTALL)
    ]
    out = [number(len(pieces))]
    for at, piece in pieces:
        out.append(bytes([0, _I32_CONST]) + _encode_signed(at) + bytes([_END]))
        out.append(number(len(piece)) + piece)
    return b"".join(out)
