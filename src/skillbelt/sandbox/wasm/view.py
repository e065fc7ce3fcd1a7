"""What a guest sees of the files: folders of the host, each at a path of its own."""

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from skillbelt.errors import SandboxUnavailable
from skillbelt.files.contain import FOLLOW_FILE, open_beneath, open_folder
from skillbelt.sandbox.linux.identity import interpreter
from skillbelt.sandbox.linux.landlock import EVERYTHING, READ_ONLY, Rule
from skillbelt.sandbox.process.mounts import mounts_of
from skillbelt.sandbox.protocol import Job, Mount

TEMPORARY = "/tmp"
SKILL, WORK = "/skill", "/work"


class Folder(NamedTuple):
    """A folder at `path` inside: what lies at `below` in `source`, reached through no link."""

    path: str
    source: str
    below: tuple[str, ...] = ()
    writable: bool = False


class View:
    """All folders of one job. The guest gets each of them by itself; what is longest, counts."""

    def __init__(self, job: Job, temporary: str) -> None:
        python = interpreter()
        unused = python.folders if python else ()  # a guest starts no program of the machine
        mounts = list(_folders_of([one for one in mounts_of(job) if one.source not in unused]))
        _check_nested(mounts)
        self._folders = {
            path: Folder(path, mount.source, (), mount.writable)
            for mount in mounts
            if (path := os.path.normpath(mount.target))
        }
        self._folders.setdefault(TEMPORARY, Folder(TEMPORARY, temporary, (), True))
        self._add_names(job)

    def _add_names(self, job: Job) -> None:
        """The fixed names of the skill and its work, and what links of the skill lead to.

        A link out of a folder is not followed by the engine, even where it leads to another folder
        that the guest has.
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

    def find(self, path: str) -> Folder | None:
        """What lies at a path inside, as a place on the host; None when nothing can."""
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
        """A handle of a regular file inside, for reading; OSError or PathEscape without one."""
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

    def folders(self) -> list[Folder]:
        """Everything the guest gets, the outer ones first."""
        return sorted(self._folders.values(), key=lambda folder: folder.path)

    def rules(self) -> Iterator[Rule]:
        """The same, for the kernel; what lies below another is allowed with that."""
        for folder in self._folders.values():
            if not folder.below:
                yield Rule(folder.source, EVERYTHING if folder.writable else READ_ONLY)


def _folders_of(mounts: list[Mount]) -> Iterator[Mount]:
    for mount in mounts:
        if os.path.isdir(mount.source):
            yield mount
        elif os.path.isfile(mount.source) or not os.path.exists(mount.source):
            what = "is a file" if os.path.isfile(mount.source) else "is not there"
            raise SandboxUnavailable(
                f"{mount.source} {what}: the sandbox 'wasm' shows folders only; grant its folder"
            )


def _check_nested(mounts: list[Mount]) -> None:
    """A guest that has a folder has all that is in it."""
    writable = [os.path.join(os.path.realpath(one.source), "") for one in mounts if one.writable]
    for mount in mounts:
        if not mount.writable and os.path.realpath(mount.source).startswith(tuple(writable)):
            raise SandboxUnavailable(
                f"{mount.source} can not be kept from being written, since a folder around it may "
                "be: use another sandbox than 'wasm'"
            )


def _links(home: Folder) -> Iterator[tuple[str, str]]:
    """The links at the top of the skill's folder, and where they lead."""
    place = os.path.join(home.source, *home.below)
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield entry.name, os.readlink(entry.path)
    except OSError:
        return
