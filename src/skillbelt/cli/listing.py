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
    """The options of `list`."""
    parser.add_argument("--all", action="store_true", help="hidden and shadowed skills too")
    parser.add_argument("--scope", choices=SCOPES, help="only the skills of one scope")


def run(args: argparse.Namespace) -> int:
    """Print the skills."""
    catalog = open_catalog(args)
    skills = _chosen(catalog, args)
    if args.json:
        print_json(
            {
                "skills": [skill_json(skill) for skill in skills],
                "diagnostics": diagnostics_json(catalog.diagnostics),
            }
        )
    elif skills:
        shadowed = {skill.location for skill in catalog.shadowed}
        rows = [(s.name, _scope(s, shadowed), s.description) for s in skills]
        print_table(("name", "scope", "description"), rows)
        _summary(catalog, skills, args)
    else:
        say(_nothing(catalog), args)
        _summary(catalog, skills, args)
    return 0


def _chosen(catalog: Catalog, args: argparse.Namespace) -> list[Skill]:
    skills = list(catalog.values())
    if args.all:
        skills = sorted([*skills, *catalog.shadowed], key=lambda s: s.name)
    else:
        skills = [skill for skill in skills if not skill.hidden]
    return [skill for skill in skills if args.scope in (None, skill.scope)]


def _scope(skill: Skill, shadowed: Collection[str]) -> str:
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


def _summary(catalog: Catalog, skills: list[Skill], args: argparse.Namespace) -> None:
    problems = len(catalog.problems)
    if problems:
        found, wrong = count(len(skills), "skill"), count(problems, "problem")
        say(f"{found}; {wrong}: `skillbelt doctor` shows more", args)


def _nothing(catalog: Catalog) -> str:
    looked = [scan.root for scan in catalog.scans if scan.exists]
    where = "\n".join(f"  {one_line(root.path)} ({root.scope})" for root in looked)
    project = one_line(catalog.settings.project)
    return (
        f"No skills found for {project}.\n"
        + (f"Looked in:\n{where}\n" if where else "None of the folders for skills exists yet.\n")
        + f"To make one, write {project}/.agents/skills/NAME/SKILL.md:\n"
        "  ---\n  name: NAME\n  description: What it does and when to use it.\n  ---\n"
        "  The instructions.\n"
        "`skillbelt doctor --verbose` lists every folder that is looked in."
    )
