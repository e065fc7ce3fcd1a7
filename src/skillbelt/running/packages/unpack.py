"""Unpacks wheels into a new environment and compiles their bytecode, in an install sandbox.

Run as `python3 -I -S -B -W ignore unpack.py PLACE JOBS WHEEL...` by the bare interpreter of the
environment, as text: it may run where this package cannot be read. It creates `venv`, as the
environment that will be at PLACE. The wheels have the expected hashes, and are hostile all the
same; none of their code runs here. It exits with UNUSUAL for a wheel that uv should handle.

It imports little: for a small package, importing `zipfile`, `re` and `py_compile` takes longest. It
works with Python 3.8, which a script may ask for.
"""

from __future__ import annotations

import _imp
import marshal
import mmap
import os
import sys
import zlib
from _frozen_importlib_external import MAGIC_NUMBER, cache_from_source

TYPE_CHECKING = False  # `typing` takes as long as everything above
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

UNUSUAL = 3
_END, _ENTRY, _LOCAL = b"PK\x05\x06", b"PK\x01\x02", b"PK\x03\x04"
_END_BYTES, _ENTRY_BYTES, _LOCAL_BYTES = 22, 46, 30
_MAX_COMMENT = 2**16
_ENCRYPTED, _UTF8 = 0x1, 0x800
_STORED, _DEFLATED = 0, 8
_PIECE = 2**20
_MANY_FILES = 40  # from this many on, several processes compile
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LIBRARY = "python{}.{}{}".format(
    *sys.version_info[:2], "t" if "t" in getattr(sys, "abiflags", "") else ""
)
_SITE, _PROGRAMS = f"venv/lib/{_LIBRARY}/site-packages", "venv/bin"
# As uv writes it: with the interpreter beside the program, so that an environment can be moved.
_HEAD = """\
#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/'python' "$0" "$@"
' '''
"""
_SCRIPT = """\
import sys
from {module} import {first}
if __name__ == "__main__":
    sys.exit({called}())
"""


class Unusual(Exception):
    """A wheel that uv should handle."""


# Archives


