"""`skillbelt eval trigger` and `skillbelt eval run`: evaluations with a model."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from skillbelt.agent import Agent, Runner
from skillbelt.agent.models import OFFLINE
from skillbelt.cli.ask import ignore_warnings
from skillbelt.cli.build import find_skill
from skillbelt.cli.eval_cases import CaseProgress, advise, cases_of, one_skill
from skillbelt.cli.output import count, say, wants_progress
from skillbelt.errors import ConfigError, UsageError
from skillbelt.evals.budget import Budget, parse_price
from skillbelt.evals.cache import EvalCache
from skillbelt.evals.cases import EvalSet, TriggerCase
from skillbelt.evals.conversation import ConversationLimits, ConversationRunner, hide_skill
from skillbelt.evals.first_set import EVAL_FILE, EVAL_FOLDER
from skillbelt.evals.judge import INSTRUCTIONS
from skillbelt.evals.last_results import keep_results
from skillbelt.evals.outcome import EvalReport
from skillbelt.evals.task import TaskRun, TaskSide, report_tasks, run_tasks
from skillbelt.evals.trigger import EvalPlan, evaluate_triggers
from skillbelt.evals.workspace import iteration_folder, write_workspace
from skillbelt.files.private import make_folder
from skillbelt.format.skill import Skill
from skillbelt.install.content_store import StoredSkill, incoming, stored_skill
from skillbelt.install.hashes import hash_folder
from skillbelt.install.revisions import export_revision, find_revision
from skillbelt.permission.gate import allow_unread
from skillbelt.runtime.runtime import Runtime
from skillbelt.settings import Settings, load_settings, resolve
from skillbelt.store.memory import MemoryStore
from skillbelt.text import one_line
from skillbelt.values import SKILL_FILE

NO_SKILL = "none"
_CACHE = "evals"


def open_cache(settings: Settings, args: argparse.Namespace) -> EvalCache:
    """Open the cache of results; ConfigError, before anything is paid for, if it cannot be used."""
    folder = os.path.join(settings.cache_dir, _CACHE)
    try:
        make_folder(folder)
    except OSError as error:
        raise ConfigError(
            f"{one_line(folder)}: {error.strerror}; results are cached there, so that nothing is "
            "paid for twice (XDG_CACHE_HOME sets another place)"
        ) from None
    return EvalCache(folder, fresh=args.fresh)


class _Bench:
    """Opens runtimes and runners for the options, and closes them at the end."""

    def __init__(self, args: argparse.Namespace, stack: ExitStack) -> None:
        self._args, self._stack, self._old = args, stack, ""
        self._overrides: dict[str, object] = {"sandbox": args.sandbox} if args.sandbox else {}
        self.budget = Budget(max_tokens=args.max_tokens, max_cost=args.max_cost)
        price = parse_price(args.price) if args.price else None
        self._bounds = ConversationLimits(args.timeout, self.budget, price)

    def runtime(self, paths: Sequence[str] = ()) -> Runtime:
        """Open a runtime; `paths` come before all other folders of skills."""
        args = self._args
        load = partial(load_settings, args.project, config=args.config)
        overrides = dict(self._overrides)
        if paths:
            before = load(overrides=overrides).paths
            overrides["paths"] = [*paths, *before]
        ask = allow_unread if args.yes else None
        made = Runtime(settings=load(overrides=overrides), store=MemoryStore(), ask=ask)
        made.look()
        return self._stack.enter_context(made)

    def talker(self, agent: Agent) -> ConversationRunner:
        """Open conversations with an agent; ConfigError if its model cannot be used."""
        runner = self._stack.enter_context(Runner(agent))
        runner.prepare()
        made = ConversationRunner(runner, self._bounds)
        self.budget.require_price(str(agent.model), made.price)
        return made

    def judge(self) -> ConversationRunner | None:
        """Open the judge, which has no skills and no tools; None without one."""
        args = self._args
        if not args.judge:
            return None
        settings = load_settings(args.project, config=args.config)
        bare = Runtime(
            settings=settings,
            store=MemoryStore(),
            tools=(),
            visible=lambda _: False,
            guidance="",
        )
        self._stack.enter_context(bare)
        return self.talker(Agent(bare, args.judge, instructions=INSTRUCTIONS))

    def baseline(self, settings: Settings, skill: Skill) -> str:
        """Return the folder of the old version; one of git is written to the store.

        Its path there follows from its content. Models are shown the path, and what they answered
        is cached under what they were shown.
        """
        if not self._old:
            word = self._args.baseline
            folder = resolve(word, settings)
            if not os.path.isfile(os.path.join(folder, SKILL_FILE)):
                found = find_revision(word, skill.dir, alone=True)
                if found is None:
                    raise ConfigError(
                        f"--baseline {one_line(word)}: is neither none, nor the folder of a skill, "
                        f"nor a revision of git in {one_line(skill.dir)}"
                    )
                into = self._stack.enter_context(incoming(settings))
                exported = export_revision(found, into)
                hashes = hash_folder(exported)
                stored = StoredSkill(hashes.content_digest, hashes.tree_sha)
                name = os.path.basename(exported)
                folder = self._stack.enter_context(
                    stored_skill(stored, settings, lambda: exported, name=name)
                )
            self._old = folder
        return self._old

    def models(self, runtime: Runtime) -> list[str]:
        """Return the models of the options."""
        found = self._args.model or [runtime.settings.model or OFFLINE]
        return list(dict.fromkeys(found))

    def agent(self, runtime: Runtime, model: str) -> Agent:
        """Return the agent that is measured."""
        return Agent(runtime, model, max_steps=self._args.max_steps)


@contextmanager
def _open_bench(args: argparse.Namespace) -> Iterator[_Bench]:
    if not 0 < args.timeout < float("inf"):
        raise ConfigError(f"--timeout takes a number of seconds above 0, not {args.timeout:g}")
    with ignore_warnings(), ExitStack() as stack:
        yield _Bench(args, stack)


def _make_plan(
    args: argparse.Namespace,
    talkers: dict[str, ConversationRunner],
    settings: Settings,
    progress: CaseProgress,
) -> EvalPlan:
    shaping = (args.max_steps, args.yes, args.sandbox or settings.sandbox, settings.tool_profile)
    return EvalPlan(
        talkers=talkers,
        cache=open_cache(settings, args),
        repeats=args.repeat,
        at_once=args.jobs,
        settings=repr(shaping),
        on_progress=progress.show,
    )


def evaluate_trigger(args: argparse.Namespace) -> EvalReport:
    """Ask models each request, and see whether they use the skill."""
    with _open_bench(args) as bench:
        runtime = bench.runtime()
        skills = runtime.available()
        sets = cases_of(args, runtime.catalog, skills)
        cases = [case for one in sets for case in one.triggers if case.skill in skills]
        if not cases:
            named = [find_skill(name, runtime.catalog) for name in args.names]
            advice = [advise(args, skill, "prompts") for skill in named] or [
                "`skillbelt eval init NAME` writes the first"
            ]
            raise ConfigError(f"eval trigger: there are no requests; {'; '.join(advice)}")
        models = bench.models(runtime)
        talkers = {model: bench.talker(bench.agent(runtime, model)) for model in models}
        progress = CaseProgress(args, bench.budget)
        plan = _make_plan(args, talkers, runtime.settings, progress)
        _announce(args, cases, models)
        with progress:
            report = asyncio.run(evaluate_triggers(cases, skills, plan))
        plan.cache.tidy()
        problems = tuple(problem for one in sets for problem in one.problems)
        facts = {**report.facts, **bench.budget.document(), "repeats": args.repeat}
        warnings = (*report.warnings, *_offline_note(models))
        report = report._replace(problems=problems, facts=facts, warnings=warnings)
        return _keep_report(runtime.settings, report, skills, sets)


def _announce(args: argparse.Namespace, cases: Sequence[TriggerCase], models: list[str]) -> None:
    """Print on a terminal how many requests follow, and how to set a limit."""
    if not wants_progress(args):
        return
    skills = len({case.skill for case in cases})
    parts = [f"{count(len(cases), 'request')} of {count(skills, 'skill')}"]
    parts += [f"{args.repeat} times each"] if args.repeat > 1 else []
    parts += [f"with {len(models)} models"] if len(models) > 1 else []
    limit = "" if models == [OFFLINE] else "; --max-tokens and --max-cost set a limit"
    say(f"{', '.join(parts)}{limit}", args)


def evaluate_run(args: argparse.Namespace) -> EvalReport:
    """Do the tasks of one skill with it, and without it or with an old one."""
    with _open_bench(args) as bench:
        runtime = bench.runtime()
        skill = one_skill(args, runtime.catalog)
        [found] = cases_of(args, runtime.catalog, {skill.name: skill}) or [EvalSet(skill.name)]
        if not found.tasks:
            path = args.set or os.path.join(skill.dir, EVAL_FOLDER, EVAL_FILE)
            raise ConfigError(
                f"eval run: {skill.name} has no tasks; add a prompt with what is expected, such as "
                f'"expect": {{"contains": "..."}}, to {one_line(path)}'
            )
        models = bench.models(runtime)
        sides = {model: _make_sides(args, bench, runtime, skill, model) for model in models}
        progress = CaseProgress(args, bench.budget)
        plan = _make_plan(args, {}, runtime.settings, progress)
        judge = bench.judge()
        folder = iteration_folder(os.path.abspath(args.output or f"{skill.name}-workspace"))
        with progress:
            runs = asyncio.run(run_tasks(found.tasks, skill, sides, plan, judge))
        plan.cache.tidy()
        report = report_tasks(skill, runs, args.repeat)
        facts = {**report.facts, **bench.budget.document()}
        warnings = (*report.warnings, *_offline_note(models))
        report = report._replace(problems=found.problems, facts=facts, warnings=warnings)
        if report.complete:
            folder = _write_files(folder, skill, runs, report, args.judge or "")
        report = report._replace(facts={**facts, "folder": folder})
        return _keep_report(runtime.settings, report, {skill.name: skill}, [found])


def _write_files(
    folder: str, skill: Skill, runs: Sequence[TaskRun], report: EvalReport, judged_by: str
) -> str:
    """Write the files of skill-creator, and return their folder."""
    try:
        return write_workspace(folder, skill, runs, report, judged_by)
    except OSError as error:
        raise ConfigError(f"--output {one_line(folder)}: {error.strerror}") from None


def _keep_report(
    settings: Settings, report: EvalReport, skills: Mapping[str, Skill], sets: Sequence[EvalSet]
) -> EvalReport:
    """Keep the result as the last one; return the report, with a warning if that failed."""
    try:
        keep_results(settings, report, skills, sets)
    except OSError as error:
        message = f"the result is not kept in {one_line(settings.state_dir)}: {error.strerror}"
        return report._replace(warnings=(*report.warnings, message))
    return report


def _offline_note(models: Sequence[str]) -> list[str]:
    """Return a note that the offline runner is not a model."""
    message = "offline is not a model: it follows the search, and does not show how models choose"
    return [f"{message}; name one with --model"] if OFFLINE in models else []


def _make_sides(
    args: argparse.Namespace, bench: _Bench, runtime: Runtime, skill: Skill, model: str
) -> list[TaskSide]:
    """Return the sides of a comparison for one model."""
    agent = bench.agent(runtime, model)
    sides = [TaskSide("with_skill", bench.talker(agent), skill)]
    if args.baseline == NO_SKILL:
        without = hide_skill(agent, skill.name)
        sides.append(TaskSide("without_skill", bench.talker(without), None))
    elif args.baseline:
        folder = bench.baseline(runtime.settings, skill)
        old = bench.runtime([folder])
        other = old.get_skill(skill.name)
        if not os.path.samefile(other.dir, folder):
            raise UsageError(
                f"--baseline {one_line(args.baseline)}: holds the skill {other.name!r} elsewhere; "
                f"its name must be {skill.name!r}"
            )
        sides.append(TaskSide("old_skill", bench.talker(bench.agent(old, model)), other))
    return sides
