"""`skillbelt check`."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from skillbelt.check.check import check_all
from skillbelt.check.fix_files import Fixed, diff, fix_file
from skillbelt.check.rules import finding, harden
from skillbelt.cli.output import diagnostics_json, print_json, say
from skillbelt.discovery.clients import fence_of, local_roots
from skillbelt.discovery.scan import rules
from skillbelt.discovery.sources.folder import Walker, WalkProgress
from skillbelt.errors import ConfigError
from skillbelt.settings import Settings, load_settings
from skillbelt.text import one_line
from skillbelt.values import SKILL_FILE, Diagnostic, Severity

_COLOURS = {"error": "31", "warning": "33", "info": "36", "+": "32", "-": "31", "@": "36"}


class Targets(NamedTuple):
    """The files to check, each once, and what there was to say on the way to them."""

    files: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `check`."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="a SKILL.md, a skill's folder, or a folder with skills (default: the project's)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="the specification to the letter: more are errors"
    )
    parser.add_argument(
        "--fix", action="store_true", help="fix what can be fixed and show the changes"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what --fix would change, and change nothing"
    )
    parser.add_argument(
        "--format", choices=("text", "json", "sarif"), help="how to print (default: text)"
    )


def run(args: argparse.Namespace) -> int:
    """Check, and print what was found."""
    form = args.format or ("json" if args.json else "text")
    settings = load_settings(args.project, config=args.config)
    chosen = targets(args.paths, settings)
    files, said = chosen.files, chosen.diagnostics
    fence = partial(fence_of, settings=settings)
    if args.fix or args.dry_run:
        fixed = [
            fix_file(path, dry_run=args.dry_run, limits=settings.limits, fence=fence(path))
            for path in files
        ]
        _show_fixes(fixed, form, args)
        said += tuple(diagnostic for one in fixed for diagnostic in one.diagnostics)
        files = files if args.dry_run else tuple(one.path for one in fixed)
    said = harden(said) if args.strict else said
    found = said + check_all(files, strict=args.strict, limits=settings.limits, fence=fence)
    _show(found, len(files), form, args)
    return 1 if any(diagnostic.severity == "error" for diagnostic in found) else 0


# --- what to check -------------------------------------------------------------------------------


def targets(paths: Sequence[str], settings: Settings) -> Targets:
    """The SKILL.md files the paths mean; without a path, those of the project."""
    if paths:
        return _merged(_named(path, settings) for path in paths)
    project = settings.project
    roots = [root.path for root in local_roots(settings) if root.scope == "project"]
    own = os.path.join(project, SKILL_FILE)
    places = [own] if os.path.lexists(own) else []
    chosen = _merged(_named(path, settings) for path in places + list(filter(os.path.isdir, roots)))
    return chosen if chosen.files else _below(project, settings)


def _merged(parts: Iterable[Targets]) -> Targets:
    every = list(parts)
    files = dict.fromkeys(path for part in every for path in part.files)
    said = dict.fromkeys(diagnostic for part in every for diagnostic in part.diagnostics)
    return Targets(tuple(files), tuple(said))


def _named(path: str, settings: Settings) -> Targets:
    full = os.path.abspath(os.path.expanduser(path))
    if not os.path.lexists(full):
        raise ConfigError(f"no such file or folder: {path!r}")
    if os.path.basename(full).lower() == SKILL_FILE.lower():
        return Targets((full,))
    if not os.path.isdir(full):
        raise ConfigError(f"not a {SKILL_FILE} and not a folder: {path!r}")
    return _below(full, settings)


def _below(folder: str, settings: Settings) -> Targets:
    """Every skill in the folder, also those whose file is spelled wrongly."""
    how = rules(settings)._replace(loose_file_name=True, fence=fence_of(folder, settings))
    walker = Walker(folder, how, WalkProgress())
    walker.walk()
    files = tuple(found.location for found in walker.found)
    said = [_graded(one) for one in walker.diagnostics if one.path not in files]
    if not files and not said:
        said = [finding("no-skill", folder, None, f"there is no {SKILL_FILE} in this folder")]
    return Targets(files, tuple(said))


def _graded(said: Diagnostic) -> Diagnostic:
    """An error where it is the SKILL.md itself that can not be used."""
    own = os.path.basename(said.path).lower() == SKILL_FILE.lower()
    return said._replace(severity="error") if own and said.severity == "warning" else said


# --- how to print --------------------------------------------------------------------------------


def _show(found: Sequence[Diagnostic], files: int, form: str, args: argparse.Namespace) -> None:
    counts = Counter(diagnostic.severity for diagnostic in found)
    if form == "sarif":
        from skillbelt import __version__
        from skillbelt.check.sarif import log

        root = args.project or os.getcwd()
        print_json(log(found, root=root, version=__version__, strict=args.strict))
    elif form == "json":
        print_json(
            {
                "files": files,
                "errors": counts["error"],
                "warnings": counts["warning"],
                "diagnostics": diagnostics_json(found),
            }
        )
    else:
        _print_findings(found, args)
        if not args.quiet:
            print(_summary(files, counts, args.verbose))


def _print_findings(found: Iterable[Diagnostic], args: argparse.Namespace) -> None:
    """One line a finding and its remedy below it; notes only where they are asked for."""
    for code, severity, path, line, message, remedy in found:
        if severity == "info" and not args.verbose:
            continue
        where = f"{_near(path)}:{line}" if line else _near(path)
        mark = _painted(severity, severity)
        print(f"{one_line(where)}: {mark} {code}: {one_line(message)}")
        if remedy:
            print(f"    {one_line(remedy)}")


def _summary(files: int, counts: Counter[Severity], verbose: bool) -> str:
    parts = [_count(counts["error"], "error"), _count(counts["warning"], "warning")]
    if counts["info"]:
        hint = "" if verbose else " (-v shows them)"
        parts.append(_count(counts["info"], "note") + hint)
    return f"{_count(files, 'file')} checked: {', '.join(parts)}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _show_fixes(fixed: Iterable[Fixed], form: str, args: argparse.Namespace) -> None:
    """The changes as diffs: on stdout for people, on stderr where stdout is a document."""
    stream = sys.stdout if form == "text" else sys.stderr
    for one in fixed:
        if not one.done:
            continue
        for line in diff(one, os.getcwd()):
            print(_painted(_escaped(line), line[:1], stream.isatty()), file=stream)
        verb = "would be fixed" if args.dry_run else "fixed"
        say(one_line(f"{_near(one.path)}: {verb}: {'; '.join(one.done)}"), args)


def _escaped(line: str) -> str:
    """The line with its blanks as they are and everything unsafe shown as an escape."""
    return " ".join(one_line(word) for word in line.split(" "))


def _painted(text: str, kind: str, terminal: bool | None = None) -> str:
    terminal = sys.stdout.isatty() if terminal is None else terminal
    if not terminal or kind not in _COLOURS or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_COLOURS[kind]}m{text}\x1b[0m"


def _near(path: str) -> str:
    """The path as seen from here, where it lies below."""
    here = os.path.join(os.getcwd(), "")
    return path[len(here) :] if path.startswith(here) else path
