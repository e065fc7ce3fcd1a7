"""soffice and libreoffice inside a run: the program itself, or its library where that cannot start.

LibreOffice listens on a Unix socket, and neither a run with a network nor one under Landlock may:
the program then exits silently. Its library converts files without a socket. Run as `python3 -I
office.py NAME ARGUMENTS...` by the interpreter of the run, as text: it may run where this package
cannot be read, so it imports only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

# The library of the system, or of the vendor's builds.
_LIBRARIES = ("libmergedlo.so", "libsofficeapp.so")
# Options that take a word, those that only prevent windows, and those that ask the program about
# itself.
_VALUES = frozenset(("convert-to", "outdir"))
_QUIET = frozenset(
    ("headless", "invisible", "norestore", "nologo", "nodefault", "nolockcheck", "nocrashreport",
     "nofirststartwizard", "minimized", "quickstart", "safe-mode", "writer", "calc", "impress",
     "draw", "view")
)  # fmt: skip
_ABOUT = frozenset(("version", "help", "h", "?"))
# The positions of functions in the tables of the library, which only grow at the end.
_DESTROY, _LOAD, _SAVE_AS, _ERROR = 1, 2, 2, 3


class Conversion(NamedTuple):
    """The arguments of `--convert-to`: the ending, options of the filter, the folder, the files."""

    ending: str
    options: str
    folder: str
    files: tuple[str, ...]


def main(name: str, words: list[str]) -> int:
    """Act as the program of that name; return the exit code."""
    program = _real_program(name)
    if not program:
        _fail(f"{name}: command not found", 127)
    if can_listen() or any(word.lstrip("-") in _ABOUT for word in words if word.startswith("-")):
        _become(program, words)
    wanted = read_conversion(words)
    if wanted is None:
        _fail(
            f"{name}: LibreOffice listens at a socket, which runs with a network and runs under "
            f"Landlock may not; here it only converts files ({name} --headless --convert-to pdf "
            "FILE). Run this without hosts, in bubblewrap or a container"
        )
    library = _library(program)
    if not library:
        _fail(
            f"{name}: LibreOffice listens at a socket, which runs with a network and runs under "
            "Landlock may not, and its library cannot be found beside it. Run this without hosts, "
            "in bubblewrap or a container"
        )
    return _convert(library, wanted)


def can_listen() -> bool:
    """Whether this run may create a Unix socket."""
    try:
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


def read_conversion(words: list[str]) -> Conversion | None:
    """Return the conversion that the arguments ask for; None for anything else."""
    values: dict[str, str] = {}
    files: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        option, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or word == "-":
            files.append(word)
        elif option in _VALUES:
            values[option] = value if equals or not rest else rest.pop(0)
        elif option not in _QUIET and not option.startswith("env:"):
            return None
    kind, _, filtered = values.get("convert-to", "").partition(":")
    if not kind or not files:
        return None
    options = filtered.partition(":")[2]
    return Conversion(kind, options, values.get("outdir") or ".", tuple(files))


def _fail(text: str, code: int = 1) -> NoReturn:
    print(text, file=sys.stderr)
    sys.exit(code)


def _real_program(name: str) -> str:
    """Return the program of that name that this one replaces on the PATH; "" for none."""
    own = os.path.dirname(os.path.abspath(__file__))
    folders = [os.path.join(own, ".real"), "/usr/local/bin", "/usr/bin", "/bin"]
    return shutil.which(name, path=":".join(folders)) or ""


def _become(program: str, words: list[str]) -> NoReturn:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:  # LibreOffice looks for the home of a user without a name only here
        home = os.path.join(os.environ.get("HOME") or "/tmp", ".config")
        with suppress(OSError):
            os.makedirs(home, exist_ok=True)
            os.environ.setdefault("XDG_CONFIG_HOME", home)
    try:
        os.execv(program, [program, *words])
    except OSError as error:
        _fail(f"{program}: {error.strerror}", 126)


def _library(program: str) -> str:
    folder = os.path.dirname(os.path.realpath(program))
    paths = (os.path.join(folder, name) for name in _LIBRARIES)
    return next((path for path in paths if os.path.isfile(path)), "")


def _convert(library: str, wanted: Conversion) -> NoReturn:
    profile = tempfile.mkdtemp(prefix="office-")
    try:
        done = _convert_all(library, wanted, profile)
    finally:
        shutil.rmtree(profile, ignore_errors=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if done else 1)  # its threads do not end by themselves


def _convert_all(library: str, wanted: Conversion, profile: str) -> bool:
    hook = ctypes.CDLL(library).libreofficekit_hook_2
    hook.restype, hook.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_char_p)
    office = hook(os.path.dirname(library).encode(), Path(profile).as_uri().encode())
    if not office:
        _fail("soffice: the library of LibreOffice cannot be started")
    os.makedirs(wanted.folder, exist_ok=True)
    done = [_convert_one(office, wanted, one) for one in wanted.files]
    return all(done)


def _convert_one(office: int, wanted: Conversion, path: str) -> bool:
    text = ctypes.c_char_p
    source = Path(os.path.abspath(path))
    target = Path(os.path.abspath(wanted.folder), f"{source.stem}.{wanted.ending}")
    document = _function(office, _LOAD, ctypes.c_void_p, text)(office, _uri(source))
    if document:
        save = _function(document, _SAVE_AS, ctypes.c_int, text, text, text)
        options = wanted.options.encode() or None
        saved = save(document, _uri(target), wanted.ending.encode(), options)
        _function(document, _DESTROY, None)(document)
        if saved:
            print(f"convert {source} -> {target}")
            return True
    said = _function(office, _ERROR, text)(office)
    why = said.decode("utf-8", "replace") if said else "the file cannot be read or converted"
    print(f"soffice: {path}: {why}", file=sys.stderr)
    return False


def _uri(path: Path) -> bytes:
    return path.as_uri().encode()


def _function(thing: int, place: int, result: object, *arguments: object) -> Callable[..., Any]:
    """Return a function of a library object, which begins with a pointer to its table."""
    pointers = ctypes.POINTER(ctypes.c_void_p)
    table = ctypes.cast(ctypes.cast(thing, pointers)[0], pointers)
    kind = ctypes.CFUNCTYPE(result, ctypes.c_void_p, *arguments)  # type: ignore[arg-type]
    return kind(table[place] or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
