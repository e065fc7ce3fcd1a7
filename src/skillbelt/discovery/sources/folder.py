"""Folders on this disk: every SKILL.md below a root, within bounds, and what was passed by."""

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Collection
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from skillbelt.values import SKILL_FILE, Diagnostic, Limits, Severity

# Bounds the scan of a root that holds something else, such as a home folder.
MAX_ROOT_ENTRIES = 1_000_000

# What an index can hold. Times beyond the year 2262 and some network drives' inodes are larger.
LARGEST = 2**63 - 1
# Where names differ only by case on disk, asking for SKILL.md also finds skill.md.
_FOLDS_CASE = sys.platform in ("darwin", "win32")


class Found(NamedTuple):
    """A SKILL.md and what tells whether it changed. `identity` is its folder's device and inode."""

    location: str
    size: int
    mtime_ns: int
    inode: int
    identity: int


# Folders that tools fill with files that are not the author's; they hold no skills and many files.
SKIPPED_DIRECTORIES = frozenset((".git", "node_modules", "__pycache__"))


class Rules(NamedTuple):
    """How to walk. Each is a setting."""

    limits: Limits = Limits()
    follow_symlinks: bool = True
    nested: bool = False
    loose_file_name: bool = False
    skip_directories: Collection[str] = SKIPPED_DIRECTORIES
    collection: bool = False  # the root is meant to hold skills, so it is not one whole skill
    fence: str = ""  # no link out of this folder is followed; empty for none


class Pulse:
    """Shared between a walk and whoever waits for it: where it is, and whether to give up.

    A system call on a dead network mount may never return, so the one who waits watches `beats`.
    """

    __slots__ = ("beats", "path", "stopped")

    def __init__(self) -> None:
        self.beats, self.path, self.stopped = 0, "", False

    def beat(self, path: str) -> None:
        """Say that `path` is about to be touched."""
        self.beats += 1
        self.path = path


