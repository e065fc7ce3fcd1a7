"""Walk a skill's folder. Every reader of a skill takes its files from here.

So `check`, the list a model sees, the hash, the copy that is run, search and the MCP server agree
on what belongs to a skill. An entry that is left out is left out of all of them; an entry that
cannot be used has the same word (`TreeEntry.problem`) in all of them. The reasons are in
design/layout.md.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal, Self

from skillbelt.errors import PathEscape
from skillbelt.files.contain import (
    MAX_PATH_PARTS,
    READ_FILE,
    READ_FOLDER,
    open_beneath,
    open_dir,
    open_file,
)
from skillbelt.files.handles import is_shortage
from skillbelt.files.sensitive import HEAD_BYTES, looks_secret
from skillbelt.late import Late
from skillbelt.records import NamedTuple
from skillbelt.values import SKILL_FILE

if TYPE_CHECKING:
    import heapq
else:
    heapq = Late("heapq")  # cost: 1 ms, only for very large folders

# Histories of version control, and what a package manager or an interpreter creates again. None of
# it runs in a copy: a `.venv` holds absolute paths, and packages are installed for each run.
LEFT_OUT = frozenset((".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"))
# The names of folders that a run creates in its copy of a skill.
RUN_FOLDERS = ("inputs", "out", "work")
# Entries of one skill's folder; hashing more would delay every run.
MAX_MANIFEST_FILES = 10_000
# Components of a path below a skill: `check_relative` refuses longer paths.
MAX_ENTRY_DEPTH = MAX_PATH_PARTS

EntryKind = Literal["file", "folder", "link", "other"]
Problem = Literal["", "link-outside", "not-a-file", "unreadable", "too-deep", "too-many"]

_SKILL_FILE = SKILL_FILE.upper()
_SPECIAL = {
    stat.S_IFIFO: "is a named pipe",
    stat.S_IFSOCK: "is a socket",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
}


class TreeEntry(NamedTuple):
    """One entry of a skill's folder.

    `path` is relative to the folder. `target` is the text of a link; a SKILL.md that is a link is a
    file with a target. `problem` says in one word why the entry cannot be used, `reason` in a few.
    `stamp` changes whenever the entry changes.
    """

    path: str
    kind: EntryKind
    size: int = 0
    mode: int = 0
    target: str = ""
    problem: Problem = ""
    reason: str = ""
    stamp: tuple[int, ...] = ()

    @property
    def executable(self) -> bool:
        """Whether it is a file that may be executed."""
        return self.kind == "file" and bool(self.mode & 0o111)


class TreeRules(NamedTuple):
    """The entries that a walk yields: by default those of a skill's folder.

    `left_out` are names at any depth, `folders_left_out` those of folders only. `most` is the bound
    on entries, 0 for that of a skill. `only` are the names at the top to look at, all if empty.
    `exact` takes the tree as it is: a SKILL.md is an entry like any other, and every link is kept.
    """

    left_out: frozenset[str] = LEFT_OUT
    most: int = 0
    only: tuple[str, ...] = ()
    exact: bool = False
    folders_left_out: frozenset[str] = frozenset()


_OF_A_SKILL = TreeRules()


class SkillTree:
    """An open skill's folder; nothing outside it is opened except a linked SKILL.md.

    That one file may lead as far as the fence allows. Raises OSError or PathEscape when the folder
    itself cannot be opened. With other `rules` it is a folder that a run wrote to.
    """

    def __init__(self, folder: str, fence: str = "", rules: TreeRules = _OF_A_SKILL) -> None:
        self.folder, self.fence, self.rules = folder, fence, rules
        self._top = open_dir(folder, fence)
        # The folder whose entries are being yielded, and a handle on it.
        self._below, self._here = "", -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave_folder()
        os.close(self._top)

    def _enter_folder(self, below: str) -> None:
        self._leave_folder()
        name = below.rstrip("/") or "."
        if "/" in name:
            self._here = open_beneath(self._top, name, READ_FOLDER)
        else:  # no folder on the way could be a link
            self._here = os.open(name, READ_FOLDER, dir_fd=self._top)
        self._below = below

    def _leave_folder(self) -> None:
        if self._here >= 0:
            os.close(self._here)
            self._here = -1

    def entries(self) -> Iterator[TreeEntry]:
        """Yield the entries of the folder, the nearest folders first, the names of each sorted.

        An entry that is left out is not yielded, but counts towards the bound on entries. OSError
        when the process is out of file handles.
        """
        most = self.rules.most or MAX_MANIFEST_FILES
        left, pending = most, [""]
        while pending:
            below = pending.pop(0)
            try:
                names, found = self._list(below, left)
            except (OSError, PathEscape) as error:
                if is_shortage(error):  # a lack of handles says nothing about the folder
                    raise
                reason = f"cannot be read: {getattr(error, 'strerror', '') or error}"
                yield TreeEntry(below.rstrip("/"), "folder", problem="unreadable", reason=reason)
                continue
            for entry in found:
                if entry.kind == "folder" and not entry.problem:
                    pending.append(f"{entry.path}/")
                yield entry
            left -= names
            if left < 0:
                reason = f"has more than {most:,} files and folders"
                yield TreeEntry("", "folder", problem="too-many", reason=reason)
                return

    def open(self, entry: TreeEntry) -> int:
        """Open a file that `entries` yielded, following no link but that of a SKILL.md."""
        if entry.target:
            return open_file(os.path.join(self.folder, entry.path), self.fence)
        above, slash, name = entry.path.rpartition("/")
        if self._here >= 0 and self._below == above + slash:
            # One name in an open folder, and not a link: it cannot lead out.
            try:
                return os.open(name, READ_FILE, dir_fd=self._here)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
        return open_beneath(self._top, entry.path, READ_FILE)

    def _list(self, below: str, most: int) -> tuple[int, list[TreeEntry]]:
        """Return how many names a folder has, at most `most` + 1, and the first `most` entries."""
        left_out, only = self.rules.left_out, self.rules.only
        self._enter_folder(below)
        with os.scandir(self._here) as listing:
            names = sorted(entry.name for entry in islice(listing, most + 1))
            if len(names) > most:
                names = heapq.nsmallest(most + 1, chain(names, (entry.name for entry in listing)))
        found = [
            self._entry(below, name)
            for name in names[:most]
            if name not in left_out and (below or not only or name in only)
        ]
        if self.rules.folders_left_out:
            found = [entry for entry in found if not self._is_left_out_folder(entry)]
        return len(names), found

    def _is_left_out_folder(self, entry: TreeEntry) -> bool:
        name = entry.path.rpartition("/")[2]
        return entry.kind == "folder" and name in self.rules.folders_left_out

    def _entry(self, below: str, name: str) -> TreeEntry:
        folder, path, target = self._here, f"{below}{name}", ""
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISLNK(info.st_mode):
                return self._make_entry(path, info)
            target = os.readlink(name, dir_fd=folder)
            if self.rules.exact or not is_skill_file(path):
                return self._link(path, info, target)
            return self._make_entry(path, os.stat(name, dir_fd=folder), target, _stamp(info))
        except OSError as error:
            return TreeEntry(
                path=path,
                kind="other",
                target=target,
                problem="unreadable",
                reason=f"cannot be read: {error.strerror or error}",
            )

    def _link(self, path: str, info: os.stat_result, target: str) -> TreeEntry:
        problem: Problem = ""
        reason = ""
        if not self.rules.exact and not relative_target(self.folder, path, target):
            problem = "link-outside"
            reason = f"is a link that leads out of the folder, to {target[:200]!r}"
        return TreeEntry(
            path=path,
            kind="link",
            mode=info.st_mode,
            target=target,
            problem=problem,
            reason=reason,
            stamp=_stamp(info),
        )

    def _make_entry(
        self, path: str, info: os.stat_result, target: str = "", link: tuple[int, ...] = ()
    ) -> TreeEntry:
        kind: EntryKind = "file"
        problem: Problem = ""
        reason = ""
        stamp = (*link, *_stamp(info)) if link else _stamp(info)
        if stat.S_ISREG(info.st_mode):
            pass
        elif stat.S_ISDIR(info.st_mode):
            # Each entry has a stamp, so the times of a folder add nothing; they would change
            # whenever an interpreter creates `__pycache__`.
            kind, stamp = "folder", (info.st_mode,)
            if path.count("/") + 1 >= MAX_ENTRY_DEPTH:
                problem = "too-deep"
                reason = f"is nested deeper than {MAX_ENTRY_DEPTH} folders"
        else:
            kind, problem = "other", "not-a-file"
            reason = _SPECIAL.get(stat.S_IFMT(info.st_mode), "is not a regular file")
        return TreeEntry(
            path=path,
            kind=kind,
            size=info.st_size if kind == "file" else 0,
            mode=info.st_mode,
            target=target,
            problem=problem,
            reason=reason,
            stamp=stamp,
        )


def is_skill_file(path: str) -> bool:
    """Whether a path below a skill's folder is its SKILL.md, in any spelling of the name."""
    return path.upper() == _SKILL_FILE


