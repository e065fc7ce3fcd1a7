"""Options and progress that all `skillbelt eval` actions share."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Set
from typing import Self

from skillbelt.cli.build import find_skill
from skillbelt.cli.output import count, show_progress, wants_progress
from skillbelt.discovery.catalog import Catalog
from skillbelt.errors import ConfigError, UsageError
from skillbelt.evals.budget import Budget
from skillbelt.evals.cases import EvalProblem, EvalSet
from skillbelt.evals.first_set import advise_cases
from skillbelt.evals.read import below, read_eval_file, read_evals
from skillbelt.format.skill import Skill
from skillbelt.text import one_line, shell_word

_REPORT_SECONDS = 0.1


def one_skill(args: argparse.Namespace, catalog: Catalog) -> Skill:
    """Return the one skill of the command line."""
    if len(args.names) != 1:
        raise UsageError(f"eval {args.action} takes one skill: skillbelt eval {args.action} NAME")
    return find_skill(args.names[0], catalog)


def advise(args: argparse.Namespace, skill: Skill, wanted: str) -> str:
    """Return how a skill gets the cases that it lacks, in its own folder or in `--set`."""
    return f"add {wanted} to {one_line(args.set)}" if args.set else advise_cases(skill, wanted)


def cases_of(
    args: argparse.Namespace,
    catalog: Catalog,
    skills: Mapping[str, Skill],
    *,
    all_too: bool = False,
) -> list[EvalSet]:
    """Return the cases of the named skills, or of all; with `all_too` of both.

    A wrong file of a skill that was not named is skipped, and reported as a problem.
    """
    wanted = [find_skill(name, catalog).name for name in args.names]
    if args.set:
        if len(wanted) > 1:
            raise UsageError("--set takes the cases of one skill")
        given = read_eval_file(args.set, wanted[0] if wanted else "")
        return _split_by_skill(given, args, {*skills, *wanted})
    found: list[EvalSet] = []
    for skill in skills.values():
        named = not wanted or skill.name in wanted
        if not named and not all_too:
            continue
        try:
            made = read_evals(skill, examples=args.action == "script")
            found.append(below(skill.dir, made))
        except ConfigError as error:
            if named:
                raise ConfigError(f"{skill.dir}/{error}") from None
            path, _, fault = str(error).partition(": ")
            problem = EvalProblem(f"{skill.dir}/{path}", "", f"its cases are left out: {fault}")
            found.append(EvalSet(skill.name, problems=(problem,)))
    return found


def _split_by_skill(found: EvalSet, args: argparse.Namespace, known: Set[str]) -> list[EvalSet]:
    """Return a set for each skill that the cases of one file are about.

    ConfigError if the known skills are none of them; other cases are left out, with a problem.
    """
    cases = (found.triggers, found.tasks, found.scripts)
    names = dict.fromkeys(one.skill for each in cases for one in each)
    if "" in names:
        raise ConfigError(
            f"{', '.join(found.files)}: does not say which skill its cases are about; name it: "
            f"skillbelt eval {args.action} NAME --set {shell_word(args.set)}"
        )
    problems = tuple(
        EvalProblem(args.set, "", f"no skill {name!r} is found here; its cases are left out")
        for name in names
        if name not in known
    )
    if problems and len(problems) == len(names):
        raise ConfigError(f"{problems[0]} (skillbelt list --all)")
    kept = [name for name in names if name in known]
    made = [
        EvalSet(
            skill=name,
            triggers=tuple(one for one in found.triggers if one.skill == name),
            tasks=tuple(one for one in found.tasks if one.skill == name),
            scripts=tuple(one for one in found.scripts if one.skill == name),
            files=found.files,
        )
        for name in kept
    ]
    told = (*found.problems, *problems)
    return [made[0]._replace(problems=told), *made[1:]] if made else [EvalSet("", problems=told)]


class CaseProgress:
    """A line on a terminal: how many cases are done, and how long the rest may take.

    A context manager, which clears the line at its end. With a budget, it also shows what is spent.
    """

    def __init__(self, args: argparse.Namespace, budget: Budget | None = None) -> None:
        self._wanted, self._budget = wants_progress(args), budget
        self._began, self._shown = time.monotonic(), 0.0

    def show(self, done: int, total: int, cached: int = 0) -> None:
        """Show how many are done of how many; `cached` of these took no time."""
        now = time.monotonic()
        if not self._wanted or (now < self._shown + _REPORT_SECONDS and done < total):
            return
        self._shown = now
        parts = [f"{done} of {count(total, 'case')}"]
        if done > cached and total > done:
            left = (now - self._began) / (done - cached) * (total - done)
            parts.append(f"about {_format_seconds(left)} left")
        if self._budget is not None and self._budget.tokens:
            parts.append(f"{self._budget.tokens:,} tokens")
        show_progress(", ".join(parts))

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After Ctrl-C the command clears the line itself, and prints `interrupted` in its place.
        if self._wanted and kind is not KeyboardInterrupt:
            show_progress("")


def _format_seconds(seconds: float) -> str:
    """Return a time in words, rounded up: an estimate must not promise too much."""
    whole = math.ceil(seconds)
    if whole < 90:
        return f"{whole} s"
    minutes = math.ceil(whole / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
