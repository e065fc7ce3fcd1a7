"""What exactly a run is asked for: the facts that whoever is asked sees and an answer is bound to.

Nothing is left out that changes what runs or what it gets. Two calls of which every fact is the
same are the same call; any other one is asked for again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from skillbelt.paths import inside
from skillbelt.redact import secrets_of
from skillbelt.run import RunCall
from skillbelt.shell import WHOLE, Line
from skillbelt.values import Limits
from skillbelt.workspace import VENV, Workspace

_DEFAULTS = Limits()
_INSIDE = "/workspace"
_BEGINNING = 200  # bytes of what a command is given that are shown
_MOST_FILES = 1000
_MOST_BYTES = 64 * 2**20
# What may be a path in a word, as in `--to=a:b` or `open('a')`.
_BETWEEN = re.compile(r"[\s=:,;'\"()\[\]{}<>|&]+")
# Names that mean something else to every process.
_OWN_NAMES = ("/proc", "/dev", "/run")


class Ground(NamedTuple):
    """Where a command starts: the workspace, the skill's copy in it, and the folder it begins in.

    All are paths of the host, without links.
    """

    workspace: str
    home: str
    cwd: str

    @property
    def is_home(self) -> bool:
        """Whether it starts among files that no run can write."""
        return inside(self.cwd, self.home) and not inside(self.cwd, os.path.join(self.home, VENV))

    def place(self, path: str) -> str:
        """What a path means to the command, as a path of the host."""
        own = f"{_INSIDE}/skills/{os.path.basename(self.home)}"
        for seen, there in ((own, self.home), (_INSIDE, self.workspace)):
            if path == seen or path.startswith(f"{seen}/"):
                path = there + path[len(seen) :]
                break
        return os.path.realpath(os.path.join(self.cwd, path))

    def is_unclear(self, path: str) -> bool:
        """Whether it lies where the skills are seen, which need not be where their copies are."""
        skills = os.path.join(self.workspace, "skills", "")
        return os.path.join(path, "").startswith(skills) and not inside(path, self.home)

    def is_loose(self, path: str) -> bool:
        """Whether an earlier run may have written what lies there."""
        if path != self.workspace and not path.startswith(os.path.join(self.workspace, "")):
            return False
        return not inside(path, self.home) or inside(path, os.path.join(self.home, VENV))


def ground_of(workspace: Workspace, home: str, cwd: str, skill: str) -> Ground:
    """Where a command of the skill starts; `cwd` is as the call has it."""
    place = workspace.resolve_cwd(cwd, skill)
    own = os.path.join("skills", skill)
    if place == own or place.startswith(f"{own}/"):
        path = os.path.join(home, os.path.relpath(place, own))
    else:
        path = os.path.join(workspace.path, place)
    return Ground(*(os.path.realpath(one) for one in (workspace.path, home, path)))


# What rules are matched against


def asked_for(call: RunCall, line: Line, ground: Ground) -> tuple[str, ...]:
    """The texts that a permission is needed for: the commands, and what makes them others.

    A command that starts elsewhere is as good as a `cd` before it. With variables of its own it
    may run anything, as with an assignment before it.
    """
    parts = line.commands
    if call.env:
        names = " ".join(f"{name}=..." for name in call.env)
        return (f"{WHOLE}{names} {call.text}",)
    if not ground.is_home:
        import shlex

        parts = (f"cd {shlex.quote(call.cwd)}", *parts)
    return parts


# What is told


def call_facts(
    call: RunCall,
    *,
    script: str,
    inputs: Sequence[Mapping[str, object]],
    packages: Iterable[str],
    hosts: Iterable[str],
    sandbox: str,
    limits: Limits,
    files: Mapping[str, str],
) -> dict[str, object]:
    """All that belongs to the call, as JSON has it. A secret is there by its hash alone."""
    secrets = secrets_of(call.env)
    facts: dict[str, object] = {
        "command": call.command if isinstance(call.command, str) else list(call.command),
        "script": script,
        "cwd": call.cwd,
        "env": {
            name: _sha256(value.encode("utf-8", "surrogatepass")) if name in secrets else value
            for name, value in call.env.items()
        },
        "secrets": sorted(secrets),
        "stdin": "comes later" if call.stdin is None else _data(call.stdin),
        "editor_text": {} if call.editor_text is None else _data(call.editor_text, empty=True),
        "inputs": list(inputs),
        "files": dict(files),
        "packages": list(packages),
        "hosts": list(hosts),
        "timeout_seconds": call.timeout_seconds,
        "terminal": call.terminal,
        "limits": _raised(limits),
        "sandbox": sandbox,
    }
    kept = ("command", "cwd", "sandbox")
    return {name: value for name, value in facts.items() if value or name in kept}


def _sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _data(value: bytes | str, *, empty: bool = False) -> dict[str, object]:
    """What a command is given, by its size, its hash and its beginning."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    if not data and not empty:
        return {}
    begins = data[:_BEGINNING].decode("utf-8", "replace")
    return {"bytes": len(data), "sha256": _sha256(data), "begins": begins}


