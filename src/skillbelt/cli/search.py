"""`skillbelt search`."""

from __future__ import annotations

import argparse
import sys

from skillbelt.cli.output import (
    count,
    positive,
    print_json,
    print_table,
    say,
    show_progress,
    wants_progress,
    wide_option,
)
from skillbelt.cli.scanning import open_catalog
from skillbelt.discovery.catalog import Catalog, Filters
from skillbelt.errors import ConfigError
from skillbelt.permission.gate import Gate
from skillbelt.search.evaluate import DEPTH, SearchReport, as_named, evaluate, read_labelled
from skillbelt.search.protocol import Result
from skillbelt.search.query import MAX_QUERY_CHARS
from skillbelt.store import open_store
from skillbelt.text import one_line

_LIMIT = 10
_COLOURS = {"match": {"strong": "green", "fair": "yellow", "weak": "dim", "noise": "dim"}}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `search`."""
    parser.add_argument(
        "query", nargs="?", metavar="QUERY", help="the task; - reads it from standard input"
    )
    parser.add_argument(
        "--limit",
        type=positive,
        default=_LIMIT,
        metavar="N",
        help="the maximum number of results (default: 10)",
    )
    parser.add_argument("--all", action="store_true", help="also results that hardly fit")
    parser.add_argument(
        "--min-confidence",
        type=_probability,
        metavar="P",
        help="only results with at least this confidence, from 0 to 1",
    )
    parser.add_argument("--agent", metavar="A", help="only skills that this agent may use")
    wide_option(parser)
    parser.add_argument(
        "--eval",
        metavar="FILE",
        help="measure the search with labelled requests: JSON lines with query and relevant, a "
        "list of names",
    )


def _probability(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0.0 <= found <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return found


def run(args: argparse.Namespace) -> int:
    """Print the best matching skills; return 1 when there is none."""
    if (args.query is None) == (args.eval is None):
        raise ConfigError(
            "search needs a query: `skillbelt search QUERY`, or `skillbelt search --eval FILE`"
        )
    catalog = open_catalog(args)
    filters = visible_filters(catalog, args.agent)
    catalog.index_for_search()
    if wants_progress(args):
        show_progress("")
    if args.eval:
        return _evaluate(catalog, filters, args)
    text = sys.stdin.read(MAX_QUERY_CHARS) if args.query == "-" else args.query
    every = catalog.search(text, args.limit, filters)
    found = [one for one in every if _is_wanted(one, args)]
    _print(found, args)
    if len(found) < len(every):
        left_out = count(len(every) - len(found), "result")
        if args.min_confidence is None:
            say(f"{left_out} that hardly fit left out; --all shows more", args)
        else:
            most = max(one.confidence for one in every if not _is_wanted(one, args))
            say(
                f"{left_out} below {args.min_confidence:g} left out, the first with {most:.2f}; "
                "a lower --min-confidence shows more",
                args,
            )
    return 0 if found else 1


def _is_wanted(result: Result, args: argparse.Namespace) -> bool:
    if args.min_confidence is not None:
        return bool(result.confidence >= args.min_confidence)
    return args.all or result.strength != "noise"


def visible_filters(catalog: Catalog, agent: str | None = None) -> Filters:
    """Return filters that hide skills which the rules deny."""
    settings = catalog.settings
    gate = Gate(settings, lambda: open_store(settings))
    if not gate.hides_skills:
        return Filters(agent=agent)
    return Filters(agent=agent, keep=lambda skill: gate.permit(agent, skill))


def _print(found: list[Result], args: argparse.Namespace) -> None:
    if args.json:
        print_json({"results": [_result_json(one) for one in found]})
    elif found:
        _print_table(found, args)
    else:
        say("No skill matches. `skillbelt list` shows all skills.", args)


def _print_table(found: list[Result], args: argparse.Namespace) -> None:
    """Print the results; programs that read a pipe know the columns in this order."""
    rows = [(one.skill.name, one.field, _describe_match(one), one.strength) for one in found]
    if not sys.stdout.isatty():
        print_table(("name", "found in", "why", "match"), rows)
        return
    head = ("name", "match", "found in", "why")
    shown = [(name, match, field, why) for name, field, why, match in rows]
    if args.wide:
        about = [one.skill.description for one in found]
        full = [(*row, text) for row, text in zip(shown, about, strict=True)]
        print_table((*head, "description"), full, wrap=True, below=1, colours=_COLOURS)
    else:
        print_table(head, shown, colours=_COLOURS)


def _describe_match(result: Result) -> str:
    copies = len(result.variants)
    more = f" (and {copies} like it)" if copies else ""
    return f"{result.snippet or result.skill.description}{more}"


def _result_json(result: Result) -> dict[str, object]:
    return {
        "name": result.skill.name,
        "description": result.skill.description,
        "location": result.skill.location,
        "score": round(result.score, 4),
        "field": result.field,
        "snippet": result.snippet,
        "variants": list(result.variants),
        "strength": result.strength,
        "confidence": round(result.confidence, 4),
    }


def _evaluate(catalog: Catalog, filters: Filters, args: argparse.Namespace) -> int:
    labelled = as_named(read_labelled(args.eval), catalog.current())
    names = {skill.location: skill.name for skill in (*catalog.values(), *catalog.shadowed)}

    def find(text: str) -> list[frozenset[str]]:
        found = catalog.search(text, DEPTH, filters)
        return [
            frozenset((one.skill.name, *(names[at] for at in one.variants if at in names)))
            for one in found
        ]

    report = evaluate(labelled, find)
    _print_report(report, args)
    return 0


def _print_report(report: SearchReport, args: argparse.Namespace) -> None:
    if args.json:
        measures = {name: measure._asdict() for name, measure in report.measures.items()}
        misses = [{"query": query, "found": found} for query, found in report.misses]
        print_json({"requests": report.requests, "measures": measures, "misses": misses})
        return
    rows = [
        (name, f"{mean:.3f}", f"{low:.3f} to {high:.3f}")
        for name, (mean, low, high) in report.measures.items()
    ]
    print_table(("measure", "mean", f"95 % of {report.requests} requests"), rows)
    if args.verbose:
        for query, found in report.misses:
            say(f"missed: {one_line(query)}: found {one_line(found)}", args)
