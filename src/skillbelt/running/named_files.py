"""What exactly a run is asked for: the facts that whoever is asked sees and an answer is bound to.

Nothing is left out that changes what runs or what it gets. Two calls of which every fact is the
same are the same call; any other one is asked for again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from skillbelt.files.contain import READ_FILE, inside
from skillbelt.permission.command_lines import Line
from skillbelt.running.call import RunCall
from skillbelt.running.workspace import VENV, WRITABLE, Workspace

_INSIDE = "/workspace"
_MOST_FILES = 1000
_MOST_BYTES = 64 * 2**20
# What may be a path in a word, as in `--to=a:b` or `open('a')`.
_BETWEEN = re.compile(r"[\s=:,;'\"()\[\]{}<>|&]+")
# Names that mean something else to every process.
_OWN_NAMES = ("/proc", "/dev", "/run")
_UNREAD = "not read"
# The places that runs can write, wherever they stand in a text.
_PLACE = re.compile(
    r"(?<![A-Za-z0-9])(?:work|out|inputs|runs|workspace|\.venv)(?![A-Za-z0-9])"
    r"|(?:work|out|inputs|runs|workspace|\.venv)/"
)
_VARIABLE = re.compile("(?:WORKSPACE|SKILLS|WORK|OUTPUT|RUN)_DIR|VIRTUAL_ENV|TMPDIR|HOME")
# A path, also right after an option of one letter; or an option that is called after a place.
_PLAIN = re.compile(r"(?:-[A-Za-z])?[\w./][\w./-]*|--(?:work|out|inputs|runs)(?:-[A-Za-z-]+)?")


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


def sha256_of(data: bytes) -> str:
    """Return the hash of the data, with its algorithm."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Loose(NamedTuple):
    """What a command names that earlier runs may have written, each by the hash of its content.

    It is not `certain` where something else that they wrote may count as well.
    """

    files: Mapping[str, str]
    certain: bool


def loose_files(call: RunCall, line: Line, ground: Ground, script: str = "") -> Loose:
    """What of the workspace the command names, and whether no answer needs to know more of it.

    A `script` of the skill gets paths as they are written. What any other program makes of its
    words nobody can tell, so there no run may have written anything yet.
    """
    listed = os.path.join(ground.home, VENV)
    certain = ground.is_home and not (os.path.isdir(listed) and os.listdir(listed))
    words = (call.text,) if line.words is None else line.words
    certain &= line.words is not None
    certain &= all(map(_is_clean, words)) if script else _is_bare(ground)
    for value in call.env.values():
        # A variable may name a folder that programs look for code in.
        certain &= not any(_leads_astray(piece, ground) for piece in _pieces(value))
    found: dict[str, str] = {}
    reader = _Reader(ground.workspace)
    pieces = sorted({piece for word in words for piece in _pieces(word)})
    certain &= len(pieces) <= _MOST_FILES
    for piece in pieces[:_MOST_FILES]:
        path = ground.place(piece)
        if (piece.startswith(_OWN_NAMES) and piece != "/dev/null") or ground.is_unclear(path):
            certain = False
        elif ground.is_loose(path):
            found[piece] = reader.sha256(path) or _UNREAD
            certain &= found[piece] != _UNREAD
    return Loose(found, certain)


def touched(files: Iterable[str], ground: Ground, places: Iterable[str]) -> set[str]:
    """Those of the named files that lie in one of the places of the workspace, or hold it."""
    put = [os.path.realpath(os.path.join(ground.workspace, place)) for place in places]
    return {
        piece
        for piece in files
        for at in (ground.place(piece),)
        if any(inside(one, at) or inside(at, one) for one in put)
    }


def _is_bare(ground: Ground) -> bool:
    """Whether no run has left a file anywhere."""
    seen = 0
    try:
        for name in WRITABLE:
            for top, folders, files in os.walk(os.path.join(ground.workspace, name), onerror=_fail):
                seen += len(folders)
                links = any(os.path.islink(os.path.join(top, one)) for one in folders)
                if files or links or seen > _MOST_FILES:
                    return False
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _fail(error: OSError) -> None:
    raise error


def _is_clean(word: str) -> bool:
    """Whether each place that runs can write is named in it as in any path, or not at all."""
    return not _VARIABLE.search(word) and all(
        _PLAIN.fullmatch(piece) or not _PLACE.search(piece) for piece in _BETWEEN.split(word)
    )


def _pieces(word: str) -> list[str]:
    whole = (piece for piece in (word, *_BETWEEN.split(word)) if piece and "\0" not in piece)
    # An option that holds a path, as in `-Iwork`.
    return list(dict.fromkeys(one for piece in whole for one in (piece, piece[2:]) if one))


def _leads_astray(piece: str, ground: Ground) -> bool:
    return piece.startswith(_OWN_NAMES) or ground.is_loose(ground.place(piece))


class _Reader:
    """Hashes what lies in the workspace, within bounds; through no link."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
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

        handle = os.open(path, READ_FILE)
        with open(handle, "rb") as file:
            info = os.fstat(handle)
            self._files, self._bytes = self._files - 1, self._bytes - info.st_size
            if not S_ISREG(info.st_mode) or self._files < 0 or self._bytes < 0:
                return ""
            data = file.read(info.st_size + 1)
        return sha256_of(data) if len(data) <= info.st_size else ""

    def _folder(self, path: str) -> str:
        rows: list[str] = []
        for top, folders, files in os.walk(path, onerror=_fail):
            if top == self._workspace:  # the rest of it is ours, and no run can write it
                folders[:], files = [name for name in folders if name in WRITABLE], []
            folders.sort()
            for name in sorted((*folders, *files)):
                one = os.path.join(top, name)
                what = os.readlink(one) if os.path.islink(one) else ""
                what = what or ("folder" if name in folders else self._file(one))
                if not what or len(rows) > _MOST_FILES:
                    return ""
                rows.append(f"{os.path.relpath(one, path)}\0{what}\0")
        return sha256_of("".join(rows).encode("utf-8", "surrogateescape"))
