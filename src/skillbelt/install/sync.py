"""Install exactly what the lock says, or report why that fails (`sync`).

A skill whose files were edited here is never replaced. A version that was fetched here before is:
it is still in the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from skillbelt.errors import ConfigError, PathEscape, PermissionDenied, SkillbeltError, SourceError
from skillbelt.install.content_store import (
    StoredSkill,
    explain_system,
    incoming,
    keep_skill,
    remedy_of,
    stored_skill,
)
from skillbelt.install.declaring import ResolvePackages, no_packages, packages_of_same
from skillbelt.install.entries import locked_reference, reference_of, scan_target, stored_of
from skillbelt.install.fetching import fetch_skills
from skillbelt.install.hashes import FolderHashes, computed_hash, hash_folder
from skillbelt.install.lock_file import (
    LockChanges,
    SkillLock,
    pinned_names,
    read_lock,
    remember_pinned,
    write_lock,
)
from skillbelt.install.names import folder_name, typed_name
from skillbelt.install.placing import (
    link_clients,
    linked_clients,
    put_skill,
    skill_folder,
    take_skill,
)
from skillbelt.install.policy import (
    NOTHING_ACCEPTED,
    Acceptance,
    SkillToJudge,
    check_source,
    committed_at,
    needs_signature,
    record_acceptance,
    require_permitted,
    verify_policy,
)
from skillbelt.install.values import (
    Drift,
    FetchedSkill,
    InstallPlace,
    LockEntry,
    PlannedChange,
    SourceReference,
)
from skillbelt.install.verify import VerifiedSkill, verify_lock, verify_skill
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings
from skillbelt.text import one_line, shell_word

# What `skills` 1.7.4 leaves out when it copies a skill.
_NOT_COPIED = frozenset(("metadata.json",))
_FOLDERS_NOT_COPIED = frozenset(("__pypackages__",))
SyncMode = Literal["install", "frozen", "adopt"]
# Called with a source, the folder to fetch into, the commit and the path of the SKILL.md.
Fetch = Callable[[SourceReference, str, str, str], FetchedSkill]
Report = Callable[[str], None]


def fetcher(settings: Settings, progress: Report | None = None) -> Fetch:
    """Return the function that fetches one skill for `perform_sync`."""

    def fetch(reference: SourceReference, into: str, commit: str, skill_path: str) -> FetchedSkill:
        found = fetch_skills(
            reference, settings, into, commit=commit, skill_path=skill_path, progress=progress
        )
        if len(found) != 1:
            raise SourceError(reference.source, f"has {len(found)} skills that the lock may mean")
        return found[0]

    return fetch


class SyncRefusal(NamedTuple):
    """A failed step: a code, the reason, the remedy. `policy`: a rule or person refused it."""

    name: str
    code: str
    message: str
    remedy: str = ""
    policy: bool = False


class SyncResult(NamedTuple):
    """The steps that were done, and those that failed."""

    changes: tuple[PlannedChange, ...] = ()
    refused: tuple[SyncRefusal, ...] = ()
    drift: tuple[Drift, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 done, 2 nothing could be done, 3 part of it, 4 refused by a rule or a person."""
        if any(one.policy for one in self.refused):
            return 4
        if self.refused:
            return 3 if any(change.action != "keep" for change in self.changes) else 2
        return 0


