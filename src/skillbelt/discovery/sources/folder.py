"""Local folders: find every SKILL.md below a root, within limits, and report what is skipped."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
from collections.abc import Collection
from fnmatch import translate
from functools import cache
from itertools import islice
from operator import attrgetter

from skillbelt.files.contain import astray, inside
from skillbelt.records import NamedTuple
from skillbelt.values import SKILL_FILE, Diagnostic, Limits, Severity

# Bounds the scan of a root that holds something else, such as a home folder.
MAX_ROOT_ENTRIES = 1_000_000

# The largest integer of the index. Times after 2262 and inodes of some network drives exceed it.
LARGEST = 2**63 - 1
# On a file system that ignores case, opening SKILL.md also finds skill.md.
_FOLDS_CASE = sys.platform in ("darwin", "win32")


class Found(NamedTuple):
    """A SKILL.md and the stamp that shows whether it changed.

    `identity` is its folder's device and inode.
    """

    location: str
    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int
    identity: int


class WalkRules(NamedTuple):
    """Rules for walking a root. Each field is a setting."""

    limits: Limits = Limits()
    follow_symlinks: bool = True
    nested: bool = False
    loose_file_name: bool = False
    skip_directories: Collection[str] = (".git", "node_modules", "__pycache__")
    collection: bool = False  # the root is a folder of skills, not one skill
    fence: str = ""  # links out of this folder are not followed; empty for no limit


class WalkProgress:
    """Shared by a walk and its waiting caller: the position of the walk, and whether to stop.

    A system call on a dead network mount may never return, so the caller watches `beats`.
    """

    __slots__ = ("beats", "path", "stopped")

    def __init__(self) -> None:
        self.beats, self.path, self.stopped = 0, "", False

    def beat(self, path: str) -> None:
        """Record that `path` is about to be accessed."""
        self.beats += 1
        self.path = path


@cache
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return one expression for all names: most folders are compared with it."""
    return re.compile("|".join(map(translate, patterns)) or r"(?!)")


