"""`skillbelt enable` and `skillbelt disable`."""

from __future__ import annotations

import argparse

from skillbelt.cli.output import change_options, print_json, say
from skillbelt.cli.scanning import open_catalog
from skillbelt.discovery.catalog import Catalog, find_any
from skillbelt.format.skill import Skill
from skillbelt.settings import load_settings, switch_skills
from skillbelt.text import one_line

REFUSED = 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `enable` and `disable`."""
    parser.add_argument("names", metavar="NAME", nargs="+", help="the skills")
    change_options(parser)
    parser.set_defaults(on=parser.prog.endswith(" enable"))


def run(args: argparse.Namespace) -> int:
    """Write the user's settings; print what changed, and what another file decides."""
    catalog = open_catalog(args)
    skills = [find_any(catalog, name) for name in dict.fromkeys(args.names)]
    before = {one.name: catalog.settings.for_skill(one.name).enabled for one in skills}
    if not args.dry_run:
        _switch(args, [name for name, on in before.items() if on != args.on], catalog)
    now = load_settings(args.project, config=args.config)
    changes, refused = [], []
    for skill in skills:
        switches = now.for_skill(skill.name)
        if switches.enabled != args.on and not args.dry_run:
            refused.append(_refuse(skill.name, switches.sources.get("enabled", "")))
        elif before[skill.name] != args.on:
            changes.append(_describe_change(skill, args.on))
    if args.json:
        print_json({"changes": changes, "refused": refused})
    else:
        _print(changes, refused, args)
    return REFUSED if refused else 0


def _switch(args: argparse.Namespace, names: list[str], catalog: Catalog) -> None:
    """Undo what an earlier command wrote; if that is not enough, write the opposite."""
    if not names:
        return
    switch_skills(catalog.settings, dict.fromkeys(names))
    now = load_settings(args.project, config=args.config)
    left = [name for name in names if now.for_skill(name).enabled != args.on]
    if left:
        switch_skills(catalog.settings, dict.fromkeys(left, args.on))


def _describe_change(skill: Skill, on: bool) -> dict[str, object]:
    return {
        "name": skill.name,
        "action": "enable" if on else "disable",
        "from": "disabled" if on else "enabled",
        "to": "enabled" if on else "disabled",
        "digest": skill.files.digest(),
        "commit": "",
        "source": str(skill.origin),
    }


def _refuse(name: str, where: str) -> dict[str, object]:
    return {
        "name": name,
        "code": "decided-elsewhere",
        "message": f"{where} decides, which counts more than your settings file",
        "remedy": f"change it there, or set SKILLBELT_SKILLS='{name}.enabled = true'",
    }


def _print(
    changes: list[dict[str, object]], refused: list[dict[str, object]], args: argparse.Namespace
) -> None:
    for one in changes:
        would = "would be " if args.dry_run else ""
        print(f"{one_line(str(one['name']))}: {would}{one['to']}")
    for one in refused:
        name, message = one_line(str(one["name"])), one_line(str(one["message"]))
        say(f"skillbelt: {name}: {message}; {one['remedy']}", args)
    if not changes and not refused:
        say("nothing to change", args)
