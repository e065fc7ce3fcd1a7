"""Findings that a person accepts: by rule, with a reason, for one content of one skill.

They are kept in the user's state folder, or in a file that is named for one command. A skill, or a
project that is not the user's, can accept nothing. An entry is bound to the digest of the content:
a skill that changes is judged anew.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable

from skillbelt.errors import ConfigError, closest
from skillbelt.files.locks import locked
from skillbelt.files.private import make_folder, replace_file
from skillbelt.records import NamedTuple
from skillbelt.scan.rules import RULES
from skillbelt.scan.values import Finding, ScannedSkill, SuppressedFinding
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import read_json

FILE = "scan-accepted.json"
_MAX_BYTES = 4 * 2**20
_MAX_REASON = 500


class AcceptedRule(NamedTuple):
    """A rule whose findings are accepted for one content of one skill."""

    skill: str
    digest: str
    rule: str
    reason: str
    time: float = 0.0
    source: str = ""

    def covers(self, digest: str, finding: Finding) -> bool:
        """Whether one of the accepted rules covers the finding."""
        return self.digest == digest and self.rule == finding.rule


def accepted_file(state_dir: str) -> str:
    """Return the user's own file."""
    return os.path.join(state_dir, FILE)


def read_accepted(path: str, *, required: bool = False) -> tuple[AcceptedRule, ...]:
    """Return the entries of a file; ConfigError for one that cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        if required:
            raise ConfigError(f"{path}: there is no such file") from None
        return ()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        found = read_json(data, most=_MAX_BYTES)
        return tuple(_read_entry(one, path) for one in found["accepted"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: is not a list of accepted findings ({one_line(str(error))}): fix or remove "
            f"it; it has the form of the {FILE} that `skillbelt scan --accept` writes"
        ) from None


def _read_entry(one: object, path: str) -> AcceptedRule:
    if not isinstance(one, dict):
        raise TypeError("an entry is not an object")
    skill, digest, rule, reason = (one.get(key) for key in ("skill", "digest", "rule", "reason"))
    if not (isinstance(rule, str) and rule in RULES):
        raise ValueError(f"there is no rule {str(rule)[:60]!r}")
    if not (isinstance(digest, str) and isinstance(skill, str)):
        raise ValueError(f"the entry for {rule} lacks skill or digest")
    if not (isinstance(reason, str) and reason.strip()):
        raise ValueError(f"the entry for {rule} lacks a reason")
    written = one.get("time")
    return AcceptedRule(
        skill=skill,
        digest=digest,
        rule=rule,
        reason=reason,
        time=float(written) if isinstance(written, int | float) else 0.0,
        source=path,
    )


def check_rule(rule: str, reason: str) -> None:
    """Raise ConfigError for an unknown rule or an empty reason."""
    if rule not in RULES:
        near = ", ".join(closest(rule[:60], RULES))
        advice = f"closest: {near}" if near else "`skillbelt scan` names the rule of each finding"
        raise ConfigError(f"there is no rule {rule[:60]!r}; {advice}")
    if not reason.strip():
        raise ConfigError("--accept needs --reason: why the finding is not a problem here")


def accept(state_dir: str, scanned: ScannedSkill, rules: Iterable[str], reason: str) -> None:
    """Remember that findings of these rules are accepted for this content."""
    for rule in rules:
        check_rule(rule, reason)
    make_folder(state_dir)
    path = accepted_file(state_dir)
    with locked(f"{path}.lock"):
        kept = {(one.digest, one.rule): one for one in read_accepted(path)}
        for rule in rules:
            kept[scanned.digest, rule] = AcceptedRule(
                skill=scanned.name,
                digest=scanned.digest,
                rule=rule,
                reason=shorten(one_line(reason), _MAX_REASON),
                time=time.time(),
            )
        rows = [
            {"skill": one.skill, "digest": one.digest, "rule": one.rule,
             "reason": one.reason, "time": one.time}
            for one in kept.values()
        ]  # fmt: skip
        data = json.dumps({"accepted": rows}, indent=1, ensure_ascii=False)
        replace_file(path, f"{data}\n".encode())


def apply_accepted(scanned: ScannedSkill, accepted: Iterable[AcceptedRule]) -> ScannedSkill:
    """Return the result without the findings that were accepted, which it lists apart."""
    entries = [one for one in accepted if one.digest == scanned.digest]
    if not entries:
        return scanned
    left: list[Finding] = []
    gone: list[SuppressedFinding] = list(scanned.suppressed)
    for finding in scanned.findings:
        entry = next((one for one in entries if one.covers(scanned.digest, finding)), None)
        if entry is None:
            left.append(finding)
        else:
            gone.append(
                SuppressedFinding(finding=finding, reason=entry.reason, source=entry.source)
            )
    return scanned._replace(findings=tuple(left), suppressed=tuple(gone))
