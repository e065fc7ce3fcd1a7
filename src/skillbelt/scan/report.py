"""Findings in the words of other reports: diagnostics, and the rules of SARIF."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from skillbelt.check.rules import CheckRule
from skillbelt.scan.declared import undeclared
from skillbelt.scan.rules import RULES
from skillbelt.scan.values import (
    KINDS,
    Capability,
    CapabilityKind,
    CapabilityStatement,
    Finding,
    FindingKind,
    ScannedSkill,
)
from skillbelt.text import one_line
from skillbelt.values import Diagnostic, Severity

_SEVERITIES: Mapping[FindingKind, Severity] = {"block": "error", "ask": "warning", "note": "info"}
_MOST_NAMED = 4
# The words for a kind: one, and several.
_WORDS: Mapping[CapabilityKind, tuple[str, str]] = {
    "host": ("reach", "reach"),
    "program": ("start", "start"),
    "variable": ("read the variable", "read the variables"),
    "package": ("use the package", "use the packages"),
    "read": ("read", "read"),
    "write": ("write to", "write to"),
    "tool": ("use the tool", "use the tools"),
    "persistence": ("start again later by", "start again later by"),
    "agent-file": ("change your agent's", "change your agent's"),
    "instruction": ("tell the model", "tell the model"),
}


def at_level(findings: Iterable[Finding], level: FindingKind) -> tuple[Finding, ...]:
    """Return the findings that are at least as strong."""
    most = KINDS.index(level)
    return tuple(one for one in findings if KINDS.index(one.kind) <= most)


def to_diagnostics(scanned: ScannedSkill, folder: str) -> tuple[Diagnostic, ...]:
    """Return the findings of a skill in that folder as diagnostics."""
    return tuple(
        Diagnostic(
            code=one.rule,
            severity=_SEVERITIES[one.kind],
            path=os.path.join(folder, one.path.partition("!")[0]),
            line=one.line,
            message=one.message,
            remedy=one.remedy,
        )
        for one in scanned.findings
    )


def report_rules() -> dict[str, CheckRule]:
    """Return the rules in the form of those of `check`, for SARIF."""
    return {
        row.id: CheckRule(
            code=row.id,
            severity=_SEVERITIES[row.kind],
            strict=_SEVERITIES[row.kind],
            what=row.what,
            why=row.why,
            fix=row.remedy,
        )
        for row in RULES.values()
    }


def describe_statement(statement: CapabilityStatement) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for each kind of what a skill can do."""
    for kind in _WORDS:
        found: dict[str, set[str]] = {}
        for one in statement.capabilities:
            if one.kind == kind:
                found.setdefault(one.value, set()).add(one.origin)
        if found:
            texts = [f"{one_line(value)}{_mark(origins)}" for value, origins in list(found.items())]
            yield kind, ", ".join(texts)


def _mark(origins: set[str]) -> str:
    if origins == {"contained"}:
        return ""
    return f" ({', '.join(sorted(origins))})"


def summarize(statement: CapabilityStatement, known: CapabilityStatement | None = None) -> str:
    """Return in one short sentence what a skill can do beyond what it declares.

    With `known`, what is new since then: what a person has to read before the next approval.
    """
    before = set() if known is None else {(one.kind, one.value) for one in known.capabilities}
    found: dict[CapabilityKind, list[str]] = {}
    for one in undeclared(statement):
        values = found.setdefault(one.kind, [])
        if (one.kind, one.value) not in before and one.value not in values:
            values.append(one.value)
    parts = [
        _phrase(kind, values)
        for kind in _ASKED_ABOUT
        if (values := found.get(kind, []))
    ]  # fmt: skip
    if not parts:
        return ""
    start = "It can" if known is None else "New: it can"
    return f"{start} {'; '.join(parts)}."


_ASKED_ABOUT: tuple[CapabilityKind, ...] = (
    "host", "variable", "persistence", "agent-file", "read", "write", "program", "package",
)  # fmt: skip


def _phrase(kind: CapabilityKind, values: list[str]) -> str:
    word = _WORDS[kind][len(values) > 1]
    named = ", ".join(one_line(value) for value in values[:_MOST_NAMED])
    more = len(values) - _MOST_NAMED
    return f"{word} {named}{f' and {more} more' if more > 0 else ''}"


def compare_statements(
    before: CapabilityStatement, after: CapabilityStatement
) -> tuple[tuple[Capability, ...], tuple[Capability, ...]]:
    """Return what one statement has more than the other, and what it lacks; places do not count."""
    return _missing(after, before), _missing(before, after)


def _missing(one: CapabilityStatement, other: CapabilityStatement) -> tuple[Capability, ...]:
    known = {(each.kind, each.value, each.origin) for each in other.capabilities}
    return tuple(
        each for each in one.capabilities if (each.kind, each.value, each.origin) not in known
    )
