"""A strict streaming tar reader: plain files and folders, or a Refusal.

The standard library's reader treats a damaged header in the middle as the end of the archive and
reads an extended header of any size into memory; neither is acceptable for untrusted archives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from skillbelt.discovery.sources.bounds import Refusal

BLOCK = 512
_CHUNK = 64 * 2**10
_MAX_EXTENDED_BYTES = 2**20
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a FIFO",
    b"K": "a link",
    b"S": "a sparse file",
}


class ArchiveEntry(NamedTuple):
    """One file or folder of an archive. `chunks` must be consumed before the next entry is read."""

    name: str
    folder: bool
    executable: bool
    chunks: Iterator[bytes]


class _Header(NamedTuple):
    name: bytes
    kind: bytes
    size: int
    mode: int


def entries(read: Callable[[int], bytes]) -> Iterator[ArchiveEntry]:
    """Yield every file and folder, in order; raises Refusal for anything else."""
    extended: dict[str, bytes] = {}
    while header := _next_header(read):
        if header.kind in b"xgL":
            extended = _extend(extended, header, _read_extended(read, header.size))
            continue
        yield _entry(read, header, extended)
        extended = {}
    if extended:
        raise Refusal("an extended header is followed by no file")


def is_header(block: bytes) -> bool:
    """Whether the block can be the first block of a tar file."""
    if len(block) < BLOCK:
        return False
    if not any(block):
        return True
    try:
        return _parse_header(block) is not None
    except Refusal:
        return False


def _next_header(read: Callable[[int], bytes]) -> _Header | None:
    block = read(BLOCK)
    if len(block) < BLOCK:
        raise Refusal("the archive ends too early")
    if not any(block):
        _drain(read)
        return None
    return _parse_header(block)


def _drain(read: Callable[[int], bytes]) -> None:
    """Read to the end, so that the checksum of a compressed stream is verified."""
    while read(_CHUNK):
        pass


def _parse_header(block: bytes) -> _Header:
    total = sum(block[:148]) + sum(block[156:]) + 8 * 32
    if total != _parse_number(block[148:156]):
        raise Refusal("a header's checksum is wrong")
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0]
    if prefix and block[257:263] == b"ustar\0":
        name = prefix + b"/" + name
    return _Header(
        name, block[156:157], _parse_number(block[124:136]), _parse_number(block[100:108])
    )


def _parse_number(field: bytes) -> int:
    if field[0] & 0x80:
        if field[0] != 0x80:
            raise Refusal("a number is out of range")
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip()
    if digits.strip(b"01234567"):
        raise Refusal("a number is not octal")
    return int(digits or b"0", 8)


def _read_extended(read: Callable[[int], bytes], size: int) -> bytes:
    if size > _MAX_EXTENDED_BYTES:
        raise Refusal(f"an extended header has more than {_MAX_EXTENDED_BYTES} bytes")
    return b"".join(_read_content(read, size))


def _extend(known: dict[str, bytes], header: _Header, data: bytes) -> dict[str, bytes]:
    if header.kind == b"L":
        return {**known, "path": data.partition(b"\0")[0]}
    records = dict(_parse_records(data))
    if any(key.startswith("GNU.sparse") for key in records):
        raise Refusal("holds a sparse file")
    if header.kind == b"g":
        if "path" in records or "size" in records:
            raise Refusal("a global header names a file")
        return known
    return {**known, **records}


def _parse_records(data: bytes) -> Iterator[tuple[str, bytes]]:
    start = 0
    while start < len(data):
        space = data.find(b" ", start, start + 8)
        if space < 0 or not data[start:space].isdigit():
            raise Refusal("an extended header is damaged")
        end = start + int(data[start:space])
        key, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not equals or data[end - 1 : end] != b"\n" or end <= space:
            raise Refusal("an extended header is damaged")
        yield key.decode("utf-8", "replace"), value
        start = end


def _entry(
    read: Callable[[int], bytes], header: _Header, extended: dict[str, bytes]
) -> ArchiveEntry:
    name = _decode_name(extended.get("path", header.name))
    if header.kind in _KINDS:
        raise Refusal(f"{name[:200]!r} is {_KINDS[header.kind]}")
    if header.kind not in (b"0", b"\0", b"7", b"5"):
        raise Refusal(f"{name[:200]!r} is of an unknown kind")
    size = _parse_decimal(extended["size"]) if "size" in extended else header.size
    folder = header.kind == b"5" or name.endswith("/")
    if folder and size:
        raise Refusal(f"{name[:200]!r} is a folder with content")
    return ArchiveEntry(name, folder, bool(header.mode & 0o111), _read_content(read, size))


def _decode_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise Refusal("a name is not UTF-8") from error


def _parse_decimal(value: bytes) -> int:
    if not value.isdigit() or len(value) > 20:
        raise Refusal("a size is not a number")
    return int(value)


def _read_content(read: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    left = size
    while left:
        data = read(min(left, _CHUNK))
        if not data:
            raise Refusal("the archive ends too early")
        left -= len(data)
        yield data
    padding = -size % BLOCK
    if len(read(padding)) < padding:
        raise Refusal("the archive ends too early")
