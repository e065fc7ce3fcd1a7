"""Measure whether a skill helps: each task with it, without it, or with its previous version."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

from skillbelt.agent import Usage
from skillbelt.agent.files import attach_files
from skillbelt.errors import ConfigError
from skillbelt.evals.answer_log import AnswerLog
from skillbelt.evals.cache import key_of, skill_key
from skillbelt.evals.cases import TaskCase
from skillbelt.evals.checks import EvalEvidence, Grade, decide
from skillbelt.evals.conversation import ConversationRunner, EvalConversation, read_conversation
from skillbelt.evals.judge import NOT_GRADED, judge
from skillbelt.evals.outcome import (
    FEW_CASES,
    CaseOutcome,
    EvalReport,
    MeasuredSkill,
    Outcome,
    count_of,
    suspect,
    unanswered_share,
)
from skillbelt.evals.script import overall_outcome
from skillbelt.evals.statistics import Rate, count_rate, paired_difference
from skillbelt.evals.trigger import EvalPlan, is_complete, run_jobs
from skillbelt.format.skill import Skill
from skillbelt.text import one_line, shorten
from skillbelt.values import Limits

Configuration = Literal["with_skill", "without_skill", "old_skill"]
PASS = "passed"
_USE_CHECKS = ("skill-used", "skills-in-order", "skills-exactly", "script-run", "command-matches")


class TaskSide(NamedTuple):
    """One way to do the tasks: with the skill, without it, or with an old one."""

    configuration: Configuration
    talker: ConversationRunner
    skill: Skill | None


class TaskRun(NamedTuple):
    """One task done once, with its grades."""

    case: TaskCase
    number: int
    eval_id: int
    model: str
    configuration: Configuration
    talk: EvalConversation
    grades: tuple[Grade, ...]
    cached: bool = False
    unjudged: bool = False  # the budget ended before the judge was asked

    @property
    def outcome(self) -> Outcome:
        """The outcome of the run."""
        if self.talk.ended in ("error", "timeout"):
            return "error" if self.talk.ended == "error" else "timeout"
        if self.talk.ended == "budget" or self.unjudged:
            return "not-run"
        return overall_outcome(self.grades)

    @property
    def pass_rate(self) -> float | None:
        """The share of what could be decided that passed; None where nothing could, or an error."""
        decided = [one.passed for one in self.grades if one.passed is not None]
        if self.outcome in ("error", "timeout", "not-run"):
            return None
        return sum(decided) / len(decided) if decided else None


class _Job(NamedTuple):
    case: TaskCase
    eval_id: int
    number: int
    model: str
    side: TaskSide


async def run_tasks(
    cases: Sequence[TaskCase],
    skill: Skill,
    sides: Mapping[str, Sequence[TaskSide]],
    plan: EvalPlan,
    judge_by: ConversationRunner | None = None,
) -> list[TaskRun]:
    """Do each task with every model, on each of its sides, as often as the plan says.

    The sides of one task follow each other, so that a budget that ends leaves pairs.
    """
    limits = next(iter(sides.values()))[0].talker.runtime.settings.limits
    _require_files(cases, skill, limits)
    keys = {id(side): skill_key(side.skill) if side.skill else "none"
            for each in sides.values() for side in each}  # fmt: skip
    offered = {id(side): side.talker.offered for each in sides.values() for side in each}
    jobs = [
        _Job(case=case, eval_id=place, number=number, model=model, side=side)
        for number in range(1, plan.repeats + 1)
        for place, case in enumerate(cases, 1)
        for model in sides
        for side in sides[model]
    ]

    async def work(job: _Job) -> tuple[TaskRun, bool]:
        talk, cached = await _talk(job, keys[id(job.side)], skill, plan)
        case = job.case if job.side.skill else _drop_use_checks(job.case)
        seen = talk.evidence()._replace(
            cost=job.side.talker.price(Usage(talk.input_tokens, talk.output_tokens)),
            offered=offered[id(job.side)],
        )
        grades, unjudged = await _grade(case, talk, seen, skill, plan, judge_by)
        made = TaskRun(
            case=job.case,
            number=job.number,
            eval_id=job.eval_id,
            model=job.model,
            configuration=job.side.configuration,
            talk=talk,
            grades=grades,
            cached=cached,
            unjudged=unjudged,
        )
        return made, cached

    return await run_jobs(jobs, work, plan.at_once, plan.on_progress)


async def _talk(
    job: _Job, its_skill: str, skill: Skill, plan: EvalPlan
) -> tuple[EvalConversation, bool]:
    """Return the conversation of a job, and whether it was kept from an earlier command."""
    paths = _list_paths(job.case, skill)
    key = key_of(
        kind="run", model=job.model, prompt=job.case.prompt, number=job.number,
        files=[_file_key(path) for path in paths], skill=its_skill,
        overview=job.side.talker.runtime.overview().text,
        configuration=job.side.configuration, settings=plan.settings,
    )  # fmt: skip
    kept = plan.cache.get(key)
    if kept and (talk := read_conversation(kept)) is not None:
        return talk, True
    log = AnswerLog(plan.cache, key)
    fence = _find_root(job.case, skill)
    talk = await job.side.talker.talk(job.case.prompt, files=paths, fence=fence, log=log)
    if talk.ended == "answer":
        plan.cache.put(key, talk.document())
        log.remove()
    return talk, False


def _require_files(cases: Sequence[TaskCase], skill: Skill, limits: Limits) -> None:
    """ConfigError, before anything is paid for, if an input file cannot be attached."""
    for case in cases:
        try:
            attach_files(_list_paths(case, skill), limits, _find_root(case, skill))
        except ConfigError as error:
            where = f"{one_line(case.source)}: {one_line(case.id)}: files"
            raise ConfigError(f"{where}: {error}") from None


def _drop_use_checks(case: TaskCase) -> TaskCase:
    """Return the case without checks that the skill is used: on this side it is not there."""
    kept = (one for one in case.checks if one.kind not in _USE_CHECKS)
    return case._replace(checks=tuple(kept))


def _list_paths(case: TaskCase, skill: Skill) -> list[str]:
    return [os.path.join(_find_root(case, skill), path) for path in case.files]


def _find_root(case: TaskCase, skill: Skill) -> str:
    """Return the folder of a task's files, which no file may lead out of."""
    return case.folder or skill.dir


