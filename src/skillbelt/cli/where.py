"""`skillbelt where`."""

from __future__ import annotations

import argparse
import os
import sys

from skillbelt.cli.output import print_json
from skillbelt.cli.scanning import open_catalog
from skillbelt.text import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `where`."""
    parser.add_argument("name", metavar="NAME", help="the skill")


def run(args: argparse.Namespace) -> int:
    """Print the folder of a skill."""
    skill = open_catalog(args).find(args.name)
    if args.json:
        print_json({"name": skill.name, "location": skill.location, "dir": skill.dir})
    elif sys.stdout.isatty():
        print(one_line(skill.dir))
    else:
        # A script needs the exact bytes of the path.
        sys.stdout.flush()
        sys.stdout.buffer.write(os.fsencode(skill.dir) + b"\n")
    return 0
