"""`skillbelt eval`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Collection, Iterable

from skillbelt.cli.build import find_skill
from skillbelt.cli.output import (
    count,
    positive,
    print_json,
    print_table,
    say,
    show_progress,
    wants_progress,
)
from skillbelt.cli.scanning import open_catalog
from skillbelt.cli.search import visible_filters
from skillbelt.discovery.catalog import Catalog
from skillbelt.errors import ConfigError, UsageError
from skillbelt.evals.cases import EvalSet
from skillbelt.evals.first_set import first_set, write_first_set
from skillbelt.evals.outcome import EvalReport, judge_bars, parse_bar
from skillbelt.evals.read import read_eval_file, read_evals
from skillbelt.evals.reports import FORMS, label_of, measure_names, summarise, write_report
from skillbelt.evals.route import route, searcher_of
from skillbelt.format.skill import Skill
from skillbelt.text import one_line, shorten

ACTIONS = ("init", "route", "script", "trigger", "run", "diff")
_K = 5
_NEIGHBOURS = 12
_NO_CASES = "no skill here has cases to measure; `skillbelt eval init NAME` writes the first"
_REPORT_SECONDS = 0.1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `eval`."""
    parser.add_argument("action", choices=("init", "route"), help="what to measure, or init")
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="a skill, or its folder (default: all with cases)"
    )
    parser.add_argument(
        "--set", metavar="FILE", help="use the cases of this file in place of the skill's own"
    )
    parser.add_argument(
        "--min",
        metavar="[MEASURE=]SHARE",
        action="append",
        default=[],
        help="the least that each skill must reach, from 0 to 1; may be repeated; exit code 1 "
        "below it (default measure: the first)",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        action="append",
        default=[],
        help=f"write the report to this file; {', '.join(FORMS)} (JUnit) say in which form; may "
        "be repeated",
    )
    parser.add_argument(
        "--k", metavar="K", type=positive, default=_K, help="with route: the K of recall@K"
    )


def run(args: argparse.Namespace) -> int:
    """Evaluate skills; return 1 when one is under a bar."""
    bars = [parse_bar(text) for text in args.min]
    actions: dict[str, Callable[[argparse.Namespace], EvalReport | int]] = {
        "init": _init,
        "route": _route,
    }
    report = actions[args.action](args)
    if isinstance(report, int):
        return report
    return _finish(judge_bars(report, bars), args)


def _finish(report: EvalReport, args: argparse.Namespace) -> int:
    for path in args.report:
        write_report(report, path)
    if args.json:
        print_json(report.document())
    else:
        _print_report(report, args)
    return 0 if report.passed else 1


def _print_report(report: EvalReport, args: argparse.Namespace) -> None:
    names = measure_names(report)
    rows = [
        (label_of(one), *(str(one.measures[name]) if name in one.measures else "-"
                          for name in names))
        for one in report.skills
    ]  # fmt: skip
    if rows:
        print_table(("skill", *names), rows)
    for confusion in report.confusions if args.verbose else report.confusions[:10]:
        led = f" ({', '.join(confusion.words)})" if confusion.words else ""
        meant = confusion.meant or "no skill"
        say(f"{confusion.found} takes what is meant for {meant}{led}: {confusion.query}", args)
    if len(report.confusions) > 10 and not args.verbose:
        say(f"and {len(report.confusions) - 10} more requests; -v shows all", args)
    _print_cases(report, args)
    for problem in report.problems:
        say(f"skillbelt: {one_line(str(problem))}", args)
    for text in report.warnings:
        say(f"skillbelt: {one_line(text)}", args)
    for bar in report.bars:
        if not bar.passed:
            say(f"under the bar: {bar.name} {bar.measure} {bar.rate:.2f} < {bar.least:g}", args)
    say(summarise(report), args)


