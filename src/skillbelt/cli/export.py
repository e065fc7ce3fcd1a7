"""`skillbelt export`."""

from __future__ import annotations

import argparse
import os

from skillbelt.cli.installing import add_options, place_of, print_refusals, reporter
from skillbelt.cli.output import print_json, say
from skillbelt.errors import SkillbeltError
from skillbelt.install.lock_file import SkillLock, read_lock
from skillbelt.install.names import folder_name
from skillbelt.install.placing import client_folder, client_name, copy_to_client, using_place
from skillbelt.install.sync import SyncRefusal, SyncResult, check_names, refusal_of, refuse_entries
from skillbelt.install.values import PlannedChange
from skillbelt.install.verify import verify_lock
from skillbelt.settings import Settings, load_settings
from skillbelt.text import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `export`."""
    parser.add_argument("client", metavar="CLIENT", help="the client, such as claude-code")
    parser.add_argument("names", metavar="NAME", nargs="*", help="the skills (default: all)")
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Copy installed skills into the folder of a client; print what was written."""
    settings = load_settings(args.project, config=args.config)
    place = place_of(args, settings)
    client = client_name(args.client)
    folder = client_folder(place, client, settings)
    with using_place(place, settings):
        lock = read_lock(place)
        names = check_names(lock, args.names) or tuple(lock.entries)
        result = _export(names, client, lock, settings, args)
    reporter(args)("")
    if args.json:
        print_json(
            {
                "folder": folder,
                "written": [
                    {"name": one.name, "path": one.path, "digest": one.after}
                    for one in result.changes
                ],
                "refused": [
                    {
                        "name": one.name,
                        "code": one.code,
                        "message": one.message,
                        "remedy": one.remedy,
                    }
                    for one in result.refused
                ],
            }
        )
        return result.exit_code
    for one in result.changes:
        word = "would be copied" if args.dry_run else "copied"
        print(f"{one_line(one.name)}: {word} to {one_line(one.path)}")
    print_refusals(result.refused)
    if not names and not result.refused:
        say(f"no skill is installed; {place.command('add SOURCE')} installs some", args)
    return result.exit_code


def _export(
    names: tuple[str, ...],
    client: str,
    lock: SkillLock,
    settings: Settings,
    args: argparse.Namespace,
) -> SyncResult:
    changes: list[PlannedChange] = []
    refused = [] if args.names else refuse_entries(lock)
    folder = client_folder(lock.place, client, settings)
    report = reporter(args)
    found = verify_lock(lock, settings, names, report=report) if names else ()
    for number, skill in enumerate(found, 1):
        name = skill.entry.name
        report(f"copying {name} ({number} of {len(found)})")
        wrong = [one for one in skill.drift if one.kind != "client-link"]
        if wrong:
            adopt = f"; {lock.place.command('sync --adopt')} records edits"
            refused.append(
                SyncRefusal(
                    name=name,
                    code=wrong[0].kind,
                    message=f"is not as the lock says: {wrong[0].path} {wrong[0].message}",
                    remedy=wrong[0].remedy + (adopt if wrong[0].kind != "missing" else ""),
                )
            )
            continue
        path = os.path.join(folder, folder_name(name))
        try:
            if not args.dry_run:
                path = copy_to_client(lock.place, skill.entry, client, settings)
        except (SkillbeltError, OSError) as error:
            refused.append(refusal_of(name, error))
            continue
        changes.append(
            PlannedChange(action="install", name=name, path=path, after=skill.entry.content_digest)
        )
    return SyncResult(changes=tuple(changes), refused=tuple(refused))