class Archive:
    """A zip archive without the zip64 extensions; ValueError for a damaged one."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        end = self.data.rfind(_END, max(0, len(self.data) - _MAX_COMMENT - _END_BYTES))
        if end < 0:
            raise ValueError("it is not a zip archive")
        count, at = self.number(end + 10, 2), self.number(end + 16, 4)
        if count == 0xFFFF or at == 0xFFFFFFFF:
            raise Unusual
        self.files: dict[str, ArchiveFile] = {}
        for _ in range(count):
            one = ArchiveFile(self, at)
            at = one.next
            if one.name in self.files:
                raise Unusual
            if not one.name.endswith("/"):
                self.files[one.name] = one

    def number(self, at: int, size: int) -> int:
        """Return the number at that place."""
        return int.from_bytes(self.data[at : at + size], "little")

    def text(self, name: str) -> str:
        """Return a small text; empty without that file."""
        found = self.files.get(name)
        return b"".join(found.pieces()).decode("utf-8", "replace") if found else ""


class ArchiveFile:
    """One file of an archive, whose directory entry is at that offset."""

    def __init__(self, archive: Archive, at: int) -> None:
        number = archive.number
        if archive.data[at : at + 4] != _ENTRY:
            raise ValueError("its list of files is damaged")
        self._archive = archive
        flags, self._method = number(at + 8, 2), number(at + 10, 2)
        self._sum, self._packed, self._size = (number(at + far, 4) for far in (16, 20, 24))
        self._at = number(at + 42, 4)
        name, extra, comment = (number(at + far, 2) for far in (28, 30, 32))
        self.next = at + _ENTRY_BYTES + name + extra + comment
        self.is_program = bool(number(at + 40, 2) & 0o111)
        if 0xFFFFFFFF in (self._packed, self._size, self._at) or flags & _ENCRYPTED:
            raise Unusual
        written = archive.data[at + _ENTRY_BYTES : at + _ENTRY_BYTES + name]
        try:
            self.name = written.decode("utf-8" if flags & _UTF8 else "ascii")
        except UnicodeDecodeError:
            raise Unusual from None

    def pieces(self) -> Iterator[bytes]:
        """Yield the content.

        ValueError when its size or checksum differs from the directory entry.
        """
        left, found = self._size, 0
        for piece in self._unpacked():
            left -= len(piece)
            found = zlib.crc32(piece, found)
            if left < 0:
                break
            yield piece
        if left or found != self._sum:
            raise ValueError(f"{self.name} is damaged")

    def _unpacked(self) -> Iterator[bytes]:
        number, data = self._archive.number, self._archive.data
        if data[self._at : self._at + 4] != _LOCAL:
            raise ValueError(f"{self.name} is damaged")
        start = self._at + _LOCAL_BYTES + number(self._at + 26, 2) + number(self._at + 28, 2)
        if self._method not in (_STORED, _DEFLATED):
            raise Unusual
        inflater = zlib.decompressobj(-zlib.MAX_WBITS) if self._method == _DEFLATED else None
        for at in range(start, start + self._packed, _PIECE):
            piece = data[at : min(at + _PIECE, start + self._packed)]
            if inflater is None:
                yield piece
            while inflater is not None and piece:
                yield inflater.decompress(piece, _PIECE)
                piece = inflater.unconsumed_tail
        if inflater is not None:
            yield inflater.flush()  # output that did not fit into the last piece


# Wheels


class Wheel:
    """One wheel, and where its files go."""

    def __init__(self, file: str) -> None:
        self._archive = Archive(file)
        name, version = file.split("-")[:2]
        infos = {path.partition("/")[0] for path in self._archive.files}
        infos = {one for one in infos if one.endswith(".dist-info")}
        self._info = infos.pop() if len(infos) == 1 else ""
        self._stem = self._info[: -len(".dist-info")]
        if _normalize_name(self._stem) != _normalize_name(f"{name}-{version}"):
            raise Unusual
        about = _fields(self._archive.text(f"{self._info}/METADATA"))
        if _normalize_name(f"{about.get('name')}-{about.get('version')}") != _normalize_name(
            self._stem
        ):
            raise Unusual
        header = self._archive.text(f"{self._info}/WHEEL")
        if "\nWheel-Version: 1." not in f"\n{header}":
            raise Unusual
        self._headers = f"venv/include/site/{_LIBRARY}/{name}"

    def install(self) -> None:
        """Write all files, a program for each entry point, and the list of them."""
        record = f"{self._info}/RECORD"
        rows = self._archive.text(record).splitlines()
        if not rows:
            raise Unusual
        moved: dict[str, str] = {}
        for path, one in self._archive.files.items():
            place, is_script = self._target_of(path)
            if path == record:
                continue
            if is_script:
                _write(place, _with_interpreter(one.pieces()), True)
            else:
                _write(place, one.pieces(), one.is_program)
            if place != f"{_SITE}/{path}":
                moved[path] = place
        rows = [row for row in rows if row.partition(",")[0].strip('"') not in moved]
        rows += map(_row, moved.values())
        for name, text in _entry_points(self._archive.text(f"{self._info}/entry_points.txt")):
            _write(f"{_PROGRAMS}/{name}", [text.encode()], True)
            rows.append(_row(f"{_PROGRAMS}/{name}"))
        installer = f"{_SITE}/{self._info}/INSTALLER"
        _write(installer, [b"skillbelt\n"], False)
        rows.append(_row(installer))
        text = "".join(f"{row}\n" for row in rows)
        _write(f"{_SITE}/{record}", [text.encode()], False)

    def _target_of(self, path: str) -> tuple[str, bool]:
        """Return the path of a file, and whether it is a program; ValueError for a path outside."""
        parts = path.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\\" in path or "\0" in path:
            raise ValueError(f"it has a file at {path!r}")
        if parts[0] != f"{self._stem}.data":
            return f"{_SITE}/{path}", False
        folders = {"purelib": _SITE, "platlib": _SITE, "scripts": _PROGRAMS,
                   "headers": self._headers, "data": "venv"}  # fmt: skip
        if len(parts) < 3 or parts[1] not in folders:
            raise Unusual
        return "/".join((folders[parts[1]], *parts[2:])), parts[1] == "scripts"


def _normalize_name(name: str) -> str:
    """Return a name and version in one spelling."""
    parts = name.lower().replace("_", "-").replace(".", "-").split("-")
    return "-".join(filter(None, parts))


def _fields(text: str) -> dict[str, str]:
    """Return the fields before the first empty line, the first of each name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line:
            break
        name, _, value = line.partition(":")
        found.setdefault(name.lower(), value.strip())
    return found


