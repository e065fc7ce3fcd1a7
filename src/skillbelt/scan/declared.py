"""Compare what a skill declares with what it contains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from skillbelt.errors import SkillbeltError
from skillbelt.format.skill import Skill
from skillbelt.late import Late
from skillbelt.scan.ledger import Ledger
from skillbelt.scan.values import (
    Capability,
    CapabilityKind,
    CapabilityStatement,
)
from skillbelt.text import Lazy, one_line, shorten
from skillbelt.values import SKILL_FILE

if TYPE_CHECKING:
    from skillbelt import hosts
else:  # cost: 1 ms, only where hosts are declared
    hosts = Late("skillbelt.hosts")

_HOST_KEYS = ("hosts", "network", "allowed_hosts", "allowed-hosts")
_OFFLINE = Lazy(
    r"(?i)\b(?:no|without(?: any)?|never (?:uses?|needs?|makes?)|does not (?:use|need|make)"
    r"|zero) (?:network|internet)(?: access| calls?| requests?| connection)?\b"
    r"|\b(?:fully|entirely|completely|100%) (?:offline|local(?:ly)?)\b|\bno data leaves\b"
    r"|\bworks offline\b|\bno external (?:api )?(?:calls|requests|services)\b"
)

_KEY = Lazy(r"([\w-]+)[ \t]*:")
# Fields that describe a skill and declare no needs.
_ABOUT_ITSELF = frozenset(("name", "title", "description", "when_to_use", "when-to-use", "license"))


def declared_hosts(skill: Skill) -> Iterator[str]:
    """Yield the hosts that a skill says it needs."""
    for key in _HOST_KEYS:
        value = skill.told(key)
        if isinstance(value, str):
            yield from value.replace(",", " ").split()
        elif isinstance(value, list | tuple):
            yield from (one for one in value if isinstance(one, str))


def declared_capabilities(skill: Skill, head: str = "") -> tuple[Capability, ...]:
    """Return what the head of a SKILL.md declares; `head` is its text, from which lines come."""
    try:
        needs, front = skill.requirements, skill.frontmatter
        hosts = tuple(declared_hosts(skill))
    except SkillbeltError:
        return ()
    rows: tuple[tuple[CapabilityKind, tuple[str, ...]], ...] = (
        ("host", hosts),
        ("program", (*needs.bins, *needs.any_bins)),
        ("variable", (*needs.env, *needs.optional_env)),
        ("tool", front.allowed_tools),
        ("read", needs.config),
    )
    lines = _FieldLines(head)
    return tuple(
        Capability(
            kind=kind,
            value=shorten(one_line(value), 200),
            origin="declared",
            path=SKILL_FILE,
            line=lines.find(value),
        )
        for kind, values in rows
        for value in dict.fromkeys(values)
    )


class _FieldLines:
    """The lines of a head that declare something, by the words in them."""

    def __init__(self, head: str) -> None:
        self._lines: list[str] = []
        declares = False
        for line in head.split("\n"):
            if key := _KEY.match(line):
                declares = key[1].lower() not in _ABOUT_ITSELF
            self._lines.append(line if declares else "")
        self._text = "\n".join(self._lines)
        self._known: dict[str, int] = {}
        for number, line in enumerate(self._lines, 1):
            for word in line.replace(",", " ").split():
                self._known.setdefault(word.strip("-[]\"'"), number)

    def find(self, value: str) -> int:
        """Return the first line that has the value; 1 if it is written in another way."""
        known = self._known.get(value)
        if known is not None:
            return known
        at = self._text.find(value)
        return self._text.count("\n", 0, at) + 1 if at >= 0 and value else 1


def covers(kind: CapabilityKind, declared: tuple[str, ...], value: str) -> bool:
    """Whether what is declared of a kind includes the value."""
    return hosts.names_host(declared, value) if kind == "host" else value in declared


def undeclared(statement: CapabilityStatement) -> tuple[Capability, ...]:
    """Return what a skill contains or did, and does not declare."""
    declared = {kind: statement.values(kind, "declared") for kind in _COMPARED}
    return tuple(
        one
        for one in statement.capabilities
        if one.origin != "declared"
        and one.kind in _COMPARED
        and not covers(one.kind, declared[one.kind], one.value)
    )


_COMPARED: tuple[CapabilityKind, ...] = (
    "host", "read", "write", "program", "variable", "package", "persistence", "agent-file",
    "instruction",
)  # fmt: skip


def judge_word(skill: Skill, used_hosts: dict[str, tuple[str, int]], ledger: Ledger) -> None:
    """Compare what a skill says of itself with the hosts that its code connects to."""
    declared = tuple(one.value for one in declared_capabilities(skill) if one.kind == "host")
    claim = _OFFLINE.search(skill.description) if used_hosts and not declared else None
    ledger.judge_sent(lambda host: covers("host", declared, host))
    for host, (path, line) in used_hosts.items():
        ledger.path, ledger.first_line = path, 1
        if declared and not covers("host", declared, host):
            ledger.find("undeclared", line, f"the host {host}")
        elif claim:
            ledger.find("broken-claim", line, f"{claim[0]!r}, and it reaches {host}")
