"""Measure whether search finds a skill among its real neighbours. Needs no model.

Each skill's own requests are searched in the whole catalogue. The requests that are meant for one
skill are negatives of every other one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from skillbelt.discovery.catalog import Catalog, Filters
from skillbelt.evals.cases import EvalSet, TriggerCase
from skillbelt.evals.first_set import advise_cases
from skillbelt.evals.outcome import (
    CaseOutcome,
    Confusion,
    EvalReport,
    MeasuredSkill,
    suspect,
    warn_of_drafts,
)
from skillbelt.evals.statistics import Rate, count_rate
from skillbelt.format.skill import Skill
from skillbelt.search.evaluate import DEPTH, Labelled, evaluate
from skillbelt.search.idf import UNSEEN, rarity
from skillbelt.search.words import number, runs, words
from skillbelt.text import one_line, shorten

HIT, NEGATIVES, STEALS, SILENT = "hit@1", "negatives", "steals", "silent"
_MAX_WORDS = 5
_COMMON = 0.9  # words less rare than this say little
_SHOWN_CHARS = 120

# The results of a search in order, each as its name and those of its copies.
Find = Callable[[str], Sequence[tuple[str, ...]]]


def searcher_of(catalog: Catalog, filters: Filters) -> Find:
    """Return how the catalogue is searched: what `skillbelt search` shows, without noise."""
    names = {one.location: one.name for one in (*catalog.values(), *catalog.shadowed)}

    def find(text: str) -> list[tuple[str, ...]]:
        found = catalog.search(text, DEPTH, filters)
        return [
            (one.skill.name, *(names[at] for at in one.variants if at in names))
            for one in found
            if one.strength != "noise"
        ]

    return find


class _Routed(NamedTuple):
    """A case and what was found for it."""

    case: TriggerCase
    found: Sequence[tuple[str, ...]]

    @property
    def first(self) -> str:
        return self.found[0][0] if self.found else ""

    @property
    def right(self) -> frozenset[str]:
        return frozenset((self.case.expected or self.case.skill, *self.case.acceptable))

    @property
    def rank(self) -> int:
        """The place of the first right skill; 0 for nowhere."""
        names = enumerate(self.found, 1)
        return next((rank for rank, one in names if self.right.intersection(one)), 0)

    @property
    def passed(self) -> bool:
        """A positive is right at the first place; a negative where its own skill is not first."""
        if self.case.should_trigger:
            return self.rank == 1
        return not self.found or self.case.skill not in self.found[0]


def route(
    sets: Sequence[EvalSet],
    find: Find,
    skills: Mapping[str, Skill],
    *,
    names: Collection[str] = (),
    k: int = 5,
    on_progress: Callable[[int, int], None] | None = None,
) -> EvalReport:
    """Search every request, and measure the skills that have some, or those of `names`.

    `on_progress` is called with how many are done of how many.
    """
    cases = [case for one in sets for case in one.triggers if case.skill]
    routed = []
    for done, case in enumerate(cases, 1):
        routed.append(_Routed(case, find(case.query)))
        if on_progress is not None:
            on_progress(done, len(cases))
    wanted = sorted(set(names) or {one.case.skill for one in routed})
    measured = tuple(_measure(name, routed, k) for name in wanted)
    mine = [one for one in routed if one.case.skill in wanted]
    warnings = [text for one in measured for text in _warn(one, routed, skills)]
    return EvalReport(
        kind="route",
        skills=measured,
        overall=_measure_groups(mine, routed, None, k),
        cases=tuple(_make_outcome(one) for one in mine),
        confusions=tuple(_find_confusions(routed, skills, wanted)),
        warnings=tuple(warnings),
        problems=tuple(problem for one in sets for problem in one.problems),
        facts=_measure_ranking(mine),
    )


def _measure(name: str, routed: Sequence[_Routed], k: int) -> MeasuredSkill:
    mine = [one for one in routed if one.case.skill == name]
    return MeasuredSkill(name, _measure_groups(mine, routed, name, k))


def _measure_groups(
    mine: Sequence[_Routed], routed: Sequence[_Routed], name: str | None, k: int
) -> dict[str, Rate]:
    positives = [one for one in mine if one.case.should_trigger]
    negatives = [one for one in mine if not one.case.should_trigger]
    nothing = [one for one in negatives if not one.case.expected]
    found = {
        HIT: count_rate(one.passed for one in positives),
        f"recall@{k}": count_rate(0 < one.rank <= k for one in positives),
        NEGATIVES: count_rate(one.passed for one in negatives),
        SILENT: count_rate(not one.found for one in nothing),
    }
    if name is not None:
        others = [
            one for one in routed if one.case.should_trigger and one.case.skill != name
            and name not in one.right
        ]  # fmt: skip
        found[STEALS] = count_rate(bool(one.found) and name in one.found[0] for one in others)
    return found


def _measure_ranking(mine: Sequence[_Routed]) -> dict[str, object]:
    """Return the measures of ranking too, as `skillbelt search --eval` has them."""
    labelled = [Labelled(one.case.query, one.right) for one in mine if one.case.should_trigger]
    if not labelled:
        return {"ranking": {}}
    known = {one.case.query: [frozenset(names) for names in one.found] for one in mine}
    report = evaluate(labelled, lambda query: known[query])
    return {"ranking": {name: one._asdict() for name, one in report.measures.items()}}


def _warn(one: MeasuredSkill, routed: Sequence[_Routed], skills: Mapping[str, Skill]) -> list[str]:
    mine = [case.case for case in routed if case.case.skill == one.name]
    if not mine:
        advice = f"; {advise_cases(skills[one.name], 'prompts')}" if one.name in skills else ""
        return [f"{one.name}: there are no requests to measure{advice}"]
    return suspect(one.name, one.measures[HIT], one.measures[NEGATIVES]) + warn_of_drafts(mine)


def _make_outcome(one: _Routed) -> CaseOutcome:
    case = one.case
    return CaseOutcome(
        id=case.id,
        skill=case.skill,
        group="positive" if case.should_trigger else "negative",
        text=case.query,
        outcome="passed" if one.passed else "failed",
        detail=f"found {one.first or 'nothing'}" + (f", rank {one.rank}" if one.rank else ""),
        data={
            "should_trigger": case.should_trigger,
            "expected": case.expected,
            "found": [names[0] for names in one.found[:10]],
            "rank": one.rank,
            "source": case.source,
        },
    )


# Which skill takes the requests of which


def _find_confusions(
    routed: Sequence[_Routed], skills: Mapping[str, Skill], wanted: Collection[str]
) -> list[Confusion]:
    """Return each request that went to another skill, the skill that takes most first."""
    found: list[Confusion] = []
    for one in routed:
        meant = one.case.skill if one.case.should_trigger else one.case.expected
        if one.passed or not one.first or not {meant, one.first}.intersection(wanted):
            continue
        taker, owner = skills.get(one.first), skills.get(meant)
        found.append(
            Confusion(
                query=shorten(one_line(one.case.query), _SHOWN_CHARS),
                meant=meant,
                found=one.first,
                words=tuple(words_that_led(one.case.query, taker, owner)) if taker else (),
                rank=one.rank,
            )
        )
    count: dict[str, int] = defaultdict(int)
    for each in found:
        count[each.found] += 1
    return sorted(found, key=lambda each: (-count[each.found], each.found, each.meant))


def words_that_led(query: str, taker: Skill, owner: Skill | None) -> list[str]:
    """Return the words of a request that one skill's description has and the other's has not.

    The rarest come first. Where both have all of them, these are the words that they share.
    """
    theirs, mine = _words_of(taker), _words_of(owner) if owner else frozenset[str]()
    spelt = {stem: run.lower() for run in runs(query) for stem in words(run)}
    rare = rarity().anywhere
    weight = {stem: rare.get(number(stem), UNSEEN) for stem in spelt if stem in theirs}
    shared = sorted(weight, key=lambda stem: -weight[stem])
    shared = [stem for stem in shared if weight[stem] >= _COMMON] or shared
    led = [stem for stem in shared if stem not in mine] or shared
    return list(dict.fromkeys(one_line(spelt[stem]) for stem in led))[:_MAX_WORDS]


def _words_of(skill: Skill) -> frozenset[str]:
    return frozenset(words(f"{skill.name} {skill.description} {skill.when_to_use}"))
