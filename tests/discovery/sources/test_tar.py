from __future__ import annotations

import io
import tarfile

import pytest

from skillbelt.discovery.sources import tar
from skillbelt.discovery.sources.bounds import Refusal
from tests.discovery.sources.archives import member, tar_of, tarred


def listed(data: bytes) -> list[tuple[str, bool, bytes]]:
    entries = tar.entries(io.BytesIO(data).read)
    return [(entry.name, entry.folder, b"".join(entry.chunks)) for entry in entries]


def header(**facts: object) -> bytes:
    return member("x", **facts).tobuf(tarfile.USTAR_FORMAT)  # type: ignore[arg-type]


def test_files_and_folders_in_order() -> None:
    members = [
        (member("b", b"two"), b"two"),
        (member("a", kind=tarfile.DIRTYPE), b""),
        (member("a/empty"), b""),
    ]
    expected = [("b", False, b"two"), ("a/", True, b""), ("a/empty", False, b"")]
    assert listed(tarred(members, format=tarfile.USTAR_FORMAT)) == expected


def test_an_old_tar_marks_a_folder_by_its_slash() -> None:
    assert listed(header(kind=b"\0") + bytes(1024)) == [("x", False, b"")]
    assert listed(tarred([(member("x/", kind=tarfile.AREGTYPE), b"")])) == [("x/", True, b"")]


def test_a_size_in_base_256_is_read() -> None:
    data = bytearray(tar_of({"x": b"abc"}))
    data[124:136] = b"\x80" + (3).to_bytes(11, "big")
    assert listed(_with_checksum(data)) == [("x", False, b"abc")]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (b"\xff" * 12, "out of range"),
        (b"-0000000003\0", "octal"),
        (b"0000000009\0\0", "octal"),
        (b"\x80" + b"\xff" * 11, "early"),
        (b"77777777777\0", "early"),
    ],
)
def test_a_size_that_can_not_be_is_refused(field: bytes, reason: str) -> None:
    data = bytearray(tar_of({"x": b"abc"}))
    data[124:136] = field
    with pytest.raises(Refusal, match=reason):
        listed(_with_checksum(data))


def test_a_folder_with_content_is_refused() -> None:
    data = bytearray(tar_of({"x/": b"abc"}))
    with pytest.raises(Refusal, match="folder with content"):
        listed(bytes(data))


@pytest.mark.parametrize(
    "record",
    [
        b"path=x\n",
        b"99 path=x\n",
        b"3 a\n",
        b"8 path=x",
        b"0 path=x\n",
        b"x path=x\n",
        b"9 path x\n",
        b"1" * 5000,
    ],
)
def test_a_damaged_extended_header_is_refused(record: bytes) -> None:
    extended = header(kind=b"x", size=len(record)) + record.ljust(
        -(-len(record) // 512) * 512, b"\0"
    )
    with pytest.raises(Refusal, match="damaged"):
        listed(extended + tar_of({"x": b""}))


@pytest.mark.parametrize("size", [b"-1", b"1e3", b"9" * 30, b"1 2"])
def test_an_extended_size_must_be_a_number(size: bytes) -> None:
    record = b" size=" + size + b"\n"
    record = str(len(record) + 2).encode() + record
    extended = header(kind=b"x", size=len(record)) + record.ljust(512, b"\0")
    with pytest.raises(Refusal, match="not a number"):
        listed(extended + tar_of({"x": b""}))


def test_a_header_for_all_files_may_not_name_one() -> None:
    record = b"10 path=x\n"
    extended = header(kind=b"g", size=len(record)) + record.ljust(512, b"\0")
    with pytest.raises(Refusal, match="global"):
        listed(extended + tar_of({"y": b""}))


def test_an_extended_header_must_have_its_file() -> None:
    record = b"10 path=x\n"
    extended = header(kind=b"x", size=len(record)) + record.ljust(512, b"\0")
    with pytest.raises(Refusal, match="followed by no file"):
        listed(extended + bytes(1024))


def test_an_archive_without_its_end_is_refused() -> None:
    data = tar_of({"x": b""})
    with pytest.raises(Refusal, match="early"):
        listed(data[:512])
    assert listed(data[:1024]) == [("x", False, b"")]


def _with_checksum(data: bytearray) -> bytes:
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    return bytes(data)
