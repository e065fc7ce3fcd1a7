"""The last result of each evaluation with a model, in a folder of the user's state.

A result is kept under the content of the skill, the kind of evaluation, the model and the set of
cases: the same evaluation again replaces the previous one. A file holds a summary; conversations
stay in the cache. design/evals.md has the form of a file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from skillbelt.evals.cache import key_of, skill_key
from skillbelt.evals.cases import EvalSet
from skillbelt.evals.outcome import CaseOutcome, EvalReport, MeasuredSkill
from skillbelt.evals.statistics import Rate, rate_of
from skillbelt.files.result_cache import ResultCache
from skillbelt.format.skill import Skill
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings
from skillbelt.text import one_line, shorten

_FORM = 1
_FOLDER = "evals"
_MOST = 1_000  # results that are kept
_MOST_BYTES = 64 * 2**10  # of one
_MOST_READ = 100  # of one skill
_MOST_CASES = 20  # of the cases that did not pass, in one result
_TEXT_CHARS, _DETAIL_CHARS, _NAME_CHARS = 200, 300, 200
_KEY_CHARS = 32
_KINDS = ("trigger", "run")


class WrongCase(NamedTuple):
    """A case that did not pass: its request and its outcome."""

    id: str
    text: str
    outcome: str
    detail: str = ""


class Difference(NamedTuple):
    """The difference to a baseline: the mean over the tasks and its interval."""

    baseline: str
    tasks: int
    mean: float
    low: float
    high: float


class LastResult(NamedTuple):
    """The summary of one evaluation of a skill with one model.

    `measures` are shares with their intervals. `outcomes` counts the cases with the skill by
    their outcome, `wrong` has the first that did not pass. `same_cases`: the skill still has the
    cases that were measured.
    """

    kind: str
    skill: str
    model: str
    time: str
    measures: Mapping[str, Rate]
    outcomes: Mapping[str, int]
    wrong: tuple[WrongCase, ...] = ()
    difference: Difference | None = None
    repeats: int = 1
    same_cases: bool = True

    @property
    def text(self) -> str:
        """The result in one line."""
        parts = [f"{name} {rate}" for name, rate in self.measures.items()]
        if self.difference is not None:
            mean, low, high = self.difference[2:]
            side = self.difference.baseline.replace("_", " ")
            one = self.difference.tasks == 1
            interval = "one task, no interval" if one else f"{low:+.2f} to {high:+.2f}"
            parts.append(f"{mean:+.2f} ({interval}) against {side}")
        if not self.same_cases:
            parts.append("measured with other cases than it has now")
        return f"{self.kind} with {self.model}, {self.time[:10]}: {'; '.join(parts)}"

    def document(self) -> dict[str, object]:
        """Return the JSON document."""
        return {
            **self._asdict(),
            "measures": {name: rate.document() for name, rate in self.measures.items()},
            "outcomes": dict(self.outcomes),
            "wrong": [one._asdict() for one in self.wrong],
            "difference": self.difference._asdict() if self.difference else None,
        }


def keep_results(
    settings: Settings, report: EvalReport, skills: Mapping[str, Skill], sets: Iterable[EvalSet]
) -> None:
    """Keep the result of each skill with each model; OSError if the folder cannot be written to.

    An incomplete report is not kept: it would replace a complete one.
    """
    if not report.complete or report.kind not in _KINDS:
        return
    cases = {one.skill: one for one in sets}
    shelf = _open_cache(settings)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for measured in report.skills:
        if not measured.baseline:
            digest = cases_digest(report.kind, cases[measured.name])
            made = {**_summarize(report, measured, now).document(), "form": _FORM, "cases": digest}
            key = _make_key(skills[measured.name], report.kind, measured.model, digest)
            shelf.put(key, made)
    shelf.tidy()


def last_results(settings: Settings, skill: Skill, current: EvalSet) -> tuple[LastResult, ...]:
    """Return the last result of each kind and model for the skill as it is now, newest first.

    `current` are the skill's cases; results of other cases say so. Results of another content of
    the skill do not count.
    """
    shelf, found = _open_cache(settings), list[LastResult]()
    for key in shelf.keys(_make_prefix(skill))[:_MOST_READ]:
        kept = shelf.get(key)
        made = _read(kept, current) if kept is not None else None
        if made is not None:
            found.append(made)
    found.sort(key=lambda one: (one.same_cases, one.time), reverse=True)
    newest = {(one.kind, one.model): one for one in reversed(found)}
    return tuple(sorted(newest.values(), key=lambda one: one.time, reverse=True))


def cases_digest(kind: str, cases: EvalSet) -> str:
    """Return a digest of the cases that an evaluation of this kind uses."""
    if kind == "trigger":
        return key_of(cases=[one._replace(source="") for one in cases.triggers])
    return key_of(cases=[one._replace(source="", folder="") for one in cases.tasks])


def _open_cache(settings: Settings) -> ResultCache:
    folder = os.path.join(settings.state_dir, _FOLDER)
    return ResultCache(folder, most=_MOST, most_bytes=_MOST_BYTES)


def _make_prefix(skill: Skill) -> str:
    return f"{key_of(name=skill.name, content=skill_key(skill))[:_KEY_CHARS]}-"


def _make_key(skill: Skill, kind: str, model: str, digest: str) -> str:
    return _make_prefix(skill) + key_of(kind=kind, model=model, cases=digest)[:_KEY_CHARS]


def _summarize(report: EvalReport, measured: MeasuredSkill, now: str) -> LastResult:
    mine = [one for one in report.cases if _is_of(one, measured)]
    repeats = report.facts.get("repeats")
    return LastResult(
        kind=report.kind,
        skill=measured.name,
        model=shorten(one_line(measured.model), _NAME_CHARS),
        time=now,
        measures=measured.measures,
        outcomes=Counter(one.outcome for one in mine),
        wrong=tuple(_list_wrong(mine)),
        difference=_find_difference(report, measured.model),
        repeats=repeats if isinstance(repeats, int) else 1,
    )


def _is_of(case: CaseOutcome, measured: MeasuredSkill) -> bool:
    """Whether a case counts for the skill, not for what it is compared with."""
    same = (case.skill, case.model) == (measured.name, measured.model)
    return same and case.group in ("positive", "negative", "with_skill")


def _list_wrong(cases: Iterable[CaseOutcome]) -> Iterator[WrongCase]:
    for one in [one for one in cases if one.outcome != "passed"][:_MOST_CASES]:
        text, detail = one_line(one.text), one_line(one.detail)
        yield WrongCase(
            id=shorten(one_line(one.id), _NAME_CHARS),
            text=shorten(text, _TEXT_CHARS),
            outcome=one.outcome,
            detail=shorten(detail, _DETAIL_CHARS),
        )


def _find_difference(report: EvalReport, model: str) -> Difference | None:
    listed = report.facts.get("differences")
    sides = [one.baseline for one in report.skills if one.model == model and one.baseline]
    for one in listed if isinstance(listed, list) and sides else ():
        if one["name"] == model:
            return Difference(
                baseline=sides[0],
                tasks=one["tasks"],
                mean=one["mean"],
                low=one["low"],
                high=one["high"],
            )
    return None


def _read(kept: Mapping[str, Any], current: EvalSet) -> LastResult | None:
    """Return the result that a file holds; None if it has another form."""
    try:
        kind = str(kept["kind"])
        if kept["form"] != _FORM or kind not in _KINDS:
            return None
        given = kept["difference"]
        return LastResult(
            kind=kind,
            skill=str(kept["skill"]),
            model=str(kept["model"]),
            time=str(kept["time"]),
            measures={name: _read_rate(rate) for name, rate in kept["measures"].items()},
            outcomes={str(name): int(count) for name, count in kept["outcomes"].items()},
            wrong=tuple(
                WrongCase(**{key: str(one[key]) for key in WrongCase._fields})
                for one in kept["wrong"][:_MOST_CASES]
            ),
            difference=_read_difference(given) if given else None,
            repeats=int(kept["repeats"]),
            same_cases=kept["cases"] == cases_digest(kind, current),
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None


def _read_rate(kept: Mapping[str, Any]) -> Rate:
    hits, total = int(kept["hits"]), int(kept["total"])
    if not 0 <= hits <= total:
        raise ValueError("more hits than cases")
    return rate_of(hits, total)


def _read_difference(kept: Mapping[str, Any]) -> Difference:
    figures = {key: float(kept[key]) for key in ("mean", "low", "high")}
    return Difference(baseline=str(kept["baseline"]), tasks=int(kept["tasks"]), **figures)