def _print_cases(report: EvalReport, args: argparse.Namespace) -> None:
    """Say what became of each case that is not right; with -v of every one."""
    for case in report.cases:
        if case.outcome == "passed" and not args.verbose:
            continue
        text = shorten(one_line(case.text), 80)
        detail = shorten(one_line(case.detail), 200)
        if args.verbose or report.kind != "route":
            say(f"{case.outcome}: {case.skill} {case.group}: {text}: {detail}", args)


# init


def _init(args: argparse.Namespace) -> int:
    if len(args.names) != 1:
        raise UsageError("eval init takes one skill: skillbelt eval init NAME")
    catalog = open_catalog(args)
    skill = find_skill(args.names[0], catalog)
    found = catalog.search(skill.description or skill.name, _NEIGHBOURS, visible_filters(catalog))
    document = first_set(skill, found)
    path = write_first_set(skill, document)
    made = read_evals(skill)
    if args.json:
        counts = {
            "positives": sum(one.should_trigger for one in made.triggers),
            "negatives": sum(not one.should_trigger for one in made.triggers),
            "scripts": len(made.scripts),
        }
        print_json({"skill": skill.name, "path": path, **counts})
    else:
        print(one_line(path))
        say("These are drafts: replace the prompts by what people write.", args)
        say(f"Then: skillbelt eval route {skill.name}", args)
    return 0


# route


def _route(args: argparse.Namespace) -> EvalReport:
    catalog = open_catalog(args)
    filters = visible_filters(catalog)
    skills = catalog.findable(filters)
    wanted = [find_skill(name, catalog).name for name in args.names]
    progress = CaseProgress(args)
    sets = read_sets(args, catalog, skills.values(), wanted)
    catalog.index_for_search()
    report = route(
        sets,
        searcher_of(catalog, filters),
        skills,
        names=wanted,
        k=args.k,
        told=progress.tell,
    )
    progress.end()
    return report if report.skills else report._replace(warnings=(_NO_CASES,))


def read_sets(
    args: argparse.Namespace, catalog: Catalog, skills: Iterable[Skill], wanted: Collection[str]
) -> list[EvalSet]:
    """Return the cases of all skills; a wrong file of a skill that is not wanted is a problem."""
    if args.set:
        if len(wanted) > 1:
            raise UsageError("--set takes the cases of one skill")
        return _split(read_eval_file(args.set, next(iter(wanted), "")))
    found: list[EvalSet] = []
    for skill in skills:
        try:
            one = read_evals(skill)
        except ConfigError as error:
            if not wanted or skill.name in wanted:
                raise ConfigError(f"{skill.dir}/{error}") from None
            continue
        found.append(one)
    return found


def _split(found: EvalSet) -> list[EvalSet]:
    """Return a set for each skill that the cases of one file are about."""
    cases = (found.triggers, found.tasks, found.scripts)
    names = dict.fromkeys(one.skill for each in cases for one in each)
    if "" in names:
        raise ConfigError(
            f"{', '.join(found.files)}: does not say which skill its cases are about; add "
            '"skill_name", or name the skill on the command line'
        )
    return [
        found._replace(
            skill=name,
            triggers=tuple(one for one in found.triggers if one.skill == name),
            tasks=tuple(one for one in found.tasks if one.skill == name),
            scripts=tuple(one for one in found.scripts if one.skill == name),
        )
        for name in names
    ]


class CaseProgress:
    """A line on a terminal: how many cases are done, and how long the rest may take."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._shown = wants_progress(args)
        self._began = self._told = time.monotonic()

    def tell(self, done: int, total: int, more: str = "") -> None:
        """Show how many are done of how many."""
        now = time.monotonic()
        if not self._shown or (now < self._told + _REPORT_SECONDS and done < total):
            return
        self._told = now
        left = (now - self._began) / done * (total - done) if done else 0.0
        about = f", about {_span(left)} left" if done and left > 1 else ""
        show_progress(f"{done} of {count(total, 'case')}{about}{more}")

    def end(self) -> None:
        """Clear the line."""
        if self._shown:
            show_progress("")


def _span(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes else f"{seconds:.0f} s"
