"""The workspace of a session: the only place where its runs may write.

    <all>/.locks/<id>, <id>.use     hidden from runs
    <all>/<id>/metadata.json        what is staged and pinned; its mtime is the last use
    <all>/<id>/written              bytes that runs wrote since the last measurement; see `quota`
    <all>/<id>/private/             what is being built or was replaced; hidden from runs
    <all>/<id>/skills-<content>/<name>/   a staged copy, never changed
    <all>/<id>/work/inputs, out, runs/<run>

A run sees its copy as `skills/<name>` if the sandbox can mount a folder at another path.

Where commands run as another user, that user owns the folders of the last line and nothing else.
Its group may pass through `<id>`, and everyone through `<all>`: with less it could not get in.
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
from skillbelt.records import NamedTuple
from skillbelt.running.cleanup import BELONGS, LOCKS, METADATA, clean_copies
from skillbelt.store.protocol import SessionKey, hash_texts
from skillbelt.untrusted_json import read_json

SKILLS, WORK, OUT, RUNS, PRIVATE = "skills", "work", "out", "runs", "private"
INPUTS = "work/inputs"
WRITABLE = (WORK, OUT, RUNS)
# Links in a staged skill, and the folders of the workspace that they lead to.
LINKS = {"out": OUT, "work": WORK, "inputs": INPUTS}
VENV = ".venv"
NODE_MODULES = "node_modules"
ONCE = "once-"  # name prefix of a workspace that belongs to no conversation
REPLACED = "replaced"  # mark in the private folder: there are copies to remove
# Where root keeps workspaces when the user of commands cannot reach the state folder.
SHELTERS = ("/var/lib/skillbelt", "/var/tmp/skillbelt")
# The names of the skill's folder in instructions.
_OWN_FOLDER = ("CLAUDE_SKILL_DIR", "SKILL_DIR", "SKILL_ROOT")
_VARIABLES = {
    "WORKSPACE_DIR": "",
    "SKILLS_DIR": SKILLS,
    "WORK_DIR": WORK,
    "OUTPUT_DIR": OUT,
    "RUN_DIR": RUNS,
}
_OWN_RUN = ("$RUN_DIR", "${RUN_DIR}")
_RUNNING = "running-"  # name prefix of a lock in the private folder, held while a command runs
PREFIX_DIGITS = 16  # of a conversation, in the names of its workspaces
_SPARE = "spare-"  # name prefix of an empty run folder, kept for the next run

Owner = tuple[int, int]


class Stage(NamedTuple):
    """A record of a staged skill, so that the next call need not read it again.

    `copy` is the name of the folder that holds it.
    """

    source: str
    hash: str
    copy: str
    source_stamp: str


class Pin(NamedTuple):
    """The version of an artifact that was first put at a destination."""

    name: str
    version: int


class Metadata(NamedTuple):
    """The content of `metadata.json`: skills by name, pins by destination.

    `copies` has the stamp of each staged copy, taken when it was made.
    """

    staged: dict[str, Stage]
    pins: dict[str, Pin]
    copies: dict[str, str]


def open_workspace(
    folder_of_all: str, key: SessionKey | None, owner: Owner | None = None, project: str = ""
) -> Workspace:
    """Open the workspace of the session, creating it if needed; close it after the run.

    Each project has its own. Without a key it is a new one that is never shared. `owner` is the
    user and group that commands run as, if that is not the caller. The workspace may then lie
    elsewhere: see `place_of`. ConfigError when the folder cannot be used.
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
    """Return the name of the session's workspace in a project."""
    name = prefix_of(key) + hash_texts(*key, project)[:PREFIX_DIGITS]
    # A run cannot use files that another user owns.
    return name if owner is None else f"{name}-{owner[0]}"


def prefix_of(key: SessionKey) -> str:
    """Return the common prefix of the names of a session's workspaces, in all projects."""
    return hash_texts(*key)[:PREFIX_DIGITS]