class Walker:
    """One walk of one root, in sorted path order, each real folder once."""

    def __init__(self, root: str, rules: Rules, pulse: Pulse) -> None:
        self.root, self.rules, self.pulse = root, rules, pulse
        self.found: list[Found] = []
        self.diagnostics: list[Diagnostic] = []
        self.complete = True
        self.exists = True
        self._seen: set[int] = set()
        self._linked = False
        self._closed = ""  # the folder that was last found to be unreadable
        self._listed = self._entries = 0

    def walk(self) -> None:
        """Fill `found` and `diagnostics`. Never raises for anything that lies on disk."""
        try:
            top = os.stat(self.root)
        except OSError as error:
            self.exists = False
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                self._say_error("root-unreadable", self.root, error)
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
        while stack and not self.pulse.stopped:
            folder, identity, depth = stack.pop()
            ends = self._skill_at(folder, identity) and not self.rules.nested
            if folder != self._closed and (not ends or (depth == 0 and self.rules.collection)):
                stack += reversed(self._below(folder, identity, depth))

    def _skill_at(self, folder: str, identity: int) -> bool:
        """Whether the folder ends the search: it holds a SKILL.md, good or bad."""
        path = f"{folder}/{SKILL_FILE}"
        self.pulse.beats += 1
        self.pulse.path = path
        try:
            # The folders on the way here were looked at, so only the file itself can lead out.
            status = os.lstat(path) if self.rules.fence else os.stat(path)
            if stat.S_ISLNK(status.st_mode):
                if self._strays(path):
                    return True
                status = os.stat(path)
        except OSError as error:
            return self._no_skill(path, error)
        if _FOLDS_CASE and SKILL_FILE not in os.listdir(folder):
            return False
        self._take(path, status, identity)
        return True

    def _no_skill(self, path: str, error: OSError) -> bool:
        if error.errno == errno.ENOENT and not os.path.islink(path):
            return False
        if error.errno in (errno.ENOENT, errno.ELOOP):
            self._say_broken(path)
        else:
            self._say_closed(os.path.dirname(path), error)
        return True

    def _take(self, path: str, status: os.stat_result, identity: int) -> None:
        if stat.S_ISREG(status.st_mode):
            time_ns, inode = min(status.st_mtime_ns, LARGEST), status.st_ino & LARGEST
            self.found.append(
                Found(
                    location=path,
                    size=status.st_size,
                    mtime_ns=time_ns,
                    inode=inode,
                    identity=identity,
                )
            )
            return
        kind = "folder" if stat.S_ISDIR(status.st_mode) else "special file"
        self._say(
            "not-a-file",
            "error",
            path,
            f"{SKILL_FILE} is a {kind}, not a file",
            "make it a regular file",
        )

    def _below(self, folder: str, identity: int, depth: int) -> list[tuple[str, int, int]]:
        """The folders to visit below this one, sorted by name."""
        limits = self.rules.limits
        if self.complete and self._listed >= limits.max_directories:
            self._stop_at_bound("max_directories", folder)
        if not self.complete:
            return []
        self._listed += 1
        try:
            with os.scandir(folder) as entries:
                # One more than is allowed, to see that it is too much.
                most = MAX_ROOT_ENTRIES - self._entries + 1
                listing = sorted(islice(entries, most), key=_name)
            # Not from `identity`: the folder may be where another file system is mounted.
            device = os.stat(folder).st_dev << 64
        except OSError as error:
            self._say_closed(folder, error)
            return []
        self._entries += len(listing)
        if self._entries > MAX_ROOT_ENTRIES:
            self._stop_at_bound("max_root_entries", folder)
        ends, below = False, []
        for entry in listing:
            if entry.name.lower() == "skill.md":
                ends |= self._misspelled(entry, identity)
            elif (place := self._folder(entry, device)) is not None:
                below.append((entry.path, place, depth + 1))
        return [] if ends and not self.rules.nested else self._within(below, folder, depth)

    def _within(
        self, below: list[tuple[str, int, int]], folder: str, depth: int
    ) -> list[tuple[str, int, int]]:
        """The same folders unless they lie too deep."""
        limits = self.rules.limits
        if below and depth >= limits.max_depth:
            # A link from higher up may still lead to them.
            self._seen.difference_update(place for _, place, _ in below)
            self._say(
                "max-depth",
                "warning",
                folder,
                f"{len(below)} folders lie deeper than max_depth ({limits.max_depth})",
                "raise max_depth, or move the skills up",
            )
            return []
        return below

    def _folder(self, entry: os.DirEntry[str], device: int) -> int | None:
        """The identity of a folder to visit; None for anything else and for one seen before."""
        try:
            if entry.is_dir(follow_symlinks=False):
                identity = device | entry.inode()
            elif not (entry.is_symlink() and self._followed(entry)):
                return None
            else:
                identity = _identity(entry.stat())
                self._see_above()
        except OSError as error:
            if error.errno == errno.ELOOP:
                self._say_broken(entry.path)
            else:
                self._say_error("unreadable", entry.path, error)
            return None
        if entry.name in self.rules.skip_directories:
            return None
        if identity in self._seen:
            self._say_seen(entry)
            return None
        self._seen.add(identity)
        return identity

    def _followed(self, entry: os.DirEntry[str]) -> bool:
        if entry.is_dir():
            return self.rules.follow_symlinks and not self._leads_out(entry.path)
        if not os.path.exists(entry.path):
            self._say_broken(entry.path)
        return False

    def _leads_out(self, path: str) -> bool:
        """Whether the path leads out of the fence, which is then said."""
        if not self.rules.fence:
            return False
        from skillbelt.files.contain import inside

        if inside(path, self.rules.fence):
            return False
        self.diagnostics.append(link_outside(path, self.rules.fence))
        return True

    def _strays(self, path: str) -> bool:
        """Whether the link leads to what is no file of a skill, which is then said."""
        if not self.rules.fence:
            return False
        from skillbelt.files.reach import astray

        why = astray(path, self.rules.fence)
        if why:
            self.diagnostics.append(link_outside(path, self.rules.fence, why))
        return bool(why)

    def _see_above(self) -> None:
        """A link to a folder above the root is a circle too, though the walk never came there."""
        if self._linked:
            return
        self._linked = True
        folder = os.path.realpath(self.root)
        while (above := os.path.dirname(folder)) != folder:
            folder = above
            with contextlib.suppress(OSError):
                self._seen.add(_identity(os.stat(folder)))

    def _say_seen(self, entry: os.DirEntry[str]) -> None:
        target = os.path.realpath(entry.path)
        above = os.path.realpath(os.path.dirname(entry.path))
        if f"{above}/".startswith(f"{target.rstrip('/')}/"):
            self._say(
                "link-cycle",
                "warning",
                entry.path,
                f"is a link back to {target}, a folder above it",
                "remove the link",
            )
        else:
            self._say("same-folder", "info", entry.path, f"leads to {target}, which was visited")

    def _misspelled(self, entry: os.DirEntry[str], identity: int) -> bool:
        """Whether the folder is a skill all the same."""
        if entry.name == SKILL_FILE:
            return False
        self._say(
            "file-name",
            "warning",
            entry.path,
            f"the file is called {entry.name}, not {SKILL_FILE}",
            f"rename it to {SKILL_FILE} (or set loose_file_name = true)",
        )
        if self.rules.loose_file_name:
            try:
                if not (entry.is_symlink() and self._strays(entry.path)):
                    self._take(entry.path, entry.stat(), identity)
            except OSError as error:
                self._say_error("unreadable", entry.path, error)
        return self.rules.loose_file_name

    def _stop_at_bound(self, bound: str, folder: str) -> None:
        """List no further folder; those that are known are still looked at."""
        self.complete = False
        self._say(
            bound.replace("_", "-"),
            "warning",
            self.root,
            f"the search stopped at {folder}: {self._listed} folders with {self._entries} "
            f"entries were listed, and {bound} is {getattr(self.rules.limits, bound)}",
            f"raise {bound}, or name a smaller folder",
        )

    def _say_broken(self, path: str) -> None:
        remedy = "point the link at something that exists, or remove it"
        self._say("broken-link", "warning", path, "is a link that leads nowhere", remedy)

    def _say_closed(self, folder: str, error: OSError) -> None:
        self._closed = folder
        code = "root-unreadable" if folder == self.root else "unreadable"
        self._say_error(code, folder, error)

    def _say_error(self, code: str, path: str, error: OSError) -> None:
        self._say(
            code,
            "error",
            path,
            f"can not be read: {error.strerror or error}",
            "mend its permissions, or take it out of the search",
        )

    def _say(
        self, code: str, severity: Severity, path: str, message: str, remedy: str = ""
    ) -> None:
        self.diagnostics.append(
            Diagnostic(
                code=code, severity=severity, path=path, line=None, message=message, remedy=remedy
            )
        )


def link_outside(path: str, fence: str, why: str = "") -> Diagnostic:
    """What there is to say of a link that leads out of a project, or to another file of it."""
    message = f"{why or f'is or lies behind a link that leads out of {fence}'}, so it is not read"
    remedy = "put the file itself there, or keep the skill in a folder of your own"
    return Diagnostic(
        code="link-outside", severity="error", path=path, line=None, message=message, remedy=remedy
    )


_name = attrgetter("name")


def _identity(status: os.stat_result) -> int:
    return status.st_dev << 64 | status.st_ino
