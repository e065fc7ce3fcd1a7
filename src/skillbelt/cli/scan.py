"""`skillbelt scan`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

from skillbelt import __version__
from skillbelt.check.annotations import annotation
from skillbelt.check.sarif import log
from skillbelt.cli.check import targets
from skillbelt.cli.output import (
    count,
    print_json,
    print_json_list,
    say,
    show_progress,
    wants_progress,
)
from skillbelt.cli.scanning import open_catalog
from skillbelt.cli.words import print_words
from skillbelt.discovery.sources.address import is_remote
from skillbelt.errors import ConfigError, SkillbeltError
from skillbelt.format.skill import Skill
from skillbelt.install.content_store import incoming
from skillbelt.install.fetching import open_source
from skillbelt.install.revisions import export_revision, find_revision
from skillbelt.install.source_syntax import parse_typed
from skillbelt.records import NamedTuple
from skillbelt.scan.accepted import (
    AcceptedRule,
    accept,
    accepted_file,
    check_rule,
    read_accepted,
)
from skillbelt.scan.inspector import SkillInspector
from skillbelt.scan.report import (
    LEVELS,
    describe_statement,
    report_rules,
    to_diagnostics,
)
from skillbelt.scan.values import (
    KINDS,
    CapabilityStatement,
    Finding,
    FindingKind,
    ScannedSkill,
    at_level,
)
from skillbelt.settings import Settings, load_settings
from skillbelt.store import open_store
from skillbelt.text import one_line
from skillbelt.values import Diagnostic


class ScanResult(NamedTuple):
    """A skill that was scanned, and the folder its paths are below."""

    scanned: ScannedSkill
    folder: str


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `scan`."""
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="a skill's name, a folder, or a source as `add` takes it (default: every skill)",
    )
    parser.add_argument(
        "--level",
        choices=KINDS,
        help="show findings from this level on (default: ask; all with --json)",
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "sarif", "github"),
        help="the output format; github: annotations for a workflow (default: text)",
    )
    parser.add_argument(
        "--accept",
        metavar="RULE",
        action="append",
        default=[],
        help="accept the findings of a rule for this content, with --reason (may be repeated)",
    )
    parser.add_argument(
        "--model", metavar="MODEL", help="ask this model for a second opinion, which adds findings"
    )
    parser.add_argument("--reason", metavar="TEXT", default="", help="why they are accepted")
    parser.add_argument(
        "--accepted", metavar="FILE", help="also accept the findings that this file lists"
    )


def run(args: argparse.Namespace) -> int:
    """Scan the skills and print what they can do; 1 when one is blocked."""
    form = args.format or ("json" if args.json else "text")
    for rule in args.accept:
        check_rule(rule, args.reason)
    settings = load_settings(args.project, config=args.config)
    more = read_accepted(args.accepted, required=True) if args.accepted else ()
    inspector = SkillInspector(settings, lambda: open_store(settings))
    progress = show_progress if wants_progress(args) else _ignore_progress
    # Of named skills, a later one may not be there; the document of an error then stands alone.
    if form == "json" and not args.targets and not args.accept and args.model is None:
        return _stream(inspector, more, args)
    with ExitStack() as stack:
        results: list[ScanResult] = []
        missing = set(args.accept)
        asked: list[tuple[Skill, ScannedSkill]] = []
        for skill in _find_skills(args, settings, stack):
            progress(f"scanning {skill.name}")
            if args.accept:
                _accept(inspector.scan(skill), settings, args)
            scanned = inspector.scan(skill, more)
            missing -= {one.finding.rule for one in scanned.suppressed}
            results.append(ScanResult(scanned, skill.dir))
            if args.model is not None:
                asked.append((skill, scanned))
            elif form != "json" and not args.verbose:
                _drop_unshown(results)
        if args.model is not None:
            scans = _ask_model(asked, settings, args, progress)
            results = [
                ScanResult(one, skill.dir) for (skill, _), one in zip(asked, scans, strict=True)
            ]
        progress("")
    for rule in sorted(missing):
        say(f"skillbelt: nothing was accepted for {rule}: no finding is of that rule", args)
    _show(results, form, args, (*read_accepted(accepted_file(settings.state_dir)), *more))
    return 1 if any(one.scanned.level == "block" for one in results) else 0


def _stream(
    inspector: SkillInspector, more: Sequence[AcceptedRule], args: argparse.Namespace
) -> int:
    """Print the results of all skills as they come, so that thousands take little memory."""
    levels: set[str] = set()
    skills = open_catalog(args).all()  # an error in it is a document of its own

    def scan_all() -> Iterator[object]:
        for skill in skills:
            scanned = inspector.scan(skill, more)
            levels.add(scanned.level)
            yield _make_document(scanned, args.level or "note")

    print_json_list("skills", scan_all())
    return 1 if "block" in levels else 0


def _make_document(scanned: ScannedSkill, level: FindingKind) -> dict[str, object]:
    shown = scanned._replace(findings=at_level(scanned.findings, level))
    return {**shown.to_json(), "level": scanned.level}


def _drop_unshown(results: list[ScanResult]) -> None:
    """Drop everything that is not printed, so that thousands of skills take little memory."""
    for at in range(max(len(results) - 2, 0), len(results) if len(results) > 1 else 0):
        scanned = results[at].scanned._replace(statement=CapabilityStatement(), unseen=())
        results[at] = results[at]._replace(scanned=scanned)


def _ignore_progress(_text: str) -> None:
    pass


def _ask_model(
    found: Sequence[tuple[Skill, ScannedSkill]],
    settings: Settings,
    args: argparse.Namespace,
    progress: Callable[[str], None],
) -> list[ScannedSkill]:
    # cost: 500 ms, only for a second opinion
    from skillbelt.cli.scan_opinion import ask_opinions

    return ask_opinions(found, args.model, settings, progress)