class Workspace:
    """An open workspace. Clean-up does not touch it while it is open. Thread-safe."""

    def __init__(self, place: str, name: str, owner: Owner | None = None) -> None:
        self.name, self.owner = name, owner
        self.wanted = False  # whether to keep it after the single run it was made for
        self.path = os.path.join(place, name)
        self._lock = os.path.join(place, LOCKS, name)
        self._use = hold(f"{self._lock}.use", fcntl.LOCK_SH)
        try:
            self.handle = self._create()
        except BaseException:
            release(self._use)
            raise

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it; the last user removes replaced copies."""
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
                    clean_copies(
                        self.path, {one.copy for one in self._closed_metadata().staged.values()}
                    )
                finally:
                    release(alone)

    def has_leftovers(self) -> bool:
        """Whether something was replaced, or left by a process that died."""
        return bool(self._leftovers())

    def _leftovers(self) -> list[str]:
        private = os.path.join(self.path, PRIVATE)
        names = [name for name in os.listdir(private) if not name.startswith(_SPARE)]
        return [os.path.join(private, name) for name in names]

    # Layout

    def _create(self) -> int:
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

    def mark_time(self) -> int:
        """Return the time of the workspace's file system; files that change from now on are newer.

        The clock of this process may be ahead of that of the file system.
        """
        self._touch(self.handle)
        return os.stat(METADATA, dir_fd=self.handle, follow_symlinks=False).st_ctime_ns

    def _touch(self, handle: int) -> None:
        try:
            os.utime(METADATA, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            # Another process may have created it meanwhile, and staged something.
            with suppress(FileExistsError):
                _write(handle, Metadata({}, {}, {}), os.link)

    def give(self, handle: int) -> None:
        """Give a new file or folder to the user that commands run as."""
        if self.owner is not None and os.fstat(handle).st_uid == os.geteuid():
            os.fchown(handle, *self.owner)

    def make_folders(self, relative: str) -> int:
        """Create and open a folder that runs may write, with its parents; PathEscape at a link."""
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
        """Return a folder for one call, relative to the workspace: `runs/<id>`.

        An empty one of an earlier call is reused with its name: a warm container has mounted it.
        """
        run = self._reuse_spare()
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

    def _reuse_spare(self) -> str:
        """Move the spare folder of an earlier call back and return it; "" when there is none."""
        for name in sorted(os.listdir(os.path.join(self.path, PRIVATE))):
            if name.startswith(_SPARE):
                run = f"{RUNS}/{name.removeprefix(_SPARE)}"
                with suppress(OSError):  # another call took it
                    self._move(f"{PRIVATE}/{name}", run)
                    return run
        return ""

    def end_run(self, run: str) -> None:
        """Set the folder of a call aside for the next one, if it is empty.

        Removing a folder can take longer than everything else in a call.
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
        """Mark that a command may write here; yields whether another run's command may too."""
        mark = f"{_RUNNING}{os.urandom(8).hex()}"
        private = os.path.join(self.path, PRIVATE)
        # Locked before it gets its name: an unlocked mark counts as left behind.
        lock = hold(os.path.join(private, f"new-{mark}"), fcntl.LOCK_EX)
        try:
            self._move(f"{PRIVATE}/new-{mark}", f"{PRIVATE}/{mark}")
            yield self.has_others(mark)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(private, mark))
            release(lock)

    def has_others(self, own: str = "") -> bool:
        """Whether another command runs in this workspace, in this process or another."""
        private = os.path.join(self.path, PRIVATE)
        marks = (name for name in os.listdir(private) if name.startswith(_RUNNING) and name != own)
        return any(_is_held(os.path.join(private, name)) for name in marks)

    def results(self) -> list[str]:
        """Return the entries of `out`, as paths in the workspace."""
        with suppress(OSError):
            handle = os.open(OUT, READ_FOLDER, dir_fd=self.handle)
            try:
                return [f"{OUT}/{name}" for name in os.listdir(handle)]
            finally:
                os.close(handle)
        return []

    def _move(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self.handle, dst_dir_fd=self.handle)

    # What a run sees

    def mounts(self, run: str) -> tuple[tuple[str, bool], ...]:
        """Return the folders that a run sees, and whether it may write there.

        Of `runs` only its own folder: in some sandboxes that is the home of a command.
        """
        return ((WORK, True), (OUT, True), (run, True))

    def variables(
        self, inside_root: str, skill: str, run: str, skills: str = SKILLS
    ) -> dict[str, str]:
        """Return the variables of every run; `inside_root` is the workspace as the run sees it.

        `skills` is the folder in it that holds the skill.
        """
        places = {**_VARIABLES, "SKILLS_DIR": skills, "RUN_DIR": run}
        found = {name: posixpath.join(inside_root, at) for name, at in places.items() if at}
        own = posixpath.join(found["SKILLS_DIR"], skill)
        names = {"SKILL_NAME": skill, **dict.fromkeys(_OWN_FOLDER, own)}
        return {"WORKSPACE_DIR": inside_root, **found, **names}

    def resolve_cwd(self, text: str, skill: str, run: str = "") -> str:
        """Return the start folder of a command, relative to the workspace; `.` is the workspace.

        A path is relative to the skill unless it begins with `/`, which is the workspace, or with
        one of the variables. A path that leads elsewhere means the skill's own folder, as does
        every path to the folder of a call except `$RUN_DIR`, which is `runs` without a call.
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
        """Return the folder on disk, created if runs may write there; RunRefused if it is missing.

        `homes` are the copies of the skills that a run sees, by name.
        """
        place = placed(plain(cwd), homes)
        try:
            os.close(self._open_or_make(place))
        except (OSError, PathEscape) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise RunRefused(f"cannot run in {cwd!r}: {why}") from error
        return place

    def _open_or_make(self, place: str) -> int:
        try:
            return open_beneath(self.handle, place, FOLLOW_FOLDER)
        except FileNotFoundError:
            if place.partition("/")[0] not in WRITABLE:
                raise
        return self.make_folders(place)

    # Metadata

    def metadata(self) -> Metadata:
        """Read the metadata; a damaged file counts as empty."""
        return _read(METADATA, self.handle)

    def _closed_metadata(self) -> Metadata:
        """Read the metadata of a closed workspace."""
        return _read(os.path.join(self.path, METADATA))

    @contextmanager
    def locked(self) -> Iterator[Metadata]:
        """Lock out other threads and processes; changes to the yielded metadata are saved.

        Not reentrant: nesting deadlocks.
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
    """Replace a variable: `$WORK_DIR/x` becomes `/work/x`; `/` is the workspace."""
    name, slash, rest = text.partition("/")
    if not name.startswith("$"):
        return text
    name = name[1:].removeprefix("{").removesuffix("}") if name[1:2] == "{" else name[1:]
    place = run if name == "RUN_DIR" else _VARIABLES.get(name)
    if place is None or (name == "RUN_DIR" and not run):
        return text
    return f"/{place}{slash}{rest}"


