"""Convert findings for other reports: diagnostics, and the rules of SARIF."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from skillbelt.late import Late
from skillbelt.records import NamedTuple
from skillbelt.scan.declared import undeclared
from skillbelt.scan.rules import RULES
from skillbelt.scan.values import (
    KINDS,
    Capability,
    CapabilityKind,
    CapabilityStatement,
    Finding,
    FindingKind,
    ObservedUse,
    ScannedSkill,
)
from skillbelt.settings import Settings
from skillbelt.text import Lazy, json_string, one_line, shell_line, shorten
from skillbelt.values import Diagnostic, Severity

if TYPE_CHECKING:
    from skillbelt.check import rules as check_rules
else:  # cost: 1 ms, only for a report
    check_rules = Late("skillbelt.check.rules")

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
_ORDER: tuple[CapabilityKind, ...] = tuple(_WORDS)


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


def report_rules() -> dict[str, check_rules.CheckRule]:
    """Return the rules in the form of those of `check`, for SARIF."""
    return {
        row.id: check_rules.CheckRule(
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
                marks = found.setdefault(one.value, set())
                marks.add(f"{one.origin}: {one.outcome}" if one.outcome else one.origin)
        if found:
            texts = [
                f"{one_line(value)}{_list_origins(origins)}"
                for value, origins in list(found.items())
            ]
            yield kind, ", ".join(texts)


def list_capabilities(capabilities: Iterable[Capability]) -> list[Capability]:
    """Return capabilities in reading order: by kind, with all entries of a value together."""
    given = list(capabilities)
    first: dict[tuple[CapabilityKind, str], int] = {}
    for number, one in enumerate(given):
        first.setdefault((one.kind, one.value), number)
    return sorted(given, key=lambda one: (_ORDER.index(one.kind), first[one.kind, one.value]))


def _list_origins(origins: set[str]) -> str:
    if origins == {"contained"}:
        return ""
    return f" ({', '.join(sorted(origins))})"


def summarize(
    statement: CapabilityStatement,
    known: CapabilityStatement | None = None,
    kinds: Sequence[CapabilityKind] = (),
) -> str:
    """Return in one short sentence what a skill can do beyond what it declares.

    With `known`, what is new since then, declared or not: what a person has to read before the next
    approval. `kinds` are the only ones that count.
    """
    before = set() if known is None else {(one.kind, one.value) for one in known.capabilities}
    now = undeclared(statement) if known is None else statement.without_observed().capabilities
    found: dict[CapabilityKind, list[str]] = {}
    for one in now:
        values = found.setdefault(one.kind, [])
        if (one.kind, one.value) not in before and one.value not in values:
            values.append(one.value)
    said = {value for kind in _SAY_MORE for value in found.get(kind, [])}
    for kind in ("read", "write"):
        found[kind] = [value for value in found.get(kind, []) if value not in said]
    usual = _ASKED_ABOUT if known is None else (*_ASKED_ABOUT, *_ALSO_NEW)
    parts = [phrase(kind, values) for kind in kinds or usual if (values := found.get(kind, []))]
    if not parts:
        return ""
    start = "It can" if known is None else "New: it can"
    return f"{start} {'; '.join(parts)}."


# Kinds that say more of a file than that it is read or written.
_SAY_MORE: tuple[CapabilityKind, ...] = ("persistence", "agent-file")
_ASKED_ABOUT: tuple[CapabilityKind, ...] = (
    "host", "variable", "persistence", "agent-file", "read", "write", "program", "package",
)  # fmt: skip
# What also counts where the person has seen an earlier version.
_ALSO_NEW: tuple[CapabilityKind, ...] = ("instruction", "tool")


# The most urgent kinds. Programs and packages have their own question when a run needs them.
_URGENT: tuple[CapabilityKind, ...] = (
    "host", "persistence", "agent-file", "variable", "read", "write",
)  # fmt: skip
_BRIEF_CHARS = 240
_PLAIN_NAME = Lazy(r"[\w.,/~:@*$+=%{}\[\]()-]{1,80}")


def phrase(kind: CapabilityKind, values: Sequence[str]) -> str:
    """Return what it can do in words: `reach a.example, b.example and 3 more`."""
    word = _WORDS[kind][len(values) > 1]
    if kind == "instruction":  # without the rule
        values = [value.partition(": ")[2] or value for value in values]
    named = ", ".join(_quote_name(value) for value in values[:_MOST_NAMED])
    more = len(values) - _MOST_NAMED
    return f"{word} {named}{f' and {more} more' if more > 0 else ''}"


def _quote_name(value: str) -> str:
    """Return a name that the skill chose, in quotes if it could pass for words of a message."""
    text = one_line(value)
    return text if _PLAIN_NAME.fullmatch(text) else json_string(shorten(text, 60))


def summarize_briefly(
    statement: CapabilityStatement, known: CapabilityStatement | None = None
) -> str:
    """Return the most important part of `summarize`, for a question; of what is new, all kinds."""
    kinds = _URGENT if known is None else (*_URGENT, *_ALSO_NEW, "program", "package")
    summary = summarize(statement, known, kinds).removeprefix("New: ")
    return shorten(summary[:1].upper() + summary[1:], _BRIEF_CHARS)


def describe_use(use: ObservedUse) -> str:
    """Return in words what a run tried and what became of it."""
    became = "by what it printed" if use.outcome == "reported" else use.outcome
    return f"{phrase(use.kind, [use.value])} ({became})"


def summarize_surprises(uses: Iterable[ObservedUse]) -> str:
    """Return what runs tried that their skill states nowhere; "" for nothing."""
    found = [describe_use(one) for one in uses if one.is_surprise]
    return shorten(_list_first(found), _BRIEF_CHARS)


def summarize_findings(findings: Iterable[Finding]) -> str:
    """Return the first finding that needs review and the number of others; "" without one."""
    found = [
        f"{_name_place(one)}: {one_line(one.message)}" for one in findings if one.kind != "note"
    ]  # fmt: skip
    return shorten(_list_first(found, 1), _BRIEF_CHARS)


LEVELS: Mapping[str, str] = {
    "block": "blocked",
    "ask": "needs review",
    "note": "notes only",
    "none": "nothing found",
}


def describe_level(scanned: ScannedSkill) -> str:
    """Return what a person has to know of a scan, with the command for more; "" for nothing."""
    if scanned.level not in ("block", "ask"):
        return ""
    found = summarize_findings(scanned.findings)
    return f"{LEVELS[scanned.level]}: {found} (`skillbelt scan {one_line(scanned.name)}`)"


def _list_first(texts: Sequence[str], most: int = _MOST_NAMED) -> str:
    more = len(texts) - most
    return "; ".join(texts[:most]) + (f"; and {more} more" if more > 0 else "")


def _name_place(finding: Finding) -> str:
    place = f"{finding.path}:{finding.line}" if finding.line else finding.path
    return _quote_name(place)


class ScanRefusal(NamedTuple):
    """Why a scan refuses a skill, and the command that accepts it."""

    code: str
    message: str
    remedy: str


def explain_refusal(
    refused: Sequence[Finding], words: Sequence[str], settings: Settings
) -> ScanRefusal | None:
    """Say why a skill is refused, by the strongest of the findings that refuse it; None for none.

    `words` name it for `skillbelt scan`. The message names the settings that demand a stricter
    level.
    """
    if not refused:
        return None
    worst, source = min(refused, key=lambda one: KINDS.index(one.kind)), shell_line(words)
    message = f"{worst.path}:{worst.line or 1}: {worst.message}"
    if worst.kind != "block":
        where = settings.sources.get("scan_refuses", "your settings")
        message += f" (scan_refuses = {settings.scan_refuses!r} in {where})".replace("'", '"')
    rules = " ".join(f"--accept {rule}" for rule in dict.fromkeys(one.rule for one in refused))
    return ScanRefusal(
        code="scan-blocked" if worst.kind == "block" else "scan-level",
        message=one_line(message),
        remedy=f"`skillbelt scan {source}` shows all; "
        f"`skillbelt scan {source} {rules} --reason TEXT` accepts it",
    )


def compare_statements(
    before: CapabilityStatement, after: CapabilityStatement
) -> tuple[tuple[Capability, ...], tuple[Capability, ...]]:
    """Return what each statement has that the other lacks; places are ignored."""
    return _subtract(after, before), _subtract(before, after)


def _subtract(one: CapabilityStatement, other: CapabilityStatement) -> tuple[Capability, ...]:
    known = {(each.kind, each.value, each.origin) for each in other.capabilities}
    return tuple(
        each for each in one.capabilities if (each.kind, each.value, each.origin) not in known
    )