def is_left_out(path: str) -> bool:
    """Whether a path below a skill's folder is not part of the skill."""
    return not LEFT_OUT.isdisjoint(path.split("/"))


def relative_target(root: str, path: str, target: str) -> str:
    """Return the target of a link at `path` of a tree as a relative path; "" if it leads out.

    A target that names the tree by its absolute path is rewritten. The text alone decides, which is
    safe because every link of the tree is checked: steps up may only come first, since the folders
    above a link are not links, while those it leads through may be.
    """
    start = os.path.join(root, "")
    if root and target.startswith(start):
        target = "../" * path.count("/") + (target[len(start) :] or ".")
    if target.startswith("/") or not target:
        return ""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    return target if up <= path.count("/") and ".." not in parts[up:] else ""


@lru_cache(maxsize=256)
def secret_files(folder: str, digest: str) -> tuple[str, ...]:
    """Return the files of a skill that look like secrets, sorted.

    The digest of the folder is the cache key: the same content is not read twice.
    """
    with SkillTree(folder) as tree:
        files = [entry for entry in tree.entries() if entry.kind == "file"]
        return tuple(
            sorted(
                entry.path
                for entry in files
                if looks_secret(entry.path) or looks_secret(entry.path, _head(tree, entry))
            )
        )


def _head(tree: SkillTree, entry: TreeEntry) -> bytes:
    try:
        handle = tree.open(entry)
    except (OSError, PathEscape):
        return b""  # then only its name decides
    try:
        return os.read(handle, HEAD_BYTES)
    except OSError:
        return b""
    finally:
        os.close(handle)


def _stamp(info: os.stat_result) -> tuple[int, ...]:
    return (
        info.st_mtime_ns,
        info.st_ctime_ns,
        info.st_dev,
        info.st_ino,
        info.st_mode,
        info.st_size,
    )