def plan_sync(
    lock: SkillLock,
    settings: Settings,
    *,
    mode: SyncMode = "install",
    force: bool = False,
    report: Report = lambda text: None,
) -> SyncResult:
    """Return what `sync` would do; nothing is changed and nothing fetched."""
    changes: list[PlannedChange] = []
    refused = refuse_entries(lock)
    verified = verify_lock(lock, settings, report=report)
    by_policy = [*judge_installed(verified, lock.place, settings)]
    forbidden = {one.name: one for one in reversed(by_policy)}
    names = pinned_names(lock.place, settings)
    for skill in verified:
        ours = lock.ours or skill.entry.name in names
        planned = _plan_skill(skill, lock.place, ours=ours, mode=mode, force=force)
        if isinstance(planned, SyncRefusal):
            refused.append(planned)
        elif skill.entry.name in forbidden and _keeps_files(planned):
            refused.append(_refuse_by_policy(forbidden[skill.entry.name]))
        else:
            changes.append(planned)
    drift = [*(one for skill in verified for one in skill.drift), *by_policy]
    if mode == "adopt":
        drift += find_unlocked(lock)
    return SyncResult(changes=tuple(changes), refused=tuple(refused), drift=tuple(drift))


def refuse_entries(lock: SkillLock) -> list[SyncRefusal]:
    """Return the entries of a lock that no command acts on."""
    return [
        SyncRefusal(
            name=one.name,
            code="lock-entry",
            message=f"the entry in {lock.place.lock} {one.message}",
            remedy=bad_entry(lock, one.name),
        )
        for one in lock.refused
    ]


def bad_entry(lock: SkillLock, name: str) -> str:
    """Return what to do about an entry that no command acts on."""
    command = lock.place.command(f"remove {'-- ' * name.startswith('-')}{shell_word(name)}")
    return f"correct the entry, or take it out by {command} and add the skill again"


def find_unlocked(lock: SkillLock) -> Iterator[Drift]:
    """Yield the installed skills that the lock does not have: adopting needs a source."""
    for name in _list_unlocked(lock):
        yield Drift(
            name=name,
            kind="not-locked",
            path=skill_folder(lock.place, name),
            message="is not in a lock and its source is unknown, so it is not adopted",
            remedy=f"{lock.place.command('import')} records what another tool installed, "
            f"{lock.place.command(f'add SOURCE --skill {name}')} what has a source; your own "
            "needs no entry",
        )


def _keeps_files(change: PlannedChange) -> bool:
    """Whether the files stay as they are; others are judged when they are put in place."""
    return change.action in ("keep", "link") and not change.reason


def _refuse_by_policy(drift: Drift) -> SyncRefusal:
    return SyncRefusal(
        name=drift.name, code="policy", message=drift.message, remedy=drift.remedy, policy=True
    )


def judge_installed(
    verified: Iterable[VerifiedSkill], place: InstallPlace, settings: Settings
) -> Iterator[Drift]:
    """Yield the policy violations of installed skills."""
    return verify_policy(_find_judgeable(verified, place, settings), settings)


def _find_judgeable(
    verified: Iterable[VerifiedSkill], place: InstallPlace, settings: Settings
) -> Iterator[tuple[SkillToJudge, str, str]]:
    """Yield what is installed, as the policy judges it; read again where a signature counts."""
    for skill in verified:
        if skill.hashes is None:
            continue
        entry, folder = skill.entry, skill.folder
        try:
            reference = reference_of(entry, place)
        except SourceError:  # a kind that only another tool installs
            reference = SourceReference(kind="node_modules", source=entry.source, url=entry.source)
        known = None if needs_signature(entry, reference.url, settings) else skill.hashes
        undo = skill.drift[0].remedy if skill.edited else ""
        yield skill_to_judge(entry, folder, place, reference, hashes=known), folder, undo


