"""A folder of programs that stands first on the PATH of every run: `python`, `pip`, `uv`, `npx`.

Nothing that a run can write is in it: it lies beside the workspaces, is named by a hash of what it
holds, and is shown read-only. Each process looks through it once and makes it again if it differs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from skillbelt.running.programs.outside import find_outside
from skillbelt.sandbox.linux.identity import interpreter

PROGRAMS = ".programs"  # the folder beside the workspaces
REAL = ".real"  # the programs that ours stand before
_OURS = ("pip", "pip3", "uv", "uvx")
_SHIM = ".provided.py"
_LAUNCHER = '#!/bin/sh\nexec python3 -I "${{0%/*}}/{shim}" {name} "$@"\n'
# An image has programs of its own; only the usual name of its interpreter may be missing.
_FOREIGN = {"python": '#!/bin/sh\nexec python3 "$@"\n'}
_SHIM_SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "provided.py")
_VERSIONED = re.compile(r"python3\.\d+")


class Programs(NamedTuple):
    """The folder, and what the links in it lead to outside the system's folders.

    `first` says whether it stands before the system's programs.
    """

    folder: str
    shown: tuple[str, ...] = ()
    first: bool = True


class _Wanted(NamedTuple):
    """What the folder has to hold: the text of each file, the target of each link."""

    files: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...] = ()
    shown: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """The name of the folder."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:32]


def provide_programs(place: str, *, path: str, project: str, foreign: bool = False) -> Programs:
    """Return the folder below `place`, made if it is missing.

    `path` is the PATH of the user, whose programs outside the system's folders are shown as far as
    `find_outside` finds them. A `foreign` system, as that of an image, has its own.
    """
    wanted = _foreign() if foreign else _of_this_system(path, project)
    folder = os.path.join(place, wanted.hash)
    if not _checked(folder, wanted) or not os.path.isdir(folder):
        _checked.cache_clear()
        _make(folder, wanted)
    return Programs(folder, wanted.shown, first=not foreign)


@lru_cache(maxsize=64)
def _checked(folder: str, wanted: _Wanted) -> bool:
    """Whether the folder holds exactly what it should."""
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


def _make(folder: str, wanted: _Wanted) -> None:
    """Make the folder aside and rename it into place; another process may have been faster."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    aside = tempfile.mkdtemp(dir=os.path.dirname(folder), prefix=".part-")
    for name, text in wanted.files:
        path = os.path.join(aside, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o444 if name == _SHIM else 0o555)
    for name, target in wanted.links:
        path = os.path.join(aside, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.chmod(os.path.dirname(path), 0o755)  # runs may have another user
        os.symlink(target, path)
    os.chmod(aside, 0o755)
    if os.path.isdir(folder) and not _checked(folder, wanted):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        os.rename(aside, folder)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not os.path.isdir(folder):
            raise
    _checked.cache_clear()


def _foreign() -> _Wanted:
    return _Wanted(tuple(_FOREIGN.items()))


@lru_cache(maxsize=8)
def _of_this_system(path: str, project: str) -> _Wanted:
    python = interpreter()
    if python is None:
        return _Wanted(())
    found = find_outside(path, project)
    links = dict(found.links)
    real = {f"{REAL}/{name}": links.pop(name) for name in (*_OURS, "npx") if name in links}
    versioned = os.path.basename(python.path)
    names = ("python", "python3", *((versioned,) if _VERSIONED.fullmatch(versioned) else ()))
    links |= dict.fromkeys(names, python.path)
    has_node = "node" in links or shutil.which("node", path="/usr/local/bin:/usr/bin:/bin")
    files = _shims((*_OURS, *(("npx",) if has_node else ())))
    return _Wanted(tuple(sorted(files.items())), tuple(sorted({**links, **real}.items())),
                   found.shown)  # fmt: skip


def _shims(names: tuple[str, ...]) -> Mapping[str, str]:
    with open(_SHIM_SOURCE, encoding="utf-8") as file:
        text = file.read()
    return {_SHIM: text, **{name: _LAUNCHER.format(shim=_SHIM, name=name) for name in names}}
