"""`skillbelt verify`."""

from __future__ import annotations

import argparse

from skillbelt.cli.installing import add_options, place_of, print_drift, say_locked
from skillbelt.cli.output import print_json
from skillbelt.install.lock_file import read_lock
from skillbelt.install.placing import using_place
from skillbelt.install.sync import check_names
from skillbelt.install.verify import verify_lock
from skillbelt.settings import load_settings
from skillbelt.text import one_line

DRIFT = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `verify`."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="the skills (default: all)")
    parser.add_argument(
        "--full", action="store_true", help="read every file, also those that did not change"
    )
    add_options(parser, changes=False)


def run(args: argparse.Namespace) -> int:
    """Compare what is installed with the lock; print each difference."""
    settings = load_settings(args.project, config=args.config)
    place = place_of(args, settings)
    with using_place(place, settings):
        lock = read_lock(place)
        verified = verify_lock(lock, settings, check_names(lock, args.names), full=args.full)
    drift = [one for skill in verified for one in skill.drift]
    refused = [] if args.names else lock.refused
    if args.json:
        print_json(
            {
                "skills": [
                    {
                        "name": skill.entry.name,
                        "path": skill.folder,
                        "digest": skill.entry.content_digest,
                        "verified": not skill.drift,
                    }
                    for skill in verified
                ],
                "drift": [one._asdict() for one in drift],
                "refused": [one._asdict() for one in refused],
            }
        )
    else:
        print_drift(drift)
        for one in refused:
            print(f"{one_line(one.name)}: the entry in {place.lock} {one_line(one.message)}")
        good = sum(not skill.drift for skill in verified)
        said = f"{good} of {len(verified)} skills are as {place.lock} says"
        say_locked(said, args, (*verified, *refused))
    return DRIFT if drift or refused else 0
