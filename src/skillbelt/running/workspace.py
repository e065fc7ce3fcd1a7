"""A session's workspace: the one place where its runs may write, apart from every other's.

    <all>/.locks/<id>, <id>.use     never seen by a run
    <all>/<id>/metadata.json        what is staged, pinned; its time is that of the last use
    <all>/<id>/written              what runs have written since it was last measured; see `room`
    <all>/<id>/private/             what is being built or was replaced; never seen by a run
    <all>/<id>/skills-<content>/<name>/   a staged copy, never written again once it is there
    <all>/<id>/work/inputs, out, runs/<run>

A run sees its copy as `skills/<name>`, wherever the sandbox can show a folder at another place.

Where commands run as another user, the last line belongs to that user and nothing else does. The
group of that user may pass through `<id>`, everybody through `<all>`: less would not let it in.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import posixpath
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from skillbelt.errors import ConfigError, PathEscape, RunRefused, SandboxUnavailable
from skillbelt.files.contain import (
    FOLLOW_FOLDER,
    NEW_FILE,
    READ_FILE,
    READ_FOLDER,
    below,
    check_relative,
    check_segment,
    make_folders,
    open_beneath,
)
from skillbelt.files.locks import hold, release
from skillbelt.files.private import make_folder
from skillbelt.files.remove import open_anyhow, remove_tree
from skillbelt.running.cleanup import BELONGS, LOCKS, METADATA, clean_copies
from skillbelt.store.protocol import SessionKey
from skillbelt.untrusted_json import read_json

SKILLS, WORK, OUT, RUNS, PRIVATE = "skills", "work", "out", "runs", "private"
INPUTS = "work/inputs"
WRITABLE = (WORK, OUT, RUNS)
# What a staged skill finds beside its own files, and where in the workspace that is.
LINKS = {"out": OUT, "work": WORK, "inputs": INPUTS}
VENV = ".venv"
ONCE = "once-"  # what the name of a workspace begins with that is of no conversation
REPLACED = "replaced"  # says, in the private folder, that there are copies that nobody needs
# Where root keeps workspaces when the user that commands run as can not reach the state folder.
SHELTERS = ("/var/lib/skillbelt", "/var/tmp/skillbelt")
_VARIABLES = {
    "WORKSPACE_DIR": "",
    "SKILLS_DIR": SKILLS,
    "WORK_DIR": WORK,
    "OUTPUT_DIR": OUT,
    "RUN_DIR": RUNS,
}
_OWN_RUN = ("$RUN_DIR", "${RUN_DIR}")
_RUNNING = "running-"  # begins the mark of a command, in the private folder, held while it runs
_SPARE = "spare-"  # before the name of the folder of a run that left nothing in it

Owner = tuple[int, int]


class Stage(NamedTuple):
    """What is remembered of a staged skill, so that a warm call need not read it again.

    `copy` is the name of the folder that holds it.
    """

    source: str
    hash: str
    copy: str
    source_stamp: str


class Pin(NamedTuple):
    """The version of an artifact that was first put somewhere."""

    name: str
    version: int


class Metadata(NamedTuple):
    """What `metadata.json` holds: skills by name, pins by where they were put.

    `copies` has for each staged copy how it looked when it was made.
    """

    staged: dict[str, Stage]
    pins: dict[str, Pin]
    copies: dict[str, str]


def open_workspace(
    folder_of_all: str, key: SessionKey | None, owner: Owner | None = None, project: str = ""
) -> Workspace:
    """The workspace of the session, made if it is new; close it when the run has ended.

    Each project has its own. Without a key it is a new one that nobody else ever gets. `owner` is
    the user and group that commands run as, where that is not the caller. The workspace may then
    lie elsewhere: see `place_of`. ConfigError when the folder can not be used.
    """
    name = name_of(key, owner, project) if key else f"{ONCE}{os.urandom(16).hex()}"
    try:
        return Workspace(place_of(folder_of_all, owner), name, owner)
    except OSError as error:
        raise ConfigError(
            f"{folder_of_all}: no workspace can be made here: {error.strerror or error}; "
            "set state_dir to a folder that you can write to"
        ) from error


def name_of(key: SessionKey, owner: Owner | None = None, project: str = "") -> str:
    """The name of the workspace that the session has in a project, among all."""
    whole = "\0".join((*key, project)).encode("utf-8", "surrogatepass")
    name = hashlib.sha256(whole).hexdigest()[:32]
    # Files of one user are of no use to another.
    return name if owner is None else f"{name}-{owner[0]}"


class Workspace:
    """An open workspace. While it is open, clean-up does not touch it. Safe to use from threads."""

    def __init__(self, place: str, name: str, owner: Owner | None = None) -> None:
        self.name, self.owner = name, owner
        self.wanted = False  # whether something in it is to be had after the run it was made for
        self.path = os.path.join(place, name)
        self._lock = os.path.join(place, LOCKS, name)
        self._use = hold(f"{self._lock}.use", fcntl.LOCK_SH)
        try:
            self.handle = self._made()
        except BaseException:
            release(self._use)
            raise

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it; the last to do so removes what was replaced meanwhile."""
        if self._use < 0:
            return
        os.close(self.handle)
        release(self._use)
        self._use = self.handle = -1
        with suppress(FileNotFoundError, BlockingIOError):
            if self._leftovers():
                alone = hold(f"{self._lock}.use", fcntl.LOCK_EX | fcntl.LOCK_NB)
                try:
                    for path in self._leftovers():
                        remove_tree(path)
                    clean_copies(self.path, {one.copy for one in self._kept().staged.values()})
                finally:
                    release(alone)

    def _leftovers(self) -> list[str]:
        private = os.path.join(self.path, PRIVATE)
        names = [name for name in os.listdir(private) if not name.startswith(_SPARE)]
        return [os.path.join(private, name) for name in names]

    # Layout

    def _made(self) -> int:
        handle = _own_folder(self.path, self.owner)
        try:
            _ensure(handle, PRIVATE, None, 0o700)
            for name in WRITABLE:
                _ensure(handle, name, self.owner, 0o700)
            self._ensure_inputs(handle)
            self._touch(handle)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _ensure_inputs(self, handle: int) -> None:
        with suppress(FileNotFoundError):
            found = os.stat(INPUTS, dir_fd=handle, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode) and found.st_mode & 0o700 == 0o700:
                return
        work = os.open(WORK, READ_FOLDER, dir_fd=handle)
        try:
            _ensure(work, "inputs", self.owner, 0o700)
        finally:
            os.close(work)

    def _touch(self, handle: int) -> None:
        try:
            os.utime(METADATA, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            # Another may have begun it meanwhile, and staged something already.
            with suppress(FileExistsError):
                _write(handle, Metadata({}, {}, {}), os.link)

    def give(self, handle: int) -> None:
        """Let what was just made belong to whoever commands run as."""
        if self.owner is not None and os.fstat(handle).st_uid == os.geteuid():
            os.fchown(handle, *self.owner)

    def make_folders(self, relative: str) -> int:
        """A handle of a folder that runs may write, made with its parents; PathEscape at a link."""
        parts = check_relative(relative, "the workspace").split("/")
        if parts[0] not in WRITABLE:
            raise PathEscape(relative, "the workspace", f"is not below {', '.join(WRITABLE)}")
        here = os.dup(self.handle)
        try:
            for name in parts:
                deeper = make_folders(here, name)
                os.close(here)
                here = deeper
                self.give(here)
        except BaseException:
            os.close(here)
            raise
        return here

    def run_folder(self) -> str:
        """A folder for one call alone, relative to the workspace: `runs/<id>`.

        One that an earlier call left empty comes back with its name: a container that is kept
        shows that very folder.
        """
        run = self._spare()
        if not run:
            run = f"{RUNS}/{time.time_ns() // 1_000_000:x}-{os.urandom(4).hex()}"
            os.mkdir(run, 0o700, dir_fd=self.handle)
        handle = open_anyhow(self.handle, run)
        try:
            os.fchmod(handle, 0o700)
            self.give(handle)
        finally:
            os.close(handle)
        return run

    def _spare(self) -> str:
        """The folder of a call that has ended, back in its place; empty when there is none."""
        for name in sorted(os.listdir(os.path.join(self.path, PRIVATE))):
            if name.startswith(_SPARE):
                run = f"{RUNS}/{name.removeprefix(_SPARE)}"
                with suppress(OSError):  # another call was quicker
                    self._move(f"{PRIVATE}/{name}", run)
                    return run
        return ""

    def end_run(self, run: str) -> None:
        """Take away the folder of a call that left nothing in it; the next one gets it.

        To remove a folder can take longer than all else in a call.
        """
        with suppress(OSError):
            handle = os.open(run, READ_FOLDER, dir_fd=self.handle)
            try:
                empty = not os.listdir(handle)
            finally:
                os.close(handle)
            if empty:
                self._move(run, f"{PRIVATE}/{_SPARE}{posixpath.basename(run)}")

    @contextmanager
    def running(self) -> Iterator[bool]:
        """While a command may write here; gives whether that of another run may as well."""
        mark = f"{_RUNNING}{os.urandom(8).hex()}"
        private = os.path.join(self.path, PRIVATE)
        # It is locked before anybody can take it for one that was left behind.
        lock = hold(os.path.join(private, f"new-{mark}"), fcntl.LOCK_EX)
        try:
            self._move(f"{PRIVATE}/new-{mark}", f"{PRIVATE}/{mark}")
            yield self.has_others(mark)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(private, mark))
            release(lock)

    def has_others(self, own: str = "") -> bool:
        """Whether a command runs in this workspace, of this process or another."""
        private = os.path.join(self.path, PRIVATE)
        marks = (name for name in os.listdir(private) if name.startswith(_RUNNING) and name != own)
        return any(_is_held(os.path.join(private, name)) for name in marks)

    def results(self) -> list[str]:
        """What lies in the folder for results, by its paths in the workspace."""
        with suppress(OSError):
            handle = os.open(OUT, READ_FOLDER, dir_fd=self.handle)
            try:
                return [f"{OUT}/{name}" for name in os.listdir(handle)]
            finally:
                os.close(handle)
        return []

    def _move(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self.handle, dst_dir_fd=self.handle)

    # What a run is told

    def mounts(self, run: str) -> tuple[tuple[str, bool], ...]:
        """What of it is there for a run, below where it is mounted, and whether it may be written.

        Of the folders of calls only its own: in some sandboxes that is the home of a command.
        """
        return ((WORK, True), (OUT, True), (run, True))

    def variables(
        self, inside_root: str, skill: str, run: str, skills: str = SKILLS
    ) -> dict[str, str]:
        """The variables every run has; `inside_root` is where it sees the workspace.

        `skills` is the folder in it that holds the skill.
        """
        places = {**_VARIABLES, "SKILLS_DIR": skills, "RUN_DIR": run}
        found = {name: posixpath.join(inside_root, at) for name, at in places.items() if at}
        return {"WORKSPACE_DIR": inside_root, **found, "SKILL_NAME": skill}

    def resolve_cwd(self, text: str, skill: str, run: str = "") -> str:
        """Where a command starts, relative to the workspace; `.` is the workspace itself.

        A path is relative to the skill unless it begins with `/`, which is the workspace, or with
        one of the variables. What leads anywhere else means the skill's own folder; so does each
        way to the folder of a call but `$RUN_DIR`, which is `runs` as long as no call is given.
        """
        home = f"{SKILLS}/{skill}"
        text = text.strip().replace("\\", "/")
        parts = text.split("/")
        in_run = parts[0] in _OWN_RUN
        path = expanded(text, run or RUNS)
        absolute = path.startswith("/")
        path = posixpath.normpath(path.lstrip("/") if absolute else f"{home}/{path}")
        if ".." in parts if in_run else path.partition("/")[0] == RUNS:
            return home
        if absolute and path == ".":
            return path
        try:
            check_relative(path)
        except PathEscape:
            return home
        return path if path.partition("/")[0] in (SKILLS, *WRITABLE) else home

    def enter(self, cwd: str, homes: Mapping[str, str]) -> str:
        """Where that is on disk, made where it may be and is missing; RunRefused if it is nowhere.

        `homes` are the copies of the skills that a run sees, by name.
        """
        place = placed(plain(cwd), homes)
        try:
            os.close(self._entered(place))
        except (OSError, PathEscape) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise RunRefused(f"can not run in {cwd!r}: {why}") from error
        return place

    def _entered(self, place: str) -> int:
        try:
            return open_beneath(self.handle, place, FOLLOW_FOLDER)
        except FileNotFoundError:
            if place.partition("/")[0] not in WRITABLE:
                raise
        return self.make_folders(place)

    # Metadata

    def metadata(self) -> Metadata:
        """What is remembered; what is damaged is forgotten."""
        return _read(METADATA, self.handle)

    def _kept(self) -> Metadata:
        """The same, of a workspace that is closed."""
        return _read(os.path.join(self.path, METADATA))

    @contextmanager
    def locked(self) -> Iterator[Metadata]:
        """Keep other threads and processes out, and remember the changes made to what is given.

        Not to be nested: who holds it waits for himself.
        """
        lock = hold(self._lock, fcntl.LOCK_EX)
        try:
            kept = self.metadata()
            before = Metadata(dict(kept.staged), dict(kept.pins), dict(kept.copies))
            yield kept
            if kept != before:
                _write(self.handle, kept)
        finally:
            release(lock)


