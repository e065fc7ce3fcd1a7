"""Add skills: fetch, check, say what they can do, ask once, put in place and lock.

`offer_skills` changes nothing but the store. `install_offers` does what was agreed to, and
refuses what changed on the disk since it was shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from skillbelt.errors import SkillbeltError, SourceError
from skillbelt.install.content_store import (
    StoredSkill,
    explain_system,
    keep_skill,
    remedy_of,
    stored_skill,
)
from skillbelt.install.declaring import ResolvePackages, no_packages, packages_of_same
from skillbelt.install.entries import entry_for, portable_source, scan_target
from skillbelt.install.fetching import OpenSource
from skillbelt.install.find_skills import FoundSkill
from skillbelt.install.hashes import FolderHashes, computed_hash, hash_folder
from skillbelt.install.lock_file import SkillLock, read_lock
from skillbelt.install.names import folder_name, typed_name
from skillbelt.install.placing import client_folder, put_skill, skill_folder, using_place
from skillbelt.install.policy import (
    NOT_JUDGED,
    NOTHING_ACCEPTED,
    Acceptance,
    JudgedSkill,
    SkillToJudge,
    committed_at,
    judge_skill,
    record_acceptance,
)
from skillbelt.install.values import NO_VALUES, FetchedSkill, InstallPlace, LockEntry
from skillbelt.permission.gate import Gate
from skillbelt.permission.rules import Request
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings
from skillbelt.text import one_line

SYSTEM = "system"  # the code of an operating-system error


class FileDifference(NamedTuple):
    """The files that an installation adds, changes and removes."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class RefusedSkill(NamedTuple):
    """A skill that is not installed, and why."""

    name: str
    code: str
    message: str
    remedy: str


class SkillChange(NamedTuple):
    """The outcome of `add` for one skill. `links` and `copies` are those that clients got."""

    name: str
    action: str
    before: str
    after: str
    commit: str
    source: str
    links: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()


class SkillOffer(NamedTuple):
    """A skill that can be installed; `describe_offer` says what a person needs to decide.

    `current` is the content digest of what is installed now, "" if nothing is; `judged` is the
    policy's verdict.
    """

    fetched: FetchedSkill
    stored: StoredSkill
    difference: FileDifference = FileDifference()
    current: str = ""
    judged: JudgedSkill = NOT_JUDGED

    @property
    def name(self) -> str:
        """The name of the skill."""
        return self.fetched.name

    @property
    def is_installed(self) -> bool:
        """Whether the same content is there already."""
        return self.current == self.stored.content_digest

    def change(self, source: str) -> SkillChange:
        """Return what adding it does; `source` is where it comes from, as it is shown."""
        return SkillChange(
            name=self.name,
            action="keep" if self.is_installed else "replace" if self.current else "install",
            before=self.current,
            after=self.stored.content_digest,
            commit=self.fetched.commit,
            source=source,
        )


class AddTarget(NamedTuple):
    """The target of `add`: a place, the clients that get links, and whether they get copies.

    `accepts` is what the user accepts against the policy.
    """

    place: InstallPlace
    clients: tuple[str, ...] = ()
    copy: bool = False
    pin: bool = False
    accepts: Acceptance = NOTHING_ACCEPTED


def check_clients(target: AddTarget, settings: Settings) -> None:
    """Raise ConfigError for a client that is not known."""
    for client in target.clients:
        client_folder(target.place, client, settings)


def offer_skills(
    source: OpenSource,
    chosen: Sequence[FoundSkill],
    target: AddTarget,
    settings: Settings,
    progress: Callable[[str], None] | None = None,
) -> Iterator[SkillOffer | RefusedSkill]:
    """Yield for each skill what would be installed, or why it cannot be."""
    say = progress or (lambda text: None)
    try:
        yield from _offer_each(source, chosen, target, settings, say)
    finally:
        source.tree.rest()


def _offer_each(
    source: OpenSource,
    chosen: Sequence[FoundSkill],
    target: AddTarget,
    settings: Settings,
    say: Callable[[str], None],
) -> Iterator[SkillOffer | RefusedSkill]:
    lock = read_lock(target.place)
    folders = {folder_name(name): name for name in lock.entries}
    for number, found in enumerate(chosen, 1):
        say(f"reading {found.name} ({number} of {len(chosen)})")
        other = folders.setdefault(folder_name(found.name), found.name)
        if other != found.name:
            yield _refuse_same_folder(found.name, other, target.place)
            continue
        try:
            fetched = source.take(found)
            if target.pin and fetched.commit:
                pinned = fetched.reference._replace(ref=fetched.commit)
                fetched = fetched._replace(reference=pinned)
            yield _make_offer(fetched, target, settings, lock)
        except SourceError as error:
            yield RefusedSkill(
                name=found.name,
                code=str(getattr(error, "code", error.kind)),
                message=one_line(str(error)),
                remedy=remedy_of(error),
            )
        except OSError as error:
            yield _refuse_by_system(found.name, error, settings.cache_dir)


