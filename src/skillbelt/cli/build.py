"""`skillbelt build`."""

from __future__ import annotations

import argparse
import os

from skillbelt.cli.gates import open_gate
from skillbelt.cli.output import print_json, say, show_progress, wants_progress, yes_option
from skillbelt.cli.scanning import open_catalog
from skillbelt.discovery.catalog import Catalog
from skillbelt.errors import ConfigError
from skillbelt.format.skill import Skill
from skillbelt.running.build.make import Built, build, check
from skillbelt.settings import resolve
from skillbelt.text import one_line
from skillbelt.values import SKILL_FILE


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `build`."""
    parser.add_argument(
        "skill", metavar="SKILL", nargs="?", help="a skill, or its folder (default: this folder)"
    )
    parser.add_argument(
        "--plugin",
        metavar="P",
        default="",
        help="the builder to use (default: chosen by the source)",
    )
    parser.add_argument(
        "--check", action="store_true", help="only report whether wasm/skill.wasm is current"
    )
    yes_option(parser)


def run(args: argparse.Namespace) -> int:
    """Build the skill; with --check return 1 when the module does not match the source."""
    catalog = open_catalog(args)
    skill = find_skill(args.skill or ".", catalog)
    progress = show_progress if wants_progress(args) else None
    act = check if args.check else build
    settings = catalog.settings
    gate = open_gate(settings, args)
    done = act(skill, settings, plugin=args.plugin, gate=gate, progress=progress)
    if progress:
        show_progress("")
    if args.json:
        print_json(done.document())
    else:
        _print_result(done, args)
    return 0 if done.current else 1


def find_skill(wanted: str, catalog: Catalog) -> Skill:
    """Return the skill of a folder when the argument looks like a path, else of that name."""
    if "/" not in wanted and wanted not in (".", ".."):
        return catalog.find(wanted)
    folder = resolve(wanted, catalog.settings)
    if not os.path.isfile(os.path.join(folder, SKILL_FILE)):
        raise ConfigError(
            f"{one_line(folder)}: no {SKILL_FILE} there; name a skill, as `skillbelt list` prints "
            "it, or its folder"
        )
    return Skill.from_folder(folder)


def _print_result(done: Built, args: argparse.Namespace) -> None:
    if args.check:
        state = "current" if done.current else "not current: run `skillbelt build`"
        print(f"{one_line(done.output)}: {state}")
    else:
        print(one_line(done.output))
        say(f"{done.sha256}  {done.plugin}  {done.seconds:.1f} s", args)