# Paths


def expanded(text: str, run: str = "") -> str:
    """`$WORK_DIR/x` as `/work/x`, and so on; `/` is the workspace. Other text stays as it is."""
    name, slash, rest = text.partition("/")
    if not name.startswith("$"):
        return text
    name = name[1:].removeprefix("{").removesuffix("}") if name[1:2] == "{" else name[1:]
    place = run if name == "RUN_DIR" else _VARIABLES.get(name)
    if place is None or (name == "RUN_DIR" and not run):
        return text
    return f"/{place}{slash}{rest}"


def own(path: str, run: str) -> bool:
    """Whether the path is no other's than that call's: not below `runs`, or in its own folder."""
    return path.partition("/")[0] != RUNS or bool(run and below(path, run))


def plain(path: str) -> str:
    """The path with a staged skill's links `out`, `work` and `inputs` replaced by what they are."""
    parts = path.split("/", 3)
    if parts[0] == SKILLS and len(parts) > 2 and parts[2] in LINKS:
        return "/".join([LINKS[parts[2]], *parts[3:]])
    return path


def placed(path: str, homes: Mapping[str, str]) -> str:
    """Where a path of a run is on disk: `skills/<name>` is one of the copies that the run has.

    `skills` itself is the folder of the last of them, the run's own.
    """
    top, _, rest = path.partition("/")
    if top != SKILLS:
        return path
    name, _, below = rest.partition("/")
    if not name and homes:
        return posixpath.dirname([*homes.values()][-1])
    return posixpath.join(homes[name], below).rstrip("/") if name in homes else path


