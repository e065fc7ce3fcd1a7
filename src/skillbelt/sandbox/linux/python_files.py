"""The parts of a Python to mount: its own folder as a whole, else only the files that it needs.

A prefix may hold anything else: the home of the user, or `~/.local` with keys and state.
"""

import os
import pwd
import re
from collections.abc import Iterator
from contextlib import suppress

from skillbelt.files.contain import below

# The entries of a folder that holds only a Python.
_TOP = {"bin", "include", "lib", "lib64", "share", "BUILD"}
_SHARE = {"doc", "jupyter", "man", "terminfo"}
_LIB = ("lib", "pkgconfig", "python3", "itcl", "tcl", "tdbc", "thread", "tk")
_FRAMEWORK = "/Python.framework/Versions/"
# The libraries that Python and its standard library are linked with, by soname.
_LIBRARY = re.compile(
    r"lib(python3|ssl|crypto|ffi|z|bz2|lzma|zstd|sqlite3|expat|uuid|mpdec|ncurses|panel|tinfo|"
    r"readline|edit|gdbm|db|nsl|tirpc|gcc_s|stdc\+\+|iconv|intl)[\w.+-]*\.so(\.\d+){1,2}"
)
_OWN = ("SKILLBELT_STATE_DIR", "SKILLBELT_CACHE_DIR")
_HOMES = (
    ("XDG_STATE_HOME", ".local/state"),
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_DATA_HOME", ".local/share"),
)


def shown_of(program: str, prefix: str) -> tuple[str, ...]:
    """Return the folders and files that a Python needs; none when mounting them is not safe."""
    private = private_folders()
    prefix = os.path.realpath(prefix)
    if _is_alone(prefix) and not _holds(prefix, private):
        return (prefix,)
    parts = (*_programs(program, prefix), *_libraries(prefix))
    standard = tuple(_standard(prefix))
    if not standard or any(_holds(os.path.realpath(part), private) for part in standard):
        return ()
    return (*parts, *standard)


def private_folders() -> frozenset[str]:
    """Return the private folders of the user, resolved."""
    return frozenset(map(os.path.realpath, _private()))


def holds_private(path: str, private: frozenset[str]) -> bool:
    """Whether the path is or contains one of the private folders."""
    return _holds(os.path.realpath(path), private)


def _private() -> Iterator[str]:
    """Yield the private folders: no mount may be or contain one of them."""
    homes = [os.environ.get("HOME", "")]
    with suppress(KeyError):  # a user that the system does not know
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    for home in (home for home in homes if os.path.isabs(home)):
        yield home
        yield from (os.path.join(home, usual) for _, usual in _HOMES)
    chosen = (os.environ.get(name, "") for name in (*_OWN, *(name for name, _ in _HOMES)))
    yield from filter(os.path.isabs, chosen)
    with suppress(FileNotFoundError):  # it was removed
        yield os.getcwd()


def _holds(folder: str, private: frozenset[str]) -> bool:
    return any(below(path, folder) for path in private)


def _is_alone(prefix: str) -> bool:
    """Whether the folder contains only a Python."""
    if _FRAMEWORK in f"{prefix}/":
        return True
    libraries = {*_names(prefix, "lib"), *_names(prefix, "lib64")}
    return (
        not os.path.basename(prefix).startswith(".")
        and _names(prefix) <= _TOP
        and _names(prefix, "share") <= _SHARE
        and all(name.startswith(_LIB) for name in libraries)
    )


def _names(*path: str) -> set[str]:
    """Return the names in the folder; none when it does not exist."""
    try:
        return set(os.listdir(os.path.join(*path)))
    except FileNotFoundError:
        return set()
    except OSError:
        return {""}  # a name that no Python has, so the folder counts as shared


def _programs(program: str, prefix: str) -> Iterator[str]:
    """Yield the program and its short names."""
    yield program
    for name in ("python3", "python"):
        path = os.path.join(prefix, "bin", name)
        if path != program and os.path.realpath(path) == program:
            yield path


def _libraries(prefix: str) -> Iterator[str]:
    for name in sorted(_names(prefix, "lib")):
        path = os.path.join(prefix, "lib", name)
        if _LIBRARY.fullmatch(name) and os.path.isfile(path):
            yield path


def _standard(prefix: str) -> Iterator[str]:
    """Yield the folders of the standard library."""
    for above in ("lib", "lib64"):
        for name in sorted(_names(prefix, above)):
            path = os.path.join(prefix, above, name)
            if name.startswith("python3") and os.path.isfile(os.path.join(path, "os.py")):
                yield path
