"""Print: JSON for programs, tables for terminals, tab-separated lines for pipes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from skillbelt.cli.failure import Printed
from skillbelt.cli.words import print_words, show_line, width
from skillbelt.late import Late
from skillbelt.settings import Settings
from skillbelt.text import one_line, shorten
from skillbelt.values import Diagnostic

if TYPE_CHECKING:
    from skillbelt.discovery.catalog import Catalog
    from skillbelt.permission import judging
else:
    judging = Late("skillbelt.permission.judging")  # cost: 1 ms, only for problems of rules

NO_COLOURS: Mapping[str, Mapping[str, str]] = {}
SANDBOX_HELP = "auto, none, or one that `skillbelt doctor -v` lists (default: the setting sandbox)"
# The session of runs from the command line, as the parts of a SessionKey: importing that class
# would import the store.
CLI_SESSION = ("skillbelt", "cli", "default")
SESSION_HELP = (
    "the conversation it belongs to; its workspace is kept for the next run (default: none, with "
    "an empty workspace)"
)


def rule_problems(settings: Settings) -> list[Diagnostic]:
    """Return the problems of the permission rules in the settings files."""
    return judging.judge_by_rules(settings, ())[0]


def wants_progress(args: argparse.Namespace) -> bool:
    """Whether stderr is a terminal that may show progress."""
    return sys.stderr.isatty() and not args.quiet


def has_terminal() -> bool:
    """Whether a person can read questions and type answers: neither is piped."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def show_progress(text: str) -> None:
    """Overwrite the progress line of the terminal; an empty text clears it."""
    room = min(78, width(sys.stderr) - 1)
    show_line(shorten(one_line(text), room))


def print_json(document: object) -> None:
    """Print the one JSON document of a command."""
    Printed.document = True
    print(json.dumps(document, indent=2))


def print_json_list(name: str, items: Iterable[object]) -> None:
    """Print the document of a command that is one list, item by item as they come."""
    Printed.document = True
    print("{", f'  "{name}": [', sep="\n", end="")
    before = ""
    for item in items:
        text = json.dumps(item, indent=2).replace("\n", "\n    ")
        print(f"{before}\n    {text}", end="")
        before = ","
    print("\n  ]" if before else "]", "}", sep="\n")


def folders_of(catalog: Catalog) -> dict[str, str]:
    """Return the origin of each skill, by location: its client, address or folder."""
    home = os.path.join(catalog.settings.home, "")
    return {
        one.location: scan.root.client or one.origin.url or scan.root.path.replace(home, "~/", 1)
        for scan in catalog.scans
        for one in scan.skills
    }


def print_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    wrap: bool = False,
    below: int = 0,
    colours: Mapping[str, Mapping[str, str]] = NO_COLOURS,
) -> None:
    """Print a table on a terminal; in a pipe print one tab-separated line per row.

    On a terminal the last column takes the remaining width, cut to one line or wrapped. The last
    `below` columns go below a row that has no room for them. `colours` are the styles of words, by
    the title of their column.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        # cost: 40 ms for rich
        from skillbelt.cli.table import TableLook, print_on_terminal

        print_on_terminal(head, cells, TableLook(wrap, below, colours))
        return
    for row in cells:
        print("\t".join(row))


def wide_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for tables on a terminal."""
    parser.add_argument(
        "--wide",
        action="store_true",
        help="on a terminal: every column, exact times, and nothing cut",
    )


def change_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that change files."""
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and change nothing"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="answer the question with yes")


def yes_option(parser: argparse.ArgumentParser) -> None:
    """Add the option of commands that ask for permission."""
    parser.add_argument("--yes", action="store_true", help="answer permission requests with yes")


def positive(text: str) -> int:
    """Parse an option value that must be a positive number."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def count(number: int, noun: str) -> str:
    """Return the number with its noun, in the plural if needed."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def print_diagnostics(diagnostics: Iterable[Diagnostic], args: argparse.Namespace) -> None:
    """Print errors and warnings to stderr, one line each; with -v notes and remedies too."""
    if args.quiet:
        return
    for diagnostic in diagnostics:
        if diagnostic.severity == "info" and not args.verbose:
            continue
        shown = diagnostic if args.verbose else diagnostic._replace(remedy="")
        print_words(one_line(str(shown)), "  ", sys.stderr)


def say(text: str, args: argparse.Namespace) -> None:
    """Print a message to stderr, unless --quiet was given."""
    if not args.quiet:
        print_words(text, "  ", sys.stderr)