def checked_name(name: str) -> str:
    """The name of a skill as one component; RunRefused when it is anything else."""
    try:
        return check_segment(name)
    except PathEscape as escape:
        raise RunRefused(f"{name[:80]!r} is no name for a skill: {escape}") from escape


# Where it lies


def places(folder: str, shelters: Sequence[str] = SHELTERS) -> list[str]:
    """Where workspaces of that folder may lie; nothing is made."""
    real = os.path.realpath(folder)
    return [path for path in (real, *_sheltered(real, shelters)) if os.path.isdir(path)]


def _sheltered(folder: str, shelters: Sequence[str]) -> list[str]:
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return [os.path.join(os.path.realpath(shelter), name) for shelter in shelters]


def place_of(folder: str, owner: Owner | None, shelters: Sequence[str] = SHELTERS) -> str:
    """Where the workspaces of that folder really lie, made if missing.

    The folder itself, unless commands run as another user who can not reach it, or somebody else
    could move it: a state folder in root's private home, or in the home of a user. What runs a
    command resolves the path as that other user, so then it is a folder of root's own that
    everybody can pass through. SandboxUnavailable when there is none.
    """
    folder = os.path.realpath(folder)
    if owner is None:
        return _with_locks(folder)
    if _is_open_to(os.path.dirname(folder), owner) and _passable(folder):
        return _with_locks(folder)
    for path in _sheltered(folder, shelters):
        shelter = os.path.dirname(path)
        if _is_open_to(os.path.dirname(shelter), owner) and _passable(shelter) and _passable(path):
            return _marked(_with_locks(path), folder)
    raise SandboxUnavailable(
        f"the user that commands run as (uid {owner[0]}) can reach neither {folder} nor "
        f"{' nor '.join(shelters)}; set state_dir to a folder of yours that it can pass through"
    )


