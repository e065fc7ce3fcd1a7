"""The files that a command names and earlier runs may have written.

An answer to a permission request is bound to their content.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from stat import S_ISREG
from typing import NamedTuple

from skillbelt.files.contain import READ_FILE, below, inside
from skillbelt.permission.command_lines import Line
from skillbelt.running.call import RunCall
from skillbelt.running.workspace import VENV, WRITABLE, Workspace

_INSIDE = "/workspace"
_MOST_FILES = 1000
_MOST_BYTES = 64 * 2**20
# Separators of paths in a word, as in `--to=a:b` or `open('a')`.
_BETWEEN = re.compile(r"[\s=:,;'\"()\[\]{}<>|&]+")
# Paths that mean something else to every process.
_OWN_NAMES = ("/proc", "/dev", "/run")
_UNREAD = "not read"
# The folders that runs can write, anywhere in a text.
_PLACE = re.compile(
    r"(?<![A-Za-z0-9])(?:work|out|inputs|runs|workspace|\.venv)(?![A-Za-z0-9])"
    r"|(?:work|out|inputs|runs|workspace|\.venv)/"
)
_VARIABLE = re.compile("(?:WORKSPACE|SKILLS|WORK|OUTPUT|RUN)_DIR|VIRTUAL_ENV|TMPDIR|HOME")
# A path, also directly after a one-letter option; or an option named after such a folder.
_PLAIN = re.compile(r"(?:-[A-Za-z])?[\w./][\w./-]*|--(?:work|out|inputs|runs)(?:-[A-Za-z-]+)?")


class Ground(NamedTuple):
    """The start of a command: the workspace, the skill's copy in it, and the working folder.

    All are resolved paths of the host.
    """

    workspace: str
    home: str
    cwd: str

    @property
    def is_home(self) -> bool:
        """Whether it starts among files that no run can write."""
        return bool(below(self.cwd, self.home)) and not inside(
            self.cwd, os.path.join(self.home, VENV)
        )

    def place(self, path: str) -> str:
        """Resolve a path as the command sees it to a path of the host."""
        own = f"{_INSIDE}/skills/{os.path.basename(self.home)}"
        for seen, there in ((own, self.home), (_INSIDE, self.workspace)):
            if path == seen or path.startswith(f"{seen}/"):
                path = there + path[len(seen) :]
                break
        return os.path.realpath(os.path.join(self.cwd, path))

    def is_unclear(self, path: str) -> bool:
        """Whether it is below `skills`, where the copies appear but need not be on disk."""
        skills = os.path.join(self.workspace, "skills", "")
        return os.path.join(path, "").startswith(skills) and not below(path, self.home)

    def is_loose(self, path: str) -> bool:
        """Whether an earlier run may have written it."""
        if path != self.workspace and not path.startswith(os.path.join(self.workspace, "")):
            return False
        return not below(path, self.home) or inside(path, os.path.join(self.home, VENV))


def ground_of(workspace: Workspace, home: str, cwd: str, skill: str) -> Ground:
    """Return where a command of the skill starts; `cwd` is that of the call."""
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
    """The named files that earlier runs may have written, with the hashes of their content.

    Not `certain` when other files that runs wrote may matter as well.
    """

    files: Mapping[str, str]
    certain: bool


def loose_files(call: RunCall, line: Line, ground: Ground, script: str = "") -> Loose:
    """Return the files of the workspace that the command names, and whether they are all.

    A `script` of the skill gets paths as they are written. Any other program may interpret its
    arguments in its own way, so then it is certain only if no run has written a file yet.
    """
    listed = os.path.join(ground.home, VENV)
    certain = ground.is_home and not (os.path.isdir(listed) and os.listdir(listed))
    words = (call.text,) if line.words is None else line.words
    certain &= line.words is not None
    certain &= all(map(_is_clean, words)) if script else _is_unwritten(ground)
    for value in call.env.values():
        # A variable may name a folder that a program loads code from.
        certain &= not any(_may_load_code(piece, ground) for piece in _split_word(value))
    found: dict[str, str] = {}
    reader = _FileHasher(ground.workspace)
    pieces = sorted({piece for word in words for piece in _split_word(word)})
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
    """Return the named files that are in one of these places of the workspace, or contain it."""
    put = [os.path.realpath(os.path.join(ground.workspace, place)) for place in places]
    return {
        piece
        for piece in files
        for at in (ground.place(piece),)
        if any(inside(one, at) or inside(at, one) for one in put)
    }


def _is_unwritten(ground: Ground) -> bool:
    """Whether no run has left a file."""
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
    """Whether the word names folders that runs can write only in plain paths, or not at all."""
    return not _VARIABLE.search(word) and all(
        _PLAIN.fullmatch(piece) or not _PLACE.search(piece) for piece in _BETWEEN.split(word)
    )


def _split_word(word: str) -> list[str]:
    whole = (piece for piece in (word, *_BETWEEN.split(word)) if piece and "\0" not in piece)
    # An option with a path, as in `-Iwork`.
    return list(dict.fromkeys(one for piece in whole for one in (piece, piece[2:]) if one))


def _may_load_code(piece: str, ground: Ground) -> bool:
    return piece.startswith(_OWN_NAMES) or ground.is_loose(ground.place(piece))


class _FileHasher:
    """Hashes files of the workspace within limits, following no link."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self._bytes, self._files = _MOST_BYTES, _MOST_FILES

    def sha256(self, path: str) -> str:
        """Return the hash of a file or folder, `absent` if it is missing; "" if it is too large."""
        try:
            return self._file(path) if not os.path.isdir(path) else self._folder(path)
        except FileNotFoundError:
            return "absent"
        except OSError:
            return ""

    def _file(self, path: str) -> str:
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
            if top == self._workspace:  # no run can write the rest of the workspace
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
