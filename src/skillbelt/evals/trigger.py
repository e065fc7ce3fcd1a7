"""Measure whether a model uses the skill when it should, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from skillbelt.evals.answer_log import AnswerLog
from skillbelt.evals.cache import EvalCache, key_of, skill_key
from skillbelt.evals.cases import TriggerCase
from skillbelt.evals.conversation import ConversationRunner, EvalConversation, read_conversation
from skillbelt.evals.outcome import (
    CaseOutcome,
    Confusion,
    EvalReport,
    MeasuredSkill,
    OnProgress,
    suspect,
    unanswered_share,
    warn_of_drafts,
)
from skillbelt.evals.statistics import Rate, count_rate
from skillbelt.format.skill import Skill
from skillbelt.text import one_line, shorten

RECALL, NEGATIVES = "recall", "negatives"
_GROUPS = {RECALL: "positive", NEGATIVES: "negative"}  # the cases of a measure
_DECIDED = ("passed", "failed")
_NO_ANSWER = {"budget": "the budget was spent", "timeout": "no answer within --timeout"}
_Job = TypeVar("_Job")
_Made = TypeVar("_Made")


class EvalPlan(NamedTuple):
    """The options that evaluations with models share: models, repeats, concurrency, cache.

    `settings` is a text of all options that change what a model does; a part of every key.
    """

    talkers: Mapping[str, ConversationRunner]
    cache: EvalCache
    repeats: int = 1
    at_once: int = 4
    settings: str = ""
    on_progress: OnProgress | None = None


async def run_jobs(
    jobs: Sequence[_Job],
    work: Callable[[_Job], Awaitable[tuple[_Made, bool]]],
    at_once: int,
    on_progress: OnProgress | None = None,
) -> list[_Made]:
    """Do the jobs, `at_once` at a time, and return what each gave, in order.

    `work` also returns whether the result was in the cache. The first exception ends all of them,
    and is raised.
    """
    bound, done, from_cache = asyncio.Semaphore(at_once), 0, 0
    report = on_progress or (lambda *_: None)
    report(0, len(jobs), 0)

    async def run_one(job: _Job) -> _Made:
        nonlocal done, from_cache
        async with bound:
            made, cached = await work(job)
        done += 1
        from_cache += cached
        report(done, len(jobs), from_cache)
        return made

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run_one(job)) for job in jobs]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


class _Trial(NamedTuple):
    case: TriggerCase
    model: str
    number: int


async def evaluate_triggers(
    cases: Sequence[TriggerCase], skills: Mapping[str, Skill], plan: EvalPlan
) -> EvalReport:
    """Ask every model each request, as often as the plan says.

    A conversation ends as soon as the skill is used: the result is known then.
    """
    keys = {name: skill_key(skills[name]) for name in {one.skill for one in cases}}
    shown = {
        model: await asyncio.to_thread(_digest_shown, talker)
        for model, talker in plan.talkers.items()
    }
    jobs = [
        _Trial(case, model, number)
        for model in plan.talkers
        for case in cases
        for number in range(1, plan.repeats + 1)
    ]

    async def work(job: _Trial) -> tuple[CaseOutcome, bool]:
        key = key_of(
            kind="trigger", model=job.model, query=job.case.query, number=job.number,
            skill=keys[job.case.skill], shown=shown[job.model], until=job.case.skill,
            settings=plan.settings,
        )  # fmt: skip
        kept = plan.cache.get(key)
        talk = read_conversation(kept) if kept else None
        cached = talk is not None
        if talk is None:
            log = AnswerLog(plan.cache, key)
            talker = plan.talkers[job.model]
            talk = await talker.talk(job.case.query, until=job.case.skill, log=log)
            if talk.ended == "answer":
                plan.cache.put(key, talk.document())
                log.remove()
        return _make_outcome(job, talk, cached=cached), cached

    results = await run_jobs(jobs, work, plan.at_once, plan.on_progress)
    report = report_triggers(results)
    return report._replace(warnings=(*report.warnings, *warn_of_drafts(cases)))


def _digest_shown(talker: ConversationRunner) -> str:
    """Return a digest of what the model sees of the skills: the overview and the tools."""
    runtime = talker.runtime
    return key_of(
        overview=runtime.overview().text,
        tools=[(one.name, one.description, one.schema) for one in runtime.tools()],
    )


def _make_outcome(job: _Trial, talk: EvalConversation, *, cached: bool) -> CaseOutcome:
    case = job.case
    activated = case.skill in talk.skills
    right = activated == case.should_trigger
    if case.should_trigger and not right:
        right = bool(set(case.acceptable).intersection(talk.skills))
    states = {"error": "error", "timeout": "timeout", "budget": "not-run"}
    decided = talk.ended == "answer" or activated
    others = [name for name in talk.skills if name != case.skill]
    return CaseOutcome(
        id=case.id,
        skill=case.skill,
        group="positive" if case.should_trigger else "negative",
        text=case.query,
        outcome=("passed" if right else "failed") if decided else states[talk.ended],  # type: ignore[arg-type]
        detail=_describe(talk, activated, others),
        model=job.model,
        seconds=talk.seconds,
        data={
            "run": job.number,
            "should_trigger": case.should_trigger,
            "activated": activated,
            "skills": list(talk.skills),
            "tools": list(talk.tools),
            "expected": case.expected,
            "input_tokens": talk.input_tokens,
            "output_tokens": talk.output_tokens,
            "cached": cached,
            "transcript": list(talk.transcript),
        },
    )


def _describe(talk: EvalConversation, activated: bool, others: Sequence[str]) -> str:
    if talk.ended != "answer" and not activated:
        return talk.error or _NO_ANSWER.get(talk.ended, talk.ended)
    use = "used" if activated else "not used"
    also = f"; used {', '.join(others)}" if others else ""
    calls = f"; calls: {', '.join(talk.tools[:8]) or 'none'}"
    answer = f"; answered: {shorten(one_line(talk.answer), 120)}" if talk.answer else ""
    return f"{use}{also}{calls}{answer}"


def report_triggers(results: Sequence[CaseOutcome]) -> EvalReport:
    """Measure each skill with each model; errors and timeouts are not counted."""
    measured = []
    pairs = dict.fromkeys((one.skill, one.model) for one in results)
    for skill, model in pairs:
        mine = [one for one in results if (one.skill, one.model) == (skill, model)]
        unanswered = {
            name: unanswered_share(one.outcome for one in mine if one.group == group)
            for name, group in _GROUPS.items()
        }
        measured.append(MeasuredSkill(skill, _measure_groups(mine), model, unanswered=unanswered))
    apart = {key: sum(one.outcome == key for one in results) for key in ("error", "timeout")}
    warnings = [
        text
        for one in measured
        for text in suspect(f"{one.name} with {one.model}", one.measures[RECALL],
                            one.measures[NEGATIVES])
    ]  # fmt: skip
    return EvalReport(
        kind="trigger",
        skills=tuple(measured),
        overall=_measure_groups(results),
        cases=tuple(results),
        confusions=tuple(_find_confusions(results)),
        warnings=tuple(warnings),
        facts={
            "errors": apart["error"],
            "timeouts": apart["timeout"],
            "cached": sum(bool(one.data["cached"]) for one in results),
        },
        complete=is_complete(results),
    )


def is_complete(results: Sequence[CaseOutcome]) -> bool:
    """Whether every case was run, and not all of them failed to be one."""
    if any(one.outcome == "not-run" for one in results):
        return False
    return not results or any(one.outcome not in ("error", "timeout") for one in results)


def _measure_groups(results: Sequence[CaseOutcome]) -> dict[str, Rate]:
    decided = [one for one in results if one.outcome in _DECIDED]
    return {
        name: count_rate(one.outcome == "passed" for one in decided if one.group == group)
        for name, group in _GROUPS.items()
    }


def _find_confusions(results: Sequence[CaseOutcome]) -> list[Confusion]:
    found: dict[Confusion, None] = {}
    for one in results:
        used = [str(name) for name in one.data["skills"]] if one.outcome == "failed" else []  # type: ignore[attr-defined]
        meant = one.skill if one.group == "positive" else str(one.data["expected"])
        for name in used:
            if name != meant:
                found[Confusion(shorten(one_line(one.text), 120), meant, name)] = None
    return list(found)