def _plan_skill(
    skill: VerifiedSkill, place: InstallPlace, *, ours: bool, mode: SyncMode, force: bool
) -> PlannedChange | SyncRefusal:
    entry = skill.entry
    change = PlannedChange(
        action="keep",
        name=entry.name,
        path=skill.folder,
        before=skill.hashes.content_digest if skill.hashes else "",
        after=entry.content_digest,
    )
    kinds = {one.kind for one in skill.drift}
    if stored_of(entry) is None and mode == "frozen":
        why = "another tool wrote its entry anew" if ours else "its entry has no contentDigest"
        return SyncRefusal(
            name=entry.name,
            code="rewritten" if ours else "no-digest",
            message=f"{why}, so its content is unknown",
            remedy=f"{place.command('sync')} without --frozen fetches and records it",
        )
    if "packages" in kinds and mode != "adopt":
        fault = next(one for one in skill.drift if one.kind == "packages")
        return SyncRefusal(
            name=entry.name, code="packages", message=fault.message, remedy=fault.remedy
        )
    if not kinds and stored_of(entry) is not None:
        return change
    if kinds == {"client-link"}:
        return change._replace(action="link")
    if mode == "adopt" and skill.hashes is not None and "unsafe" not in kinds:
        return change._replace(action="keep", reason="adopt", after=skill.hashes.content_digest)
    if skill.hashes is None and kinds == {"missing"}:
        return change._replace(action="install")
    if stored_of(entry) is None and "no-digest" not in kinds:
        return change._replace(reason="record")
    if kinds <= {"no-digest", "rewritten", "client-link"} and not force:
        # `skills` hashes more files than it installs: only the source shows what was edited.
        return change._replace(action="replace", reason="compare")
    if skill.edited and not force:
        return SyncRefusal(
            name=entry.name,
            code="local-edits",
            message=f"{skill.folder} has local edits: {first_edit(skill)}",
            remedy=skill.drift[0].remedy,
        )
    return change._replace(action="replace")


def first_edit(skill: VerifiedSkill) -> str:
    """Return the first difference with its file, and how many more there are."""
    first = skill.drift[0]
    more = f" (and {len(skill.drift) - 1} more)" if len(skill.drift) > 1 else ""
    return f"{os.path.relpath(first.path, skill.folder)} {first.message}{more}"


def perform_sync(
    plan: SyncResult,
    lock: SkillLock,
    settings: Settings,
    fetch: Fetch,
    *,
    mode: SyncMode = "install",
    report: Report = lambda text: None,
    accepts: Acceptance = NOTHING_ACCEPTED,
    packages: ResolvePackages = no_packages,
) -> SyncResult:
    """Do what was planned, skill by skill; the caller holds the place.

    A skill that cannot be installed is left as it was, and the others continue. `packages` resolves
    those of a skill that is recorded.
    """
    done: list[PlannedChange] = []
    refused = list(plan.refused)
    for number, change in enumerate(plan.changes, 1):
        if change.action == "keep" and not change.reason:
            done.append(change)
            continue
        report(f"installing {change.name} ({number} of {len(plan.changes)})")
        try:
            done.append(_perform(change, lock, settings, fetch, accepts=accepts, packages=packages))
        except (SkillbeltError, OSError) as error:
            refused.append(refusal_of(change.name, error))
    return SyncResult(changes=tuple(done), refused=tuple(refused), drift=plan.drift)


def refusal_of(name: str, error: Exception) -> SyncRefusal:
    """Convert an error to a refusal."""
    if isinstance(error, OSError):
        message, remedy = explain_system(error)
        return SyncRefusal(name=name, code="system", message=message, remedy=remedy)
    return SyncRefusal(
        name=name,
        code=getattr(error, "kind", "system"),
        message=str(error),
        remedy=remedy_of(error) if isinstance(error, SkillbeltError) else "",
        policy=isinstance(error, PermissionDenied | PathEscape),
    )