def _raised(limits: Limits) -> dict[str, object]:
    """The limits that are wider than what they are by default."""
    usual = _DEFAULTS._asdict()
    return {
        name: value
        for name, value in limits._asdict().items()
        if isinstance(value, int | float) and value > usual[name]
    }


# What is not in the call and yet counts


def loose_files(call: RunCall, line: Line, ground: Ground) -> dict[str, str] | None:
    """What the command names that earlier runs may have written, each by the hash of its content.

    None where that can not be told: then no answer is remembered.
    """
    listed = os.path.join(ground.home, VENV)
    if not ground.is_home or (os.path.isdir(listed) and os.listdir(listed)):
        return None
    if line.words is None:
        return None
    for value in call.env.values():
        # A variable may name a folder that programs look for code in.
        if any(_leads_astray(piece, ground) for piece in _pieces(value)):
            return None
    found: dict[str, str] = {}
    reader = _Reader()
    for piece in {piece for word in line.words for piece in _pieces(word)}:
        if piece.startswith(_OWN_NAMES) and piece != "/dev/null":
            return None
        path = ground.place(piece)
        if ground.is_unclear(path):
            return None
        if ground.is_loose(path):
            sha256 = reader.sha256(path)
            if not sha256:
                return None
            found[piece] = sha256
    return dict(sorted(found.items()))


def _pieces(word: str) -> list[str]:
    whole = (piece for piece in (word, *_BETWEEN.split(word)) if piece and "\0" not in piece)
    # An option that holds a path, as in `-Iwork`.
    return list(dict.fromkeys(one for piece in whole for one in (piece, piece[2:]) if one))


def _leads_astray(piece: str, ground: Ground) -> bool:
    return piece.startswith(_OWN_NAMES) or ground.is_loose(ground.place(piece))


class _Reader:
    """Hashes what lies in the workspace, within bounds; through no link."""

    def __init__(self) -> None:
        self._bytes, self._files = _MOST_BYTES, _MOST_FILES

    def sha256(self, path: str) -> str:
        """The hash of a file or a folder, `absent` for what is not there; "" if it is too much."""
        try:
            return self._file(path) if not os.path.isdir(path) else self._folder(path)
        except FileNotFoundError:
            return "absent"
        except OSError:
            return ""

    def _file(self, path: str) -> str:
        from stat import S_ISREG

        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            info = os.fstat(handle)
            self._files, self._bytes = self._files - 1, self._bytes - info.st_size
            if not S_ISREG(info.st_mode) or self._files < 0 or self._bytes < 0:
                return ""
            data = file.read(info.st_size + 1)
        return _sha256(data) if len(data) <= info.st_size else ""

    def _folder(self, path: str) -> str:
        rows: list[str] = []
        for top, folders, files in os.walk(path):
            folders.sort()
            for name in sorted((*folders, *files)):
                one = os.path.join(top, name)
                what = os.readlink(one) if os.path.islink(one) else ""
                what = what or ("folder" if name in folders else self._file(one))
                if not what or len(rows) > _MOST_FILES:
                    return ""
                rows.append(f"{os.path.relpath(one, path)}\0{what}\0")
        return _sha256("".join(rows).encode("utf-8", "surrogateescape"))
