"""Find, show and install new versions of installed skills; local edits stay."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from skillbelt.errors import ConfigError, SkillbeltError, SourceError
from skillbelt.install.content_store import StoredSkill, incoming, keep_skill, stored_skill
from skillbelt.install.declaring import ResolvePackages
from skillbelt.install.entries import (
    entry_for,
    locked_reference,
    reference_of,
    scan_target,
    stored_of,
)
from skillbelt.install.fetching import OpenSource, open_source
from skillbelt.install.lock_file import SkillLock, read_lock
from skillbelt.install.merge import MergedFolder, merge_folders, show_difference
from skillbelt.install.names import folder_name, typed_name
from skillbelt.install.placing import put_skill, using_place
from skillbelt.install.policy import (
    NOT_JUDGED,
    NOTHING_ACCEPTED,
    Acceptance,
    JudgedSkill,
    check_source,
    committed_at,
    judge_skill,
    record_acceptance,
)
from skillbelt.install.sync import (
    Fetch,
    Report,
    SyncRefusal,
    SyncResult,
    fetcher,
    refusal_of,
    refuse_entries,
    skill_to_judge,
)
from skillbelt.install.values import NO_VALUES, InstallPlace, LockEntry, PlannedChange
from skillbelt.install.verify import VerifiedSkill, verify_skill
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings

CONFLICT = "conflict"  # the code of a file that could not be merged


class NewVersion(NamedTuple):
    """A skill of the lock whose source has other content now; `after` is the new entry.

    `judged` is what the policy of the settings says.
    """

    before: LockEntry
    after: LockEntry
    stored: StoredSkill
    judged: JudgedSkill = NOT_JUDGED


class FoundVersions(NamedTuple):
    """The result of asking the sources: new versions, current skills, and failures."""

    new: tuple[NewVersion, ...] = ()
    current: tuple[str, ...] = ()
    refused: tuple[SyncRefusal, ...] = ()

    def hold_back(self) -> FoundVersions:
        """Return what may be installed; what the policy refuses is among the refused."""
        faulty = [one for one in self.new if one.judged.faults]
        refused = [
            SyncRefusal(
                name=one.before.name,
                code=fault.code,
                message=fault.message,
                remedy=fault.remedy,
                policy=True,
            )
            for one in faulty
            for fault in one.judged.faults[:1]
        ]
        new = tuple(one for one in self.new if not one.judged.faults)
        return self._replace(new=new, refused=(*self.refused, *refused))


def find_versions(
    lock: SkillLock,
    names: Iterable[str],
    settings: Settings,
    report: Report,
    accepts: Acceptance = NOTHING_ACCEPTED,
) -> FoundVersions:
    """Ask the source of each skill, all if none is named, for its newest version.

    Each source is fetched once. The content is kept in the store only.
    """
    wanted = set(names) or set(lock.entries)  # entries that no command acts on are reported
    new, current = [], []
    refused = [] if names else refuse_entries(lock)
    groups: dict[tuple[str, ...], list[LockEntry]] = {}
    for name in sorted(wanted):
        entry = lock.entries[name]
        try:
            reference = reference_of(entry, lock.place)
        except SkillbeltError as error:
            refused.append(refusal_of(name, error))
            continue
        key = (reference.kind, reference.url, reference.ref, reference.subpath)
        groups.setdefault(key, []).append(entry)
    for entries in groups.values():
        report(f"fetching {entries[0].source}")
        with incoming(settings) as folder:
            try:
                reference = reference_of(entries[0], lock.place)._replace(skill="")
                check_source(entries[0].name, reference.url, settings)
                source = open_source(reference, settings, folder, progress=report)
            except (SkillbeltError, OSError) as error:
                refused += [refusal_of(entry.name, error) for entry in entries]
                continue
            for number, entry in enumerate(entries, 1):
                report(f"reading {entry.name} ({number} of {len(entries)})")
                try:
                    found = _find_newest(entry, source, lock.place, settings, accepts)
                except (SkillbeltError, OSError) as error:
                    refused.append(refusal_of(entry.name, error))
                    continue
                if found is None:
                    current.append(entry.name)
                else:
                    new.append(found)
    return FoundVersions(tuple(new), tuple(current), tuple(refused))


def _find_newest(
    entry: LockEntry,
    source: OpenSource,
    place: InstallPlace,
    settings: Settings,
    accepts: Acceptance,
) -> NewVersion | None:
    """Return the newest version of a skill; None if that is the locked one."""
    here = [one for one in source.found.skills if one.skill_path == entry.skill_path]
    named = [one for one in source.found.skills if one.name == entry.name]
    if not here and not named:
        raise SourceError(entry.source, f"has no skill {entry.name!r} any more")
    fetched = source.take_alone((here or named)[0])
    if folder_name(fetched.name) == folder_name(entry.name):
        fetched = fetched._replace(name=entry.name)  # spelled differently, but the same folder
    if fetched.name != entry.name:
        raise SourceError(entry.source, f"{entry.name!r} is called {fetched.name!r} there now")
    stored = keep_skill(fetched.folder, settings, fetched.reference.source)
    after = entry_for(fetched, stored, place, clients=entry.clients, before=entry)
    after = after._replace(source=entry.source, source_url=entry.source_url, ref=entry.ref)
    known = stored_of(entry)
    if known is None:
        hashes = (entry.computed_hash, entry.folder_hash)
        same = after.computed_hash in hashes or (
            bool(fetched.tree_sha) and fetched.tree_sha in hashes
        )
    else:
        same = stored == known
    if same:
        return None
    skill = skill_to_judge(entry, fetched.folder, place, fetched.reference)._replace(
        committed_at=committed_at(fetched.provenance),
        command=("update", typed_name(entry.name)),
        target=scan_target(fetched.reference, entry.name, fetched.commit, fetched.skill_path),
    )
    judged = judge_skill(skill, settings, accepts)
    after = after._replace(
        provenance=judged.provenance(after.provenance),
        unsigned=judged.unsigned,
        scan=judged.scan,
    )
    return NewVersion(entry, after, stored, judged)


def with_packages(version: NewVersion, settings: Settings, packages: ResolvePackages) -> NewVersion:
    """Return the new version with the packages that it declares, as they are resolved now."""
    with stored_version(version, settings) as folder:
        resolved = packages(version.after.name, folder, version.before.packages)
    return version._replace(after=version.after._replace(packages=resolved.packages))


def renew_packages(
    entry: LockEntry, settings: Settings, packages: ResolvePackages
) -> LockEntry | None:
    """Return the entry with its packages resolved anew; None where nothing changed.

    SourceError if the store does not have the content any more.
    """
    stored = stored_of(entry)
    if stored is None:
        return None
    with stored_skill(stored, settings, _raise_missing) as folder:
        resolved = packages(entry.name, folder, NO_VALUES)
    if not resolved.packages or resolved.packages == entry.packages:
        return None
    return entry._replace(packages=resolved.packages)


def stored_version(version: NewVersion, settings: Settings) -> AbstractContextManager[str]:
    """Hold the folder of a new version in the store."""
    return stored_skill(version.stored, settings, _raise_missing)


class PreparedVersion(NamedTuple):
    """A folder as it will be installed, what is there now, and the result for local edits."""

    folder: str
    found: VerifiedSkill
    merged: MergedFolder = MergedFolder()


def preview_version(
    version: NewVersion, lock: SkillLock, settings: Settings, fetch: Fetch
) -> tuple[str, MergedFolder]:
    """Return what an update changes in the installed files, and the result for local edits."""
    with _prepare_version(version, lock, settings, fetch) as ready:
        before = ready.found.folder if os.path.isdir(ready.found.folder) else os.devnull
        return show_difference(before, ready.folder), ready.merged


def put_version(
    version: NewVersion, lock: SkillLock, settings: Settings, fetch: Fetch
) -> tuple[PlannedChange, MergedFolder]:
    """Put a new version in place; local edits are merged into it. The caller holds the place.

    The lock gets the new version as its source has it, so that `verify` still names the edits.
    """
    with _prepare_version(version, lock, settings, fetch) as ready:
        put_skill(lock.place, version.after, ready.folder, settings)
    hashes = ready.found.hashes
    change = PlannedChange(
        action="replace" if hashes else "install",
        name=version.before.name,
        path=ready.found.folder,
        before=hashes.content_digest if hashes else "",
        after=version.after.content_digest,
        edited=ready.merged.files(),
    )
    return change, ready.merged


@contextmanager
def _prepare_version(
    version: NewVersion, lock: SkillLock, settings: Settings, fetch: Fetch
) -> Iterator[PreparedVersion]:
    """Yield the new version, with the local edits merged into it if there are any."""
    place, before = lock.place, version.before
    found = verify_skill(lock, before, settings)
    with stored_skill(version.stored, settings, _raise_missing) as new:
        if not found.edited:
            yield PreparedVersion(new, found)
            return
        if found.hashes is None or any(one.kind == "unsafe" for one in found.drift):
            fault = found.drift[0]
            error = SourceError(fault.path, f"cannot be merged: {fault.message}")
            error.remedy = fault.remedy
            raise error
        known = stored_of(before)
        if known is None:
            raise SourceError(
                found.folder,
                "has local edits, and the version they were made in is not in the lock; "
                f"{place.command('sync --adopt')} records what is there",
            )
        with (
            incoming(settings) as folder,
            stored_skill(
                known,
                settings,
                lambda: (
                    fetch(
                        locked_reference(before, place), folder, before.commit, before.skill_path
                    ).folder
                ),
            ) as base,
        ):
            merged = os.path.join(folder, "merged")
            result = merge_folders(base, found.folder, new, merged)
            yield PreparedVersion(merged, found, result)


def apply_versions(
    found: FoundVersions,
    lock: SkillLock,
    settings: Settings,
    report: Report,
    accepts: Acceptance = NOTHING_ACCEPTED,
) -> SyncResult:
    """Put all new versions in place; ConfigError when the lock changed since they were found.

    What a merge could not decide is among the refused, with the code `conflict`.
    """
    changes: list[PlannedChange] = []
    refused, conflicts = list(found.refused), list[SyncRefusal]()
    with using_place(lock.place, settings):
        if read_lock(lock.place).data != lock.data:
            raise ConfigError(f"{lock.place.lock} was changed meanwhile; run the command again")
        for number, version in enumerate(found.new, 1):
            report(f"installing {version.before.name} ({number} of {len(found.new)})")
            try:
                change, merged = put_version(version, lock, settings, fetcher(settings, report))
            except (SkillbeltError, OSError) as error:
                refused.append(refusal_of(version.before.name, error))
                continue
            changes.append(change)
            record_acceptance(version.judged, version.after.content_digest, settings, accepts)
            conflicts += refuse_conflicts(version.before.name, merged)
    report("")
    return SyncResult(changes=tuple(changes), refused=(*refused, *conflicts))


def refuse_conflicts(name: str, merged: MergedFolder) -> Iterator[SyncRefusal]:
    """Yield what a merge could not decide, each with what to do."""
    for one in merged.conflicts:
        beside = f"compare it with {one.beside}, then remove that file"
        yield SyncRefusal(
            name=name,
            code=CONFLICT,
            message=f"{one.path} {one.message}: your file stays as it is",
            remedy=beside if one.beside else "copy what you need from it",
        )


def _raise_missing() -> str:
    raise SourceError("store", "the version is gone from the store; run the command again")
