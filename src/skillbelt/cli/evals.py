"""`skillbelt eval`."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any

from skillbelt.cli.build import find_skill
from skillbelt.cli.eval_cases import CaseProgress, advise, cases_of, one_skill
from skillbelt.cli.eval_models import NO_SKILL, evaluate_run, evaluate_trigger, open_cache
from skillbelt.cli.live import LiveOutput
from skillbelt.cli.output import (
    CLI_SESSION,
    SANDBOX_HELP,
    count,
    positive,
    print_json,
    print_table,
    say,
    yes_option,
)
from skillbelt.cli.run import open_workbench
from skillbelt.cli.scanning import open_catalog
from skillbelt.cli.search import visible_filters
from skillbelt.discovery.catalog import Catalog
from skillbelt.errors import ConfigError, UsageError
from skillbelt.evals.cases import EvalSet
from skillbelt.evals.diff import compare_versions
from skillbelt.evals.first_set import first_set, write_first_set
from skillbelt.evals.outcome import (
    Bar,
    CaseOutcome,
    EvalReport,
    judge_bars,
    parse_bar,
    require_measures,
)
from skillbelt.evals.read import read_evals
from skillbelt.evals.reports import (
    describe_difference,
    describe_files,
    describe_spending,
    label_of,
    measure_names,
    require_report_path,
    summarise,
    text_of,
    version_diffs,
    write_report,
)
from skillbelt.evals.route import route, searcher_of
from skillbelt.evals.script import (
    CASE_SECONDS,
    MOST_CASE_SECONDS,
    PASS,
    STREAM_BYTES,
    ScriptBounds,
    evaluate_scripts,
)
from skillbelt.evals.trigger import NEGATIVES, RECALL
from skillbelt.format.skill import Skill
from skillbelt.install.content_store import incoming
from skillbelt.install.revisions import export_revision, find_revision
from skillbelt.running.call import Asker
from skillbelt.sandbox.registry import AUTO, named_sandbox
from skillbelt.settings import resolve
from skillbelt.store import SessionKey
from skillbelt.text import exact, one_line, shorten

ACTIONS = ("init", "route", "script", "trigger", "run", "diff")
_K = 5
_NEIGHBOURS = 12
# The measures of actions that cost something to run.
_MEASURES = {"script": (PASS,), "trigger": (RECALL, NEGATIVES), "run": (PASS,)}
_NO_CASES = "no skill here has cases to measure; `skillbelt eval init NAME` writes the first"
_JOBS = 4
_SECONDS = 300.0
_STEPS = 20
_MODEL_DEFAULTS: Mapping[str, object] = MappingProxyType(
    {
        "model": [],
        "repeat": 1,
        "baseline": NO_SKILL,
        "judge": None,
        "max_cost": 0.0,
        "max_tokens": 0,
        "price": None,
        "max_steps": _STEPS,
        "output": None,
    }
)
_RUN_ONLY = frozenset(("baseline", "judge", "output"))
# Errors and timeouts with the same cause that are printed one by one.
_MOST_ALIKE = 3
# The most of a case's details, without -v.
_DETAIL_CHARS, _DETAIL_LINES = 200, 12


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `eval`."""
    parser.add_argument("action", choices=ACTIONS, help="what to measure, or init")
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help="a skill, or its folder (default: all with cases)",
    )
    parser.add_argument(
        "--set", metavar="FILE", help="use the cases of this file in place of the skill's own"
    )
    parser.add_argument(
        "--min",
        metavar="[MEASURE=]SHARE",
        action="append",
        default=[],
        help="the minimum that each skill must reach, from 0 to 1; may be repeated; exit code 1 "
        "below it (default measure: the first)",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        action="append",
        default=[],
        help="write the report to this file; by its ending .json, .md, .xml (JUnit) or "
        ".html; may be repeated",
    )
    parser.add_argument(
        "--k", metavar="K", type=positive, default=_K, help="with route: the K of recall@K"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="run all cases again, without the cache"
    )
    parser.add_argument(
        "--jobs", metavar="N", type=positive, default=_JOBS, help="cases at once (default: 4)"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=float,
        default=0.0,
        help=f"seconds for each case (default: {_SECONDS:g} for a conversation; "
        f"{CASE_SECONDS:g} for a script, {MOST_CASE_SECONDS:g} if its case asks for them)",
    )
    parser.add_argument("--sandbox", metavar="S", help=SANDBOX_HELP)
    yes_option(parser)
    _model_options(parser)


