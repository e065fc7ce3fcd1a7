"""`skillbelt show`."""

from __future__ import annotations

import argparse
import json

from skillbelt.check.check import check_file
from skillbelt.cli.output import (
    clients_of,
    count,
    diagnostics_json,
    judge_by_rules,
    print_json,
    print_table,
    skill_json,
    switches_json,
)
from skillbelt.cli.scanning import open_catalog
from skillbelt.format.skill import Skill
from skillbelt.scan.accepted import scan_accepting
from skillbelt.scan.report import describe_statement
from skillbelt.settings import Settings
from skillbelt.text import one_line, tokens, tokens_of_bytes
from skillbelt.values import SKILL_FILE, Diagnostic, Manifest, SkillSettings

_DOCUMENTS = (".md", ".txt")


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
    switched_off = catalog.snapshot.disabled.get(args.name)
    skill = switched_off[0] if switched_off else catalog.find(args.name)
    if args.capabilities:
        return _show_capabilities(skill, catalog.settings, args)
    listing, client = skill.files.manifest(), clients_of(catalog).get(skill.location, "")
    # A skill of an MCP server has only its frontmatter here, so there is nothing to check.
    foreign = skill.origin.kind == "mcp"
    checked = () if foreign else check_file(skill.location, fence=skill.fence).diagnostics
    diagnostics = [*checked, *listing.diagnostics]
    said = catalog.settings.for_skill(skill.name)
    if args.json:
        ruled, denied = judge_by_rules(catalog.settings, [skill])
        document = _document(skill, listing, [*diagnostics, *ruled], said)
        print_json({**document, "denied": skill.name in denied, "client": client})
    else:
        _print(skill, listing, diagnostics, client, said)
    return 0


def _show_capabilities(skill: Skill, settings: Settings, args: argparse.Namespace) -> int:
    scanned = scan_accepting(skill, settings.state_dir)
    if args.json:
        print_json(scanned.to_json())
        return 0
    rows = list(describe_statement(scanned.statement))
    print_table(("", ""), rows or [("", "nothing: it only gives instructions")], wrap=True)
    for missed in scanned.unseen:
        print(f"not seen: {one_line(missed)}")
    return 0


def _document(
    skill: Skill, listing: Manifest, diagnostics: list[Diagnostic], said: SkillSettings
) -> dict[str, object]:
    return {
        **skill_json(skill, said),
        "title": skill.title,
        "dir": skill.dir,
        "derived": skill.derived,
        "frontmatter": skill.fields,
        "files": [entry._asdict() for entry in listing.files],
        "requires": skill.requirements._asdict(),
        "hash": listing.hash,
        "tokens": _estimate_tokens(skill, listing),
        "diagnostics": diagnostics_json(diagnostics),
        "settings": switches_json(said),
    }


def _estimate_tokens(skill: Skill, listing: Manifest) -> dict[str, int]:
    """Estimate the tokens of the skill: in the overview, its body, its documents."""
    sizes = {entry.path: entry.size for entry in listing.files}
    body = max(sizes.pop(SKILL_FILE, 0) - skill.body_offset, 0)
    documents = sum(n for path, n in sizes.items() if path.lower().endswith(_DOCUMENTS))
    return {
        "overview": tokens(f"- {skill.name}: {skill.description}\n"),
        "body": tokens_of_bytes(body),
        "documents": tokens_of_bytes(documents),
    }


def _print(
    skill: Skill,
    listing: Manifest,
    diagnostics: list[Diagnostic],
    client: str,
    switches: SkillSettings,
) -> None:
    cost = _estimate_tokens(skill, listing)
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
        "hash": listing.hash,
        "tokens": ", ".join(f"{count} {part}" for part, count in cost.items()),
        "shadows": ", ".join(skill.shadows),
    }
    print_table(("", ""), [(key, value) for key, value in facts.items() if value], wrap=True)
    _print_fields(skill)
    said = switches_json(switches)
    if said:
        print("settings")
    for key, one in said.items():
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
