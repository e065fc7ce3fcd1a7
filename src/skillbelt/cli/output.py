"""How commands print: JSON for programs, tables for people, plain lines for pipes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Literal, TextIO

from skillbelt.discovery.catalog import Catalog
from skillbelt.format.skill import Skill
from skillbelt.settings import load_settings
from skillbelt.text import one_line, shorten
from skillbelt.values import Diagnostic

_GAP = 2  # blanks between two columns
_LEAST_ROOM = 10

_ONE_RUN = 3600.0
SANDBOX_HELP = "auto, none, or one that `skillbelt doctor -v` lists (default: the setting sandbox)"
# Whose session a run from the command line is: what a SessionKey is made of. The key itself would
# bring the store along.
CLI_SESSION = ("skillbelt", "cli", "default")
SESSION_HELP = (
    "the conversation it belongs to: its workspace stays for the next run (default: none, and the "
    "run gets an empty one)"
)


def open_catalog(args: argparse.Namespace, *, refresh: bool = False) -> Catalog:
    """The catalogue the common options ask for, scanned; a terminal shows the progress."""
    wanted = wants_progress(args)
    progress = show_progress if wanted else None
    settings = load_settings(args.project, config=args.config)
    # One command, one scan: nothing asks again while it runs.
    catalog = Catalog(settings=settings._replace(rescan_seconds=_ONE_RUN), progress=progress)
    _ = catalog.refresh() if refresh else catalog.discover()
    if wanted:
        show_progress("")
    return catalog


def wants_progress(args: argparse.Namespace) -> bool:
    """Whether somebody is there to see how far it is."""
    return sys.stderr.isatty() and not args.quiet


def show_progress(text: str) -> None:
    """Write over what the line of the terminal said before; nothing wipes it away."""
    room = min(78, width(sys.stderr) - 1)
    print(f"\r\x1b[K{shorten(one_line(text), room)}", end="", file=sys.stderr, flush=True)


def width(stream: TextIO) -> int:
    """How many columns the terminal behind a stream has; 80 where there is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


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


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, wrap: bool = False) -> None:
    """A table on a terminal; in a pipe one line a row with tabs between the cells.

    On a terminal the last column takes the room that is left: cut to one line, or wrapped.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_on_terminal(head, cells, wrap)
        return
    for row in cells:
        print("\t".join(row))


def _print_on_terminal(head: Sequence[str], rows: list[list[str]], wrap: bool) -> None:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(no_color=bool(os.environ.get("NO_COLOR")) or None)
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(head))
    left = console.width
    for place, title in enumerate(head[:-1]):
        longest = max(cell_len(text) for text in (title, *(row[place] for row in rows)))
        width = min(longest, console.width // 2)
        table.add_column(title, overflow="fold", width=width)
        left -= width + _GAP
    overflow: Literal["fold", "ellipsis"] = "fold" if wrap else "ellipsis"
    room = max(left, _LEAST_ROOM)
    table.add_column(head[-1], overflow=overflow, no_wrap=not wrap, max_width=room)
    for row in rows:
        table.add_row(*(Text(cell, style="cyan" if n == 0 else "") for n, cell in enumerate(row)))
    console.print(table)


def positive(text: str) -> int:
    """A number that counts something, as an option gives it."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def count(number: int, noun: str) -> str:
    """The number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


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
