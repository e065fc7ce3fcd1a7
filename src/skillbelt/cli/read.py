"""`skillbelt read`."""

from __future__ import annotations

import argparse

from skillbelt.cli.gates import open_gate
from skillbelt.cli.load import open_storage, print_text, print_truncation, report_json
from skillbelt.cli.output import print_json, say
from skillbelt.cli.scanning import open_catalog
from skillbelt.disclosure.body import Loaded, load_resource
from skillbelt.errors import ConfigError
from skillbelt.text import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `read`."""
    parser.add_argument("name", metavar="NAME", help="the skill")
    parser.add_argument("path", metavar="PATH", help="a text file in the folder of the skill")
    parser.add_argument("--section", metavar="S", help="only the section under this heading")
    parser.add_argument("--start", metavar="N", type=_positive, help="the first line to print")
    parser.add_argument("--lines", metavar="N", type=_positive, help="how many lines to print")


def run(args: argparse.Namespace) -> int:
    """Print a file of a skill, or a section or some lines of it."""
    if args.section and (args.start or args.lines):
        raise ConfigError("--section prints a whole section: remove --start and --lines")
    catalog = open_catalog(args)
    skill = catalog.find(args.name)
    gate = open_gate(catalog.settings, args)
    request = gate.require(gate.load_request(skill, "user"))
    loaded = load_resource(
        skill,
        args.path,
        args.section,
        catalog.settings.limits,
        start_line=args.start,
        lines=args.lines,
        storage=open_storage(catalog.settings),
    )
    gate.record_load(request, loaded, skill)
    if args.json:
        print_json(_document(loaded))
    else:
        print_text(loaded.text)
        _print_notes(loaded, args)
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


_positive.__name__ = "line number"  # argparse shows it in its message


def _document(loaded: Loaded) -> object:
    missed = loaded.report.section_missed
    report = {**report_json(loaded.report), "section_missed": missed}
    return {"name": loaded.name, "path": loaded.path, "text": loaded.text, "report": report}


def _print_notes(loaded: Loaded, args: argparse.Namespace) -> None:
    if loaded.report.section_missed:
        wanted = one_line(args.section)
        say(f"skillbelt: no heading matches {wanted!r}; this is the beginning of the file", args)
    print_truncation(loaded, args)
