"""Copies of skills in a workspace: complete, checked against their hash, read-only.

The name of a copy is derived from its content, and a copy is never changed. A skill that changed
gets another copy beside it, so a run uses exactly the copy that was approved.

Every entry is opened by one name below a handle, following no link: a process that changes the
source meanwhile can make staging fail, but cannot redirect it.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import stat
import time
from collections.abc import Container, Iterator
from contextlib import suppress
from itertools import islice

from skillbelt.errors import LoadError, RunRefused
from skillbelt.files.contain import (
    APPEND_FILE,
    READ_FOLDER,
)
from skillbelt.files.manifest import LocalFiles, stamp_of
from skillbelt.files.remove import remove_tree
from skillbelt.files.tree import MAX_MANIFEST_FILES, SkillTree
from skillbelt.files.tree_copy import TreeCopy, handles, has_entry, swap
from skillbelt.format.skill import Skill
from skillbelt.records import NamedTuple
from skillbelt.running.cleanup import COPIES
from skillbelt.running.workspace import (
    LINKS,
    NODE_MODULES,
    PRIVATE,
    REPLACED,
    VENV,
    Metadata,
    Stage,
    Workspace,
    checked_name,
)
from skillbelt.values import Diagnostic, Limits

# The bound on a skill's copy; equal to that of the manifest's hash.
MAX_STAGED_BYTES = 256 * 2**20

_LIMITS = Limits()
# Do not wait for a pipe, and do not make a terminal the controlling one.
_RESERVED = (*LINKS, VENV)
_OWN_ENTRIES = len(_RESERVED) + 1
_FRESH_NS = 100_000_000  # two changes this close to each other may have the same time


class Staged(NamedTuple):
    """A skill that can be run. `home` is the path of its copy in the workspace.

    `hash` is that of the copy, by the rules of `fingerprint`. The stamps identify the state of the
    copy and its `source` when it was staged.
    """

    path: str
    hash: str
    reused: bool
    home: str
    source: str
    copy_stamp: str
    source_stamp: str
    diagnostics: tuple[Diagnostic, ...] = ()
    fence: str = ""


def stage(
    workspace: Workspace, skill: Skill, limits: Limits = _LIMITS, *, expected_hash: str = ""
) -> Staged:
    """Copy the skill into the workspace, or reuse the copy of an earlier call if it is current.

    RunRefused, with nothing staged, for content that is unsafe or too large, and when the copy
    does not have the expected hash.
    """
    name = checked_name(skill.name)
    if not os.path.isabs(skill.location):
        raise RunRefused(f"skill {name!r} was made from text and has no files to run")
    folder, fence = _fetch(skill)
    if skill.origin.kind == "mcp":
        expected_hash = expected_hash or skill.files.digest()
    seen = _source_stamp(folder, fence)
    job = _Staging(
        workspace=workspace,
        name=name,
        source=folder,
        seen=seen,
        limits=limits,
        expected=expected_hash,
        fence=fence,
    )
    metadata = workspace.metadata()
    kept = job.current(metadata)
    reused = kept is not None
    if kept is None:
        with workspace.locked() as metadata:
            kept, reused = job.run(metadata)
    _expect(name, kept.hash, expected_hash)
    home = f"{kept.copy}/{name}"
    return Staged(
        path=os.path.join(workspace.path, home),
        hash=kept.hash,
        reused=reused,
        home=home,
        source=folder,
        copy_stamp=metadata.copies.get(kept.copy, ""),
        source_stamp=seen.text,
        diagnostics=tuple(_warn_of_shadowed(folder)),
        fence=fence,
    )


def check_unchanged(workspace: Workspace, staged: Staged, limits: Limits = _LIMITS) -> None:
    """Raise RunRefused unless the copy is intact and the skill has not changed since the copy.

    The copy was approved. But a person may have looked at the skill itself meanwhile, so a skill
    that changed is asked for again.
    """
    name, most = os.path.basename(staged.home), MAX_MANIFEST_FILES
    found = _copy_stamp(workspace, staged.home, most)
    if not found or found != staged.copy_stamp:
        raise RunRefused(
            f"skill {name!r}: its copy with the hash {staged.hash} was changed after it was made; "
            "nothing was run; try again, and it is copied again"
        )
    seen = _source_stamp(staged.source, staged.fence)
    if seen.text and seen.text == staged.source_stamp:
        return
    job = _Staging(
        workspace=workspace,
        name=name,
        source=staged.source,
        seen=seen,
        limits=limits,
        expected="",
        fence=staged.fence,
    )
    there = job.hash()
    if there != staged.hash:
        raise RunRefused(
            f"skill {name!r} changed while its run was asked for: what was asked for has the hash "
            f"{staged.hash}, what is there now has {there}; nothing was run; try again, and it is "
            "asked for as it is now"
        )


def _fetch(skill: Skill) -> tuple[str, str]:
    """Return the folder with the skill's files and its fence; those of MCP servers are fetched."""
    try:
        return skill.files.whole_folder()
    except LoadError as error:
        raise RunRefused(f"skill {skill.name!r} cannot be fetched: {error}") from error


