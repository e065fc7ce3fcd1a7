"""`skillbelt check`."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from skillbelt import __version__
from skillbelt.check.annotations import annotation
from skillbelt.check.check import check_all
from skillbelt.check.fix import Fixed, diff, fix_file
from skillbelt.check.rules import RULES, finding, harden
from skillbelt.check.sarif import log
from skillbelt.cli.output import print_json, say
from skillbelt.cli.words import print_words
from skillbelt.discovery.clients import fence_of, local_roots
from skillbelt.discovery.describe import diagnostics_json
from skillbelt.discovery.scan import rules
from skillbelt.discovery.sources import is_remote
from skillbelt.discovery.sources.folder import Walker, WalkProgress
from skillbelt.errors import ConfigError
from skillbelt.format.skill import Skill
from skillbelt.records import NamedTuple
from skillbelt.scan.inspector import SkillInspector
from skillbelt.scan.report import report_rules, to_diagnostics
from skillbelt.settings import Settings, load_settings
from skillbelt.text import one_line
from skillbelt.values import SKILL_FILE, Diagnostic, Severity

_COLOURS = {"error": "31", "warning": "33", "info": "36", "+": "32", "-": "31", "@": "36"}


class CheckTargets(NamedTuple):
    """The files to check, each once, and the diagnostics of finding them."""

    files: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `check`."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="a SKILL.md, the folder of a skill, or a folder of skills (default: the project's)",
    )
    parser.add_argument("--user", action="store_true", help="check the skills in your own folders")
    parser.add_argument(
        "--all",
        action="store_true",
        help="check the skills of every folder that `list` reads: the project's and your own",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="follow the specification exactly: more findings are errors",
    )
    parser.add_argument(
        "--security",
        action="store_true",
        help="scan the skills too, as `scan` does: what is blocked there is an error",
    )
    parser.add_argument(
        "--fix", action="store_true", help="fix what can be fixed and show the changes"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what --fix would change without changing it"
    )
    parser.add_argument(
        "--unsafe-fixes",
        action="store_true",
        help="with --fix or --dry-run: also what is a guess, such as misspelled fields and names "
        "that differ from the folder's",
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "sarif", "github"),
        help="the output format; github: annotations for a workflow (default: text)",
    )


def run(args: argparse.Namespace) -> int:
    """Check the files and print the findings."""
    form = args.format or ("json" if args.json else "text")
    if args.unsafe_fixes and not (args.fix or args.dry_run):
        raise ConfigError("--unsafe-fixes needs --fix, or --dry-run to see what it would do")
    settings = load_settings(args.project, config=args.config)
    chosen = _choose(args, settings)
    files, diagnostics = chosen.files, chosen.diagnostics
    fence = partial(fence_of, settings=settings)
    if args.fix or args.dry_run:
        fixed = [
            fix_file(path, dry_run=args.dry_run, fence=fence(path), unsafe=args.unsafe_fixes)
            for path in files
        ]
        _show_fixes(fixed, form, args)
        diagnostics += tuple(diagnostic for one in fixed for diagnostic in one.diagnostics)
        files = files if args.dry_run else tuple(one.path for one in fixed)
    diagnostics = harden(diagnostics) if args.strict else diagnostics
    found = diagnostics + check_all(files, strict=args.strict, fence=fence)
    if args.security:
        found += _drop_told(_scan_files(files, settings), found)
    _show(found, len(files), form, args)
    return 1 if any(diagnostic.severity == "error" for diagnostic in found) else 0


def _drop_told(
    scanned: Iterable[Diagnostic], found: Iterable[Diagnostic]
) -> tuple[Diagnostic, ...]:
    """Leave out what a check says of the same line with the same rule, if that is no weaker."""
    told = {(one.code, one.path, one.line, one.severity) for one in found}
    return tuple(
        one
        for one in scanned
        if (one.code, one.path, one.line, one.severity) not in told
        and (one.code, one.path, one.line, "error") not in told
    )


def _scan_files(files: Sequence[str], settings: Settings) -> tuple[Diagnostic, ...]:
    """Return the findings of a scan of these files' skills."""
    found: list[Diagnostic] = []
    inspector = SkillInspector(settings)
    for path in files:
        skill = Skill.from_file(path)._replace(fence=fence_of(path, settings))
        found += to_diagnostics(inspector.scan(skill), skill.dir)
    return tuple(found)


# Targets


def _choose(args: argparse.Namespace, settings: Settings) -> CheckTargets:
    if not (args.user or args.all):
        return targets(args.paths, settings)
    if args.paths:
        raise ConfigError("check takes paths, or one of --user and --all")
    explicit = [path for path in (*settings.paths, settings.skills_root) if path]
    roots = local_roots(settings, [path for path in explicit if not is_remote(path)])
    chosen = [root.path for root in roots if args.all or root.scope == "user"]
    found = _merge(_find(path, settings) for path in chosen if os.path.exists(path))
    # A client's folder may be empty; only a path on the command line must hold a skill.
    diagnostics = tuple(one for one in found.diagnostics if one.code != "no-skill")
    return found._replace(diagnostics=diagnostics)