def _refuse_by_system(name: str, error: OSError, folder: str) -> RefusedSkill:
    message, remedy = explain_system(error, folder)
    return RefusedSkill(name=name, code=SYSTEM, message=one_line(message), remedy=remedy)


def _refuse_same_folder(name: str, other: str, place: InstallPlace) -> RefusedSkill:
    folder = folder_name(name)
    return RefusedSkill(
        name=name,
        code="name-taken",
        message=f"its folder would be {folder}, which is that of the skill {one_line(other)}",
        remedy=f"{place.command(f'remove {folder}')} first, or give --skill for the one that you "
        "want",
    )


def _make_offer(
    fetched: FetchedSkill, target: AddTarget, settings: Settings, lock: SkillLock
) -> SkillOffer | RefusedSkill:
    place = target.place
    stored = keep_skill(fetched.folder, settings, fetched.reference.source)
    new = hash_folder(fetched.folder)
    old = _hash_installed(place, fetched.name)
    entry = lock.entries.get(fetched.name)
    fault = _find_fault(fetched, new, old, entry=entry, place=place)
    if fault is not None:
        return fault
    judged = _judge(fetched, new, entry, target, settings)
    if judged.faults:
        worst = judged.faults[0]
        return RefusedSkill(
            name=fetched.name, code=worst.code, message=worst.message, remedy=worst.remedy
        )
    return SkillOffer(
        fetched=fetched,
        stored=stored,
        difference=compare_files(old, new),
        current=old.content_digest if old else "",
        judged=judged,
    )


def _judge(
    fetched: FetchedSkill,
    hashes: FolderHashes,
    entry: LockEntry | None,
    target: AddTarget,
    settings: Settings,
) -> JudgedSkill:
    reference = fetched.reference
    typed = reference.typed or reference.source
    return judge_skill(
        SkillToJudge(
            name=fetched.name,
            folder=fetched.folder,
            hashes=hashes,
            kind=reference.kind,
            url=reference.url,
            committed_at=committed_at(fetched.provenance),
            before=entry,
            command=("add", typed, "--skill", typed_name(fetched.name)),
            of_user=target.place.scope == "user",
            target=scan_target(reference, fetched.name, fetched.commit, fetched.skill_path),
        ),
        settings,
        target.accepts,
    )


def _hash_installed(place: InstallPlace, name: str) -> FolderHashes | None:
    folder = skill_folder(place, name)
    return hash_folder(folder, partial=True) if os.path.lexists(folder) else None


def _find_fault(
    fetched: FetchedSkill,
    new: FolderHashes,
    old: FolderHashes | None,
    *,
    entry: LockEntry | None,
    place: InstallPlace,
) -> RefusedSkill | None:
    """Return why the installed skill may not be replaced; None if it may."""
    name = fetched.name
    if old is None or old.content_digest == new.content_digest:
        return _refuse_other_source(fetched, entry, place)
    if entry is None:
        return RefusedSkill(
            name=name,
            code="not-locked",
            message=f"{skill_folder(place, name)} is not in a lock, so it may be your own",
            remedy="move it away, or remove it if it is not needed",
        )
    if _is_edited(entry, old, skill_folder(place, name)):
        return RefusedSkill(
            name=name,
            code="edited",
            message=f"{skill_folder(place, name)} was changed since it was installed",
            remedy=f"{place.command(f'update {typed_name(name)}')} merges, "
            f"{place.command(f'verify {typed_name(name)}')} shows the changes",
        )
    return _refuse_other_source(fetched, entry, place)


def _refuse_other_source(
    fetched: FetchedSkill, entry: LockEntry | None, place: InstallPlace
) -> RefusedSkill | None:
    # A lock may have the path of an archive as it was typed.
    sources = (portable_source(fetched.reference, place), fetched.reference.source)
    if entry is None or (entry.source in sources and entry.source_type == fetched.reference.kind):
        return None
    return RefusedSkill(
        name=fetched.name,
        code="name-taken",
        message=f"a skill of that name is installed from {one_line(entry.source)}",
        remedy=f"{place.command(f'remove {typed_name(fetched.name)}')} first, to replace it with "
        "this one",
    )


