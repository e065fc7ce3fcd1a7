"""Three-way merges of a skill's folder: local edits stay when a new version comes.

A change on one side only is taken. Where both changed a text, its lines are merged;
where that fails, the local file stays and the new one is put beside it.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress

from skillbelt.errors import SkillbeltError
from skillbelt.files.contain import (
    READ_FILE,
    create_beneath,
    open_beneath,
    open_folder,
    read_handle,
)
from skillbelt.files.manifest import MAX_MANIFEST_BYTES
from skillbelt.install.content_store import copy_skill
from skillbelt.install.git import find_git
from skillbelt.install.hashes import HashedFile, hash_folder
from skillbelt.records import NamedTuple

UPSTREAM = ".upstream"
_SECONDS = 30.0
_MAX_DIFF_BYTES = 4 * 2**20


class MergeConflict(NamedTuple):
    """A file that both sides changed. `beside` is the file with the new version, "" for none."""

    path: str
    message: str
    beside: str = ""


class MergedFolder(NamedTuple):
    """The result of a merge: the local edits it kept, and the conflicts."""

    kept: tuple[str, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()

    def files(self) -> tuple[str, ...]:
        """Return the files with local edits."""
        return tuple(sorted({*self.kept, *(one.path for one in self.conflicts)}))


def merge_folders(base: str, ours: str, theirs: str, into: str) -> MergedFolder:
    """Merge two versions that come from `base` into a new folder; OSError or SourceError."""
    copy_skill(theirs, into)
    sides = [{file.path: file for file in hash_folder(one).files} for one in (base, ours, theirs)]
    kept, conflicts = [], []
    merge = _Merge(base, ours, theirs, into)
    for path in sorted(set().union(*sides)):
        old, mine, new = (side.get(path) for side in sides)
        if mine in (old, new):
            continue
        if new == old:
            merge.take_ours(path, mine)
            kept.append(path)
        elif merge.merge_text(path, old, mine, new):
            kept.append(path)
        else:
            conflicts.append(merge.leave_ours(path, mine, new))
    return MergedFolder(tuple(kept), tuple(conflicts))


class _Merge:
    """The folders of a merge, and the steps of one file."""

    def __init__(self, base: str, ours: str, theirs: str, into: str) -> None:
        self._base, self._ours, self._theirs, self._into = base, ours, theirs, into

    def take_ours(self, path: str, mine: HashedFile | None) -> None:
        """Put the local file, or its absence, into the merged folder."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._into, path))
        if mine is None:
            return
        if mine.kind == "link":
            os.makedirs(os.path.dirname(os.path.join(self._into, path)), exist_ok=True)
            os.symlink(mine.target, os.path.join(self._into, path))
        else:
            self._write(path, _read(self._ours, path), executable=mine.executable)

    def merge_text(
        self, path: str, old: HashedFile | None, mine: HashedFile | None, new: HashedFile | None
    ) -> bool:
        """Merge the lines of three files; False if both sides changed the same ones."""
        if old is None or mine is None or new is None:
            return False
        if {old.kind, mine.kind, new.kind} != {"file"}:
            return False
        executable = new.executable if mine.executable == old.executable else mine.executable
        # Both sides changed only the mode.
        if new.sha256 == old.sha256 or mine.sha256 == old.sha256:
            source = self._ours if new.sha256 == old.sha256 else self._theirs
            merged: bytes | None = _read(source, path)
        else:
            names = [os.path.join(one, path) for one in (self._ours, self._base, self._theirs)]
            merged = _git(self._into, "merge-file", "-p", "--quiet", *names)
        if merged is None:
            return False
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._into, path))
        self._write(path, merged, executable=executable)
        return True

    def leave_ours(
        self, path: str, mine: HashedFile | None, new: HashedFile | None
    ) -> MergeConflict:
        """Keep the local file, and put the new one beside it."""
        self.take_ours(path, mine)
        if new is None:
            return MergeConflict(path, "was changed here and removed in the new version")
        said = "was removed here" if mine is None else "was changed here"
        message = f"{said} and changed in the new version"
        if new.kind == "link":
            return MergeConflict(path, f"{message}, which is a link to {new.target!r}")
        beside = path + UPSTREAM
        self._write(beside, _read(self._theirs, path), executable=False)
        return MergeConflict(path, message, beside)

    def _write(self, path: str, data: bytes, *, executable: bool) -> None:
        top = open_folder(self._into)
        try:
            with suppress(FileNotFoundError):
                os.unlink(path, dir_fd=top)
            with open(create_beneath(top, path, executable=executable), "wb") as file:
                file.write(data)
        finally:
            os.close(top)


def show_difference(before: str, after: str) -> str:
    """Return the difference of two folders as git shows it; "" if it cannot be made."""
    above = os.path.dirname(after)
    words = ("diff", "--no-index", "--no-ext-diff", "--no-textconv", "--no-color", before, after)
    data = _git(above, *words, most_code=1)
    if data is None:
        return ""
    text = data[:_MAX_DIFF_BYTES].decode("utf-8", "replace")
    return text.replace(f"{before}/", "/").replace(f"{after}/", "/")


def _read(folder: str, path: str) -> bytes:
    top = open_folder(folder)
    try:
        return read_handle(open_beneath(top, path, READ_FILE), MAX_MANIFEST_BYTES)
    finally:
        os.close(top)


def _git(folder: str, *words: str, most_code: int = 0) -> bytes | None:
    """Run a command of git that reads no repository and no settings; None if it fails."""
    try:
        program = find_git()
    except SkillbeltError:
        return None
    environment = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CEILING_DIRECTORIES": folder,
        "GIT_DIR": os.path.join(folder, ".no-repository"),
        "HOME": folder,
        "LC_ALL": "C",
        "PATH": os.defpath,
    }
    try:
        done = subprocess.run(
            [program, *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if 0 <= done.returncode <= most_code else None
