"""uv and npm: where they are, and how they are called inside a room of their own.

A room is an empty folder in a sandbox. There is nothing of the user's in it, the only address it
reaches is that of the package index, and what is in it afterwards is data.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Container, Mapping
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple, Protocol

from skillbelt.errors import RunRefused
from skillbelt.permission.packages import Lock
from skillbelt.running.packages.declared import Needs
from skillbelt.running.packages.lockfiles import BASE, MAX_BYTES
from skillbelt.running.packages.shelves import Shelf
from skillbelt.untrusted_json import read_json

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_REQUIREMENTS, _PYLOCK, _LOCKED = "requirements.txt", "pylock.toml", "locked.txt"
_PACKAGE, _PACKAGE_LOCK = "package.json", "package-lock.json"
_QUIET = ("--quiet", "--no-python-downloads", "--no-config")
# What makes an environment usable by hand; nobody does that with one of ours.
_OWN_PROGRAMS = re.compile(r"python(3(\.\d+)?)?|(de)?activate(_this)?(\.\w+)?|pydoc\.bat")


class Step(NamedTuple):
    """One command inside. `shelf` is the index it may ask; None: it has no network.

    `folders` of this machine are there inside, at their own place.
    """

    argv: tuple[str, ...]
    seconds: float
    env: Mapping[str, str]
    shelf: Shelf | None = None
    folders: tuple[str, ...] = ()


class Room(Protocol):
    """An empty folder in a sandbox."""

    @property
    def inside(self) -> str:
        """Its path, as commands see it; they start there."""

    def put(self, name: str, data: bytes) -> None:
        """Put a file there."""

    def shown(self, program: str) -> str:
        """The path inside of a program of this machine."""

    def run(self, step: Step) -> tuple[int, str]:
        """Run a command; how it ended and what it said. RunRefused when a limit ended it."""

    def read(self, path: str, most: int) -> bytes:
        """A file that is there now; RunRefused when it is none."""

    def names(self, path: str) -> list[str]:
        """What lies in a folder there; nothing when there is none."""

    def copy(self, path: str, target: str, omitted: Container[str] = ()) -> None:
        """Copy what is in a folder, as data; RunRefused for what is neither file nor folder."""


class Rooms(Protocol):
    """Gives rooms, each for one installation."""

    @property
    def python(self) -> str:
        """A Python that can be run inside."""

    def folders_of(self, python: str) -> tuple[str, ...]:
        """What that Python needs to be there inside; RunRefused when it can not be there."""

    def open(self, max_bytes: int) -> AbstractContextManager[Room]:
        """A room, which is gone afterwards; RunRefused when no sandbox can hold an installer."""


# --- where they are ------------------------------------------------------------------------------


def find_uv(given: str, environ: Mapping[str, str]) -> str:
    """Where uv is; RunRefused with the remedy when there is none."""
    own = os.path.join(os.path.dirname(sys.executable), "uv")
    found = given or which("uv", environ) or (own if os.access(own, os.X_OK) else _packaged_uv())
    if not found or not os.access(found, os.X_OK):
        where = f"{given} can not be run" if given else "uv is not installed"
        raise RunRefused(f"{where}, and Python packages are installed with it: pip install uv")
    return os.path.abspath(found)


def _packaged_uv() -> str:
    try:
        from uv import find_uv_bin
    except ImportError:
        return ""
    with suppress(OSError):
        return os.fspath(find_uv_bin())
    return ""


def find_npm(given: str, environ: Mapping[str, str]) -> str:
    """Where npm is; RunRefused with the remedy when there is none."""
    found = given or which("npm", environ)
    if not found or not os.access(found, os.X_OK):
        where = f"{given} can not be run" if given else "npm is not installed"
        raise RunRefused(f"{where}, and Node.js packages are installed with it: install Node.js")
    return os.path.abspath(found)


def which(name: str, environ: Mapping[str, str]) -> str:
    """Found on the PATH, of which a relative folder is nobody's."""
    folders = [one for one in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(one)]
    return shutil.which(name, path=os.pathsep.join(folders)) or ""


# --- how they are called -------------------------------------------------------------------------


class Failed(Exception):
    """An installer ended with an error; the text is what it said."""


