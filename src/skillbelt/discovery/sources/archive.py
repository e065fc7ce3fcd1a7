"""Archives: zip, tar and gzipped tar, unpacked whole or not at all.

Bounds are counted while reading; what headers claim is never believed. The caller throws the
folder away when `unpack` raises.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Literal

from skillbelt.discovery.sources import tar
from skillbelt.discovery.sources.bounds import (
    MAX_ARCHIVE_FILES,
    MAX_EXTRACTED_BYTES,
    Budget,
    Refusal,
)
from skillbelt.discovery.sources.failure import OutOfTime
from skillbelt.discovery.sources.tar import Entry
from skillbelt.errors import ArchiveRefused, PathEscape
from skillbelt.files.contain import NameTable, check_relative, make_folders

if TYPE_CHECKING:
    from skillbelt.values import Limits

Format = Literal["zip", "gzip", "tar"]

SNIFF_BYTES = tar.BLOCK
_CHUNK = 64 * 2**10
_HEADER_BYTES = 4096  # what a tar may spend on one entry besides its content
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def detect(head: bytes) -> Format | None:
    """The kind of archive that begins with these bytes (`SNIFF_BYTES` are enough), if any."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    return "tar" if tar.is_header(head[: tar.BLOCK]) else None


def unpack(file: IO[bytes], dir_fd: int, *, source: str, limits: Limits, budget: Budget) -> int:
    """Write every file of the archive below the folder; how many there were.

    Raises ArchiveRefused for anything that is unsafe, damaged or too large, OutOfTime at the
    budget's deadline, and OSError when this machine can not write.
    """
    try:
        return _unpack(file, dir_fd, limits, budget)
    except (OutOfTime, ArchiveRefused):
        raise
    except (Refusal, PathEscape) as error:
        raise ArchiveRefused(source, str(error)) from error
    except Exception as error:
        # Damaged input surfaces as nearly any exception of zipfile, gzip or zlib; only an OSError
        # with a number is this machine's own.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ArchiveRefused(source, f"damaged: {error or type(error).__name__}") from error


def _unpack(file: IO[bytes], dir_fd: int, limits: Limits, budget: Budget) -> int:
    names = NameTable("archive")
    files = 0
    for entry in _entries(file, limits, budget):
        files += _place(entry, dir_fd, names, budget)
        if len(names) > MAX_ARCHIVE_FILES:
            raise Refusal(f"more than {MAX_ARCHIVE_FILES} files and folders")
    return files


def _entries(file: IO[bytes], limits: Limits, budget: Budget) -> Iterator[Entry]:
    head = file.read(SNIFF_BYTES)
    file.seek(0)
    kind = detect(head)
    if kind == "zip":
        return _zip_entries(file, MAX_ARCHIVE_FILES)
    if kind is None:
        raise Refusal("is neither zip nor tar nor gzipped tar")
    return tar.entries(_counted(_plain(file, kind), limits, budget))


def _place(entry: Entry, dir_fd: int, names: NameTable, budget: Budget) -> int:
    """Write one entry; 1 for a file, 0 for a folder."""
    bare = entry.name[:-1] if entry.folder and entry.name.endswith("/") else entry.name
    if entry.folder and bare == ".":
        return _exhaust(entry)
    name = check_relative(bare, "archive")
    if entry.folder:
        names.add_folder(name)
        os.close(make_folders(dir_fd, name))
        return _exhaust(entry)
    names.add_file(name)
    with budget.file(dir_fd, name, executable=entry.executable) as write:
        for chunk in entry.chunks:
            write(chunk)
    return 1


def _exhaust(entry: Entry) -> int:
    for _ in entry.chunks:
        raise Refusal(f"{entry.name[:200]!r} is a folder with content")
    return 0


def _plain(file: IO[bytes], kind: Format) -> IO[bytes]:
    if kind == "tar":
        return file
    import gzip

    return gzip.GzipFile(fileobj=file, mode="rb")  # type: ignore[return-value]


def _counted(file: IO[bytes], limits: Limits, budget: Budget) -> Callable[[int], bytes]:
    """`read`, for as many bytes as an archive within the limits can have."""
    left = MAX_EXTRACTED_BYTES + _HEADER_BYTES * MAX_ARCHIVE_FILES

    def read(size: int) -> bytes:
        nonlocal left
        budget.deadline.check()
        data = file.read(size)
        left -= len(data)
        if left < 0:
            raise Refusal(f"more than {MAX_EXTRACTED_BYTES} bytes in all")
        return data

    return read


class _Guarded:
    """A zip file that shows no directory with more entries than allowed.

    The standard reader makes an object of each entry before anyone can count them.
    """

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._file, self._most = file, most
        self.opening = True
        self.seek, self.tell = file.seek, file.tell

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self.opening and size > self._most * _HEADER_BYTES:
            raise Refusal("its directory is too large")
        data = self._file.read(size)
        if self.opening and data.count(b"PK\x01\x02") > self._most:
            raise Refusal(f"more than {self._most} files and folders")
        return data


def _zip_entries(file: IO[bytes], most: int) -> Iterator[Entry]:
    guarded = _Guarded(file, most)
    with zipfile.ZipFile(guarded) as archive:
        guarded.opening = False
        for info in archive.infolist():
            yield _zip_entry(archive, info)


def _zip_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Entry:
    # `filename` was cut at a NUL; only the original is what other tools would see.
    name, mode = info.orig_filename, info.external_attr >> 16
    if info.flag_bits & 0x1:
        raise Refusal(f"{name[:200]!r} is encrypted")
    if info.compress_type not in _ZIP_METHODS:
        raise Refusal(f"{name[:200]!r} is compressed by an unknown method")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise Refusal(f"{name[:200]!r} is a link or a device")
    folder = name.endswith("/") or stat.S_ISDIR(mode)
    return Entry(name, folder, bool(mode & 0o111), _zip_chunks(archive, info))


def _zip_chunks(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(info) as content:
        while chunk := content.read(_CHUNK):
            yield chunk