def _is_edited(entry: LockEntry, old: FolderHashes, folder: str) -> bool:
    if entry.content_digest:
        return entry.content_digest != old.content_digest
    try:
        return entry.computed_hash != computed_hash(folder)
    except SourceError:
        return True


def compare_files(old: FolderHashes | None, new: FolderHashes) -> FileDifference:
    """Return which files were added, changed and removed."""
    before = {file.path: file for file in old.files} if old else {}
    after = {file.path: file for file in new.files}
    return FileDifference(
        added=tuple(path for path in after if path not in before),
        changed=tuple(path for path in after if path in before and before[path] != after[path]),
        removed=tuple(path for path in before if path not in after),
    )


# --- the question, and what follows it -----------------------------------------------------------


def install_request(offers: Sequence[SkillOffer], target: AddTarget) -> Request:
    """Return the one question about all offers; an answer is bound to their content."""
    names = [offer.name for offer in offers]
    digests = " ".join(offer.stored.content_digest for offer in offers)
    where = "your home" if target.place.scope == "user" else target.place.base
    what = f"install {'the skill' if len(names) == 1 else 'the skills'} {', '.join(names)}"
    alone = len(offers) == 1
    return Request(
        type="install",
        patterns=tuple(f"skill:{typed_name(name)}" for name in names),
        summary=f"{what} in {where}",
        initiator="user",
        skill=typed_name(names[0]) if alone else "",
        hash=digests if alone else "",
        origin=offers[0].fetched.reference.source,
        trusted=False,
        metadata={} if alone else {"contents": digests.split()},
        exact=digests,
    )


def ask_to_install(offers: Sequence[SkillOffer], target: AddTarget, gate: Gate) -> None:
    """Ask once for all offers; raise PermissionDenied when the answer is no."""
    gate.require(install_request(offers, target))


def install_offers(
    offers: Iterable[SkillOffer],
    target: AddTarget,
    settings: Settings,
    *,
    progress: Callable[[str], None] | None = None,
    packages: ResolvePackages = no_packages,
) -> Iterator[SkillChange | RefusedSkill]:
    """Put the skills in place, one after the other, each with its entry in the lock.

    `packages` resolves the packages that a skill declares.
    """
    every = tuple(offers)
    for number, offer in enumerate(every, 1):
        if progress:
            progress(f"installing {offer.name} ({number} of {len(every)})")
        try:
            yield _install(offer, target, settings, packages)
        except SkillbeltError as error:
            yield RefusedSkill(
                name=offer.name,
                code=error.kind,
                message=one_line(str(error)),
                remedy=remedy_of(error),
            )
        except OSError as error:
            yield _refuse_by_system(offer.name, error, target.place.skills)


def _install(
    offer: SkillOffer, target: AddTarget, settings: Settings, packages: ResolvePackages
) -> SkillChange | RefusedSkill:
    place, fetched = target.place, offer.fetched
    known = read_lock(place).entries.get(offer.name)
    resolved = packages(offer.name, fetched.folder, known.packages if known else NO_VALUES)
    with using_place(place, settings):
        now = _hash_installed(place, offer.name)
        digest = now.content_digest if now else ""
        # Another process installed the same content meanwhile.
        if digest not in (offer.current, offer.stored.content_digest):
            return RefusedSkill(
                name=offer.name,
                code="changed",
                message=f"{skill_folder(place, offer.name)} changed while you were asked",
                remedy="run the command again",
            )
        before = read_lock(place).entries.get(offer.name)
        if (fault := _refuse_other_source(fetched, before, place)) is not None:
            return fault
        clients = dict.fromkeys((*(before.clients if before else ()), *target.clients))
        entry = entry_for(fetched, offer.stored, place, clients=tuple(clients), before=before)
        entry = entry._replace(
            provenance=offer.judged.provenance(entry.provenance),
            unsigned=offer.judged.unsigned,
            scan=offer.judged.scan,
            packages=resolved.packages or packages_of_same(before, entry),
        )
        with stored_skill(offer.stored, settings, lambda: fetched.folder) as folder:
            put = put_skill(place, entry, folder, settings, copy=target.copy)
        record_acceptance(offer.judged, entry.content_digest, settings, target.accepts)
    change = offer._replace(current=digest).change(entry.source)
    return change._replace(links=put.links, copies=put.copies)