class Uv(NamedTuple):
    """uv in a room, for one Python of this machine."""

    program: str
    python: str
    folders: tuple[str, ...]
    seconds: float
    builds: bool = False
    before: str = ""

    def default_index(self, room: Room) -> str:
        """The index that uv takes when nobody names one, as it says itself."""
        said = self._run(room, "pip", "compile", "--help")
        found = re.search(
            r"--default-index\b.*?\bby\s+default:\s+<?(https?://[^\s>\])]+)", said, re.DOTALL
        )
        if not found:
            raise RunRefused("uv does not say which index it uses: set UV_DEFAULT_INDEX")
        return found[1].rstrip("/")

    def resolve(self, room: Room, needs: Needs, shelf: Shelf) -> bytes:
        """The `pylock.toml` for what is needed."""
        room.put(_REQUIREMENTS, "".join(f"{one}\n" for one in needs.requirements).encode())
        before = ("--exclude-newer", self.before) if self.before else ()
        self._run(
            room, "pip", "compile", *_QUIET, *self._wheels, *before, "--no-sources", "--no-header",
            "--no-annotate", "--python", self.python, "--format", "pylock.toml",
            "--output-file", _PYLOCK, _REQUIREMENTS, shelf=shelf,
        )  # fmt: skip
        return room.read(_PYLOCK, MAX_BYTES)

    def install(self, room: Room, lock: Lock, shelf: Shelf | None) -> None:
        """The environment `venv` in the room, with what the lock lists."""
        self._run(room, "venv", *_QUIET, "--no-project", "--relocatable", "--python", self.python,
                  "venv")  # fmt: skip
        if lock.packages:
            room.put(_LOCKED, lock.text.encode())
            self._run(
                room, "pip", "install", *_QUIET, *self._wheels, "--no-deps", "--require-hashes",
                "--no-sources", "--strict", "--link-mode", "copy",
                "--python", f"{room.inside}/venv/bin/python", "-r", _LOCKED, shelf=shelf,
            )  # fmt: skip

    def compile(self, room: Room, target: str) -> None:
        """Bytecode, since nobody can write it later; by the bare interpreter, importing nothing."""
        argv = (self.python, "-I", "-S", "-m", "compileall", "-q", "-j", "1", "-s",
                f"{room.inside}/venv", "-p", target, "--invalidation-mode", "unchecked-hash",
                f"{room.inside}/venv/lib")  # fmt: skip
        room.run(
            Step(
                argv=argv,
                seconds=self.seconds,
                env=_environment(room),
                shelf=None,
                folders=self.folders,
            )
        )

    @property
    def _wheels(self) -> tuple[str, ...]:
        return () if self.builds else ("--only-binary", ":all:")

    def _run(self, room: Room, *words: str, shelf: Shelf | None = None) -> str:
        env = {**_environment(room), "UV_DEFAULT_INDEX": f"{BASE}/simple", "UV_NO_CONFIG": "1",
               "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1",
               "UV_CACHE_DIR": f"{room.inside}/cache", "UV_LINK_MODE": "copy"}  # fmt: skip
        argv = (room.shown(self.program), *words)
        return _said(
            room, Step(argv=argv, seconds=self.seconds, env=env, shelf=shelf, folders=self.folders)
        )


class Npm(NamedTuple):
    """npm in a room, with the Node.js of this machine."""

    program: str
    node: str
    seconds: float

    def default_index(self, room: Room) -> str:
        """The registry that npm takes when nobody names one, as it says itself."""
        said = self._run(room, "config", "get", "registry", registry=False).strip()
        lines = [line for line in said.splitlines() if line.startswith(("http://", "https://"))]
        if not lines:
            raise RunRefused("npm does not say which registry it uses: set npm_config_registry")
        return lines[-1].rstrip("/")

    def resolve(self, room: Room, needs: Needs, shelf: Shelf) -> bytes:
        """The `package-lock.json` for what is needed."""
        room.put(_PACKAGE, package_json(needs))
        self._run(room, "install", "--package-lock-only", shelf=shelf)
        return room.read(_PACKAGE_LOCK, MAX_BYTES)

    def install(self, room: Room, lock: Lock, shelf: Shelf, *, lenient: bool = False) -> None:
        """`node_modules` in the room, with what the lock lists.

        With `lenient` the lock may lack packages for other machines that the registry lacks, too.
        """
        listed = read_json(lock.text)
        root = {"name": "skill", "version": "0.0.0", "private": True}
        room.put(_PACKAGE, json.dumps({**root, **listed["packages"][""]}).encode())
        room.put(_PACKAGE_LOCK, lock.text.encode())
        self._run(room, *(("install", "--no-save") if lenient else ("ci",)), shelf=shelf)

    def _run(
        self, room: Room, *words: str, shelf: Shelf | None = None, registry: bool = True
    ) -> str:
        """Whatever npm reads of a configuration is empty; what it knows comes by its arguments."""
        for name in ("npmrc-user", "npmrc-global"):
            room.put(name, b"")
        root = os.path.dirname(os.path.dirname(os.path.realpath(self.program)))
        options = [
            "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev", "--loglevel=error",
            "--lockfile-version=3", "--no-update-notifier", "--no-progress", "--allow-git=none",
            f"--userconfig={room.inside}/npmrc-user", f"--globalconfig={room.inside}/npmrc-global",
            f"--cache={room.inside}/cache", f"--prefix={room.inside}", "--install-strategy=hoisted",
            "--package-lock=true", "--git=/nonexistent",
        ]  # fmt: skip
        if registry:
            options.append(f"--registry={BASE}/")
        node = os.path.realpath(self.node)
        argv = (node, os.path.join(root, "bin", "npm-cli.js"), *words, *options)
        return _said(
            room,
            Step(
                argv=argv,
                seconds=self.seconds,
                env=_environment(room),
                shelf=shelf,
                folders=(node, root),
            ),
        )


def _environment(room: Room) -> dict[str, str]:
    return {
        "PATH": _SYSTEM_PATH,
        "HOME": f"{room.inside}/home",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
    }


def _said(room: Room, step: Step) -> str:
    code, said = room.run(step)
    if code:
        raise Failed(said)
    return said


def package_json(needs: Needs) -> bytes:
    """What npm is told of what is needed."""
    parts = (one.rpartition("@") for one in needs.requirements)
    listed = {name: wanted for name, _, wanted in parts}
    root = {"name": "skill", "version": "0.0.0", "private": True, "dependencies": listed}
    return json.dumps(root).encode()


def is_own_program(name: str) -> bool:
    """Whether a program of an environment comes with every environment."""
    return bool(_OWN_PROGRAMS.fullmatch(name))
