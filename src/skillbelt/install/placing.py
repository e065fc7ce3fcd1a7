"""Install and remove skills atomically, also if the process is killed at any point.

Everything is prepared in a folder beside the place first. Then a journal says what is to be done,
in the order of the steps; each is one rename, and can be done again. Last come the lock and the end
of the journal. After a process was killed, the next command that looks at the place finishes its
work, or removes it if its journal is incomplete.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal

from skillbelt.discovery.clients import CLIENTS, Client, expand_folder
from skillbelt.errors import ConfigError, PathEscape, SourceError, closest, log_warning
from skillbelt.files.contain import below, check_segment, open_dir, open_file, read_handle
from skillbelt.files.private import part_of, replace_file
from skillbelt.files.remove import remove_tree
from skillbelt.files.tree_copy import swap
from skillbelt.install.content_store import copy_skill, explain_system
from skillbelt.install.hashes import hash_folder
from skillbelt.install.lock_file import (
    LockChanges,
    NotWritable,
    journal_path,
    locked_place,
    place_id,
    read_lock,
    remember_pinned,
    write_lock,
)
from skillbelt.install.names import folder_name, typed_name
from skillbelt.install.values import Installed, InstallPlace, LockEntry
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings
from skillbelt.untrusted_json import BadJson, read_json

_FORMAT = 1
_MAX_JOURNAL = 16 * 2**20
# One flush of the whole disk takes less than one for each of so many files.
_MANY_FILES = 200
# What `mcp install` and other tools call a client.
_OTHER_NAMES = {
    "claude-code": "claude",
    "gemini-cli": "gemini",
    "github-copilot": "copilot",
    "kiro-cli": "kiro",
    "qwen-code": "qwen",
}


class PlaceStep(NamedTuple):
    """One rename. `put` moves `staged` to `target`, `drop` moves `target` to `staged`.

    `moved` is the device and the inode of what is moved, so that a step that is done is known.
    """

    action: Literal["put", "drop"]
    staged: str
    target: str
    moved: tuple[int, int]


class PlaceJournal(NamedTuple):
    """A planned change of a place: steps, then the entry of the lock (None removes it)."""

    name: str
    stages: tuple[str, ...]
    steps: tuple[PlaceStep, ...]
    locks: bool
    entry: LockEntry | None


def skill_folder(place: InstallPlace, name: str) -> str:
    """Return the folder that a skill of that name is installed in."""
    return os.path.join(place.skills, check_segment(folder_name(name)))


def client_name(name: str) -> str:
    """Return our name of a client, given a name that other tools use."""
    return _OTHER_NAMES.get(name, name)


def client_folder(place: InstallPlace, client: str, settings: Settings) -> str:
    """Return the folder of a client for skills; ConfigError for a client that is not known."""
    known = next((one for one in CLIENTS if one.name == client), None)
    if known is None:
        names = [one.name for one in CLIENTS]
        near = closest(client, [*names, *_OTHER_NAMES])
        hint = f"known are {', '.join(names)}"
        if near:
            hint = f"did you mean {' or '.join(map(repr, near))}?"
        raise ConfigError(f"no client is called {client!r}; {hint}")
    return _folder_of(place, known, settings)


def _folder_of(place: InstallPlace, client: Client, settings: Settings) -> str:
    if place.scope == "project":
        names = [one for one in client.project if one.endswith("/skills")] or list(client.project)
        return os.path.join(place.base, names[0])
    found = [path for one in client.user for path in expand_folder(one, client.name, settings)]
    usual = [path for path in found if path.endswith("/skills") and not path.startswith("/etc/")]
    if not usual:
        raise ConfigError(f"{client.name} has no folder for skills of a user")
    return usual[0]


def linked_clients(place: InstallPlace, name: str, settings: Settings) -> tuple[str, ...]:
    """Return the clients that have a link to the skill in their folder."""
    target = os.path.realpath(skill_folder(place, name))
    found = []
    for client in CLIENTS:
        with suppress(ConfigError):
            path = os.path.join(_folder_of(place, client, settings), folder_name(name))
            if os.path.islink(path) and os.path.realpath(path) == target:
                found.append(client.name)
    return tuple(found)


@contextmanager
def using_place(place: InstallPlace, settings: Settings) -> Iterator[None]:
    """Hold the place; what a killed process left is finished or removed first."""
    with locked_place(place, settings):
        recover(place, settings)
        yield


@contextmanager
def reading_place(place: InstallPlace, settings: Settings) -> Iterator[None]:
    """Hold the place to read it. Where nothing can be written, as in a container, nothing is held.

    No process of this machine can have begun a change there.
    """
    with ExitStack() as stack:
        with suppress(NotWritable):
            stack.enter_context(using_place(place, settings))
        yield


def recover(place: InstallPlace, settings: Settings) -> None:
    """Finish what a journal says, and remove what was prepared; the caller holds the place."""
    path = journal_path(place, settings)
    if os.path.exists(path):
        try:
            journal = _read_journal(path)
            _perform(journal, place, settings)
        except _Gone as gone:
            log_warning(
                f"a change of {place.skills} was cut off and cannot be finished: {gone}; "
                f"{place.command('sync --check')} shows what is left to do"
            )
        except OSError as error:
            message, remedy = explain_system(error)
            raise ConfigError(
                f"a change of {place.skills} was begun and cannot be finished: {message}; {remedy}"
            ) from error
        os.unlink(path)
    with suppress(OSError):
        os.unlink(part_of(place.lock))
    _remove_stages(place, settings)


def put_skill(
    place: InstallPlace,
    entry: LockEntry,
    source: str,
    settings: Settings,
    *,
    copy: bool = False,
    lock: bool = True,
) -> Installed:
    """Put a copy of the folder in place, with links for the clients of the entry, then the lock.

    The caller holds the place by `using_place`, and has decided what may be replaced: what is there
    is deleted. With `copy` other clients get copies; without `lock` the lock stays as it is.
    """
    target = skill_folder(place, entry.name)
    with _Preparation(place, settings) as prepared:
        prepared.put_copy(source, target)
        for client in entry.clients:
            prepared.put_client(client, entry.name, source, copy=copy)
        prepared.commit(entry.name, entry, locks=lock)
        return Installed(
            name=entry.name,
            folder=target,
            content_digest=entry.content_digest,
            links=tuple(prepared.links),
            copies=tuple(prepared.copies),
        )


def link_clients(
    place: InstallPlace, name: str, clients: Iterable[str], settings: Settings
) -> tuple[str, ...]:
    """Create the missing links of clients; the caller holds the place."""
    with _Preparation(place, settings) as prepared:
        for client in clients:
            prepared.put_client(client, name, skill_folder(place, name), copy=False)
        prepared.commit(name, None, locks=False)
        return (*prepared.links, *prepared.copies)


def copy_to_client(place: InstallPlace, entry: LockEntry, client: str, settings: Settings) -> str:
    """Give a client a copy of an installed skill; return its folder. The caller holds the place.

    The entry is written with the client. ConfigError if something else is there.
    """
    folder = client_folder(place, client, settings)
    if os.path.realpath(folder) == os.path.realpath(place.skills):
        raise ConfigError(f"{client} reads {place.skills} itself: it needs no copy")
    clients = tuple(dict.fromkeys((*entry.clients, client)))
    with _Preparation(place, settings) as prepared:
        prepared.put_client(client, entry.name, skill_folder(place, entry.name), copy=True)
        prepared.commit(entry.name, entry._replace(clients=clients), locks=True)
    return os.path.join(folder, folder_name(entry.name))


def link_skill(place: InstallPlace, name: str, folder: str, settings: Settings) -> str:
    """Put a link to a folder in the place of a skill; return its path. The caller holds the place.

    ConfigError if there is anything but a link. The lock stays as it is.
    """
    target = skill_folder(place, name)
    if os.path.lexists(target) and not os.path.islink(target):
        if os.path.realpath(folder) == os.path.realpath(target):
            raise ConfigError(f"{target} is where skills are looked for: it needs no link")
        raise ConfigError(
            f"{target} is there already; {place.command(f'remove {typed_name(name)}')} removes it"
        )
    with _Preparation(place, settings) as prepared:
        prepared.put_link(_make_relative(folder, place.skills), target)
        prepared.commit(name, None, locks=False)
    return target


def take_skill(place: InstallPlace, name: str, settings: Settings) -> tuple[str, ...]:
    """Remove a skill, the links to it and its entry; return what was removed.

    The caller holds the place, and has decided that local edits may go. A copy of a client goes
    too, unless it was edited.
    """
    target = skill_folder(place, name)
    removed = []
    entry = read_lock(place).find(name)
    copies = [
        client
        for client in (entry.clients if entry else ())
        if _is_copy(_client_path(place, client, name, settings), target)
    ]
    with _Preparation(place, settings) as prepared:
        for client in (*linked_clients(place, name, settings), *copies):
            path = _client_path(place, client, name, settings)
            if prepared.drop(path):
                removed.append(path)
        if prepared.drop(target):
            removed.append(target)
        prepared.commit(name, None, locks=True)
    return tuple(removed)


def _client_path(place: InstallPlace, client: str, name: str, settings: Settings) -> str:
    try:
        return os.path.join(client_folder(place, client, settings), folder_name(name))
    except ConfigError:  # a client of another version
        return ""


def _is_copy(path: str, target: str) -> bool:
    """Whether a folder of a client is a copy of what is installed."""
    if not os.path.isdir(path) or os.path.islink(path):
        return False
    return os.path.realpath(path) != os.path.realpath(target) and _equal(path, target)


class _Gone(Exception):
    """The file that a step moves is at neither its old nor its new path."""


class _Preparation:
    """Files prepared beside the place; removed at the end unless they were put in place."""

    def __init__(self, place: InstallPlace, settings: Settings) -> None:
        self._place, self._settings = place, settings
        self._stages: dict[str, str] = {}
        self._steps: list[PlaceStep] = []
        self.links: list[str] = []
        self.copies: list[str] = []

    def __enter__(self) -> _Preparation:
        return self

    def __exit__(self, *_: object) -> None:
        for stage in self._stages.values():
            remove_tree(stage, prefix=_stage_prefix(self._place))

    def put_copy(self, source: str, target: str) -> None:
        """Copy a skill, to be moved to the target."""
        staged = self._make_staged_path(target)
        copy_skill(source, staged)
        self._add_step("put", staged, target, staged)

    def put_link(self, to: str, target: str) -> None:
        """Make a link, to be moved to the target."""
        staged = self._make_staged_path(target)
        os.symlink(to, staged)
        self._add_step("put", staged, target, staged)

    def put_client(self, client: str, name: str, source: str, *, copy: bool) -> None:
        """Prepare a link, or a copy where links cannot be; ConfigError if a folder is in the way.

        A client whose folder is the one of the skills itself needs none. A copy stays a copy.
        """
        folder = client_folder(self._place, client, self._settings)
        if os.path.realpath(folder) == os.path.realpath(self._place.skills):
            return
        path = os.path.join(folder, folder_name(name))
        target = skill_folder(self._place, name)
        if (
            not copy
            and os.path.islink(path)
            and os.readlink(path) == _make_relative(target, folder)
        ):
            return
        self._check_free(path, target, source)
        copy = copy or _is_copy(path, target)
        staged = self._make_staged_path(path)
        if not copy:
            try:
                os.symlink(_make_relative(target, folder), staged)
            except OSError:
                copy = True  # a file system without links
        if copy:
            copy_skill(source, staged)
        (self.copies if copy else self.links).append(path)
        self._add_step("put", staged, path, staged)

    def _check_free(self, path: str, target: str, source: str) -> None:
        if not os.path.lexists(path) or os.path.realpath(path) == os.path.realpath(target):
            return
        if os.path.islink(path) and not os.path.exists(path):
            return  # a dangling link
        if not os.path.islink(path) and (_equal(path, target) or _equal(path, source)):
            return  # a copy of what is installed, or will be
        raise ConfigError(f"{path} is there already and is not a link to {target}; move it away")

    def drop(self, target: str) -> bool:
        """Prepare to remove what is at the path; False if nothing is there."""
        if not os.path.lexists(target):
            return False
        self._add_step("drop", self._make_staged_path(target), target, target)
        return True

    def commit(self, name: str, entry: LockEntry | None, *, locks: bool) -> None:
        """Write the journal and follow it; every step is done from here on, now or later."""
        if not self._steps and not locks:
            return
        journal = PlaceJournal(
            name=name,
            stages=tuple(self._stages.values()),
            steps=tuple(self._steps),
            locks=locks,
            entry=entry,
        )
        if locks:
            read_lock(self._place)  # a lock that cannot be changed stops it before anything is done
        for stage in self._stages.values():
            _flush(stage)
        path = journal_path(self._place, self._settings)
        replace_file(path, _journal_data(journal))
        _perform(journal, self._place, self._settings)
        os.unlink(path)

    def _add_step(
        self, action: Literal["put", "drop"], staged: str, target: str, moved: str
    ) -> None:
        info = os.lstat(moved)
        step = PlaceStep(
            action=action, staged=staged, target=target, moved=(info.st_dev, info.st_ino)
        )
        self._steps.append(step)

    def _make_staged_path(self, target: str) -> str:
        """Return a new path on the disk of the target, outside every folder with skills."""
        folder = os.path.dirname(target)
        _make_folders(self._place, folder)
        above = os.path.dirname(os.path.realpath(folder))
        if above not in self._stages:
            stage = f"{above}/{_stage_prefix(self._place)}{os.urandom(6).hex()}"
            os.mkdir(stage, 0o700)
            self._stages[above] = stage
        return os.path.join(self._stages[above], f"{len(self._steps)}")


def _flush(stage: str) -> None:
    """Write what was prepared to the disk, before a rename gives it its name.

    Otherwise a power failure could leave files of a skill empty although the lock names them.
    """
    files = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(stage)
        for name in (".", *names)
        if not os.path.islink(os.path.join(folder, name))
    ]
    if len(files) > _MANY_FILES:
        os.sync()
        return
    for path in files:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _make_folders(place: InstallPlace, folder: str) -> None:
    """Create a folder with skills; PathEscape if a link of a project leads it elsewhere."""
    real = os.path.realpath(folder)
    base = os.path.realpath(place.base)
    if place.scope == "project" and not below(real, base):
        raise PathEscape(folder, place.base, "is a link that leads out of the project")
    os.makedirs(real, exist_ok=True)


def _make_relative(target: str, folder: str) -> str:
    return os.path.relpath(os.path.realpath(target), os.path.realpath(folder))


def _equal(one: str, other: str) -> bool:
    try:
        return hash_folder(one).content_digest == hash_folder(other).content_digest
    except SourceError:
        return False


def _perform(journal: PlaceJournal, place: InstallPlace, settings: Settings) -> None:
    """Do every step that is not done yet, then the lock."""
    for step in journal.steps:
        _move(step, place)
    if journal.locks:
        changes = LockChanges(read_lock(place))
        if journal.entry is None:
            changes.remove(journal.name)
        else:
            changes.put(journal.entry)
            remember_pinned(place, settings, journal.name)
        write_lock(changes)


def _move(step: PlaceStep, place: InstallPlace) -> None:
    fence = place.base if place.scope == "project" else ""
    source, destination = step.staged, step.target
    if step.action == "drop":
        source, destination = destination, source
    if step.action == "put" and _read_identity(destination) == step.moved:
        return
    if _read_identity(source) != step.moved:
        if step.action == "drop":
            return  # removed meanwhile
        raise _Gone(source)
    above, beside = os.path.split(destination), os.path.split(source)
    here = open_dir(os.path.realpath(beside[0]), os.path.realpath(fence) if fence else "")
    try:
        there = open_dir(os.path.realpath(above[0]), os.path.realpath(fence) if fence else "")
        try:
            if step.action == "put":
                swap(here, beside[1], there, above[1])
            else:
                os.rename(beside[1], above[1], src_dir_fd=here, dst_dir_fd=there)
        finally:
            os.close(there)
    finally:
        os.close(here)


def _read_identity(path: str) -> tuple[int, int] | None:
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return info.st_dev, info.st_ino


def _stage_prefix(place: InstallPlace) -> str:
    return f".skillbelt-{place_id(place)[:8]}-"


def _remove_stages(place: InstallPlace, settings: Settings) -> None:
    prefix = _stage_prefix(place)
    folders = {os.path.dirname(os.path.realpath(place.skills))}
    for client in CLIENTS:
        with suppress(ConfigError):
            folder = _folder_of(place, client, settings)
            if os.path.exists(os.path.dirname(folder)):  # most clients have none
                folders.add(os.path.dirname(os.path.realpath(folder)))
    for folder in folders:
        try:
            names = [name for name in os.listdir(folder) if name.startswith(prefix)]
        except OSError:
            continue
        for name in names:
            if stat.S_ISDIR(os.lstat(os.path.join(folder, name)).st_mode):
                remove_tree(os.path.join(folder, name), prefix=prefix)


def _journal_data(journal: PlaceJournal) -> bytes:
    document: dict[str, Any] = {"format": _FORMAT, **journal._asdict()}
    document["steps"] = [step._asdict() for step in journal.steps]
    if journal.entry is not None:
        entry = journal.entry._asdict()
        names = ("packages", "scan", "provenance", "written")
        document["entry"] = entry | {name: dict(entry[name]) for name in names}
    return json.dumps(document).encode()


def _read_journal(path: str) -> PlaceJournal:
    """Read a journal; this product wrote it, in a folder that only the user can write to."""
    try:
        document = read_json(read_handle(open_file(path), _MAX_JOURNAL))
        if document.pop("format") != _FORMAT:
            raise ValueError("another version wrote it")
        steps = tuple(
            PlaceStep(**{**step, "moved": tuple(step["moved"])}) for step in document["steps"]
        )
        entry = document["entry"]
        if entry is not None:
            entry = LockEntry(**{**entry, "clients": tuple(entry["clients"])})
        stages: Sequence[str] = document["stages"]
    except (BadJson, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _Gone(f"{path}: {error}") from error
    return PlaceJournal(
        name=document["name"],
        stages=tuple(stages),
        steps=steps,
        locks=document["locks"],
        entry=entry,
    )