def _perform(
    change: PlannedChange,
    lock: SkillLock,
    settings: Settings,
    fetch: Fetch,
    accepts: Acceptance,
    packages: ResolvePackages,
) -> PlannedChange:
    place, entry = lock.place, lock.entries[change.name]
    if change.action == "link":
        link_clients(place, entry.name, entry.clients, settings)
        return change
    if change.action == "keep":
        _record(place, entry, settings, packages, adopt=change.reason == "adopt")
        return change
    reference = locked_reference(entry, place)
    check_source(entry.name, reference.url, settings)
    stored = stored_of(entry)
    if stored is None:
        return _install_unpinned(change, lock, settings, fetch, accepts=accepts, packages=packages)
    with (
        incoming(settings) as folder,
        stored_skill(
            stored,
            settings,
            lambda: fetch(reference, folder, entry.commit, entry.skill_path).folder,
        ) as source,
    ):
        skill = skill_to_judge(entry, source, place, reference)._replace(
            target=scan_target(reference, entry.name, entry.commit, entry.skill_path)
        )
        judged = require_permitted(skill, settings, accepts)
        put_skill(place, entry, source, settings, lock=False)
        record_acceptance(judged, entry.content_digest, settings, accepts)
    return change


def skill_to_judge(
    entry: LockEntry,
    folder: str,
    place: InstallPlace,
    reference: SourceReference,
    *,
    hashes: FolderHashes | None = None,
) -> SkillToJudge:
    """Return the skill of an entry, with its files in a folder, as the policy judges it."""
    return SkillToJudge(
        name=entry.name,
        folder=folder,
        hashes=hashes or hash_folder(folder, partial=True),
        kind=reference.kind,
        url=reference.url,
        committed_at=committed_at(entry.provenance),
        before=entry,
        command=("sync",),
        of_user=place.scope == "user",
    )


def _install_unpinned(
    change: PlannedChange,
    lock: SkillLock,
    settings: Settings,
    fetch: Fetch,
    accepts: Acceptance,
    packages: ResolvePackages,
) -> PlannedChange:
    """Install an entry of another tool if its one hash is right, and record what came."""
    place, entry = lock.place, lock.entries[change.name]
    with incoming(settings) as folder:
        fetched = fetch(reference_of(entry, place), folder, entry.commit, entry.skill_path)
        wanted = entry.computed_hash or entry.folder_hash
        if wanted not in (computed_hash(fetched.folder), fetched.tree_sha):
            raise SourceError(
                entry.source,
                "changed since it was locked, and the lock names no commit to go back to; "
                f"{place.command(f'update {typed_name(entry.name)}')} takes the new version",
            )
        if change.reason == "compare" and not _is_copy(change.path, fetched.folder):
            raise SourceError(
                change.path,
                f"has local edits; {place.command('sync --adopt')} records them, --force drops "
                "them",
            )
        skill = skill_to_judge(entry, fetched.folder, place, fetched.reference)
        skill = skill._replace(
            committed_at=committed_at(fetched.provenance),
            target=scan_target(fetched.reference, entry.name, fetched.commit, fetched.skill_path),
        )
        judged = require_permitted(skill, settings, accepts)
        stored = keep_skill(fetched.folder, settings, fetched.reference.source)
        pinned = _pin_content(entry, stored)._replace(
            commit=fetched.commit,
            provenance=judged.provenance(fetched.provenance),
            unsigned=judged.unsigned,
            scan=judged.scan,
            packages=packages(entry.name, fetched.folder, entry.packages).packages,
        )
        with stored_skill(stored, settings, lambda: fetched.folder) as source:
            put_skill(place, pinned, source, settings)
    return change._replace(after=stored.content_digest)


def _is_copy(folder: str, source: str) -> bool:
    """Whether `skills` made the folder from the source: it leaves some files out."""
    theirs = {
        (file.path, file.sha256)
        for file in hash_folder(source).files
        if os.path.basename(file.path) not in _NOT_COPIED
        and not _FOLDERS_NOT_COPIED.intersection(file.path.split("/")[:-1])
    }
    return {(file.path, file.sha256) for file in hash_folder(folder).files} == theirs


