"""Compare installed skills with the lock: contents, modes, links and extra files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from skillbelt.errors import ConfigError, SourceError
from skillbelt.install.content_store import has_skill, store_folder
from skillbelt.install.entries import stored_of
from skillbelt.install.folder_stamps import FolderStamps
from skillbelt.install.hashes import FolderHashes, HashedFile, computed_hash, hash_folder
from skillbelt.install.lock_file import SkillLock, pinned_names
from skillbelt.install.names import folder_name, typed_name
from skillbelt.install.package_locks import find_package_fault
from skillbelt.install.placing import client_folder, skill_folder
from skillbelt.install.values import Drift, DriftKind, InstallPlace, LockEntry
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings
from skillbelt.text import one_line


class VerifiedSkill(NamedTuple):
    """A skill of the lock, what is installed of it, and how that differs.

    `hashes` is None if nothing is installed. `edited` says that no version was fetched
    here with this content, so that replacing it would lose something.
    """

    entry: LockEntry
    folder: str
    hashes: FolderHashes | None
    drift: tuple[Drift, ...] = ()
    edited: bool = False


def verify_lock(
    lock: SkillLock,
    settings: Settings,
    names: Iterable[str] = (),
    *,
    full: bool = False,
    report: Callable[[str], None] = lambda text: None,
) -> tuple[VerifiedSkill, ...]:
    """Compare the skills of a lock, all if none is named, with what is installed.

    The caller holds the place. Folders that did not change since they were read are not read again,
    but with `full`.
    """
    wanted = set(names)
    stamps = FolderStamps(lock.place, settings, full=full)
    verified = []
    for name, entry in lock.entries.items():
        if not wanted or name in wanted:
            report(f"reading {name}")
            verified.append(verify_skill(lock, entry, settings, stamps))
    stamps.save()
    return tuple(verified)


def verify_skill(
    lock: SkillLock, entry: LockEntry, settings: Settings, stamps: FolderStamps | None = None
) -> VerifiedSkill:
    """Compare one skill; without stamps every file is read."""
    place = lock.place
    folder = skill_folder(place, entry.name)
    found = VerifiedSkill(entry, folder, None)
    if not os.path.lexists(folder):
        remedy = f"{place.command('sync')} installs it"
        missing = _make_drift(entry, "missing", folder, "is not installed", remedy)
        return found._replace(drift=(missing,))
    if os.path.islink(folder):
        message = f"is a link to {os.readlink(folder)}, not the folder that the lock records"
        remedy = f"remove the link, then {place.command('sync')}"
        linked = _make_drift(entry, "changed-link", folder, message, remedy)
        return found._replace(drift=(linked,), edited=True)
    try:
        if stamps is None:
            hashes = hash_folder(folder, partial=True)
        else:
            hashes = stamps.hash_folder(folder, stored_of(entry))
    except SourceError as error:
        unsafe = _make_drift(entry, "unsafe", folder, error.reason, "look at it, then remove it")
        return found._replace(drift=(unsafe,), edited=True)
    drift = [
        *_find_unsafe(entry, folder, hashes),
        *_compare_contents(lock, entry, folder, hashes, settings),
    ]
    edited = bool(drift) and not _is_known(hashes, settings)
    drift += _compare_clients(place, entry, folder, hashes, settings)
    drift += _compare_packages(lock, entry, folder, edited=edited)
    return found._replace(hashes=hashes, drift=tuple(drift), edited=edited)


def _make_drift(entry: LockEntry, kind: DriftKind, path: str, message: str, remedy: str) -> Drift:
    return Drift(name=entry.name, kind=kind, path=path, message=message, remedy=remedy)


def _find_unsafe(entry: LockEntry, folder: str, hashes: FolderHashes) -> Iterator[Drift]:
    """Yield entries that no skill may have: links that lead out, FIFOs, unreadable files."""
    for one in hashes.problems:
        yield _make_drift(entry, "unsafe", os.path.join(folder, one.path), one.reason, "remove it")


def _compare_contents(
    lock: SkillLock, entry: LockEntry, folder: str, hashes: FolderHashes, settings: Settings
) -> Iterator[Drift]:
    stored = stored_of(entry)
    if stored is None:
        ours = lock.ours or entry.name in pinned_names(lock.place, settings)
        yield from _find_rewritten(lock, entry, folder, ours=ours)
        return
    if (hashes.content_digest, hashes.tree_sha) == stored:
        return
    known = os.path.join(store_folder(settings), stored.digits, "skill")
    if has_skill(stored, settings):
        yield from _compare(lock.place, entry, hash_folder(known).files, hashes.files)
        return
    kind: DriftKind = "changed-file"
    message = "its files are not those that were locked"
    if hashes.content_digest == entry.content_digest:
        kind, message = "changed-mode", "an executable bit or a link is not as it was locked"
    yield _make_drift(entry, kind, folder, message, _keep(lock.place))


def _keep(place: InstallPlace) -> str:
    update, drop = place.command("update"), place.command("sync --force")
    return f"{update} keeps your edits beside a new version, {drop} drops them"


def _adopt(place: InstallPlace) -> str:
    sync, adopt = place.command("sync"), place.command("sync --adopt")
    return f"{sync} compares it with its source, {adopt} records what is installed"


def _find_rewritten(
    lock: SkillLock, entry: LockEntry, folder: str, *, ours: bool
) -> Iterator[Drift]:
    """Yield why an entry without our keys is not verified; its one hash may still be right."""
    if ours:
        message = "another tool wrote this entry anew: what was locked is not known any more"
        yield _make_drift(entry, "rewritten", lock.place.lock, message, _adopt(lock.place))
    try:
        same = computed_hash(folder) == (entry.computed_hash or entry.folder_hash)
    except SourceError:
        same = False
    if not same:
        # It may also be a source with a metadata.json, which `skills` hashes and does not install.
        message = "has no contentDigest, and its files do not have the hash of the lock"
        yield _make_drift(entry, "no-digest", folder, message, _adopt(lock.place))


def _compare(
    place: InstallPlace,
    entry: LockEntry,
    locked: Iterable[HashedFile],
    found: Iterable[HashedFile],
) -> Iterator[Drift]:
    folder = skill_folder(place, entry.name)
    before = {file.path: file for file in locked}
    after = {file.path: file for file in found}
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        kind: DriftKind
        if new is None:
            kind, message = "missing-file", "is missing"
        elif old is None:
            kind, message = "extra-file", "is not part of what was locked"
        elif old.kind == "link" or new.kind == "link":
            kind = "changed-link"
            message = f"leads to {one_line(new.target)!r}" if new.target else "is no longer a link"
        elif old.sha256 != new.sha256:
            kind, message = "changed-file", "was changed"
        else:
            kind = "changed-mode"
            message = "is executable now" if new.executable else "is no longer executable"
        yield _make_drift(entry, kind, os.path.join(folder, path), message, _keep(place))


def _compare_clients(
    place: InstallPlace,
    entry: LockEntry,
    folder: str,
    hashes: FolderHashes,
    settings: Settings,
) -> Iterator[Drift]:
    for client in entry.clients:
        try:
            above = client_folder(place, client, settings)
        except ConfigError as error:
            yield _make_drift(entry, "client-link", place.lock, str(error), "correct the lock")
            continue
        path = os.path.join(above, folder_name(entry.name))
        if os.path.realpath(path) == os.path.realpath(folder):
            continue
        remedy = f"remove it, then {place.command('sync')}"
        if not os.path.lexists(path):
            message, remedy = f"{client} has no link to it", f"{place.command('sync')} makes it"
        elif os.path.islink(path):
            message = f"is a link to {os.readlink(path)}"
        elif _has(path, hashes):
            continue
        else:
            message = "is a folder with other files than what is installed"
        yield _make_drift(entry, "client-link", path, message, remedy)


def _compare_packages(
    lock: SkillLock, entry: LockEntry, folder: str, *, edited: bool
) -> Iterator[Drift]:
    """Yield how the locked packages do not fit what the skill declares, unless it was edited."""
    fault = "" if edited else find_package_fault(entry, folder, lock.place)
    if fault:
        command = lock.place.command(f"update --packages {typed_name(entry.name)}")
        remedy = f"{command} locks them anew"
        yield _make_drift(entry, "packages", lock.place.lock, fault, remedy)


def _has(path: str, hashes: FolderHashes) -> bool:
    try:
        return hash_folder(path)[:2] == hashes[:2]
    except SourceError:
        return False


def _is_known(hashes: FolderHashes, settings: Settings) -> bool:
    """Whether the store has exactly this content, so that it can be restored."""
    from_store = f"{hashes.content_digest.removeprefix('sha256:')}-{hashes.tree_sha}"
    return os.path.isdir(os.path.join(store_folder(settings), from_store, "skill"))
