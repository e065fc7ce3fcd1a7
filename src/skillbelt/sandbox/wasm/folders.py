"""The files that a guest sees: folders of the host, each at its own path inside."""

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from skillbelt.errors import SandboxUnavailable
from skillbelt.files.contain import FOLLOW_FILE, open_beneath, open_folder
from skillbelt.sandbox.linux.identity import interpreter
from skillbelt.sandbox.linux.landlock import EVERYTHING, READ_ONLY, PathRule
from skillbelt.sandbox.process.mounts import mounts_of
from skillbelt.sandbox.protocol import Job, Mount

TEMPORARY = "/tmp"
SKILL, WORK = "/skill", "/work"


class GuestFolder(NamedTuple):
    """A folder at `path` inside: `below` in `source`, opened without following links."""

    path: str
    source: str
    below: tuple[str, ...] = ()
    writable: bool = False


class GuestFolders:
    """All folders of one job, each opened separately; the longest matching path counts."""

    def __init__(self, job: Job, temporary: str) -> None:
        python = interpreter()
        unused = python.folders if python else ()  # a guest cannot start programs of the machine
        mounts = list(_folders_of([one for one in mounts_of(job) if one.source not in unused]))
        _check_nested(mounts)
        self._folders = {
            path: GuestFolder(path, mount.source, (), mount.writable)
            for mount in mounts
            if (path := os.path.normpath(mount.target))
        }
        self._folders.setdefault(TEMPORARY, GuestFolder(TEMPORARY, temporary, (), True))
        self._add_names(job)

    def _add_names(self, job: Job) -> None:
        """Add the fixed names of skill and workspace, and the targets of the skill's links.

        The engine does not follow a link out of a folder, even to another folder of the guest.
        """
        skills, name, work = (
            job.env.get(key, "") for key in ("SKILLS_DIR", "SKILL_NAME", "WORK_DIR")
        )
        home = os.path.normpath(os.path.join(skills, name)) if skills and name else ""
        found = self.find(home) if home.startswith("/") else None
        if found is not None:
            for path, to in _links(found):
                lead = os.path.normpath(os.path.join(home, to))
                if not f"{lead}/".startswith(f"{home}/"):
                    self._alias(os.path.join(home, path), lead)
            for path in [path for path in self._folders if path.startswith(f"{home}/")]:
                self._alias(SKILL + path[len(home) :], path)
            self._alias(SKILL, home)
        if work.startswith("/"):
            self._alias(WORK, work)

    def _alias(self, path: str, to: str) -> None:
        found = self.find(os.path.normpath(to))
        if found is not None:
            self._folders.setdefault(path, found._replace(path=path))

    def find(self, path: str) -> GuestFolder | None:
        """Return the place on the host of a path inside; None when no folder covers it."""
        path = os.path.normpath(path)
        outer, rest = path, ""
        while outer not in self._folders:
            if outer in ("/", ""):
                return None
            outer, _, name = outer.rpartition("/")
            rest = os.path.join(name, rest) if rest else name
            outer = outer or "/"
        below = tuple(rest.split("/")) if rest else ()
        found = self._folders[outer]
        return found._replace(path=path, below=found.below + below)

    def open_file(self, path: str) -> int:
        """Open a regular file inside for reading; raises OSError or PathEscape."""
        found = self.find(path)
        if found is None or not found.below:
            raise FileNotFoundError(path)
        folder = open_folder(found.source)
        try:
            handle = open_beneath(folder, "/".join(found.below), FOLLOW_FILE)
        finally:
            os.close(folder)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise FileNotFoundError(path)
        return handle

    def folders(self) -> list[GuestFolder]:
        """Return all folders of the guest, outer ones first."""
        return sorted(self._folders.values(), key=lambda folder: folder.path)

    def rules(self) -> Iterator[PathRule]:
        """Yield the Landlock rules for the folders; one covers the folders below it."""
        for folder in self._folders.values():
            if not folder.below:
                yield PathRule(folder.source, EVERYTHING if folder.writable else READ_ONLY)


def _folders_of(mounts: list[Mount]) -> Iterator[Mount]:
    for mount in mounts:
        if os.path.isdir(mount.source):
            yield mount
        elif os.path.isfile(mount.source) or not os.path.exists(mount.source):
            what = "is a file" if os.path.isfile(mount.source) else "does not exist"
            raise SandboxUnavailable(
                f"{mount.source} {what}: the sandbox 'wasm' shows folders only; grant its folder"
            )


def _check_nested(mounts: list[Mount]) -> None:
    """Refuse a read-only folder inside a writable one: the guest could write to it."""
    writable = [os.path.join(os.path.realpath(one.source), "") for one in mounts if one.writable]
    for mount in mounts:
        if not mount.writable and os.path.realpath(mount.source).startswith(tuple(writable)):
            raise SandboxUnavailable(
                f"{mount.source} cannot be read-only, because a folder around it is writable: "
                "use another sandbox than 'wasm'"
            )


def _links(home: GuestFolder) -> Iterator[tuple[str, str]]:
    """Yield the links at the top of the skill's folder with their targets."""
    place = os.path.join(home.source, *home.below)
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield entry.name, os.readlink(entry.path)
    except OSError:
        return  # a folder that cannot be listed has no links to add
