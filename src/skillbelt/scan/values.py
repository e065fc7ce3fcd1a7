"""The values of a scan: what a skill can do, what was found, and both for one skill.

A capability is a fact and not a fault. A finding is a judgement by one rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from skillbelt.records import NamedTuple

FindingKind = Literal["block", "ask", "note"]
ScanLevel = Literal["block", "ask", "note", "none"]
CapabilityOrigin = Literal["declared", "contained", "observed"]
# The outcome of an observed use: allowed, refused, or only reported by what the command printed.
ObservedOutcome = Literal["", "allowed", "refused", "reported"]
# Where a skill states what a run of it tried.
Stated = Literal["declared", "contained", "nowhere"]
CapabilityKind = Literal[
    "host", "read", "write", "program", "variable", "package", "tool", "persistence",
    "agent-file", "instruction",
]  # fmt: skip

# From the strongest to the weakest.
KINDS: tuple[FindingKind, ...] = ("block", "ask", "note")
# The keys of the JSON document, in its order, each with the kind it holds.
STATEMENT_KEYS: dict[str, CapabilityKind] = {
    "hosts": "host",
    "reads": "read",
    "writes": "write",
    "programs": "program",
    "variables": "variable",
    "packages": "package",
    "tools": "tool",
    "persistence": "persistence",
    "agent_files": "agent-file",
    "instructions": "instruction",
}
# Per kind and origin in one statement; later ones are dropped.
MAX_OF_A_KIND = 200


class Capability(NamedTuple):
    """One thing that a skill declares, contains or did, and the first place that says so.

    `path` is relative to the skill's folder; it is empty for what a run did. `line` is 0 where
    there is none. `outcome` says what became of something that a run tried.
    """

    kind: CapabilityKind
    value: str
    origin: CapabilityOrigin
    path: str = ""
    line: int = 0
    outcome: ObservedOutcome = ""


class ObservedUse(NamedTuple):
    """Something that a run tried, what became of it, and whether its skill states it."""

    kind: CapabilityKind
    value: str
    outcome: ObservedOutcome
    stated: Stated

    @property
    def is_surprise(self) -> bool:
        """Whether it is certain that a run tried what its skill states nowhere."""
        return self.stated == "nowhere" and self.outcome != "reported"

    def __str__(self) -> str:
        return f"{self.kind} {self.value} ({self.outcome})"


class CapabilityStatement(NamedTuple):
    """The known capabilities of one skill.

    `closed` are the kinds of which the skill declares what it needs, so that anything else of that
    kind goes beyond its word.
    """

    capabilities: tuple[Capability, ...] = ()
    closed: tuple[CapabilityKind, ...] = ()

    def values(
        self, kind: CapabilityKind, origin: CapabilityOrigin | None = None
    ) -> tuple[str, ...]:
        """Return the values of a kind, each once, in their order."""
        found = (
            one.value
            for one in self.capabilities
            if one.kind == kind and origin in (None, one.origin)
        )
        return tuple(dict.fromkeys(found))

    def with_observed(self, observed: Iterable[Capability]) -> CapabilityStatement:
        """Return the statement with what runs of the same content did."""
        together = dict.fromkeys((*self.capabilities, *observed))
        return self._replace(capabilities=tuple(together))

    def without_observed(self) -> CapabilityStatement:
        """Return what the skill itself says: what it declares and contains."""
        own = tuple(one for one in self.capabilities if one.origin != "observed")
        return self._replace(capabilities=own)

    def to_json(self) -> dict[str, list[dict[str, object]]]:
        """Return the statement as the JSON document that commands print."""
        made: dict[str, list[dict[str, object]]] = {key: [] for key in STATEMENT_KEYS}
        keys = {kind: key for key, kind in STATEMENT_KEYS.items()}
        for one in self.capabilities:
            place: dict[str, object] = {"value": one.value, "origin": one.origin}
            if one.path:
                place |= {"path": one.path, "line": one.line or None}
            if one.outcome:
                place["outcome"] = one.outcome
            made[keys[one.kind]].append(place)
        return made


class Finding(NamedTuple):
    """A finding: one rule, at one place of a skill."""

    rule: str
    kind: FindingKind
    path: str
    line: int | None
    message: str
    remedy: str = ""


def at_level(findings: Iterable[Finding], level: FindingKind) -> tuple[Finding, ...]:
    """Return the findings that are at least as strong."""
    most = KINDS.index(level)
    return tuple(one for one in findings if KINDS.index(one.kind) <= most)


class SuppressedFinding(NamedTuple):
    """A finding that a person decided to accept, and why."""

    finding: Finding
    reason: str
    source: str


class ScannedSkill(NamedTuple):
    """The result for one skill.

    `unseen` says what was not looked at, and why; a scan that saw everything has none.
    """

    name: str
    digest: str
    findings: tuple[Finding, ...] = ()
    statement: CapabilityStatement = CapabilityStatement()
    unseen: tuple[str, ...] = ()
    suppressed: tuple[SuppressedFinding, ...] = ()

    @property
    def level(self) -> ScanLevel:
        """The strongest kind of its findings; "none" without one."""
        found = {one.kind for one in self.findings}
        return next((kind for kind in KINDS if kind in found), "none")

    def to_json(self) -> dict[str, object]:
        """Return the result as the JSON document that commands print."""
        return {
            "name": self.name,
            "digest": self.digest,
            "level": self.level,
            "findings": [one._asdict() for one in self.findings],
            "capabilities": self.statement.to_json(),
            "unseen": list(self.unseen),
            "suppressed": [
                {**one.finding._asdict(), "reason": one.reason, "source": one.source}
                for one in self.suppressed
            ],
        }


NOT_SCANNED = ScannedSkill(name="", digest="")


class DataValue(NamedTuple):
    """A value of a data file that matters if a script of the skill acts on it."""

    rule: str
    kind: FindingKind
    path: str
    line: int
    value: str
    needs: re.Pattern[str]
    weaker: bool
