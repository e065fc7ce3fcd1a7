"""How commands print: JSON for programs, tables for people, plain lines for pipes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence

from skillbelt.catalog import Catalog
from skillbelt.settings import load_settings
from skillbelt.skill import Skill
from skillbelt.text import one_line
from skillbelt.values import Diagnostic


def open_catalog(args: argparse.Namespace) -> Catalog:
    """The catalogue the common options ask for."""
    return Catalog(settings=load_settings(args.project, config=args.config))


def print_json(document: object) -> None:
    """One JSON document on stdout."""
    import json

    print(json.dumps(document, indent=2))


def skill_json(skill: Skill) -> dict[str, object]:
    """A skill as `list` prints it."""
    return {
        "name": skill.name,
        "description": skill.description,
        "location": skill.location,
        "scope": skill.scope,
        "origin": str(skill.origin),
        "model_visible": skill.model_visible,
        "user_invocable": skill.user_invocable,
        "trusted": skill.trusted,
        "shadows": list(skill.shadows),
    }


def diagnostics_json(diagnostics: Iterable[Diagnostic]) -> list[dict[str, object]]:
    """Diagnostics as every command prints them."""
    return [diagnostic._asdict() for diagnostic in diagnostics]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal; in a pipe one line a row with tabs between the cells."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in cells:
            print("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, title in enumerate(head):
        last = place == len(head) - 1
        table.add_column(title, overflow="ellipsis" if last else "fold", no_wrap=last)
    for row in cells:
        table.add_row(*(Text(cell, style="cyan" if n == 0 else "") for n, cell in enumerate(row)))
    Console(no_color=bool(os.environ.get("NO_COLOR")) or None).print(table)


def print_diagnostics(diagnostics: Iterable[Diagnostic], args: argparse.Namespace) -> None:
    """Errors and warnings on stderr, one line each; with -v the notes and the remedies too."""
    if args.quiet:
        return
    for diagnostic in diagnostics:
        if diagnostic.severity == "info" and not args.verbose:
            continue
        shown = diagnostic if args.verbose else diagnostic._replace(remedy="")
        print(one_line(str(shown)), file=sys.stderr)


def say(text: str, args: argparse.Namespace) -> None:
    """A message for the person, on stderr, unless they want quiet."""
    if not args.quiet:
        print(text, file=sys.stderr)
