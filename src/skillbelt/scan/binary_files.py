"""Look into files that are not text: programs, archives, and the metadata of images and documents.

Nothing is unpacked to the disk. Every step has a bound: members, bytes, depth.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from posixpath import splitext
from typing import TYPE_CHECKING

from skillbelt.late import Late
from skillbelt.records import NamedTuple
from skillbelt.scan.ledger import Ledger
from skillbelt.scan.prose import read_prose
from skillbelt.text import Lazy

if TYPE_CHECKING:
    import tarfile
    import zipfile

    from skillbelt.scan import documents
else:  # cost: 6 ms, only for archives
    tarfile, zipfile = Late("tarfile"), Late("zipfile")
    documents = Late("skillbelt.scan.documents")  # cost: 1 ms, only for documents

MAX_MEMBERS = 200
MAX_MEMBER_BYTES = 512 * 2**10
MAX_ARCHIVE_BYTES = 8 * 2**20
MAX_ARCHIVE_DEPTH = 2
_PROGRAMS = (
    (b"\x7fELF", "an ELF program"), (b"MZ", "a Windows program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program"), (b"\xce\xfa\xed\xfe", "a macOS program"),
    (b"\xca\xfe\xba\xbe", "a macOS program or a Java class"), (b"dex\n", "an Android program"),
)  # fmt: skip
_DOCUMENTS = frozenset(
    (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".txt", ".md", ".csv", ".json", ".docx",
     ".xlsx", ".pptx", ".svg", ".ico", ".mp3", ".mp4", ".html", ".yaml", ".ttf")
)  # fmt: skip
_COMPILED = (".pyc", ".pyo", ".class", ".dex", ".so", ".dll", ".dylib", ".exe", ".node")
_OFFICE = (".docx", ".xlsx", ".pptx", ".odt", ".ods", ".odp", ".epub", ".docm", ".xlsm", ".pptm",
           ".dotx", ".potx", ".xltx")  # fmt: skip
_PRINTABLE = Lazy(rb"[\x20-\x7e\t\r\n]{24,4000}")
_JPEG_COMMENT = Lazy(rb"\xff[\xfe\xe1](..)", re.DOTALL)
_PDF_INFO = Lazy(
    rb"/(?:Title|Subject|Keywords|Author|Producer|Creator)\s*\(((?:[^()\\]|\\.){20,2000})\)"
)

ReadMember = Callable[[str, bytes, int], None]


class Opened(NamedTuple):
    """A member of an archive."""

    name: str
    data: bytes


def read_binary(path: str, data: bytes, ledger: Ledger, read: ReadMember, depth: int) -> None:
    """Note what a binary file is, and read what is in it with `read`."""
    ledger.path, ledger.first_line = path, 1
    ending = splitext(path)[1].lower()
    program = next((what for magic, what in _PROGRAMS if data.startswith(magic)), "")
    if program and (program != "a Windows program" or b"PE\0\0" in data[:1024]):
        rule = "disguised-file" if ending in _DOCUMENTS else "compiled-code"
        ledger.find(rule, 1, f"{path} is {program}", "note" if ending in _LIBRARIES else None)
        _search_strings(data, ledger)
    elif ending in _COMPILED:
        ledger.find("compiled-code", 1, path)
        _search_strings(data, ledger)
    elif data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        _read_zip(path, data, ledger, read, depth)
    elif data.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ")) or _is_tar(data):
        _read_tar(path, data, ledger, read, depth)
    elif data.startswith((b"7z\xbc\xaf", b"Rar!")):
        ledger.find("nested-archive", 1, path, None)
        ledger.miss(f"{path}: an archive of a kind that is not opened")
    else:
        for text in _find_metadata(data):
            _judge_metadata(text, path, ledger)
        if data.startswith(b"%PDF"):
            _judge_texts(documents.read_pdf(data), path, ledger)


_LIBRARIES = frozenset((".wasm", ".node", ".so", ".dylib"))


def _search_strings(data: bytes, ledger: Ledger) -> None:
    for number, match in enumerate(_PRINTABLE.finditer(data[:MAX_ARCHIVE_BYTES])):
        if number > 2_000:
            return
        if b"://" in match[0]:
            ledger.names_url(match[0].decode("ascii", "replace"), 1)


def _is_tar(data: bytes) -> bool:
    return data[257:262] == b"ustar"


def _read_zip(path: str, data: bytes, ledger: Ledger, read: ReadMember, depth: int) -> None:
    office = splitext(path)[1].lower() in _OFFICE
    if depth >= MAX_ARCHIVE_DEPTH:
        ledger.find("nested-archive", 1, path)
        return
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            if any(info.flag_bits & 1 for info in infos):
                ledger.find("locked-archive", 1, path)
            members = _list_zip_members(archive, infos, office)
            _read_members(path, members, ledger, read, depth, office=office)
            if len(infos) > MAX_MEMBERS and not office:
                ledger.find("nested-archive", 1, f"{path} has {len(infos):,} entries")
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError,
            zlib.error, EOFError, KeyError, IndexError, OverflowError) as error:  # fmt: skip
        ledger.miss(f"{path}: {type(error).__name__}")


def _list_zip_members(
    archive: zipfile.ZipFile, infos: list[zipfile.ZipInfo], office: bool
) -> Iterator[Opened]:
    for info in infos[:MAX_MEMBERS]:
        if info.is_dir() or info.flag_bits & 1:
            continue
        if office and _DULL_MEMBER.search(info.filename):
            continue
        with archive.open(info) as file:
            yield Opened(info.filename, file.read(MAX_MEMBER_BYTES))


# Members of office documents that say nothing and run nothing.
_DULL_MEMBER = Lazy(
    r"(?i)\A(?!docProps/)[^\n]{0,300}(?:\.(?:rels|jpe?g|png|gif|emf|wmf|svg|ttf|odttf|fntdata|css)"
    r"|(?:theme|styles|settings|webSettings|fontTable|numbering|presProps|tableStyles|viewProps"
    r"|\[Content_Types\]|mimetype)[^/\n]{0,40}|slide(?:Layouts|Masters)/[^\n]{1,99})\Z"
)


def _read_office_member(
    path: str, member: Opened, ledger: Ledger, read: ReadMember, depth: int
) -> None:
    """Read what a member says as prose; as a file if it is none of a document's own parts."""
    name = f"{path}!{member.name}"
    if documents.says(member.name):
        ledger.path, ledger.first_line = name, 1
        _judge_texts(documents.read_office(member.data), name, ledger)
    elif b"\0" in member.data[:4096] or member.name.lower().endswith((".xml", ".vml")):
        read(name, member.data, depth + 1)
        if _HOLDS_PROGRAM.search(member.data):
            ledger.find("compiled-code", 1, f"{name} holds a program")
    else:
        read(name, member.data, depth + 1)
        # No document needs a plain text inside, while a script can take one out and run it.
        ledger.path, ledger.first_line = name, 1
        before, ledger.may_be_prose = ledger.may_be_prose, True
        try:
            ledger.read_shell(member.data.decode("utf-8", "replace"), 1, ledger)
        finally:
            ledger.may_be_prose = before


