"""Compare two versions of a skill: what changed, how it is routed, what it costs in tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from skillbelt.errors import SkillbeltError
from skillbelt.evals.cases import EvalSet
from skillbelt.evals.checks import show_difference
from skillbelt.evals.outcome import CaseOutcome, EvalReport, MeasuredSkill, count_of
from skillbelt.evals.route import HIT, Find, route
from skillbelt.format.bounds import MAX_RESOURCE_FILE_BYTES
from skillbelt.format.skill import Skill
from skillbelt.text import tokens
from skillbelt.values import SKILL_FILE

OLD = "old"
_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+")


def compare_versions(
    old: Skill,
    new: Skill,
    sets: Sequence[EvalSet],
    *,
    searches: tuple[Find, Find],
    skills: Mapping[str, Skill],
    k: int = 5,
) -> EvalReport:
    """Return the differences; `searches` search the catalogue with the old and the new one."""
    before, after = (route(sets, find, skills, names=[new.name], k=k) for find in searches)
    changed = tuple(_list_changes(before.cases, after.cases))
    [first], [second] = before.skills, after.skills
    return after._replace(
        kind="diff",
        skills=(second, MeasuredSkill(first.name, first.measures, baseline=OLD)),
        cases=changed,
        warnings=(*after.warnings, *_warn(first, second, changed)),
        facts={
            "description": {
                "old": old.description,
                "new": new.description,
                "diff": ""
                if old.description == new.description
                else show_difference(
                    _split_sentences(old.description),
                    _split_sentences(new.description),
                    "old",
                    "new",
                ),
            },
            "body": _body_difference(old, new),
            "files": _file_changes(old, new),
            "tokens": {"old": _count_tokens(old), "new": _count_tokens(new)},
        },
    )


def _split_sentences(description: str) -> str:
    """Return a description with a line for each sentence, for a diff."""
    return _SENTENCE_END.sub("\n", description)


def _read_text(skill: Skill) -> str:
    try:
        with skill.files.open(SKILL_FILE, MAX_RESOURCE_FILE_BYTES) as file:
            return file.read().decode("utf-8", "replace")
    except (OSError, SkillbeltError):
        return ""


def _body_difference(old: Skill, new: Skill) -> str:
    first, second = _read_text(old), _read_text(new)
    return "" if first == second else show_difference(first, second, "old", "new")


def _file_changes(old: Skill, new: Skill) -> dict[str, list[str]]:
    """Return the files that were added, removed or changed."""
    before, after = (
        {one.path: one.sha256 for one in skill.files.manifest().files} for skill in (old, new)
    )
    return {
        "added": sorted(after.keys() - before.keys()),
        "removed": sorted(before.keys() - after.keys()),
        "changed": sorted(
            path for path in before.keys() & after.keys() if before[path] != after[path]
        ),
    }


def _count_tokens(skill: Skill) -> dict[str, int]:
    """Return the tokens of the line in the overview, and of the text that is loaded."""
    text = _read_text(skill)
    return {
        "overview": tokens(f"- {skill.name}: {skill.description}\n"),
        "body": tokens(text.encode()[skill.body_offset :].decode("utf-8", "replace")),
    }


def _list_changes(before: Sequence[CaseOutcome], after: Sequence[CaseOutcome]) -> list[CaseOutcome]:
    """Return each request with its old and its new rank."""
    found = []
    for one, two in zip(before, after, strict=True):
        ranks = (one.data["rank"], two.data["rank"])
        change = f"was {one.outcome}, rank {ranks[0]}; is {two.outcome}, rank {ranks[1]}"
        found.append(
            two._replace(
                detail=f"{change} ({two.detail})",
                data={**two.data, "old_outcome": one.outcome, "old_rank": ranks[0]},
            )
        )
    return found


def _warn(first: MeasuredSkill, second: MeasuredSkill, changed: Sequence[CaseOutcome]) -> list[str]:
    lost = [
        one for one in changed if one.outcome == "failed" and one.data["old_outcome"] == "passed"
    ]
    found = []
    if lost:
        found.append(f"{second.name}: right before and wrong now: {count_of(len(lost), 'request')}")
    old, new = first.measures[HIT].rate, second.measures[HIT].rate
    if old is not None and new is not None and new < old:
        found.append(f"{second.name}: {HIT} fell from {old:.2f} to {new:.2f}")
    return found
