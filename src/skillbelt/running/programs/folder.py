"""A folder of programs that comes first on the PATH of every run: `python`, `uv`, `npx`, ...

A run cannot write to it: it lies beside the workspaces, is named by a hash of its content, and is
mounted read-only. Each process checks it once and creates it again if it differs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from skillbelt.running.programs.outside import find_outside
from skillbelt.sandbox.linux.identity import interpreter

PROGRAMS = ".programs"  # the folder beside the workspaces
REAL = ".real"  # the programs that ours replace on the PATH
# A separate folder: it comes before the package's program where that cannot start.
TSX = ".tsx"
MODULES = ".modules.cjs"
_OURS = ("pip", "pip3", "uv", "uvx")
_OFFICE = ("soffice", "libreoffice")
_LAUNCHER = '#!/bin/sh\nexec python3 -I "${{0%/*}}/{shim}" {name} "$@"\n'
# An image has its own programs; only the usual name of its interpreter may be missing.
_FOREIGN = {"python": '#!/bin/sh\nexec python3 "$@"\n'}
_HERE = os.path.dirname(os.path.abspath(__file__))
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_VERSIONED = re.compile(r"python3\.\d+")


class Programs(NamedTuple):
    """The folder, and the targets of its links outside the system's folders.

    `first` says whether it comes before the system's programs.
    """

    folder: str
    shown: tuple[str, ...] = ()
    first: bool = True


class _Wanted(NamedTuple):
    """The expected content of the folder: the text of each file, the target of each link."""

    files: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...] = ()
    shown: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """Return the name of the folder."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:32]


def provide_programs(place: str, *, path: str, project: str, foreign: bool = False) -> Programs:
    """Return the folder below `place`, created if it is missing.

    `path` is the PATH of the user, whose programs outside the system's folders are shown if
    `find_outside` finds them. A `foreign` system, such as an image, has its own.
    """
    wanted = _programs_of_image() if foreign else _programs_of_system(path, project)
    folder = os.path.join(place, wanted.hash)
    if not _is_intact(folder, wanted) or not os.path.isdir(folder):
        _is_intact.cache_clear()
        _create(folder, wanted)
    return Programs(folder, wanted.shown, first=not foreign)


@lru_cache(maxsize=64)
def _is_intact(folder: str, wanted: _Wanted) -> bool:
    """Whether the folder has exactly the expected content."""
    try:
        names = {os.path.relpath(os.path.join(above, name), folder)
                 for above, _, found in os.walk(folder) for name in found}  # fmt: skip
        if names != {name for name, _ in (*wanted.files, *wanted.links)}:
            return False
        for name, target in wanted.links:
            if os.readlink(os.path.join(folder, name)) != target:
                return False
        for name, text in wanted.files:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                if file.read() != text:
                    return False
    except (OSError, ValueError):
        return False
    return True


def _create(folder: str, wanted: _Wanted) -> None:
    """Create the folder aside and rename it into place; another process may have been faster."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    aside = tempfile.mkdtemp(dir=os.path.dirname(folder), prefix=".part-")
    for name, text in wanted.files:
        path = _prepare_path(aside, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o555 if text.startswith("#!") else 0o444)
    for name, target in wanted.links:
        os.symlink(target, _prepare_path(aside, name))
    os.chmod(aside, 0o755)
    if os.path.isdir(folder) and not _is_intact(folder, wanted):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        os.rename(aside, folder)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not os.path.isdir(folder):
            raise
    _is_intact.cache_clear()


def _prepare_path(folder: str, name: str) -> str:
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.chmod(os.path.dirname(path), 0o755)  # runs may have another user
    return path


def _programs_of_image() -> _Wanted:
    return _Wanted(tuple(_FOREIGN.items()))


@lru_cache(maxsize=8)
def _programs_of_system(path: str, project: str) -> _Wanted:
    python = interpreter()
    if python is None:
        return _Wanted(())
    found = find_outside(path, project)
    links = dict(found.links)
    has = {name for name in ("node", *_OFFICE) if name in links or _in_system(name)}
    before = (*_OURS, *_OFFICE, "npx")
    real = {f"{REAL}/{name}": links.pop(name) for name in before if name in links}
    versioned = os.path.basename(python.path)
    names = ("python", "python3", *((versioned,) if _VERSIONED.fullmatch(versioned) else ()))
    links |= dict.fromkeys(names, python.path)
    files = {".provided.py": _read_program("provided.py"), **_launch(".provided.py", *_OURS)}
    if "node" in has:
        files |= {
            MODULES: _read_program("modules.cjs"),
            ".resolve.mjs": _read_program("resolve.mjs"),
        }
        files |= _launch(".provided.py", "npx")
        files[f"{TSX}/tsx"] = _LAUNCHER.format(shim="../.provided.py", name="tsx")
    if sys.platform == "linux" and has & {*_OFFICE}:
        files |= {
            ".office.py": _read_program("office.py"),
            **_launch(".office.py", *has & {*_OFFICE}),
        }
    return _Wanted(tuple(sorted(files.items())), tuple(sorted({**links, **real}.items())),
                   found.shown)  # fmt: skip


def _in_system(name: str) -> bool:
    return shutil.which(name, path=_SYSTEM_PATH) is not None


def _read_program(name: str) -> str:
    with open(os.path.join(_HERE, name), encoding="utf-8") as file:
        return file.read()


def _launch(shim: str, *names: str) -> Mapping[str, str]:
    return {name: _LAUNCHER.format(shim=shim, name=name) for name in names}