def _model_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("with trigger and run")
    group.add_argument(
        "--model",
        metavar="M",
        action="append",
        default=[],
        help="a model, as for `ask`; several give a matrix (default: the setting `model`)",
    )
    group.add_argument(
        "--repeat", metavar="N", type=positive, default=1, help="how often each case is run"
    )
    group.add_argument(
        "--baseline",
        metavar="none|OLD",
        default=NO_SKILL,
        help="with run: compare with no skill, or with an old version, a folder or a git revision; "
        "an empty value compares with nothing (default: none)",
    )
    group.add_argument(
        "--judge",
        metavar="M",
        help="with run: a model that grades what no check can; without one it is not graded",
    )
    group.add_argument(
        "--max-cost",
        metavar="USD",
        type=float,
        default=0.0,
        help="stop after this many dollars",
    )
    group.add_argument(
        "--max-tokens",
        metavar="N",
        type=positive,
        default=0,
        help="stop after this many tokens",
    )
    group.add_argument(
        "--price",
        metavar="IN,OUT",
        help="dollars for a million tokens, if unknown",
    )
    group.add_argument(
        "--max-steps",
        metavar="N",
        type=positive,
        default=_STEPS,
        help=f"requests in one conversation (default: {_STEPS})",
    )
    group.add_argument(
        "--output",
        metavar="DIR",
        help="with run: the folder of all iterations (default: NAME-workspace)",
    )


def run(args: argparse.Namespace) -> int:
    """Evaluate skills; return 1 when one is under a bar."""
    _require_fitting(args)
    bars = [parse_bar(text) for text in args.min]
    if args.action == "script" and not bars:
        bars = [Bar("", 1.0)]  # a script that fails gives exit code 1
    actions: dict[str, Callable[[argparse.Namespace], EvalReport | int]] = {
        "init": _init,
        "route": _route,
        "script": _script,
        "trigger": evaluate_trigger,
        "run": evaluate_run,
        "diff": _diff,
    }
    if not 0 <= args.timeout < math.inf:
        raise ConfigError(f"--timeout takes a number of seconds above 0, not {args.timeout:g}")
    if not 0 <= args.max_cost < math.inf:
        raise ConfigError(f"--max-cost takes dollars, not {args.max_cost:g}")
    if args.action != "script":
        args.timeout = args.timeout or _SECONDS
    if args.action in _MEASURES:
        require_measures(bars, _MEASURES[args.action])
    for path in args.report:
        require_report_path(path)
    report = actions[args.action](args)
    if isinstance(report, int):
        return report
    return _finish(judge_bars(report, bars), args)


def _require_fitting(args: argparse.Namespace) -> None:
    """UsageError for an option that the action does not use; ConfigError for an unknown sandbox."""
    allowed = {"trigger": _MODEL_DEFAULTS.keys() - _RUN_ONLY, "run": _MODEL_DEFAULTS.keys()}
    for name, default in _MODEL_DEFAULTS.items():
        if getattr(args, name) != default and name not in allowed.get(args.action, ()):
            where = "`eval run`" if name in _RUN_ONLY else "`eval trigger` and `eval run`"
            option = name.replace("_", "-")
            raise UsageError(f"eval {args.action}: --{option} is for {where}")
    if args.sandbox and args.sandbox != AUTO:
        named_sandbox(args.sandbox)


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
        _print_measures(("skill", *names), rows)
    _print_confusions(report, args)
    _print_cases(report, args)
    for problem in report.problems:
        say(f"skillbelt: {one_line(str(problem))}", args)
    for text in report.warnings:
        say(f"skillbelt: {one_line(text)}", args)
    for bar in report.bars:
        if not bar.passed:
            say(f"under the bar: {bar.label} {bar.measure} {bar.rate:.2f} < {bar.least:g}", args)
    facts = report.facts
    for difference in facts.get("differences") or ():  # type: ignore[attr-defined]
        say(describe_difference(difference), args)
    if isinstance(facts.get("tokens"), int):
        say(describe_spending(facts), args)
    if "folder" in facts and report.complete:
        say(f"written to {one_line(str(facts['folder']))}", args)
    elif "folder" in facts:
        same = "the same command without --fresh" if args.fresh else "the same command"
        say(f"no files are written; {same} resumes with the rest", args)
    _print_versions(facts, args)
    say(summarise(report), args)


