"""`skillbelt prompt`."""

from __future__ import annotations

import argparse

from skillbelt.cli.output import print_json, say
from skillbelt.cli.scanning import open_catalog
from skillbelt.disclosure.overview import Overview, default_budget, diagnose_pins, overview, visible
from skillbelt.permission.gate import Gate
from skillbelt.runtime.required import check_required
from skillbelt.settings import CHOICES
from skillbelt.store import open_store
from skillbelt.tools.definitions import LOADERS, PROFILES, SEARCH, name_of, offered_names


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `prompt`."""
    parser.add_argument(
        "--format",
        choices=CHOICES["overview_format"],
        help="the format of the list (default: the setting overview_format)",
    )
    parser.add_argument(
        "--budget",
        type=_count,
        metavar="TOKENS",
        help="the token budget (default: a share of the context window; see Configuration)",
    )
    parser.add_argument("--agent", metavar="A", help="only skills that this agent may use")


def run(args: argparse.Namespace) -> int:
    """Print the overview of skills for a model; nothing if there are none."""
    catalog = open_catalog(args)
    settings = catalog.settings
    budget = default_budget(settings) if args.budget is None else args.budget
    gate = Gate(settings, lambda: open_store(settings))
    if settings.skills:
        check_required(catalog.snapshot, settings, gate, args.agent)
    skills = visible(gate.permitted(args.agent, catalog).values())
    offered = offered_names(PROFILES[settings.tool_profile], settings.tool_names)
    made = overview(
        skills,
        format=args.format or settings.overview_format,
        budget_tokens=budget,
        loader=name_of(offered, LOADERS),
        search=offered.get(SEARCH, ""),
    )
    if args.json:
        print_json(made._asdict())
    elif made.text:
        print(made.text)
    for one in diagnose_pins(skills, made, budget):
        say(f"skillbelt: {one.message}; {one.remedy}", args)
    if args.verbose:
        say(_summary(made, budget), args)
    return 0


def _summary(made: Overview, budget: int) -> str:
    return (
        f"{made.tokens} of {budget} tokens: {made.shown} with descriptions, "
        f"{made.names_only} by name only, {made.omitted} left out"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens above 0")
    return int(text)
