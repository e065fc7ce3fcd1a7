"""The capabilities of a skill, for pages: one scan per content, and what a newer version adds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from skillbelt.errors import SkillbeltError, log_warning
from skillbelt.format.skill import Skill
from skillbelt.runtime.runtime import Runtime
from skillbelt.scan.on_demand import open_inspector
from skillbelt.scan.report import describe_statement
from skillbelt.scan.values import CapabilityStatement, ScannedSkill

# Cached scans, by content hash.
MAX_SCANS = 500
_LOCK = threading.Lock()
_SCANS: OrderedDict[tuple[str, str], ScannedSkill] = OrderedDict()


class GainedAbility(NamedTuple):
    """A capability that a skill did not have when it was approved."""

    kind: str
    value: str


def scan_of(belt: Runtime, skill: Skill) -> ScannedSkill | None:
    """Return the scan of a skill; None if its files are remote or cannot be read."""
    if skill.origin.kind == "mcp":
        return None
    try:
        store, project = (lambda: belt.store), belt.gate.project_key
        return open_inspector(belt.settings, store, project).scan(skill)
    except (OSError, SkillbeltError):
        log_warning(f"{skill.location}: cannot be scanned", trace=True)
        return None


def list_abilities(belt: Runtime, skill: Skill) -> list[GainedAbility]:
    """Return the capabilities of a skill, to compare with a later version. Scans are cached."""
    try:
        key = (skill.name, skill.files.digest())
    except (OSError, SkillbeltError):
        return []
    with _LOCK:
        found = _SCANS.get(key)
    if found is None:
        found = scan_of(belt, skill)
        if found is None:
            return []
        with _LOCK:
            _SCANS[key] = found
            while len(_SCANS) > MAX_SCANS:
                _SCANS.popitem(last=False)
    return abilities_in(found.statement)


def abilities_in(statement: CapabilityStatement) -> list[GainedAbility]:
    """Return the capabilities in a statement, without duplicates."""
    return list(dict.fromkeys(GainedAbility(one.kind, one.value) for one in statement.capabilities))


def find_gained(
    before: Iterable[GainedAbility], after: Iterable[GainedAbility]
) -> tuple[GainedAbility, ...]:
    """Return the capabilities that only the later version has."""
    known = set(before)
    return tuple(one for one in after if one not in known)


def describe_abilities(scanned: ScannedSkill | None) -> Sequence[tuple[str, str]]:
    """Return a label and a text for each kind of capability."""
    return list(describe_statement(scanned.statement)) if scanned is not None else []