def _print_measures(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a row for each skill; on a narrow terminal for each measure, with its name."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    room = shutil.get_terminal_size().columns
    if not sys.stdout.isatty() or sum(widths) + 2 * (len(widths) - 1) <= room:
        print_table(head, rows)
        return
    long = [
        ("" if place else row[0], *measure)
        for row in rows
        for place, measure in enumerate(zip(head[1:], row[1:], strict=True))
    ]
    print_table(("skill", "measure", "share"), long, wrap=True)


def _print_confusions(report: EvalReport, args: argparse.Namespace) -> None:
    """Print which skill takes whose requests, and by which words."""
    for confusion in report.confusions if args.verbose else report.confusions[:10]:
        led = f" ({', '.join(confusion.words)})" if confusion.words else ""
        meant = confusion.meant or "no skill"
        text = f"{confusion.found} takes what is meant for {meant}{led}: {confusion.query}"
        say(one_line(text), args)
    if len(report.confusions) > 10 and not args.verbose:
        say(f"and {len(report.confusions) - 10} more requests; -v shows all", args)


def _print_versions(facts: Mapping[str, Any], args: argparse.Namespace) -> None:
    """Print what changed between two versions of a skill."""
    tokens = facts.get("tokens")
    if not isinstance(tokens, dict):
        return
    for key, new in tokens["new"].items():
        say(f"tokens of the {key}: {tokens['old'][key]} before, {new} now", args)
    for line in describe_files(facts):
        say(line, args)
    for label, text in version_diffs(facts):
        if args.verbose or label == "description":
            for line in text.splitlines():
                print(exact(line))


def _print_cases(report: EvalReport, args: argparse.Namespace) -> None:
    """Print the outcome of each case that did not pass; with -v of every case."""
    if report.kind == "route" and not args.verbose:
        return
    lines: Counter[tuple[str, ...]] = Counter()
    alike = Counter(_cause(case) for case in report.cases)
    for case in report.cases:
        if case.outcome in ("passed", "not-run") and not args.verbose:
            continue
        text = shorten(one_line(text_of(case)), 80)
        detail, *more = _describe_case(case, args)
        about = " ".join(filter(None, (case.skill, case.model, case.group.replace("_", " "))))
        many = alike[_cause(case)]
        if case.outcome in ("error", "timeout") and many > _MOST_ALIKE and not args.verbose:
            about = " ".join(filter(None, (case.skill, case.model)))
            lines[f"{case.outcome}: {about}: {count(many, 'case')}: {detail}", *more] = 1
            continue
        lines[f"{case.outcome}: {about}: {text}: {detail}", *more] += 1
    for (line, *more), times in lines.items():
        say(f"{line} ({times} times)" if times > 1 else line, args)
        for one in more if not args.quiet else ():
            print(f"    {one}", file=sys.stderr)
    left = [case.detail for case in report.cases if case.outcome == "not-run"]
    if left and not args.verbose:
        say(f"not-run: {count(len(left), 'case')}: {one_line(left[0])}", args)


def _describe_case(case: CaseOutcome, args: argparse.Namespace) -> list[str]:
    """Return what happened: one line; for a script with more, such as a difference, all lines."""
    lines = case.detail.splitlines()
    if case.group != "script" or len(lines) < 2:
        text = one_line(case.detail)
        return [text if args.verbose else shorten(text, _DETAIL_CHARS)]
    most = len(lines) if args.verbose else _DETAIL_LINES
    shown = [one if args.verbose else shorten(one, _DETAIL_CHARS) for one in map(exact, lines)]
    return shown[:most] + (
        [f"{len(lines) - most} more lines; -v shows all"] if shown[most:] else []
    )


def _cause(case: CaseOutcome) -> tuple[str, ...]:
    return case.outcome, case.skill, case.model, case.detail


# init


def _init(args: argparse.Namespace) -> int:
    catalog = open_catalog(args)
    skill = one_skill(args, catalog)
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
    sets = cases_of(args, catalog, skills, all_too=True)
    _require_requests(args, sets, [skills[name] for name in wanted if name in skills])
    catalog.index_for_search()
    with CaseProgress(args) as progress:
        report = route(
            sets,
            searcher_of(catalog, filters),
            skills,
            names=wanted,
            k=args.k,
            on_progress=progress.show,
        )
    return report if report.skills else report._replace(warnings=(_NO_CASES,))


def _require_requests(
    args: argparse.Namespace, sets: Sequence[EvalSet], named: Iterable[Skill]
) -> None:
    """ConfigError for a bar of a named skill without requests: no result could be under it."""
    measured = {case.skill for one in sets for case in one.triggers}
    for skill in named:
        if args.min and skill.name not in measured:
            advice = advise(args, skill, "prompts")
            raise ConfigError(f"--min: {skill.name} has no requests to measure; {advice}")


# script


def _script(args: argparse.Namespace) -> EvalReport:
    catalog = open_catalog(args)
    skill = one_skill(args, catalog)
    [found] = cases_of(args, catalog, {skill.name: skill}) or [EvalSet(skill.name)]
    if not found.scripts:
        raise ConfigError(
            f"eval script: {skill.name} has no cases for scripts; "
            f"{advise(args, skill, '`scripts`')}"
        )
    who = Asker(SessionKey(*CLI_SESSION), "user", once="whole")
    with (
        LiveOutput() as live,
        open_workbench(catalog, args, live, stream_bytes=STREAM_BYTES) as bench,
        CaseProgress(args) as progress,
    ):
        bounds = ScriptBounds(
            seconds=args.timeout or CASE_SECONDS,
            most_seconds=args.timeout or MOST_CASE_SECONDS,
            at_once=args.jobs,
            sandbox=args.sandbox or catalog.settings.sandbox,
        )
        cache = open_cache(catalog.settings, args)
        report = evaluate_scripts(
            bench,
            skill,
            found.scripts,
            who,
            cache=cache,
            bounds=bounds,
            one_question=not args.yes,
            on_progress=progress.show,
        )
        cache.tidy()
    return report._replace(problems=found.problems)


# diff


def _diff(args: argparse.Namespace) -> EvalReport:
    if len(args.names) != 2:
        raise UsageError("eval diff takes two versions of a skill: skillbelt eval diff OLD NEW")
    catalog = open_catalog(args)
    with ExitStack() as stack:
        return _compare(catalog, args, stack)


def _compare(catalog: Catalog, args: argparse.Namespace, stack: ExitStack) -> EvalReport:
    new = _find_version(args.names[1], catalog, os.getcwd(), stack)
    old = _find_version(args.names[0], catalog, new.dir, stack)
    if old.name != new.name:
        raise UsageError(
            f"eval diff takes two versions of one skill, not {old.name} and {new.name}"
        )
    with _open_among(catalog, old) as first, _open_among(catalog, new) as second:
        filters = visible_filters(second)
        skills = second.findable(filters)
        if new.name not in skills:
            raise ConfigError(f"eval diff: {new.name} is hidden here, so search cannot find it")
        named = argparse.Namespace(**{**vars(args), "names": [new.name]})
        sets = cases_of(named, second, skills, all_too=True)
        _require_requests(args, sets, [skills[new.name]])
        searches = (searcher_of(first, visible_filters(first)), searcher_of(second, filters))
        return compare_versions(old, new, sets, searches=searches, skills=skills, k=args.k)


def _find_version(word: str, catalog: Catalog, folder: str, stack: ExitStack) -> Skill:
    """Return the skill of a name, a folder, or a revision of git; `REV` alone is of the folder."""
    place = folder if ":" not in word else os.getcwd()
    if word in catalog.current() or os.path.lexists(resolve(word, catalog.settings)):
        return find_skill(word, catalog)
    if found := find_revision(word, place, alone=True):
        into = stack.enter_context(incoming(catalog.settings))
        return Skill.from_folder(export_revision(found, into))
    raise ConfigError(f"{one_line(word)}: no skill, folder or revision of git")


@contextmanager
def _open_among(catalog: Catalog, skill: Skill) -> Iterator[Catalog]:
    """Open the catalogue with that version of a skill in place of the one it has."""
    known = catalog.get(skill.name)
    if known is not None and known.dir == skill.dir:
        yield catalog
        return
    settings = catalog.settings
    made = Catalog(settings=settings._replace(paths=(skill.dir, *settings.paths)))
    try:
        made.discover()
        made.index_for_search()
        yield made
    finally:
        made.close()