def _record(
    place: InstallPlace,
    entry: LockEntry,
    settings: Settings,
    packages: ResolvePackages,
    *,
    adopt: bool,
) -> None:
    """Record the installed content in the lock, and keep a copy in the store."""
    folder = skill_folder(place, entry.name)
    stored = keep_skill(folder, settings)
    pinned = _pin_content(entry, stored)
    if adopt:
        same = stored.content_digest == entry.content_digest
        pinned = pinned._replace(computed_hash=computed_hash(folder))
        if not same:  # the old entry describes other content
            pinned = pinned._replace(commit="", provenance={}, unsigned=False, packages={}, scan={})
        found = linked_clients(place, entry.name, settings)
        pinned = pinned._replace(clients=tuple(dict.fromkeys((*entry.clients, *found))))
    resolved = packages(entry.name, folder, entry.packages).packages
    pinned = pinned._replace(packages=resolved or packages_of_same(entry, pinned))
    changes = LockChanges(read_lock(place))
    changes.put(pinned)
    remember_pinned(place, settings, entry.name)
    write_lock(changes)


def _pin_content(entry: LockEntry, stored: StoredSkill) -> LockEntry:
    return entry._replace(content_digest=stored.content_digest, tree_sha=stored.tree_sha)


def prune(
    lock: SkillLock, settings: Settings, *, dry_run: bool = False
) -> tuple[list[PlannedChange], list[SyncRefusal]]:
    """Remove installed skills that the lock does not have, if the store can bring them back.

    A skill that was written or edited here stays: the store cannot bring it back.
    """
    changes, refused = [], []
    for name in _list_unlocked(lock):
        folder = skill_folder(lock.place, name)
        try:
            hashes = hash_folder(folder)
        except SourceError:
            continue
        entry = LockEntry(
            name=name,
            source="",
            source_type="local",
            content_digest=hashes.content_digest,
            tree_sha=hashes.tree_sha,
        )
        if verify_skill(lock, entry, settings).drift or not _is_in_store(entry, settings):
            refused.append(
                SyncRefusal(
                    name=name,
                    code="not-ours",
                    message=f"{folder} is not in the lock, and was not installed by skillbelt",
                    remedy="remove the folder if it is not needed",
                )
            )
            continue
        change = PlannedChange(
            action="remove", name=name, path=folder, before=hashes.content_digest
        )
        if not dry_run:
            take_skill(lock.place, name, settings)
        changes.append(change)
    return changes, refused


def _is_in_store(entry: LockEntry, settings: Settings) -> bool:
    from_store = stored_of(entry)
    if from_store is None:
        return False
    try:
        with stored_skill(from_store, settings, _raise_missing):
            return True
    except SourceError:
        return False


def _raise_missing() -> str:
    raise SourceError("store", "does not have it")


def _list_unlocked(lock: SkillLock) -> list[str]:
    """Return the folders of installed skills that the lock does not have; no links."""
    skills = lock.place.skills
    known = {folder_name(name) for name in (*lock.entries, *(one.name for one in lock.refused))}
    try:
        names = sorted(os.listdir(skills))
    except OSError:
        return []
    return [
        name
        for name in names
        if not name.startswith(".")
        and name not in known
        and folder_name(name) == name
        and os.path.isfile(os.path.join(skills, name, "SKILL.md"))
        and not os.path.islink(os.path.join(skills, name))
    ]


def check_names(lock: SkillLock, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names as the lock has them; ConfigError for one that it does not have."""
    found = []
    for name in names:
        entry = lock.find(name)
        if entry is None:
            _check_refused(lock, name)
            known: Iterable[str] = sorted(lock.entries)
            shown = ", ".join(known) or "nothing"
            error = ConfigError(f"{lock.place.lock} has no skill {name!r}; it has {shown}")
            error.remedy = "`skillbelt list` shows every skill and where it comes from"
            raise error
        found.append(entry.name)
    return tuple(dict.fromkeys(found))


def _check_refused(lock: SkillLock, name: str) -> None:
    """Raise ConfigError if the lock has an entry of that name that no command acts on."""
    for one in refuse_entries(lock):
        if one.name == name:
            error = ConfigError(f"{one_line(name)}: {one.message}")
            error.remedy = one.remedy
            raise error
