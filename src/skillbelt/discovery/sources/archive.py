"""Archives: zip, tar and gzipped tar, unpacked completely or not at all.

Limits are enforced while reading; sizes in headers are not trusted. The caller deletes the folder
when `unpack` raises.
"""

from __future__ import annotations

import gzip
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from skillbelt.discovery.sources import tar
from skillbelt.discovery.sources.address import ARCHIVE_ENDINGS
from skillbelt.discovery.sources.bounds import (
    MAX_ARCHIVE_FILES,
    MAX_EXTRACTED_BYTES,
    PullBudget,
    Refusal,
)
from skillbelt.discovery.sources.failure import OutOfTime, SourceFailure
from skillbelt.discovery.sources.tar import ArchiveEntry
from skillbelt.errors import ArchiveRefused, PathEscape
from skillbelt.files.contain import NameTable, check_relative, make_folders, open_folder
from skillbelt.values import SKILL_FILE

if TYPE_CHECKING:
    from skillbelt.discovery.sources.cache import Generation

Format = Literal["zip", "gzip", "tar"]

SNIFF_BYTES = tar.BLOCK
_CHUNK = 64 * 2**10
_HEADER_BYTES = 4096  # allowed for one tar entry besides its content
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def detect(head: bytes) -> Format | None:
    """Return the format of an archive by its first bytes (`SNIFF_BYTES` are enough), if any."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    return "tar" if tar.is_header(head[: tar.BLOCK]) else None


def unpack(file: IO[bytes], dir_fd: int, *, source: str, budget: PullBudget) -> int:
    """Write every file of the archive below the folder; return how many there were.

    Raises ArchiveRefused for anything unsafe, damaged or too large, OutOfTime at the budget's
    deadline, and OSError when this machine cannot write.
    """
    try:
        return _unpack(file, dir_fd, budget)
    except (OutOfTime, ArchiveRefused):
        raise
    except (Refusal, PathEscape) as error:
        raise ArchiveRefused(source, str(error)) from error
    except Exception as error:
        # Damaged input raises nearly any exception of zipfile, gzip or zlib; only an OSError with
        # a number comes from this machine.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ArchiveRefused(source, f"damaged: {error or type(error).__name__}") from error


def _unpack(file: IO[bytes], dir_fd: int, budget: PullBudget) -> int:
    names = NameTable("archive")
    files = 0
    for entry in _entries(file, budget):
        files += _write_entry(entry, dir_fd, names, budget)
        if len(names) > MAX_ARCHIVE_FILES:
            raise Refusal(f"more than {MAX_ARCHIVE_FILES} files and folders")
    return files


def _entries(file: IO[bytes], budget: PullBudget) -> Iterator[ArchiveEntry]:
    head = file.read(SNIFF_BYTES)
    file.seek(0)
    kind = detect(head)
    if kind == "zip":
        return _zip_entries(file, MAX_ARCHIVE_FILES)
    if kind is None:
        raise Refusal("is neither zip nor tar nor gzipped tar")
    return tar.entries(_bounded_read(_decompress(file, kind), budget))


def _write_entry(entry: ArchiveEntry, dir_fd: int, names: NameTable, budget: PullBudget) -> int:
    """Write one entry; 1 for a file, 0 for a folder."""
    bare = entry.name[:-1] if entry.folder and entry.name.endswith("/") else entry.name
    if entry.folder and bare == ".":
        return _check_empty(entry)
    name = check_relative(bare, "archive")
    if entry.folder:
        names.add_folder(name)
        os.close(make_folders(dir_fd, name))
        return _check_empty(entry)
    names.add_file(name)
    with budget.file(dir_fd, name, executable=entry.executable) as write:
        for chunk in entry.chunks:
            write(chunk)
    return 1


def _check_empty(entry: ArchiveEntry) -> int:
    for _ in entry.chunks:
        raise Refusal(f"{entry.name[:200]!r} is a folder with content")
    return 0


def _decompress(file: IO[bytes], kind: Format) -> IO[bytes]:
    if kind == "tar":
        return file
    return gzip.GzipFile(fileobj=file, mode="rb")  # type: ignore[return-value]


def _bounded_read(file: IO[bytes], budget: PullBudget) -> Callable[[int], bytes]:
    """Return a `read` that stops at the most bytes that an archive within the limits can have."""
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


class _BoundedZip:
    """A zip file whose directory may not have more entries than allowed.

    The standard reader creates an object for each entry before we can count them.
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


def _zip_entries(file: IO[bytes], most: int) -> Iterator[ArchiveEntry]:
    bounded = _BoundedZip(file, most)
    with zipfile.ZipFile(bounded) as archive:
        bounded.opening = False
        for info in archive.infolist():
            yield _zip_entry(archive, info)


def _zip_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> ArchiveEntry:
    # `filename` is cut at a NUL byte; other tools see the original.
    name, mode = info.orig_filename, info.external_attr >> 16
    if info.flag_bits & 0x1:
        raise Refusal(f"{name[:200]!r} is encrypted")
    if info.compress_type not in _ZIP_METHODS:
        raise Refusal(f"{name[:200]!r} is compressed by an unknown method")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise Refusal(f"{name[:200]!r} is a link or a device")
    folder = name.endswith("/") or stat.S_ISDIR(mode)
    return ArchiveEntry(name, folder, bool(mode & 0o111), _zip_chunks(archive, info))


def _zip_chunks(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(info) as content:
        while chunk := content.read(_CHUNK):
            yield chunk


# Where an archive goes in a staged copy


def unpack_into(part: str, file: IO[bytes], url: str, budget: PullBudget) -> None:
    """Unpack an archive below the folder; raises ArchiveRefused, or SourceFailure for no skill."""
    folder = open_folder(part)
    try:
        unpack(file, folder, source=url, budget=budget)
    finally:
        os.close(folder)
    if not _has_skill(part):
        raise SourceFailure(
            url,
            f"the archive has no {SKILL_FILE}",
            code="archive-no-skill",
            remedy=f"give an archive with a {SKILL_FILE}, or ask its publisher for one",
        )


def _has_skill(folder: str) -> bool:
    """Whether there is a SKILL.md, in any spelling: the scan reports a wrong one."""
    wanted = SKILL_FILE.lower()
    return any(name.lower() == wanted for _, _, names in os.walk(folder) for name in names)


def adopt_archive(stage: Generation, part: str, url: str) -> None:
    """Make the part the scanned folder; an archive that is itself a skill gets a folder name."""
    if os.path.isfile(os.path.join(part, SKILL_FILE)):
        stage.adopt(part, archive_name(url))
    else:
        stage.adopt(part)


def archive_name(url: str) -> str:
    """Return a folder name for an archive: its file name without the ending."""
    last = unquote(urlsplit(url).path).rpartition("/")[2]
    for ending in sorted(ARCHIVE_ENDINGS, key=len, reverse=True):
        if last.lower().endswith(ending):
            last = last[: -len(ending)]
            break
    return last if _SAFE_NAME.fullmatch(last) else _host_slug(url)


def skill_name(url: str) -> str:
    """Return a folder name for a single SKILL.md: the folder it is published in."""
    parent = unquote(urlsplit(url).path).rpartition("/")[0].rpartition("/")[2]
    return parent if _SAFE_NAME.fullmatch(parent) else _host_slug(url)


def _host_slug(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return re.sub(r"[^a-z0-9]+", "-", host.lower()).strip("-") or "skill"