# A Windows program inside of an object, or the name of a script that opens with a click.
_HOLDS_PROGRAM = Lazy(
    rb"MZ[\x00-\xff]{58}[\x00-\xff]{0,1000}?PE\x00\x00|This program cannot be run in DOS mode"
    rb"|[\w -]{1,60}\.(?:exe|scr|bat|cmd|vbs|vbe|js|jse|hta|ps1|lnk|wsf)\x00"
)


def _judge_texts(texts: Iterator[documents.DocumentText], path: str, ledger: Ledger) -> None:
    """Note orders in the text of a document, and whether a reader of it sees them."""
    for one in texts:
        ledger.spend(1 + len(one.text) // 500)
        if one.how == "hidden":
            _judge_metadata(one.text, path, ledger)
        else:
            before = len(ledger.findings)
            read_prose(one.text, 1, ledger)
            # Papers speak of attacks and quote them, in ways that prose alone does not.
            for at, found in enumerate(ledger.findings[before:], before):
                if found.kind == "block":
                    ledger.findings[at] = found._replace(kind="ask")


def _read_tar(path: str, data: bytes, ledger: Ledger, read: ReadMember, depth: int) -> None:
    if depth >= MAX_ARCHIVE_DEPTH:
        ledger.find("nested-archive", 1, path)
        return
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|*") as archive:
            _read_members(path, _list_tar_members(archive), ledger, read, depth)
    except (tarfile.TarError, OSError, ValueError, EOFError, zlib.error, OverflowError) as error:
        try:
            plain = zlib.decompressobj(47).decompress(data, MAX_MEMBER_BYTES)
        except zlib.error:
            ledger.miss(f"{path}: {type(error).__name__}")
        else:  # a compressed file that holds no archive is one member
            read(f"{path}!{splitext(path)[0].rpartition('/')[2]}", plain, depth + 1)


def _list_tar_members(archive: tarfile.TarFile) -> Iterator[Opened]:
    for number, member in enumerate(archive):
        if number >= MAX_MEMBERS:
            return
        file = archive.extractfile(member) if member.isfile() else None
        if file is not None:
            yield Opened(member.name, file.read(MAX_MEMBER_BYTES))


def _read_members(
    path: str,
    members: Iterator[Opened],
    ledger: Ledger,
    read: ReadMember,
    depth: int,
    *,
    office: bool = False,
) -> None:
    left = MAX_ARCHIVE_BYTES
    for member in members:
        left -= len(member.data)
        if left < 0:
            ledger.path, ledger.first_line = path, 1
            ledger.find("nested-archive", 1, path)
            return
        if member.name.endswith("vbaProject.bin"):
            ledger.path, ledger.first_line = path, 1
            ledger.find("compiled-code", 1, f"{path} holds macros")
        if office:
            _read_office_member(path, member, ledger, read, depth)
        else:
            read(f"{path}!{member.name}", member.data, depth + 1)


def _find_metadata(data: bytes) -> Iterator[str]:
    """Yield the texts in the metadata of an image or a document."""
    if data.startswith(b"\x89PNG"):
        yield from _find_png_texts(data)
    elif data.startswith(b"\xff\xd8"):
        for number, match in enumerate(_JPEG_COMMENT.finditer(data[: 2**20])):
            if number > 20:
                break
            size = int.from_bytes(match[1], "big")
            yield from _find_strings(data[match.end() : match.end() + min(size, 8_000)])
    elif data.startswith(b"GIF8"):
        yield from _find_strings(data[:8_000])
    elif data.startswith(b"%PDF"):
        for match in _PDF_INFO.finditer(data[: 2**20]):
            yield match[1].decode("utf-8", "replace")


def _find_png_texts(data: bytes) -> Iterator[str]:
    at, chunks = 8, 0
    while at + 8 <= len(data) and chunks < 200:
        size = int.from_bytes(data[at : at + 4], "big")
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + min(size, 16_000)]
        if kind in (b"tEXt", b"iTXt"):
            yield body.replace(b"\0", b" ").decode("utf-8", "replace")
        if kind in (b"zTXt", b"iTXt"):
            packed = body.partition(b"\0")[2][1:]
            if kind == b"iTXt":  # a method, a language and a translated keyword come first
                packed = packed[1:].partition(b"\0")[2].partition(b"\0")[2]
            with suppress(zlib.error):
                yield zlib.decompressobj().decompress(packed, 16_000).decode("utf-8", "replace")
        at, chunks = at + 12 + size, chunks + 1


def _find_strings(data: bytes) -> Iterator[str]:
    for match in _PRINTABLE.finditer(data):
        yield match[0].decode("ascii", "replace")


def _judge_metadata(text: str, path: str, ledger: Ledger) -> None:
    before = len(ledger.findings)
    read_prose(text, 1, ledger)
    found = any(one.kind != "note" for one in ledger.findings[before:])
    if found or _ADDRESSES_MODEL.search(text):
        ledger.find("hidden-metadata", 1, text)


# Hidden text that speaks to the program that reads it.
_ADDRESSES_MODEL = Lazy(
    r"(?im)^\W{0,9}(?:(?:dear|hey|hi|note to(?: the)?|to the) )?(?:ai )?(?:assistants?|agents?"
    r"|ai|claude|models?|llms?|gpt|copilot)\b(?:\s?[:,]\s{0,9}(?:after|before|when|while|if|please|always|never"
    r"|do|you|ignore|upload|send|read|run|add|include|tell|say|also|as)\b"
    r"| (?:must|reading|that reads?)\b)"
)