def _file_key(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return sha256(file.read()).hexdigest()
    except OSError:
        return "missing"


async def _grade(
    case: TaskCase,
    talk: EvalConversation,
    seen: EvalEvidence,
    skill: Skill,
    plan: EvalPlan,
    judge_by: ConversationRunner | None,
) -> tuple[tuple[Grade, ...], bool]:
    """Decide the checks first; then the sentences, by a judge if there is one.

    Also return whether the budget ended before the judge was asked.
    """
    if talk.ended != "answer":
        reason = f"{talk.ended}: {talk.error}" if talk.error else talk.ended
        texts = (*(one.text for one in case.checks), *case.expectations, *case.ungraded)
        return tuple(Grade(text, None, one_line(reason)) for text in texts), False
    grades = await asyncio.to_thread(
        lambda: [decide(one, seen, skill.files) for one in case.checks]
    )
    judged = await judge(case.prompt, case.expectations, talk, judge_by, plan.cache)
    grades += judged.grades
    grades += [Grade(text, None, "not decided here") for text in case.ungraded]
    return tuple(grades), judged.spent


# The report


def report_tasks(skill: Skill, runs: Sequence[TaskRun], repeats: int) -> EvalReport:
    """Measure each side, and the difference of each task between them."""
    groups = dict.fromkeys((one.model, one.configuration) for one in runs)
    measured = []
    for model, configuration in groups:
        mine = [one for one in runs if (one.model, one.configuration) == (model, configuration)]
        baseline = "" if configuration == "with_skill" else configuration
        measured.append(
            MeasuredSkill(
                name=skill.name,
                measures={PASS: _rate_runs(mine)},
                model=model,
                baseline=baseline,
                unanswered={PASS: unanswered_share(one.outcome for one in mine)},
            )
        )
    with_skill = [one for one in runs if one.configuration == "with_skill"]
    pairs, differences = _compare(runs)
    outcomes = tuple(_make_outcome(one) for one in runs)
    return EvalReport(
        kind="run",
        skills=tuple(measured),
        overall={PASS: _rate_runs(with_skill)},
        cases=outcomes,
        warnings=tuple(_warn(skill, runs, pairs)),
        facts={
            "pairs": pairs,
            "differences": differences,
            "errors": sum(one.outcome == "error" for one in runs),
            "timeouts": sum(one.outcome == "timeout" for one in runs),
            "repeats": repeats,
            "cached": sum(one.cached for one in runs),
        },
        complete=is_complete(outcomes),
    )


def _rate_runs(runs: Sequence[TaskRun]) -> Rate:
    """Return how many expectations passed of those that something could decide.

    Not of tasks: one that failed is decided by a single check, one that passed needs all of them,
    so those without a judge would count only when they fail.
    """
    grades = [one.passed for run in runs if run.pass_rate is not None for one in run.grades]
    return count_rate(one for one in grades if one is not None)


def _compare(runs: Sequence[TaskRun]) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return each task on both sides, and for each model the difference with its interval."""
    pairs: list[dict[str, object]] = []
    differences: list[dict[str, object]] = []
    for model in dict.fromkeys(one.model for one in runs):
        rows: list[tuple[float, float]] = []
        for eval_id in dict.fromkeys(one.eval_id for one in runs):
            mine = [one for one in runs if (one.model, one.eval_id) == (model, eval_id)]
            if any(one.configuration == "without_skill" for one in mine):
                mine = list(map(_keep_shared, mine))
            first = _average([one for one in mine if one.configuration == "with_skill"])
            second = _average([one for one in mine if one.configuration != "with_skill"])
            if first is None or second is None:
                continue
            rows.append((first, second))
            label = mine[0].case.name or mine[0].case.id
            shown = f"{label} ({model})"
            pairs.append({"case": shown, "with": first, "without": second, "model": model})
        found = paired_difference(rows)
        if found is not None:
            differences.append({"name": model, "tasks": len(rows), **found._asdict()})
    return pairs, differences


def _average(runs: Sequence[TaskRun]) -> float | None:
    found = [rate for one in runs if (rate := one.pass_rate) is not None]
    return sum(found) / len(found) if found else None


def _keep_shared(run: TaskRun) -> TaskRun:
    """Return the run without the grades of checks that only the side with the skill has."""
    own = {one.text for one in run.case.checks} - {
        one.text for one in _drop_use_checks(run.case).checks
    }
    return run._replace(grades=tuple(one for one in run.grades if one.text not in own))


def _warn(
    skill: Skill, runs: Sequence[TaskRun], pairs: Sequence[Mapping[str, object]]
) -> list[str]:
    with_skill = [one for one in runs if one.configuration == "with_skill"]
    found = suspect(skill.name, _rate_runs(with_skill), noun="expectations")
    tasks = Counter(str(one["model"]) for one in pairs)
    if tasks and (fewest := min(tasks.values())) < FEW_CASES:
        few = count_of(fewest, "task")
        found.append(f"{skill.name}: the difference rests on {few}; tasks that are not in the set "
                     "may differ more than its interval says")  # fmt: skip
    worse = [one for one in pairs if float(str(one["with"])) < float(str(one["without"]))]
    if worse:
        shown = ", ".join(str(one["case"]) for one in worse[:5])
        found.append(f"{skill.name}: the skill makes {len(worse)} of {len(pairs)} tasks worse: "
                     f"{one_line(shown)}")  # fmt: skip
    refused = sum(one.talk.refused for one in runs)
    if refused:
        found.append(f"refused permission: {count_of(refused, 'call')}; --yes allows them for this "
                     "command")  # fmt: skip
    found += _warn_of_undecided([one for one in runs if one.talk.ended == "answer"])
    unused = [one for one in runs if one.configuration == "with_skill"
              and one.talk.ended == "answer" and skill.name not in one.talk.skills]  # fmt: skip
    if unused:
        found.append(f"{skill.name}: {count_of(len(unused), 'run')} with the skill did not use it")
    return found


def _warn_of_undecided(runs: Sequence[TaskRun]) -> list[str]:
    """Return how many expectations were not decided, and what would decide them."""
    programs = {text for one in runs for text in one.case.ungraded}
    undecided = [
        (one, one.text in run.case.expectations)
        for run in runs
        for one in run.grades
        if one.passed is None and one.text not in programs
    ]
    sentences = [one for one, is_sentence in undecided if is_sentence]
    reasons: dict[str, list[str]] = {}
    for name, _, reason in (text.partition(": ") for text in sorted(programs)):
        reasons.setdefault(reason, []).append(name)
    found = []
    for reason, names in list(reasons.items())[:_SHOWN]:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        found.append(f"not graded: {one_line(', '.join(names[:_SHOWN]))}{more}: {one_line(reason)}")
    if sentences:
        count = count_of(len(sentences), "expectation")
        reason = sentences[0].evidence.removeprefix("not graded: ")
        hint = "--judge MODEL decides sentences" if reason in NOT_GRADED else reason
        found.append(f"not graded: {count}; {one_line(hint)}")
    if checks := dict.fromkeys(one.text for one, is_sentence in undecided if not is_sentence):
        shown = "; ".join(list(checks)[:_SHOWN])
        found.append(f"not decided: {count_of(len(checks), 'check')}: {one_line(shown)}")
    return found


_SHOWN = 5  # graders that are not run, and reasons for it
_ENDED = {"budget": "the budget was spent", "timeout": "took longer than --timeout"}


def _make_outcome(run: TaskRun) -> CaseOutcome:
    lines = [
        f"{'not graded' if one.passed is None else 'failed'}: {one.text}: {one.evidence}"
        for one in run.grades
        if not one.passed and run.talk.ended == "answer"
    ]
    if run.talk.ended != "answer":
        ended = run.talk.ended
        lines = [_ENDED[ended] if ended == "budget" else run.talk.error or _ENDED.get(ended, ended)]
    elif run.unjudged:
        lines = ["the budget was spent before the judge was asked"]
    elif run.talk.error:
        lines.append(f"ended early: {run.talk.error}")
    answer = f"answered: {shorten(one_line(run.talk.answer), 200)}" if run.talk.answer else ""
    return CaseOutcome(
        id=run.case.id,
        skill=run.case.skill,
        group=run.configuration,
        text=run.case.prompt,
        outcome=run.outcome,
        detail="\n".join(filter(None, (*lines, answer))),
        model=run.model,
        seconds=run.talk.seconds,
        data={
            "run": run.number,
            "eval_id": run.eval_id,
            "pass_rate": run.pass_rate,
            "grades": [one.document() for one in run.grades],
            "skills": list(run.talk.skills),
            "tools": list(run.talk.tools),
            "input_tokens": run.talk.input_tokens,
            "output_tokens": run.talk.output_tokens,
            "cached": run.cached,
        },
    )