def _row(place: str) -> str:
    path = os.path.relpath(place, _SITE)
    return '"{}",,'.format(path.replace('"', '""')) if set(',"\n') & set(path) else f"{path},,"


def _with_interpreter(pieces: Iterable[bytes]) -> list[bytes]:
    """Return a script with our interpreter where its first line asks for one."""
    data = b"".join(pieces)
    first, _, rest = data.partition(b"\n")
    return [_HEAD.encode(), rest] if first.startswith(b"#!python") else [data]


def _entry_points(text: str) -> Iterator[tuple[str, str]]:
    """Yield the programs that a package declares: name and text."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif section in ("console_scripts", "gui_scripts") and line and line[0] not in "#;":
            name, _, value = (part.strip() for part in line.partition("="))
            module, _, called = (part.strip() for part in value.partition("[")[0].partition(":"))
            words = [*module.split("."), *called.split(".")]
            if not name or "/" in name or name in (".", "..") or "\0" in name:
                raise Unusual
            if not all(map(str.isidentifier, words)):
                raise Unusual
            first = called.partition(".")[0]
            yield name, _HEAD + _SCRIPT.format(module=module, first=first, called=called)


def _write(path: str, pieces: Iterable[bytes], is_program: bool) -> None:
    """Write a file; a file of another package is replaced, as by any installer."""
    mode = 0o755 if is_program else 0o644
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
    try:
        handle = os.open(path, _NEW_FILE, mode)
    except FileExistsError:
        os.unlink(path)
        handle = os.open(path, _NEW_FILE, mode)
    with open(handle, "wb", buffering=0) as file:
        for piece in pieces:
            while piece:
                piece = piece[file.write(piece) :]


# Bytecode


def _compile_all(place: str, jobs: int) -> None:
    """Compile all modules for their place, in other processes: some input crashes a compiler."""
    files = sorted(
        f"{folder}/{name}"
        for folder, _, names in os.walk("venv/lib")
        for name in names
        if name.endswith(".py")
    )
    count = jobs if len(files) >= _MANY_FILES else 1
    children = []
    for number in range(count if files else 0):
        child = os.fork()
        if not child:
            try:
                for path in files[number::count]:
                    _compile(path, place)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def _compile(path: str, place: str) -> None:
    """Compile a module without a check of its source.

    A file that cannot be compiled stays as it is.
    """
    try:
        with open(path, "rb") as file:
            source = file.read()
        code = compile(source, place + path[len("venv") :], "exec", dont_inherit=True)
        digest = _imp.source_hash(int.from_bytes(MAGIC_NUMBER, "little"), source)
        data = (MAGIC_NUMBER, (1).to_bytes(4, "little"), digest, marshal.dumps(code))
        _write(cache_from_source(path), [b"".join(data)], False)
    except Exception:
        return


def main(place: str, jobs: str, *wheels: str) -> int:
    """Create the environment; return the exit code."""
    for folder in (_SITE, _PROGRAMS):
        os.makedirs(folder)
    for file in wheels:
        try:
            Wheel(file).install()
        except Unusual:
            return UNUSUAL
        except (ValueError, OSError, zlib.error) as error:
            print(f"{file} cannot be unpacked: {error}")
            return 1
    _compile_all(place, int(jobs))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
