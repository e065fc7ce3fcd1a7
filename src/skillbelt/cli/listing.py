"""`skillbelt list`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping

from skillbelt.cli.output import (
    count,
    folders_of,
    print_json,
    print_table,
    say,
    wide_option,
)
from skillbelt.cli.scanning import open_catalog
from skillbelt.discovery.catalog import Catalog
from skillbelt.discovery.clients import CLIENTS
from skillbelt.discovery.describe import clients_of, diagnostics_json, skill_json
from skillbelt.errors import ConfigError, closest
from skillbelt.format.skill import Skill
from skillbelt.permission.judging import judge_by_rules
from skillbelt.settings import resolve
from skillbelt.text import one_line
from skillbelt.values import SCOPES

_COLOURS = {
    "scope": {
        "denied": "red",
        "untrusted": "yellow",
        "disabled": "dim",
        "hidden": "dim",
        "shadowed": "dim",
    }
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `list`."""
    parser.add_argument("--all", action="store_true", help="include hidden and shadowed skills")
    parser.add_argument("--scope", choices=SCOPES, help="only the skills of one scope")
    parser.add_argument(
        "--client",
        metavar="C",
        help="only the skills in folders of one client, such as claude or codex",
    )
    wide_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the skills."""
    _check_client(args.client)
    catalog = open_catalog(args)
    clients = clients_of(catalog)
    skills = _select(catalog, clients, args)
    ruled, denied = judge_by_rules(catalog.settings, skills)
    for text in () if args.json else _named_roots_without_skills(catalog):
        say(text, args)
    for one in () if args.json else ruled:
        if one.severity == "error":
            say(one_line(str(one)), args)
    if args.json:
        print_json(
            {
                "skills": [
                    {
                        **skill_json(skill, catalog.settings.for_skill(skill.name)),
                        "denied": skill.name in denied,
                        "client": clients.get(skill.location, ""),
                    }
                    for skill in skills
                ],
                "diagnostics": diagnostics_json((*catalog.diagnostics, *ruled)),
            }
        )
    elif skills:
        _print_skills(catalog, skills, denied, args)
        _print_summary(catalog, skills, len(ruled), args)
    else:
        say(_explain_empty(catalog), args)
        _print_summary(catalog, skills, len(ruled), args)
    return 0


def _check_client(name: str | None) -> None:
    known = [client.name for client in CLIENTS]
    if name is not None and name not in known:
        close = closest(name, known)
        hint = f"closest: {', '.join(close)}" if close else f"known are {', '.join(known)}"
        raise ConfigError(f"--client: no client named {name!r}; {hint}")


def _print_skills(
    catalog: Catalog, skills: list[Skill], denied: Collection[str], args: argparse.Namespace
) -> None:
    """Print the table; programs that read a pipe rely on this order of columns."""
    shadowed = {skill.location for skill in catalog.shadowed}
    folders = folders_of(catalog)
    rows = [
        (
            skill.name,
            _describe_scope(skill, shadowed, catalog, denied),
            skill.description,
            folders.get(skill.location, ""),
        )
        for skill in skills
    ]
    if not sys.stdout.isatty():
        print_table(("name", "scope", "description", "from"), rows)
        return
    head = ("name", "scope", "from", "description")
    shown = [
        (name, scope, folder or "-", description or "(no description)")
        for name, scope, description, folder in rows
    ]
    if args.wide:
        places = [skill.location for skill in skills]
        full = [(*row, at) for row, at in zip(shown, places, strict=True)]
        print_table((*head, "file"), full, wrap=True, below=1, colours=_COLOURS)
    else:
        print_table(head, shown, colours=_COLOURS)


def _select(catalog: Catalog, clients: Mapping[str, str], args: argparse.Namespace) -> list[Skill]:
    disabled = [skill for skill, _ in catalog.snapshot.disabled.values()]
    skills = [*catalog.values(), *disabled]
    if args.all:
        skills += catalog.shadowed
    else:
        skills = [skill for skill in skills if not skill.hidden]
    skills.sort(key=lambda skill: skill.name)
    return [
        skill
        for skill in skills
        if args.scope in (None, skill.scope)
        and args.client in (None, clients.get(skill.location, ""))
    ]


def _describe_scope(
    skill: Skill, shadowed: Collection[str], catalog: Catalog, denied: Collection[str]
) -> str:
    marks: list[str] = [skill.scope]
    switches = catalog.settings.for_skill(skill.name)
    if not switches.enabled:
        return f"{skill.scope}, disabled"
    if skill.location in shadowed:
        marks.append("shadowed")
    if skill.name in denied:
        marks.append("denied")
    if not skill.trusted:
        marks.append("untrusted")
    if skill.hidden:
        marks.append("hidden")
    elif not skill.model_visible:
        marks.append("manual")  # as the setting `visible` calls it
    elif skill.visible == "name":
        marks.append("name only")
    marks += ["pinned"] * switches.pin + ["required"] * switches.required
    return ", ".join(marks)


def _print_summary(
    catalog: Catalog, skills: list[Skill], ruled: int, args: argparse.Namespace
) -> None:
    problems = len(catalog.problems) + ruled
    if problems:
        found, wrong = count(len(skills), "skill"), count(problems, "problem")
        say(f"{found}; {wrong}: `skillbelt doctor` shows more", args)


def _named_roots_without_skills(catalog: Catalog) -> list[str]:
    """Report the problem of each folder or address that the user named."""
    settings = catalog.settings
    named = {resolve(path, settings): "paths" for path in settings.paths if "://" not in path}
    named |= dict.fromkeys(settings.urls, "urls")
    if root := settings.skills_root:
        named[root if "://" in root else resolve(root, settings)] = "SKILLS_ROOT"
    return [
        f"skillbelt: {named[one.path]} {one_line(one.path)}: {one_line(one.message)}; {one.remedy}"
        for one in catalog.problems
        if one.path in named
    ]


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