def own(path: str, run: str) -> bool:
    """Whether the path is not in the folder of another call."""
    return path.partition("/")[0] != RUNS or bool(run and below(path, run))


def open_inside(workspace: int, path: str, flags: int) -> int:
    """Open a path of the workspace beneath its first folder.

    A link that a run made must not lead to anything beside that folder: the metadata, the copies of
    other skills, the folders of other calls.
    """
    top, _, rest = path.partition("/")
    if not rest:
        return open_beneath(workspace, top, flags)
    folder = os.open(top, READ_FOLDER, dir_fd=workspace)
    try:
        return open_beneath(folder, rest, flags)
    except PathEscape as escape:
        raise PathEscape(path, escape.root, escape.reason) from escape
    finally:
        os.close(folder)


def plain(path: str) -> str:
    """Resolve a staged skill's links `out`, `work` and `inputs` in the path."""
    parts = path.split("/", 3)
    if parts[0] == SKILLS and len(parts) > 2 and parts[2] in LINKS:
        return "/".join([LINKS[parts[2]], *parts[3:]])
    return path


def placed(path: str, homes: Mapping[str, str]) -> str:
    """Return where a path of a run is on disk: `skills/<name>` is one of its copies.

    `skills` itself is the folder of the last copy, the run's own.
    """
    top, _, rest = path.partition("/")
    if top != SKILLS:
        return path
    name, _, below = rest.partition("/")
    if not name and homes:
        return posixpath.dirname([*homes.values()][-1])
    return posixpath.join(homes[name], below).rstrip("/") if name in homes else path


def checked_name(name: str) -> str:
    """Return the name of a skill if it is one path component; RunRefused otherwise."""
    try:
        return check_segment(name)
    except PathEscape as escape:
        raise RunRefused(f"{name[:80]!r} is not a name for a skill: {escape}") from escape


# Location


