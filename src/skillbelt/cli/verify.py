"""`skillbelt verify`."""

from __future__ import annotations

import argparse
import os

from skillbelt.cli.installing import (
    add_options,
    find_folder,
    place_of,
    print_drift,
    reporter,
    say_locked,
)
from skillbelt.cli.output import print_json
from skillbelt.errors import UsageError
from skillbelt.install.hashes import hash_folder
from skillbelt.install.lock_file import read_lock
from skillbelt.install.placing import reading_place
from skillbelt.install.policy import signers_for
from skillbelt.install.signature_file import signer_of
from skillbelt.install.signatures import check_signature
from skillbelt.install.sync import bad_entry, check_names, judge_installed
from skillbelt.install.verify import verify_lock
from skillbelt.settings import Settings, load_settings
from skillbelt.text import one_line

DRIFT, REFUSED = 2, 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `verify`."""
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help="the skills (default: all); with --signed-by also the folder of one, such as ./pdf",
    )
    parser.add_argument(
        "--signed-by",
        metavar="SIGNER",
        action="append",
        default=[],
        help="demand this signer, such as 'key acme.pub' or 'certificate ca.pem' (may be "
        "repeated: one of them)",
    )
    parser.add_argument("--full", action="store_true", help="read every file, also unchanged ones")
    add_options(parser, changes=False)


def run(args: argparse.Namespace) -> int:
    """Compare what is installed with the lock; print each difference."""
    settings = load_settings(args.project, config=args.config)
    if args.signed_by:
        settings = _demand_signers(args)
    folders = [name for name in args.names if "/" in name] if args.signed_by else []
    if folders:
        return _verify_folders(folders, settings, args)
    place, report = place_of(args, settings), reporter(args)
    with reading_place(place, settings):
        lock = read_lock(place)
        names = check_names(lock, args.names)
        verified = verify_lock(lock, settings, names, full=args.full, report=report)
        by_policy = [*judge_installed(verified, place, settings)]
    report("")
    drift = [*(one for skill in verified for one in skill.drift), *by_policy]
    wrong = {one.name for one in drift}
    refused = [] if args.names else lock.refused
    if args.json:
        print_json(
            {
                "skills": [
                    {
                        "name": skill.entry.name,
                        "path": skill.folder,
                        "digest": skill.entry.content_digest,
                        "verified": skill.entry.name not in wrong,
                        "signer": signer.as_provenance() if signer else None,
                    }
                    for skill in verified
                    for signer in (signer_of(skill.entry.provenance),)
                ],
                "drift": [one._asdict() for one in drift],
                "refused": [one._asdict() for one in refused],
            }
        )
    else:
        print_drift(drift)
        for one in refused:
            message = f"the entry in {place.lock} {one_line(one.message)}"
            print(f"{one_line(one.name)}: {message} ({one_line(bad_entry(lock, one.name))})")
        good = sum(skill.entry.name not in wrong for skill in verified)
        said = f"{good} of {len(verified)} skills are as {place.lock} says"
        say_locked(said, args, (*verified, *refused))
    if by_policy:
        return REFUSED
    return DRIFT if drift or refused else 0


def _demand_signers(args: argparse.Namespace) -> Settings:
    """Return the settings with the signers of the command line as the only ones."""
    for one in args.signed_by:
        if len(one.split()) < 2:
            raise UsageError(
                f"verify: --signed-by {one!r} is not METHOD VALUE, such as 'key {one or 'a.pub'}'"
            )
    signers = [f"** {one}" for one in args.signed_by]
    demands = {"trusted_signers": signers, "signatures": "require"}
    return load_settings(args.project, config=args.config, overrides=demands)


def _verify_folders(folders: list[str], settings: Settings, args: argparse.Namespace) -> int:
    """Verify the signatures of skills that need not be installed."""
    rows = []
    for name in folders:
        folder = find_folder(name, os.path.abspath(args.project or "."))
        check = check_signature(folder, hash_folder(folder, partial=True), signers_for(settings))
        rows.append((folder, check))
    if args.json:
        print_json(
            {
                "signatures": [
                    {
                        "path": folder,
                        "verified": check.state == "trusted",
                        "signer": check.signer.as_provenance() if check.signer else None,
                        "reason": check.reason,
                    }
                    for folder, check in rows
                ]
            }
        )
    for folder, check in rows if not args.json else ():
        said = f"signed by {check.signer.text}" if check.signer else one_line(check.reason)
        print(f"{folder}: {said}")
    return 0 if all(check.state == "trusted" for _, check in rows) else DRIFT