def _accept(scanned: ScannedSkill, settings: Settings, args: argparse.Namespace) -> None:
    """Accept the findings of the given rules in this skill."""
    found = {one.rule for one in (*scanned.findings, *(one.finding for one in scanned.suppressed))}
    rules = [rule for rule in dict.fromkeys(args.accept) if rule in found]
    if rules:
        accept(settings.state_dir, scanned, rules, args.reason)


# Targets


def _find_skills(args: argparse.Namespace, settings: Settings, stack: ExitStack) -> Iterator[Skill]:
    """Yield the named skills; those of a source only while it is fetched."""
    if args.targets:
        yield from find_targets(args.targets, args, settings, stack)
    else:
        yield from open_catalog(args).all()


def find_targets(
    words: Sequence[str], args: argparse.Namespace, settings: Settings, stack: ExitStack
) -> Iterator[Skill]:
    """Yield the skills that words name: a path, a source, or a name of the catalogue."""
    for word in words:
        if is_remote(word) and os.path.isfile(path := os.path.expanduser(word)):
            yield from _fetch(os.path.abspath(path), args, settings, stack)
        elif os.path.lexists(os.path.expanduser(word)):
            here = targets([word], settings)
            for path in here.files:
                yield Skill.from_file(path)
            if not here.files:
                raise ConfigError(
                    f"there is no SKILL.md in {one_line(word)}: name a skill's folder"
                )
        elif ":" in word and (found := find_revision(word, os.getcwd())):
            yield Skill.from_folder(export_revision(found, stack.enter_context(incoming(settings))))
        elif "/" in word or ":" in word or "@" in word:
            yield from _fetch(word, args, settings, stack)
        else:
            yield open_catalog(args).find(word)


def _fetch(
    word: str, args: argparse.Namespace, settings: Settings, stack: ExitStack
) -> Iterator[Skill]:
    folder = stack.enter_context(incoming(settings))
    progress = show_progress if wants_progress(args) else None
    reference = parse_typed(word, folder=os.getcwd())
    source = open_source(reference, settings, folder, progress=progress)
    wanted = reference.skill
    for found in source.choose([wanted]) if wanted else source.found.skills:
        try:
            yield Skill.from_folder(source.take_alone(found).folder)
        except SkillbeltError as error:
            say(f"skillbelt: {one_line(found.name)}: {one_line(str(error))}", args)


# Output


def _show(
    results: Sequence[ScanResult],
    form: str,
    args: argparse.Namespace,
    accepted: Sequence[AcceptedRule],
) -> None:
    level: FindingKind = args.level or ("note" if form in ("json", "sarif") else "ask")
    shown = [
        one._replace(scanned=one.scanned._replace(findings=at_level(one.scanned.findings, level)))
        for one in results
    ]
    if form == "json":
        print_json({"skills": [_make_document(one.scanned, level) for one in results]})
    elif form == "sarif":
        found = [said for one in shown for said in to_diagnostics(one.scanned, one.folder)]
        root = args.project or os.getcwd()
        print_json(log(found, root=root, version=__version__, rules=report_rules()))
    elif form == "github":
        for one in shown:
            for said in to_diagnostics(one.scanned, one.folder):
                print(annotation(said, _make_relative(said)))
    else:
        _print(results, shown, args, {(one.skill, one.rule): one.reason for one in accepted})


def _print(
    results: Sequence[ScanResult],
    shown: Sequence[ScanResult],
    args: argparse.Namespace,
    accepted: Mapping[tuple[str, str], str],
) -> None:
    """Print the results; `accepted` are the reasons that were given for any content."""
    for before, after in zip(results, shown, strict=True):
        scanned = after.scanned
        level = before.scanned.level
        told = scanned.findings or (args.accept and scanned.suppressed)
        if not told and len(results) > 1 and not args.verbose:
            continue
        print(f"{one_line(scanned.name)}: {LEVELS[level]}")
        for one in scanned.findings:
            _print_finding(one, accepted.get((scanned.name, one.rule), ""))
        asked = [one for one in before.scanned.findings if one.kind == "ask"]
        if asked and not any(one.kind == "ask" for one in scanned.findings):
            print(f"  {count(len(asked), 'finding')} to review: --level ask shows them")
        for gone in scanned.suppressed:
            print_words(f"  accepted {gone.finding.rule}: {one_line(gone.reason)}", "    ")
        if len(results) == 1 or args.verbose:
            for label, text in describe_statement(scanned.statement):
                print_words(f"  {label:<12} {text}", " " * 15)
            for missed in scanned.unseen:
                print_words(f"  not seen     {one_line(missed)}", " " * 15)
    if not args.quiet:
        print(_summarize(results))


def _print_finding(one: Finding, lapsed: str) -> None:
    """Print a finding; `lapsed` is the reason why one was accepted for other content."""
    place = f"{one.path}:{one.line}" if one.line else one.path
    print_words(f"  {one.kind} {one.rule}: {one_line(place)}: {one_line(one.message)}", "    ")
    print_words(f"    {one_line(one.remedy)}", "    ")
    if lapsed:
        told = f"accepted for other content, which does not count here: {one_line(lapsed)}"
        print_words(f"    {told}", "    ")


def _summarize(results: Sequence[ScanResult]) -> str:
    levels = [one.scanned.level for one in results]
    blocked, asked = levels.count("block"), levels.count("ask")
    return f"{count(len(results), 'skill')} scanned: {blocked} blocked, {asked} to review"


def _make_relative(said: Diagnostic) -> str:
    here = os.path.join(os.getcwd(), "")
    return said.path.removeprefix(here)