def _expect(name: str, found: str, expected: str) -> None:
    if expected and found != expected:
        raise RunRefused(
            f"skill {name!r} is not what was approved: its files have the hash {found}, "
            f"not {expected}; look at what changed and load it again"
        )


def _warn_of_shadowed(folder: str) -> Iterator[Diagnostic]:
    for name in _RESERVED:
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            message = f"{name!r} is hidden in a run: the workspace has its own there"
            yield Diagnostic(
                code="entry-hidden",
                severity="warning",
                path=path,
                line=None,
                message=message,
                remedy="give it another name",
            )


# Detecting changes


class Stamp(NamedTuple):
    """A hash over the names, kinds, sizes and times in a tree; empty when it proves nothing.

    Not `settled` when the last change is so recent that another could have the same time.
    """

    text: str
    settled: bool = False


def stamp(folder: str, most: int, *, closed: Container[str] = ()) -> Stamp:
    """Return the stamp of a tree; empty for more than `most` entries or unreadable ones.

    The contents of top-level folders in `closed` do not count.
    """
    rows: list[tuple[object, ...]] = []
    try:
        rows.append(("", os.stat(folder).st_mode))
        newest = _add_rows(folder, most, closed, rows)
    except OSError:
        return Stamp("")
    if len(rows) > most + 1:
        return Stamp("")
    rows.sort()
    # marshal is fastest, and version 2 is deterministic.
    text = hashlib.sha256(marshal.dumps(rows, 2)).hexdigest()
    return Stamp(text, newest <= time.time_ns() - _FRESH_NS)


def _add_rows(
    folder: str,
    most: int,
    closed: Container[str],
    rows: list[tuple[object, ...]],
) -> int:
    """Add a row for each entry; return the time of the newest change."""
    newest, pending = 0, [""]
    while pending and len(rows) <= most + 1:
        below = pending.pop()
        with os.scandir(f"{folder}/{below}") as listing:
            for entry in islice(listing, most + 1):
                info = entry.stat(follow_symlinks=False)
                name = entry.name
                if not entry.is_dir(follow_symlinks=False):
                    changed = info.st_ctime_ns
                    newest = max(newest, changed)
                    rows.append(
                        (
                            below + name,
                            info.st_mode,
                            info.st_size,
                            info.st_ino,
                            info.st_mtime_ns,
                            changed,
                        )
                    )
                elif not below and name in closed:
                    rows.append((name, stat.S_IFMT(info.st_mode), info.st_uid))
                else:
                    rows.append((below + name, info.st_mode))
                    pending.append(f"{below}{name}/")
    return newest


def _source_stamp(folder: str, fence: str) -> Stamp:
    entries = LocalFiles(folder, fence).entries()
    if any(entry.problem in ("unreadable", "too-many") for entry in entries):
        return Stamp("")
    seen = stamp_of(entries)
    return Stamp(seen.text, seen.newest_ns <= time.time_ns() - _FRESH_NS)


def _copy_stamp(workspace: Workspace, home: str, most: int) -> str:
    path = os.path.join(workspace.path, home)
    if os.path.islink(path) or os.path.islink(os.path.dirname(path)):
        return ""
    # The workspace adds its own entries to those of the skill.
    return stamp(path, most + _OWN_ENTRIES, closed=(VENV,)).text


