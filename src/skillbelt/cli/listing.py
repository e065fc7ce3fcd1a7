"""`skillbelt list`."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from skillbelt.cli.output import (
    count,
    diagnostics_json,
    open_catalog,
    print_json,
    print_table,
    say,
    skill_json,
)
from skillbelt.discovery.catalog import Catalog
from skillbelt.format.skill import Skill
from skillbelt.text import one_line
from skillbelt.values import SCOPES


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `list`."""
    parser.add_argument("--all", action="store_true", help="include hidden and shadowed skills")
    parser.add_argument("--scope", choices=SCOPES, help="only the skills of one scope")


def run(args: argparse.Namespace) -> int:
    """Print the skills."""
    catalog = open_catalog(args)
    skills = _select(catalog, args)
    if args.json:
        print_json(
            {
                "skills": [skill_json(skill) for skill in skills],
                "diagnostics": diagnostics_json(catalog.diagnostics),
            }
        )
    elif skills:
        shadowed = {skill.location for skill in catalog.shadowed}
        rows = [(s.name, _describe_scope(s, shadowed), s.description) for s in skills]
        print_table(("name", "scope", "description"), rows)
        _print_summary(catalog, skills, args)
    else:
        say(_explain_empty(catalog), args)
        _print_summary(catalog, skills, args)
    return 0


def _select(catalog: Catalog, args: argparse.Namespace) -> list[Skill]:
    skills = list(catalog.values())
    if args.all:
        skills = sorted([*skills, *catalog.shadowed], key=lambda s: s.name)
    else:
        skills = [skill for skill in skills if not skill.hidden]
    return [skill for skill in skills if args.scope in (None, skill.scope)]


def _describe_scope(skill: Skill, shadowed: Collection[str]) -> str:
    marks: list[str] = [skill.scope]
    if skill.location in shadowed:
        marks.append("shadowed")
    if not skill.trusted:
        marks.append("untrusted")
    if skill.hidden:
        marks.append("hidden")
    elif not skill.model_visible:
        marks.append("user only")
    return ", ".join(marks)


def _print_summary(catalog: Catalog, skills: list[Skill], args: argparse.Namespace) -> None:
    problems = len(catalog.problems)
    if problems:
        found, wrong = count(len(skills), "skill"), count(problems, "problem")
        say(f"{found}; {wrong}: `skillbelt doctor` shows more", args)


def _explain_empty(catalog: Catalog) -> str:
    looked = [scan.root for scan in catalog.scans if scan.exists]
    where = "\n".join(f"  {one_line(root.path)} ({root.scope})" for root in looked)
    project = one_line(catalog.settings.project)
    return (
        f"No skills found for {project}.\n"
        + (f"Looked in:\n{where}\n" if where else "None of the skill folders exists yet.\n")
        + f"To create one, write {project}/.agents/skills/NAME/SKILL.md:\n"
        "  ---\n  name: NAME\n  description: What it does and when to use it.\n  ---\n"
        "  The instructions.\n"
        "`skillbelt doctor --verbose` lists every skill folder."
    )
