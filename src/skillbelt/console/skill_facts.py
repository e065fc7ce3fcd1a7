"""Facts about one skill beside its text: the lock file, its versions, its evaluations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from skillbelt.console.approved import ApprovedVersion, list_approved
from skillbelt.console.catalogue import read_cases
from skillbelt.discovery.catalog import Catalog, Filters
from skillbelt.errors import SkillbeltError, log_warning
from skillbelt.evals.cases import EvalSet
from skillbelt.evals.last_results import last_results
from skillbelt.evals.outcome import EvalReport
from skillbelt.evals.route import route, searcher_of
from skillbelt.format.skill import Skill
from skillbelt.install.hashes import hash_folder
from skillbelt.install.lock_file import SkillLock, find_place, read_lock
from skillbelt.install.placing import skill_folder
from skillbelt.install.values import LockEntry
from skillbelt.runtime.runtime import Runtime
from skillbelt.settings import Settings

# Requests of one skill that a page searches for; `skillbelt eval` uses all of them.
MAX_ROUTED = 100


class LockedSkill(NamedTuple):
    """An installed skill: its lock file, and its entry there."""

    lock: SkillLock
    entry: LockEntry
    is_edited: bool = False  # whether its files changed since it was installed

    def document(self) -> dict[str, object]:
        """Return it as a JSON document."""
        entry = self.entry
        return {
            "scope": self.lock.place.scope,
            "source": entry.source,
            "ref": entry.ref,
            "commit": entry.commit,
            "digest": entry.content_digest,
            "edited": self.is_edited,
            "installed": entry.installed_at,
            "updated": entry.updated_at,
            "unsigned": entry.unsigned,
            "scan": dict(entry.scan),
            "provenance": dict(entry.provenance),
        }


def find_locked(skill: Skill, settings: Settings) -> LockedSkill | None:
    """Return the lock entry of a skill; None if it was not installed."""
    for scope in ("project", "user"):
        try:
            lock = read_lock(find_place(settings, scope))
            entry = lock.find(skill.name)
            if entry is not None and _is_same(skill_folder(lock.place, skill.name), skill.dir):
                return LockedSkill(lock, entry, _is_edited(skill, entry))
        except SkillbeltError as error:
            log_warning(f"a lock cannot be read: {error}")
    return None


def _is_edited(skill: Skill, entry: LockEntry) -> bool:
    found = hash_folder(skill.dir, partial=True).content_digest
    return bool(entry.content_digest) and found != entry.content_digest


def _is_same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def measure_route(belt: Runtime, skill: Skill, cases: EvalSet) -> EvalReport | None:
    """Search all skills for the requests in the skill's evaluations; None if it has none."""
    if not cases.triggers:
        return None
    catalog: Catalog = belt.catalog
    catalog.index_for_search()
    filters = Filters()
    if belt.gate.hides_skills:
        filters = Filters(keep=lambda one: belt.gate.permit(None, one))
    some = cases._replace(triggers=cases.triggers[:MAX_ROUTED])
    known = catalog.findable(filters)
    return route([some], searcher_of(catalog, filters), known, names=[skill.name])


def evals_document(belt: Runtime, skill: Skill, *, measured: bool) -> dict[str, object]:
    """Return the evaluations of a skill as a JSON document."""
    cases = read_cases(skill)
    report = measure_route(belt, skill, cases) if measured else None
    return {
        **count_cases(cases),
        "files": list(cases.files),
        "problems": [str(one) for one in cases.problems],
        "results": [one.document() for one in last_results(belt.settings, skill, cases)],
        "route": report.document() if report is not None else None,
    }


def count_cases(cases: EvalSet) -> Mapping[str, int]:
    """Count the cases of each kind."""
    return {
        "requests": len(cases.triggers),
        "tasks": len(cases.tasks),
        "scripts": len(cases.scripts),
    }


def versions_document(belt: Runtime, skill: Skill) -> dict[str, object]:
    """Return the known versions of a skill: current, locked and approved."""
    locked = find_locked(skill, belt.settings)
    approved = list_approved(belt.store, belt.gate.project_key, skill.name)
    return {
        "now": skill.files.digest(),
        "locked": locked.document() if locked is not None else None,
        "approved": [version_document(one) for one in approved],
    }


def version_document(one: ApprovedVersion) -> dict[str, object]:
    """Return an approved version as a JSON document, without its texts."""
    return {
        "hash": one.hash,
        "time": one.time,
        "by": one.by,
        "files": {path: digest for path, (digest, _) in one.files.items()},
        "abilities": None if one.abilities is None else [each._asdict() for each in one.abilities],
    }
