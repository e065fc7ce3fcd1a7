"""`skillbelt remove`."""

from __future__ import annotations

import argparse
import os

from skillbelt.cli.installing import add_options, place_of, print_result, reporter
from skillbelt.cli.output import say
from skillbelt.errors import ConfigError
from skillbelt.install.lock_file import LockChanges, SkillLock, read_lock, write_lock
from skillbelt.install.names import typed_name
from skillbelt.install.placing import skill_folder, take_skill, using_place
from skillbelt.install.sync import SyncRefusal, SyncResult, check_names, first_edit, refusal_of
from skillbelt.install.values import PlannedChange
from skillbelt.install.verify import VerifiedSkill, verify_lock
from skillbelt.settings import Settings, load_settings
from skillbelt.text import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `remove`."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="the skills")
    parser.add_argument("--all", action="store_true", help="every skill of the lock")
    parser.add_argument("--force", action="store_true", help="remove skills with local edits too")
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Remove skills, the links to them and their entries; print what was removed."""
    if bool(args.names) == args.all:
        raise ConfigError(
            "remove takes names or --all: `skillbelt remove NAME`, or `skillbelt remove --all`"
        )
    settings = load_settings(args.project, config=args.config)
    place, report = place_of(args, settings), reporter(args)
    with using_place(place, settings):
        lock = read_lock(place)
        names = tuple(lock.entries) if args.all else args.names
        linked = [name for name in names if is_linked(lock, name)]
        bad = dict.fromkeys(one.name for one in lock.refused)
        damaged = [name for name in dict.fromkeys(bad if args.all else names) if name in bad]
        done = {*linked, *damaged}
        names = check_names(lock, [name for name in names if name not in done])
        result = _unlink(linked, lock, settings, args)
        result = _take_out(damaged, lock, args, result)
        found = verify_lock(lock, settings, names, report=report) if names else ()
        for number, skill in enumerate(found, 1):
            report(f"removing {skill.entry.name} ({number} of {len(found)})")
            result = _remove(skill, lock, settings, args, result)
    report("")
    print_result(result, lock.entries, args, dry_run=args.dry_run)
    return result.exit_code


def is_linked(lock: SkillLock, name: str) -> bool:
    """Whether `link` made it: a link that the lock does not have."""
    return lock.find(name) is None and os.path.islink(skill_folder(lock.place, name))


def _unlink(
    names: list[str], lock: SkillLock, settings: Settings, args: argparse.Namespace
) -> SyncResult:
    changes = []
    for name in names:
        path = skill_folder(lock.place, name)
        changes.append(PlannedChange(action="unlink", name=name, path=path))
        if not args.dry_run:
            take_skill(lock.place, name, settings)
    return SyncResult(changes=tuple(changes))


def _take_out(
    names: list[str], lock: SkillLock, args: argparse.Namespace, result: SyncResult
) -> SyncResult:
    """Remove entries that no command acts on; files that they may mean stay."""
    made = LockChanges(lock)
    for name in names:
        made.remove(name)
        say(f"{one_line(name)}: its entry was damaged, so no folder is removed", args)
    if names and not args.dry_run:
        write_lock(made)
    changes = [PlannedChange(action="remove", name=name, path="") for name in names]
    return result._replace(changes=(*result.changes, *changes))


def _remove(
    skill: VerifiedSkill,
    lock: SkillLock,
    settings: Settings,
    args: argparse.Namespace,
    result: SyncResult,
) -> SyncResult:
    name = skill.entry.name
    if skill.edited and not args.force:
        refusal = SyncRefusal(
            name=name,
            code="local-edits",
            message=f"{skill.folder} has local edits: {first_edit(skill)}",
            remedy=f"{lock.place.command(f'remove --force {typed_name(name)}')} removes it with "
            "them",
        )
        return result._replace(refused=(*result.refused, refusal))
    change = PlannedChange(
        action="remove",
        name=name,
        path=skill.folder,
        before=skill.hashes.content_digest if skill.hashes else "",
    )
    if not args.dry_run:
        try:
            take_skill(lock.place, name, settings)
        except OSError as error:
            return result._replace(refused=(*result.refused, refusal_of(name, error)))
    return result._replace(changes=(*result.changes, change))
