"""Combine all facts about a skill: its scan, its runs, accepted findings and approvals.

Commands, questions, servers and the library all ask here, so that their answers agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from skillbelt.errors import SkillbeltError
from skillbelt.format.skill import Skill
from skillbelt.late import Late
from skillbelt.scan.accepted import AcceptedRule, accepted_file, apply_accepted, read_accepted
from skillbelt.scan.cache import find_result
from skillbelt.scan.declared import covers
from skillbelt.scan.report import (
    describe_use,
    explain_refusal,
    summarize_briefly,
    summarize_findings,
    summarize_surprises,
)
from skillbelt.scan.rules import RULES
from skillbelt.scan.values import (
    KINDS,
    Capability,
    CapabilityStatement,
    Finding,
    FindingKind,
    ObservedUse,
    ScannedSkill,
    Stated,
    at_level,
)
from skillbelt.settings import Settings
from skillbelt.values import SKILL_FILE

if TYPE_CHECKING:
    from skillbelt.scan import approvals, observed
    from skillbelt.store.protocol import Store
else:  # cost: 1 ms, only with a store
    approvals, observed = Late("skillbelt.scan.approvals"), Late("skillbelt.scan.observed")

BEYOND = "observed-beyond"
_MAX_BEYOND = 20  # findings of one skill
_FILES = ("read", "write")


class SkillInspector:
    """Reports facts about skills. Without a `store` that is only what a scan finds.

    `project` is whose approvals count.
    """

    def __init__(
        self, settings: Settings, store: Callable[[], Store] | None = None, project: str = ""
    ) -> None:
        self._settings, self._store, self._project = settings, store, project

    def scan(self, skill: Skill, more: Iterable[AcceptedRule] = ()) -> ScannedSkill:
        """Scan a skill, add what runs of this content tried, and set aside what was accepted.

        `more` are findings that are accepted beside those in the user's own file.
        """
        scanned = self._plain(skill)
        if self._store is not None:
            try:
                seen = observed.read_observed(self._store(), scanned.digest)
            except SkillbeltError as error:
                failure = f"what runs tried: {error}"
                scanned = scanned._replace(unseen=(*scanned.unseen, failure))
            else:
                scanned = _add_observed(scanned, skill, seen)
        if not scanned.findings:
            return scanned
        own = read_accepted(accepted_file(self._settings.state_dir))
        return apply_accepted(scanned, (*own, *more))

    def state_uses(self, skill: Skill, seen: Iterable[Capability]) -> tuple[ObservedUse, ...]:
        """Say of each thing that a run tried where the skill states it."""
        statement, tools = self._plain(skill).statement, observed.declared_by_tools(skill)
        return tuple(_state_use(one, statement, tools) for one in seen)

    def _plain(self, skill: Skill) -> ScannedSkill:
        cache_dir = self._settings.cache_dir
        digest, kept = find_result(skill, cache_dir)
        if kept is not None:
            return kept
        from skillbelt.scan.scanner import scan_content  # cost: 40 ms; what was scanned is kept

        return scan_content(skill, digest, cache_dir)

    # Questions

    def describe(self, skill: Skill, digest: str, origin: str) -> dict[str, object]:
        """Return what a person reads in a question about a skill: a few short lines, or none.

        What it can do beyond its declarations, or what of that is new since the last approval;
        what runs tried that it states nowhere; what a scan finds. An approval is that of a skill
        from the same `origin`.
        """
        scanned = self.scan(skill)
        if scanned.digest != digest:
            return {"scan": "the files of the skill changed just now, and were not scanned"}
        own = scanned.statement.without_observed()
        before = self._find_approved(skill, origin)
        lines: dict[str, str] = {}
        if before is None:
            lines["undeclared"] = summarize_briefly(own)
        elif before.digest != digest:
            new = summarize_briefly(own, before.statement)
            lines["new_since_approval"] = new or "its files changed, what it can do did not"
        lines["runs_tried"] = summarize_surprises(
            _state_use(one, own, observed.declared_by_tools(skill))
            for one in scanned.statement.capabilities
            if one.origin == "observed"
        )
        findings = scanned.findings
        if before is not None and before.digest != digest:
            findings = _new_first(findings, own, before.statement)
        lines["scan"] = summarize_findings(findings)
        return {label: text for label, text in lines.items() if text}

    def approve(self, skill: Skill, digest: str, origin: str) -> None:
        """Remember what the skill can do: a person just approved it."""
        scanned = self.scan(skill)
        if self._store is not None and scanned.digest == digest:
            approvals.note_approved(
                self._store(),
                self._project,
                (skill.name, origin),
                digest=digest,
                statement=scanned.statement,
            )

    def _find_approved(self, skill: Skill, origin: str) -> approvals.ApprovedAbilities | None:
        if self._store is None:
            return None
        return approvals.find_approved(self._store(), self._project, (skill.name, origin))

    def refusal(self, skill: Skill) -> str:
        """Return why a skill may not be loaded, with the command that accepts it; "" if it may."""
        refused = at_level(self.scan(skill).findings, self._settings.scan_refuses)
        blocked = explain_refusal(refused, (skill.name,), self._settings)
        return f"a scan blocks it: {blocked.message}. {blocked.remedy}" if blocked else ""


def _new_first(
    findings: Iterable[Finding], now: CapabilityStatement, before: CapabilityStatement
) -> tuple[Finding, ...]:
    """Return findings with those about new capabilities first."""
    known = {(one.kind, one.value) for one in before.capabilities}
    new = {(one.path, one.line) for one in now.capabilities if (one.kind, one.value) not in known}
    return tuple(
        sorted(findings, key=lambda one: (KINDS.index(one.kind), (one.path, one.line) not in new))
    )


def _add_observed(
    scanned: ScannedSkill, skill: Skill, seen: tuple[Capability, ...]
) -> ScannedSkill:
    if not seen:
        return scanned
    uses = [_state_use(one, scanned.statement, observed.declared_by_tools(skill)) for one in seen]
    beyond = [_make_finding(one) for one in uses if one.stated == "nowhere"][:_MAX_BEYOND]
    findings = sorted((*scanned.findings, *beyond), key=lambda one: KINDS.index(one.kind))
    return scanned._replace(
        findings=tuple(findings), statement=scanned.statement.with_observed(seen)
    )


def _make_finding(use: ObservedUse) -> Finding:
    rule = RULES[BEYOND]
    # What was only printed may be the words of a text that the script was given.
    kind: FindingKind = "note" if use.outcome == "reported" else rule.kind
    return Finding(
        rule=BEYOND,
        kind=kind,
        path=SKILL_FILE,
        line=None,
        message=f"{rule.what}: {describe_use(use)}",
        remedy=rule.remedy,
    )


def _state_use(
    one: Capability, statement: CapabilityStatement, tool_hosts: tuple[str, ...]
) -> ObservedUse:
    declared, contained = (
        _list_values(one, statement, origin) for origin in ("declared", "contained")
    )
    if one.kind == "host":
        declared = (*declared, *tool_hosts)
    stated: Stated = "nowhere"
    if _includes(one, declared):
        stated = "declared"
    elif _includes(one, contained):
        stated = "contained"
    return ObservedUse(kind=one.kind, value=one.value, outcome=one.outcome, stated=stated)


def _list_values(one: Capability, statement: CapabilityStatement, origin: str) -> tuple[str, ...]:
    kinds = _FILES if one.kind in _FILES else (one.kind,)
    return tuple(
        each.value
        for each in statement.capabilities
        if each.kind in kinds and each.origin == origin
    )


def _includes(one: Capability, stated: tuple[str, ...]) -> bool:
    if one.kind in _FILES:
        own = [observed.spell_home(each) for each in stated]
        return any(one.value == each or one.value.startswith(f"{each}/") for each in own)
    if one.kind == "host" and one.value.startswith("*."):
        return any(f".{each.removeprefix('*.')}".endswith(one.value[1:]) for each in stated)
    if one.kind == "host":  # a part that is only known in a run stands as a dash
        stated = tuple(f"*{each[1:]}" if each.startswith("-.") else each for each in stated)
    return covers(
        one.kind, stated, observed.host_alone(one.value) if one.kind == "host" else one.value
    )
