"""`skillbelt where`."""

from __future__ import annotations

import argparse

from skillbelt.cli.output import open_catalog, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `where`."""
    parser.add_argument("name", metavar="NAME", help="the skill")


def run(args: argparse.Namespace) -> int:
    """Print the folder of a skill."""
    skill = open_catalog(args).find(args.name)
    if args.json:
        print_json({"name": skill.name, "location": skill.location, "dir": skill.dir})
    else:
        print(skill.dir)
    return 0