def targets(paths: Sequence[str], settings: Settings) -> CheckTargets:
    """Return the SKILL.md files below the paths; without a path, those of the project."""
    if paths:
        return _merge(_find(path, settings) for path in paths)
    project = settings.project
    roots = [root.path for root in local_roots(settings) if root.scope == "project"]
    own = os.path.join(project, SKILL_FILE)
    places = [own] if os.path.lexists(own) else []
    chosen = _merge(_find(path, settings) for path in places + list(filter(os.path.isdir, roots)))
    return chosen if chosen.files else _find_below(project, settings)


def _merge(parts: Iterable[CheckTargets]) -> CheckTargets:
    every = list(parts)
    files = dict.fromkeys(path for part in every for path in part.files)
    diagnostics = dict.fromkeys(diagnostic for part in every for diagnostic in part.diagnostics)
    return CheckTargets(tuple(files), tuple(diagnostics))


def _find(path: str, settings: Settings) -> CheckTargets:
    full = os.path.abspath(os.path.expanduser(path))
    if not os.path.lexists(full):
        raise ConfigError(
            f"no such file or folder: {path!r}; `skillbelt check --all` checks every skill there is"
        )
    if os.path.basename(full).lower() == SKILL_FILE.lower():
        return CheckTargets((full,))
    if not os.path.isdir(full):
        raise ConfigError(f"not a {SKILL_FILE} and not a folder: {path!r}")
    return _find_below(full, settings)


def _find_below(folder: str, settings: Settings) -> CheckTargets:
    """Find every skill in the folder, also with a misspelled file name."""
    how = rules(settings)._replace(loose_file_name=True, fence=fence_of(folder, settings))
    walker = Walker(folder, how, WalkProgress())
    walker.walk()
    files = tuple(found.location for found in walker.found)
    diagnostics = [_grade(one) for one in walker.diagnostics if one.path not in files]
    if not files and not diagnostics:
        diagnostics = [
            finding("no-skill", folder, None, f"there is no {SKILL_FILE} in this folder")
        ]
    return CheckTargets(files, tuple(diagnostics))


def _grade(diagnostic: Diagnostic) -> Diagnostic:
    """Raise a warning to an error when it is about a SKILL.md itself."""
    own = os.path.basename(diagnostic.path).lower() == SKILL_FILE.lower()
    return (
        diagnostic._replace(severity="error")
        if own and diagnostic.severity == "warning"
        else diagnostic
    )


# Output


def _show(found: Sequence[Diagnostic], files: int, form: str, args: argparse.Namespace) -> None:
    counts = Counter(diagnostic.severity for diagnostic in found)
    if form == "sarif":
        root = args.project or os.getcwd()
        rules = {**report_rules(), **RULES} if args.security else RULES
        print_json(log(found, root=root, version=__version__, strict=args.strict, rules=rules))
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
        (_print_annotations if form == "github" else _print_findings)(found, args)
        if not args.quiet:
            print(_summary(files, counts, args.verbose))


def _print_findings(found: Iterable[Diagnostic], args: argparse.Namespace) -> None:
    """Print one line per finding and its remedy below it; notes only with --verbose."""
    for code, severity, path, line, message, remedy in found:
        if severity == "info" and not args.verbose:
            continue
        where = f"{_relative(path)}:{line}" if line else _relative(path)
        mark = _paint(severity, severity)
        print_words(f"{one_line(where)}: {mark} {code}: {one_line(message)}", "  ")
        if remedy:
            print_words(f"    {one_line(remedy)}", "    ")


def _print_annotations(found: Iterable[Diagnostic], args: argparse.Namespace) -> None:
    """Print commands that a GitHub workflow shows as annotations beside the lines."""
    for diagnostic in found:
        if diagnostic.severity != "info" or args.verbose:
            print(annotation(diagnostic, _relative(diagnostic.path)))


def _summary(files: int, counts: Counter[Severity], verbose: bool) -> str:
    parts = [_count(counts["error"], "error"), _count(counts["warning"], "warning")]
    if counts["info"]:
        hint = "" if verbose else " (-v shows them)"
        parts.append(_count(counts["info"], "note") + hint)
    return f"{_count(files, 'file')} checked: {', '.join(parts)}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _show_fixes(fixed: Iterable[Fixed], form: str, args: argparse.Namespace) -> None:
    """Print the changes as diffs, on stderr when stdout is a document."""
    stream = sys.stdout if form == "text" else sys.stderr
    for one in fixed:
        if not one.done:
            continue
        # A workflow would obey a line of a skill that begins with two colons.
        for line in diff(one, os.getcwd()) if form != "github" else ():
            print(_paint(_escape(line), line[:1], stream.isatty()), file=stream)
        verb = "would be fixed" if args.dry_run else "fixed"
        text = one_line(f"{_relative(one.path)}: {verb}: {'; '.join(one.done)}")
        say(f"skillbelt: {text}" if form == "github" else text, args)


def _escape(line: str) -> str:
    """Escape unsafe characters of the line and keep its spaces."""
    return " ".join(one_line(word) for word in line.split(" "))


def _paint(text: str, kind: str, terminal: bool | None = None) -> str:
    terminal = sys.stdout.isatty() if terminal is None else terminal
    if not terminal or kind not in _COLOURS or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_COLOURS[kind]}m{text}\x1b[0m"


def _relative(path: str) -> str:
    """Return the path relative to the current folder if it is below it."""
    here = os.path.join(os.getcwd(), "")
    return path[len(here) :] if path.startswith(here) else path