class _Staging(NamedTuple):
    """The staging of one skill; methods that change metadata need the workspace's lock."""

    workspace: Workspace
    name: str
    source: str
    seen: Stamp
    limits: Limits
    expected: str
    fence: str = ""

    def current(self, metadata: Metadata) -> Stage | None:
        """Return the earlier stage if nothing has changed since."""
        kept = metadata.staged.get(self.name)
        same = (
            kept is not None
            and self.seen.settled
            and (kept.source, kept.source_stamp) == (self.source, self.seen.text)
            and self.is_whole(metadata, kept.copy)
        )
        return kept if same else None

    def is_whole(self, metadata: Metadata, copy: str) -> bool:
        """Whether a copy of that name exists, unchanged since it was made."""
        known = metadata.copies.get(copy)
        most = MAX_MANIFEST_FILES
        return bool(known) and known == _copy_stamp(self.workspace, f"{copy}/{self.name}", most)

    def run(self, metadata: Metadata) -> tuple[Stage, bool]:
        """Stage the skill; return the stage, and whether its copy was there already."""
        kept = self.current(metadata)
        if kept is not None:  # another process has staged it meanwhile
            return kept, True
        aside = f"new-{os.urandom(8).hex()}"
        try:
            copy = self.build(aside)
            _expect(self.name, copy.hash(), self.expected)
            name = f"{COPIES}{copy.content(self.name)}"
            reused = self.is_whole(metadata, name)
            if not reused:
                self.place(aside, name)
                most = MAX_MANIFEST_FILES
                stamped = _copy_stamp(self.workspace, f"{name}/{self.name}", most)
                metadata.copies[name] = stamped
        except BaseException:
            self.discard(aside)
            raise
        if reused:
            self.discard(aside)
        stage = Stage(self.source, copy.hash(), name, self.seen.text if self.seen.settled else "")
        self.supersede(metadata, stage)
        return stage, reused

    def supersede(self, metadata: Metadata, stage: Stage) -> None:
        """Record the stage; mark an older copy for removal once the workspace is unused."""
        before = metadata.staged.get(self.name)
        metadata.staged[self.name] = stage
        if before is not None and before.copy != stage.copy:
            mark = os.path.join(self.workspace.path, PRIVATE, REPLACED)
            os.close(os.open(mark, APPEND_FILE, 0o600))

    def hash(self) -> str:
        """Return the hash of the skill as it is now, from a temporary copy."""
        aside = f"new-{os.urandom(8).hex()}"
        try:
            return self.build(aside).hash()
        finally:
            self.discard(aside)

    def discard(self, aside: str) -> None:
        remove_tree(os.path.join(self.workspace.path, PRIVATE, aside))

    def build(self, aside: str) -> TreeCopy:
        """Copy the skill below a private folder, with the links and `.venv` it gets."""
        copy = TreeCopy(
            f"skill {self.name!r}",
            MAX_STAGED_BYTES,
            MAX_MANIFEST_FILES,
            self.source,
        )
        with handles() as keep, copy.reading("."):
            private = keep(os.open(PRIVATE, READ_FOLDER, dir_fd=self.workspace.handle))
            os.mkdir(aside, 0o700, dir_fd=private)
            parent = keep(os.open(aside, READ_FOLDER, dir_fd=private))
            os.mkdir(self.name, 0o700, dir_fd=parent)
            target = keep(os.open(self.name, READ_FOLDER, dir_fd=parent))
            with SkillTree(self.source, self.fence) as tree:
                copy.fill_from(tree, target, shadowed=tuple(LINKS))
            for name, place in LINKS.items():
                os.symlink(f"../../{place}", name, dir_fd=target)
            if has_entry(target, "package.json"):
                # Its packages, where the sandbox mounts them; some scripts name them by this path.
                os.symlink(f"../../{NODE_MODULES}", NODE_MODULES, dir_fd=target)
            os.mkdir(VENV, 0o700, dir_fd=target)
            self.workspace.give(keep(os.open(VENV, READ_FOLDER, dir_fd=target)))
            copy.finish(target)
        return copy

    def place(self, aside: str, name: str) -> None:
        """Move the copy to its place in one step; a damaged one there is kept aside."""
        with handles() as keep:
            private = keep(os.open(PRIVATE, READ_FOLDER, dir_fd=self.workspace.handle))
            made = keep(os.open(aside, READ_FOLDER, dir_fd=private))
            with suppress(FileNotFoundError, NotADirectoryError):
                # Only a writable folder can be moved to another.
                os.fchmod(keep(os.open(name, READ_FOLDER, dir_fd=self.workspace.handle)), 0o755)
            swap(private, aside, self.workspace.handle, name)
            os.fchmod(made, 0o555)