def _with_locks(folder: str) -> str:
    locks = os.path.join(folder, LOCKS)
    if not os.path.isdir(locks):
        make_folder(folder)
        make_folder(locks)
    return folder


def _marked(place: str, folder: str) -> str:
    """The place, with a note of what it belongs to; its time is that of the last use."""
    note = os.path.join(place, BELONGS)
    try:
        os.utime(note, follow_symlinks=False)
    except FileNotFoundError:
        part = f"{note}-{os.urandom(8).hex()}"
        with open(os.open(part, NEW_FILE, 0o600), "wb") as file:
            file.write(os.fsencode(folder))
        os.rename(part, note)
    return place


def _is_open_to(path: str, owner: Owner) -> bool:
    """Whether each folder that exists on the way lets the user through, and is safe from others."""
    while True:
        with suppress(FileNotFoundError):
            info = os.lstat(path)
            if not stat.S_ISDIR(info.st_mode) or not _passes(info, owner) or not _guarded(info):
                return False
        if path == os.path.dirname(path):
            return True
        path = os.path.dirname(path)


def _passes(info: os.stat_result, owner: Owner) -> bool:
    if info.st_uid == owner[0]:
        return bool(info.st_mode & stat.S_IXUSR)
    return bool(info.st_mode & (stat.S_IXGRP if info.st_gid == owner[1] else stat.S_IXOTH))