def places(folder: str, shelters: Sequence[str] = SHELTERS) -> list[str]:
    """Return the existing places of workspaces for that folder."""
    real = os.path.realpath(folder)
    return [path for path in (real, *_shelter_paths(real, shelters)) if os.path.isdir(path)]


def _shelter_paths(folder: str, shelters: Sequence[str]) -> list[str]:
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return [os.path.join(os.path.realpath(shelter), name) for shelter in shelters]


def place_of(folder: str, owner: Owner | None, shelters: Sequence[str] = SHELTERS) -> str:
    """Return where the workspaces of that folder really are, created if missing.

    The folder itself, unless commands run as another user who cannot reach it, or an unprivileged
    user could move it: a state folder in root's private home, or in the home of a user. The
    sandbox resolves the path as that other user, so then it is a folder of root that everyone
    can pass through. SandboxUnavailable when there is none.
    """
    folder = os.path.realpath(folder)
    if owner is None:
        return _with_locks(folder)
    if _is_open_to(os.path.dirname(folder), owner) and _make_passable(folder):
        return _with_locks(folder)
    for path in _shelter_paths(folder, shelters):
        shelter = os.path.dirname(path)
        if (
            _is_open_to(os.path.dirname(shelter), owner)
            and _make_passable(shelter)
            and _make_passable(path)
        ):
            return _note_owner(_with_locks(path), folder)
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


def _note_owner(place: str, folder: str) -> str:
    """Record in the place which folder it belongs to; the mtime of the note is the last use."""
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
    """Whether every existing parent lets the user through and is safe from other users."""
    while True:
        with suppress(FileNotFoundError):
            info = os.lstat(path)
            if not stat.S_ISDIR(info.st_mode) or not _passes(info, owner) or not _is_guarded(info):
                return False
        if path == os.path.dirname(path):
            return True
        path = os.path.dirname(path)


def _passes(info: os.stat_result, owner: Owner) -> bool:
    if info.st_uid == owner[0]:
        return bool(info.st_mode & stat.S_IXUSR)
    return bool(info.st_mode & (stat.S_IXGRP if info.st_gid == owner[1] else stat.S_IXOTH))


def _is_guarded(info: os.stat_result) -> bool:
    """Whether only root and the caller can replace the entries of the folder.

    In a sticky folder only owners may rename, so our entries are safe there.
    """
    shared = info.st_mode & 0o022 and not info.st_mode & stat.S_ISVTX
    return info.st_uid in (0, os.geteuid()) and not shared


def _make_passable(path: str) -> bool:
    """Create the folder with its parents; return whether it is ours and passable.

    Existing parents keep their modes; the folder itself is made passable.
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
        os.chmod(path, 0o711)  # mkdir applies the umask


def _own_folder(path: str, owner: Owner | None) -> int:
    """Create and open the workspace's folder, which only `owner` and the caller can enter."""
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
    """Create a real folder of that owner, even if an earlier run replaced it."""
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
    """Whether the process that made the mark still holds it."""
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
            return _parse(read_json(file.readall()))
    except (OSError, ValueError):
        return Metadata({}, {}, {})


def _parse(data: object) -> Metadata:
    tables = data if isinstance(data, dict) else {}
    staged, pins, copies = (tables.get(name) for name in Metadata._fields)
    stamps = copies.items() if isinstance(copies, dict) else ()
    return Metadata(
        {name: Stage(*map(str, row)) for name, row in _rows(staged, [str] * len(Stage._fields))},
        {to: Pin(str(row[0]), int(str(row[1]))) for to, row in _rows(pins, [str, int])},
        {str(name): stamp for name, stamp in stamps if isinstance(stamp, str)},
    )


def _rows(table: object, kinds: list[type]) -> Iterator[tuple[str, list[object]]]:
    """Yield the entries of the table whose values have these types."""
    for key, row in table.items() if isinstance(table, dict) else ():
        if isinstance(row, list) and [type(value) for value in row] == kinds:
            yield str(key), row


def _write(folder: int, kept: Metadata, place: Callable[..., None] = os.rename) -> None:
    """Write the metadata atomically."""
    part = f"{PRIVATE}/{METADATA}-{os.urandom(8).hex()}"
    try:
        with open(os.open(part, NEW_FILE, 0o600, dir_fd=folder), "w", encoding="utf-8") as file:
            json.dump(kept._asdict(), file)
        place(part, METADATA, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
