"""The results of an evaluation as values: each case, each measure, and the bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from skillbelt.errors import ConfigError
from skillbelt.evals.cases import EvalProblem, TriggerCase
from skillbelt.evals.statistics import Rate
from skillbelt.records import NamedTuple
from skillbelt.text import one_line

EvalKind = Literal["route", "script", "trigger", "run", "diff"]
# `ungraded`: it ran, and nothing could decide it. `not-run`: the budget ended before it.
# Called with how many cases are done, of how many, and how many of those were in the cache.
OnProgress = Callable[[int, int, int], None]
Outcome = Literal["passed", "failed", "error", "timeout", "ungraded", "not-run"]
_NOTHING: Mapping[str, object] = MappingProxyType({})
FEW_CASES = 5  # cases; that all of them are right says little


class CaseOutcome(NamedTuple):
    """The outcome of one case. `group`: the measure it counts for; `data` is for programs."""

    id: str
    skill: str
    group: str
    text: str
    outcome: Outcome
    detail: str = ""
    model: str = ""
    seconds: float = 0.0
    data: Mapping[str, object] = _NOTHING

    def document(self) -> dict[str, object]:
        """Return the JSON document."""
        plain = self._asdict()
        del plain["data"]
        return {**plain, "seconds": round(self.seconds, 3), **self.data}


class MeasuredSkill(NamedTuple):
    """The measures of one skill, with one model if there is one.

    A `baseline` is what the skill is compared with; bars do not apply to it. `unanswered`: the
    share of a measure's conversations that ended with an error or a timeout. They are in no rate,
    but a bar counts them as missed.
    """

    name: str
    measures: Mapping[str, Rate]
    model: str = ""
    baseline: str = ""
    unanswered: Mapping[str, float] = MappingProxyType({})

    def document(self) -> dict[str, object]:
        """Return the JSON document."""
        measures = {name: rate.document() for name, rate in self.measures.items()}
        about = {"baseline": self.baseline} if self.baseline else {}
        return {"name": self.name, "model": self.model, **about, "measures": measures}


class Confusion(NamedTuple):
    """A request that went to the wrong skill, and the words of it that led there.

    `meant` is the skill that it was for, "" for none; `rank` is the rank of that one, 0 for none.
    """

    query: str
    meant: str
    found: str
    words: tuple[str, ...] = ()
    rank: int = 0

    def document(self) -> dict[str, object]:
        """Return the JSON document."""
        return {**self._asdict(), "words": list(self.words)}


class Bar(NamedTuple):
    """The least that a measure must reach; "" as its name is the first measure of a report."""

    measure: str
    least: float


class BarResult(NamedTuple):
    """A bar and the rate that one skill reached, with what is unanswered counted as missed."""

    measure: str
    least: float
    name: str
    rate: float
    passed: bool
    model: str = ""

    @property
    def label(self) -> str:
        """The skill, with the model where there is one."""
        return f"{self.name} ({self.model})" if self.model else self.name


class EvalReport(NamedTuple):
    """The results of one evaluation. `facts` are figures of its kind, such as costs."""

    kind: EvalKind
    skills: tuple[MeasuredSkill, ...] = ()
    overall: Mapping[str, Rate] = MappingProxyType({})
    cases: tuple[CaseOutcome, ...] = ()
    confusions: tuple[Confusion, ...] = ()
    bars: tuple[BarResult, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[EvalProblem, ...] = ()
    facts: Mapping[str, object] = _NOTHING
    complete: bool = True

    @property
    def passed(self) -> bool:
        """Whether every bar was reached, and every case was run."""
        return self.complete and all(bar.passed for bar in self.bars)

    def document(self) -> dict[str, object]:
        """Return the report as one JSON document."""
        return {
            "kind": self.kind,
            "passed": self.passed,
            "complete": self.complete,
            "measures": {name: rate.document() for name, rate in self.overall.items()},
            "skills": [one.document() for one in self.skills],
            "bars": [one._asdict() for one in self.bars],
            "confusions": [one.document() for one in self.confusions],
            "cases": [one.document() for one in self.cases],
            "warnings": list(self.warnings),
            "problems": [one._asdict() for one in self.problems],
            **self.facts,
        }


def parse_bar(text: str) -> Bar:
    """Parse `[MEASURE=]SHARE`; ConfigError otherwise."""
    name, _, share = text.rpartition("=")
    try:
        least = float(share)
    except ValueError:
        least = -1.0
    if not 0.0 <= least <= 1.0:
        raise ConfigError(
            "--min takes a share from 0 to 1, such as 0.8, or MEASURE=SHARE, not "
            f"{one_line(text)!r}"
        )
    return Bar(name.strip().lower(), least)


def require_measures(bars: Sequence[Bar], known: Sequence[str]) -> None:
    """ConfigError for a bar of a measure that is not known."""
    for bar in bars:
        if bar.measure and bar.measure not in known:
            kind, _, k = bar.measure.partition("@")
            has_k = kind == "recall" and k.isdecimal()
            hint = f"; with --k {k} there is {bar.measure}" if has_k else ""
            raise ConfigError(
                f"--min: there is no measure {one_line(bar.measure)!r}; there are "
                f"{', '.join(known)}{hint}"
            )


def judge_bars(report: EvalReport, bars: Sequence[Bar]) -> EvalReport:
    """Return the report with what each skill reached; ConfigError for an unknown measure."""
    found: list[BarResult] = []
    known = list(dict.fromkeys(name for one in report.skills for name in one.measures))
    if bars and not known:
        raise ConfigError(
            "--min: there is nothing to measure: no skill here has cases; `skillbelt eval init "
            "NAME` writes the first"
        )
    require_measures(bars, known)
    for bar in bars:
        name = bar.measure or known[0]
        reached = _judge(report, name, bar.least)
        if not reached:
            raise ConfigError(f"--min: there is nothing to measure: no case counts for {name}")
        found += reached
    return report._replace(bars=tuple(found))


def _judge(report: EvalReport, name: str, least: float) -> list[BarResult]:
    """Compare each skill. One with cases of which none was run and graded is under every bar."""
    found = []
    for one in report.skills:
        rate = one.measures.get(name)
        broken = any(
            (case.skill, case.model) == (one.name, one.model)
            and case.outcome in ("error", "timeout", "not-run", "ungraded")
            for case in report.cases
        )
        if one.baseline or rate is None or (rate.rate is None and not broken):
            continue
        reached = (rate.rate or 0.0) * (1 - one.unanswered.get(name, 0.0))
        found.append(
            BarResult(
                measure=name,
                least=least,
                name=one.name,
                rate=reached,
                passed=rate.rate is not None and reached >= least,
                model=one.model,
            )
        )
    return found


def unanswered_share(outcomes: Iterable[Outcome]) -> float:
    """Return the share of conversations that ended with an error or a timeout."""
    every = list(outcomes)
    return sum(one in ("error", "timeout") for one in every) / max(len(every), 1)


def count_of(number: int, noun: str) -> str:
    """Return the number with its noun, in the plural if needed."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def warn_of_drafts(cases: Iterable[TriggerCase]) -> list[str]:
    """Return a warning for each skill with requests that `eval init` wrote."""
    by_skill: dict[str, list[bool]] = {}
    for one in cases:
        by_skill.setdefault(one.skill, []).append(one.draft)
    return [
        f"{name}: {sum(drafts)} of {len(drafts)} requests are drafts of `eval init`; replace "
        "them by what people write"
        for name, drafts in by_skill.items()
        if any(drafts)
    ]


def suspect(
    name: str,
    positives: Rate,
    negatives: Rate | None = None,
    *,
    noun: str = "cases",
    cause: str = "at whether the skill is visible at all",
) -> list[str]:
    """Return warnings about results that say more about the evaluation than about the skill.

    `cause` is what to look at when nothing is right.
    """
    found = []
    if positives.total and not positives.hits:
        found.append(
            f"{name}: not one of {positives.total} is right; that is rarely the skill alone: look "
            f"at the cases, and {cause}"
        )
    rates = [positives, *([negatives] if negatives else [])]
    total = sum(one.total for one in rates)
    if total > FEW_CASES and sum(one.hits for one in rates) == total:
        found.append(f"{name}: all {total} {noun} are right; harder ones would say more")
    return found