class Walker:
    """One walk of one root, in sorted path order, each real folder once."""

    def __init__(self, root: str, rules: WalkRules, progress: WalkProgress) -> None:
        self.root, self.rules, self.progress = root, rules, progress
        self.found: list[Found] = []
        self.diagnostics: list[Diagnostic] = []
        self.complete = True
        self.exists = True
        self._seen: set[int] = set()
        self._linked = False
        self._skipped = _any_of(tuple(rules.skip_directories))
        self._unreadable = ""  # the last unreadable folder
        self._listed = self._entries = 0

    def walk(self) -> None:
        """Fill `found` and `diagnostics`. Never raises for anything on disk."""
        try:
            top = os.stat(self.root)
        except OSError as error:
            self.exists = False
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                self._report_error("root-unreadable", self.root, error)
            return
        if not stat.S_ISDIR(top.st_mode):
            self.exists = False
            return
        if self._leads_out(self.root):
            self.exists = False
            return
        identity = _identity(top)
        self._seen.add(identity)
        # (folder, its identity, depth), the next one to visit last.
        stack = [(self.root.rstrip("/") or "/", identity, 0)]
        while stack and not self.progress.stopped:
            folder, identity, depth = stack.pop()
            ends = self._skill_at(folder, identity) and not self.rules.nested
            if folder != self._unreadable and (not ends or (depth == 0 and self.rules.collection)):
                stack += reversed(self._list_folders(folder, identity, depth))

    def _skill_at(self, folder: str, identity: int) -> bool:
        """Whether the folder ends the search: it holds a SKILL.md, good or bad."""
        path = f"{folder}/{SKILL_FILE}"
        self.progress.beats += 1
        self.progress.path = path
        try:
            # The parent folders were checked before, so only the file itself can be a link out.
            status = os.lstat(path) if self.rules.fence else os.stat(path)
            if stat.S_ISLNK(status.st_mode):
                if self._is_foreign_link(path):
                    return True
                status = os.stat(path)
        except OSError as error:
            return self._no_skill(path, error)
        if _FOLDS_CASE and SKILL_FILE not in os.listdir(folder):
            return False
        self._add_found(path, status, identity)
        return True

    def _no_skill(self, path: str, error: OSError) -> bool:
        if error.errno == errno.ENOENT and not os.path.islink(path):
            return False
        if error.errno in (errno.ENOENT, errno.ELOOP):
            self._report_broken(path)
        else:
            self._report_unreadable(os.path.dirname(path), error)
        return True

    def _add_found(self, path: str, status: os.stat_result, identity: int) -> None:
        if stat.S_ISREG(status.st_mode):
            self.found.append(
                Found(
                    location=path,
                    size=status.st_size,
                    mtime_ns=min(status.st_mtime_ns, LARGEST),
                    inode=status.st_ino & LARGEST,
                    ctime_ns=min(status.st_ctime_ns, LARGEST),
                    identity=identity,
                )
            )
            return
        kind = "folder" if stat.S_ISDIR(status.st_mode) else "special file"
        self._report(
            "not-a-file",
            "error",
            path,
            f"{SKILL_FILE} is a {kind}, not a file",
            "make it a regular file",
        )

    def _list_folders(self, folder: str, identity: int, depth: int) -> list[tuple[str, int, int]]:
        """Return the folders to visit below this one, sorted by name."""
        limits = self.rules.limits
        if self.complete and self._listed >= limits.max_directories:
            remedy = "raise max_directories, or name a smaller folder"
            self._stop_at_limit("max_directories", limits.max_directories, folder, remedy)
        if not self.complete:
            return []
        self._listed += 1
        try:
            with os.scandir(folder) as entries:
                # One more than allowed, to detect that there are too many.
                most = MAX_ROOT_ENTRIES - self._entries + 1
                listing = sorted(islice(entries, most), key=_name)
            # Not from `identity`: another file system may be mounted on the folder.
            device = os.stat(folder).st_dev << 64
        except OSError as error:
            self._report_unreadable(folder, error)
            return []
        self._entries += len(listing)
        if self._entries > MAX_ROOT_ENTRIES:
            remedy = "name a smaller folder"
            self._stop_at_limit("max_root_entries", MAX_ROOT_ENTRIES, folder, remedy)
        ends, below = False, []
        for entry in listing:
            if entry.name.lower() == "skill.md":
                ends |= self._report_misspelled(entry, identity)
            elif (place := self._folder(entry, device)) is not None:
                below.append((entry.path, place, depth + 1))
        return [] if ends and not self.rules.nested else self._drop_too_deep(below, folder, depth)

    def _drop_too_deep(
        self, below: list[tuple[str, int, int]], folder: str, depth: int
    ) -> list[tuple[str, int, int]]:
        """Return the same folders unless they are too deep."""
        limits = self.rules.limits
        if below and depth >= limits.max_depth:
            # A link from a higher folder may still lead to them.
            self._seen.difference_update(place for _, place, _ in below)
            self._report(
                "max-depth",
                "warning",
                folder,
                f"{len(below)} folders are deeper than max_depth ({limits.max_depth})",
                "raise max_depth, or move the skills up",
            )
            return []
        return below

    def _folder(self, entry: os.DirEntry[str], device: int) -> int | None:
        """Return the identity of a folder to visit; None for one seen before, and anything else."""
        try:
            if entry.is_dir(follow_symlinks=False):
                identity = device | entry.inode()
            elif not (entry.is_symlink() and self._is_followed(entry)):
                return None
            else:
                identity = _identity(entry.stat())
                self._mark_parents()
        except OSError as error:
            if error.errno == errno.ELOOP:
                self._report_broken(entry.path)
            else:
                self._report_error("unreadable", entry.path, error)
            return None
        if self._skipped.match(entry.name):
            return None
        if identity in self._seen:
            self._report_seen(entry)
            return None
        self._seen.add(identity)
        return identity

    def _is_followed(self, entry: os.DirEntry[str]) -> bool:
        if entry.is_dir():
            return self.rules.follow_symlinks and not self._leads_out(entry.path)
        if not os.path.exists(entry.path):
            self._report_broken(entry.path)
        return False

    def _leads_out(self, path: str) -> bool:
        """Whether the path leads out of the fence; report it."""
        if not self.rules.fence:
            return False
        if inside(path, self.rules.fence):
            return False
        self.diagnostics.append(link_outside(path, self.rules.fence))
        return True

    def _is_foreign_link(self, path: str) -> bool:
        """Whether the link leads to a file that is not part of a skill; report it."""
        if not self.rules.fence:
            return False
        why = astray(path, self.rules.fence)
        if why:
            self.diagnostics.append(link_outside(path, self.rules.fence, why))
        return bool(why)

    def _mark_parents(self) -> None:
        """Mark the folders above the root as seen: a link to one of them is a cycle too."""
        if self._linked:
            return
        self._linked = True
        folder = os.path.realpath(self.root)
        while (above := os.path.dirname(folder)) != folder:
            folder = above
            with contextlib.suppress(OSError):
                # A parent that cannot be read cannot be walked either.
                self._seen.add(_identity(os.stat(folder)))

    def _report_seen(self, entry: os.DirEntry[str]) -> None:
        target = os.path.realpath(entry.path)
        above = os.path.realpath(os.path.dirname(entry.path))
        if f"{above}/".startswith(f"{target.rstrip('/')}/"):
            self._report(
                "link-cycle",
                "warning",
                entry.path,
                f"is a link back to {target}, a folder above it",
                "remove the link",
            )
        else:
            self._report("same-folder", "info", entry.path, f"leads to {target}, which was visited")

    def _report_misspelled(self, entry: os.DirEntry[str], identity: int) -> bool:
        """Report a misspelled SKILL.md; whether it counts as one."""
        if entry.name == SKILL_FILE:
            return False
        self._report(
            "file-name",
            "warning",
            entry.path,
            f"the file is called {entry.name}, not {SKILL_FILE}",
            f"rename it to {SKILL_FILE} (or set loose_file_name = true)",
        )
        if self.rules.loose_file_name:
            try:
                if not (entry.is_symlink() and self._is_foreign_link(entry.path)):
                    self._add_found(entry.path, entry.stat(), identity)
            except OSError as error:
                self._report_error("unreadable", entry.path, error)
        return self.rules.loose_file_name

    def _stop_at_limit(self, bound: str, limit: int, folder: str, remedy: str) -> None:
        """List no further folder; known ones are still visited."""
        self.complete = False
        self._report(
            bound.replace("_", "-"),
            "warning",
            self.root,
            f"the search stopped at {folder}: {self._listed} folders with {self._entries} "
            f"entries were listed, and {bound} is {limit}",
            remedy,
        )

    def _report_broken(self, path: str) -> None:
        remedy = "point the link at something that exists, or remove it"
        self._report("broken-link", "warning", path, "is a link that leads nowhere", remedy)

    def _report_unreadable(self, folder: str, error: OSError) -> None:
        self._unreadable = folder
        code = "root-unreadable" if folder == self.root else "unreadable"
        self._report_error(code, folder, error)

    def _report_error(self, code: str, path: str, error: OSError) -> None:
        self._report(
            code,
            "error",
            path,
            f"cannot be read: {error.strerror or error}",
            "fix its permissions, or exclude it from the search",
        )

    def _report(
        self, code: str, severity: Severity, path: str, message: str, remedy: str = ""
    ) -> None:
        self.diagnostics.append(
            Diagnostic(
                code=code, severity=severity, path=path, line=None, message=message, remedy=remedy
            )
        )


def link_outside(path: str, fence: str, why: str = "") -> Diagnostic:
    """Return the diagnostic for a link that leads out of a project, or to another file of it."""
    message = f"{why or f'is or is behind a link that leads out of {fence}'}, so it is not read"
    remedy = "replace the link by the file, or move the skill to your own folder"
    return Diagnostic(
        code="link-outside", severity="error", path=path, line=None, message=message, remedy=remedy
    )


_name = attrgetter("name")


def _identity(status: os.stat_result) -> int:
    return status.st_dev << 64 | status.st_ino