def _guarded(info: os.stat_result) -> bool:
    """Whether nobody but root and the caller can put something else in the place of what it holds.

    In a folder where only owners may rename, what is ours stays.
    """
    shared = info.st_mode & 0o022 and not info.st_mode & stat.S_ISVTX
    return info.st_uid in (0, os.geteuid()) and not shared


def _passable(path: str) -> bool:
    """Make the folder and what is missing above it; whether it is ours and can be passed through.

    Folders that were there before are left as they are, but for this one.
    """
    try:
        _make_above(path)
        handle = os.open(path, READ_FOLDER)
        try:
            info = os.fstat(handle)
            if info.st_uid != os.geteuid() or info.st_mode & 0o022:
                return False
            if info.st_mode & 0o111 != 0o111:
                os.fchmod(handle, 0o711)
        finally:
            os.close(handle)
    except OSError:
        return False
    return True


def _make_above(path: str) -> None:
    if os.path.lexists(path):
        return
    _make_above(os.path.dirname(path))
    with suppress(FileExistsError):
        os.mkdir(path, 0o711)
        os.chmod(path, 0o711)  # whatever the umask takes


def _own_folder(path: str, owner: Owner | None) -> int:
    """A handle of the workspace's folder, which only `owner` and the caller can enter."""
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    handle = os.open(path, READ_FOLDER)
    try:
        info = os.fstat(handle)
        if info.st_uid != os.geteuid():
            raise SandboxUnavailable(f"{path} belongs to another user; remove it")
        if owner is not None and (info.st_gid, info.st_mode & 0o777) != (owner[1], 0o710):
            os.fchown(handle, -1, owner[1])
            os.fchmod(handle, 0o710)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _ensure(parent: int, name: str, owner: Owner | None, mode: int) -> None:
    """A real folder of that owner which can be used, whatever an earlier run put in its place."""
    wanted = os.geteuid() if owner is None else owner[0]
    with suppress(FileNotFoundError):
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=parent)
        elif found.st_uid == wanted and found.st_mode & 0o700 == 0o700:
            return
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    handle = open_anyhow(parent, name)
    try:
        if owner is not None:
            os.fchown(handle, *owner)
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def _is_held(path: str) -> bool:
    """Whether whoever made the mark is still there."""
    with suppress(FileNotFoundError):
        handle = os.open(path, READ_FILE)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
    return False


# Metadata


def _read(path: str, folder: int | None = None) -> Metadata:
    try:
        with open(os.open(path, READ_FILE, dir_fd=folder), "rb", 0) as file:
            return _parsed(read_json(file.readall()))
    except (OSError, ValueError):
        return Metadata({}, {}, {})


def _parsed(data: object) -> Metadata:
    tables = data if isinstance(data, dict) else {}
    staged, pins, copies = (tables.get(name) for name in Metadata._fields)
    stamps = copies.items() if isinstance(copies, dict) else ()
    return Metadata(
        {name: Stage(*map(str, row)) for name, row in _rows(staged, [str] * len(Stage._fields))},
        {to: Pin(str(row[0]), int(str(row[1]))) for to, row in _rows(pins, [str, int])},
        {str(name): stamp for name, stamp in stamps if isinstance(stamp, str)},
    )


def _rows(table: object, kinds: list[type]) -> Iterator[tuple[str, list[object]]]:
    """The entries of the table that have values of these kinds."""
    for key, row in table.items() if isinstance(table, dict) else ():
        if isinstance(row, list) and [type(value) for value in row] == kinds:
            yield str(key), row


def _write(folder: int, kept: Metadata, place: Callable[..., None] = os.rename) -> None:
    """Write it in one step: a reader sees the old text or the new one."""
    part = f"{PRIVATE}/{METADATA}-{os.urandom(8).hex()}"
    try:
        with open(os.open(part, NEW_FILE, 0o600, dir_fd=folder), "w", encoding="utf-8") as file:
            json.dump(kept._asdict(), file)
        place(part, METADATA, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
