"""`skillbelt show`."""

from __future__ import annotations

import argparse
import json

from skillbelt.cli.capabilities import print_capabilities
from skillbelt.cli.output import count, print_json, print_table, say
from skillbelt.cli.scanning import open_catalog
from skillbelt.console.catalogue import (
    describe_skill,
    estimate_tokens,
    find_problems,
    find_results,
)
from skillbelt.discovery.catalog import find_any
from skillbelt.discovery.describe import clients_of, switches_json
from skillbelt.evals.last_results import LastResult
from skillbelt.format.skill import Skill
from skillbelt.permission.judging import judge_by_rules
from skillbelt.scan.inspector import SkillInspector
from skillbelt.scan.report import describe_level
from skillbelt.scan.values import ScannedSkill
from skillbelt.settings import Settings
from skillbelt.store import open_store
from skillbelt.text import one_line
from skillbelt.values import Diagnostic, Manifest, SkillSettings


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `show`."""
    parser.add_argument("name", metavar="NAME", help="the skill")
    parser.add_argument(
        "--capabilities",
        action="store_true",
        help="show what it can do: what it declares, what it contains, what runs of it did",
    )


def run(args: argparse.Namespace) -> int:
    """Print everything about one skill."""
    catalog = open_catalog(args)
    skill = find_any(catalog, args.name)
    if args.capabilities:
        return _show_capabilities(skill, catalog.settings, args)
    listing, client = skill.files.manifest(), clients_of(catalog).get(skill.location, "")
    diagnostics = [*find_problems(skill), *listing.diagnostics]
    switches = catalog.settings.for_skill(skill.name)
    measured = find_results(skill, catalog.settings)
    if args.json:
        ruled, denied = judge_by_rules(catalog.settings, [skill])
        document = describe_skill(skill, listing, [*diagnostics, *ruled], switches)
        evals = [one.document() for one in measured]
        print_json(
            {**document, "denied": skill.name in denied, "client": client, "evaluations": evals}
        )
    else:
        scan = describe_level(_scan(skill, catalog.settings))
        _print(skill, listing, diagnostics, client, switches, scan)
        _print_results(measured)
    return 0


def _print_results(measured: tuple[LastResult, ...]) -> None:
    if measured:
        print("evaluations")
    for one in measured:
        print(f"  {one_line(one.text)}")


def _scan(skill: Skill, settings: Settings) -> ScannedSkill:
    return SkillInspector(settings, lambda: open_store(settings)).scan(skill)


def _show_capabilities(skill: Skill, settings: Settings, args: argparse.Namespace) -> int:
    scanned = _scan(skill, settings)
    if args.json:
        print_json(scanned.to_json())
        return 0
    print_capabilities(scanned.statement.capabilities)
    if not scanned.statement.capabilities:
        print("nothing: it only gives instructions")
    for missed in scanned.unseen:
        print(f"not seen: {one_line(missed)}")
    if told := describe_level(scanned):
        say(f"skillbelt: {one_line(skill.name)}: {told}", args)
    return 0


def _print(
    skill: Skill,
    listing: Manifest,
    diagnostics: list[Diagnostic],
    client: str,
    switches: SkillSettings,
    scan: str,
) -> None:
    cost = estimate_tokens(skill, listing)
    facts = {
        "name": skill.name,
        "title": skill.title if skill.title != skill.name else "",
        "description": skill.description + (" (derived from the text)" if skill.derived else ""),
        "location": skill.location,
        "scope": skill.scope,
        "client": client,
        "origin": f"{skill.origin}, {'trusted' if skill.trusted else 'not trusted'}",
        "model visible": "yes" if skill.model_visible else "no",
        "user invocable": "yes" if skill.user_invocable else "no",
        "requires": _describe_requirements(skill),
        "scan": scan,
        "hash": listing.hash,
        "tokens": ", ".join(f"{count} {part}" for part, count in cost.items()),
        "shadows": ", ".join(skill.shadows),
    }
    print_table(("", ""), [(key, value) for key, value in facts.items() if value], wrap=True)
    _print_fields(skill)
    shown = switches_json(switches)
    if shown:
        print("settings")
    for key, one in shown.items():
        print(f"  {key} = {json.dumps(one['value'], ensure_ascii=False)}  ({one['source']})")
    print("files")
    for entry in listing.files:
        print(f"  {one_line(entry.path)}  {count(entry.size, 'byte')}, {entry.kind}")
    if diagnostics:
        print("problems")
    for diagnostic in diagnostics:
        print(f"  {one_line(str(diagnostic))}")


def _describe_requirements(skill: Skill) -> str:
    needs = skill.requirements._asdict().items()
    return "; ".join(
        f"{kind.replace('_', ' ')} {', '.join(words)}" for kind, words in needs if words
    )


def _print_fields(skill: Skill) -> None:
    rest = {k: v for k, v in skill.fields.items() if k not in ("name", "description")}
    if rest:
        print("frontmatter")
    for key, value in rest.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        print(f"  {one_line(key)}: {one_line(shown)}")
