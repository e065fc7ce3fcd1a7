"""`skillbelt link`."""

from __future__ import annotations

import argparse
import os

from skillbelt.cli.installing import add_options, find_folder, place_of, print_result
from skillbelt.errors import ConfigError
from skillbelt.files.contain import inside
from skillbelt.install.content_store import incoming
from skillbelt.install.fetching import open_source
from skillbelt.install.lock_file import read_lock
from skillbelt.install.names import typed_name
from skillbelt.install.placing import link_skill, skill_folder, using_place
from skillbelt.install.sync import SyncResult
from skillbelt.install.values import PlannedChange, SourceReference
from skillbelt.settings import load_settings


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `link`."""
    parser.add_argument("path", metavar="PATH", help="the folder of the skill")
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Put a link to the skill where skills are installed; print what was done."""
    settings = load_settings(args.project, config=args.config)
    place = place_of(args, settings)
    folder = find_folder(args.path, os.getcwd())
    reference = SourceReference(kind="local", source=args.path, url=folder, typed=args.path)
    with incoming(settings) as into:
        found = open_source(reference, settings, into).found.skills
    if len(found) != 1 or found[0].folder:
        raise ConfigError(f"{folder} has no SKILL.md; give the folder of one skill")
    name = found[0].name
    if place.scope == "project" and not inside(folder, place.base):
        raise ConfigError(
            f"{folder} is not in {place.base}, so a project may not link to it; use -g"
        )
    with using_place(place, settings):
        lock = read_lock(place)
        if lock.find(name):
            raise ConfigError(
                f"{place.lock} has a skill {name!r}; "
                f"{place.command(f'remove {typed_name(name)}')} removes it first"
            )
        if not args.dry_run:
            link_skill(place, name, folder, settings)
    change = PlannedChange(action="link", name=name, path=skill_folder(place, name))
    print_result(SyncResult(changes=(change,)), {}, args, dry_run=args.dry_run)
    return 0
