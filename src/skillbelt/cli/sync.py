"""`skillbelt sync`."""

from __future__ import annotations

import argparse
import os

from skillbelt.cli.installing import (
    accepted,
    add_acceptance,
    add_options,
    place_of,
    print_drift,
    print_result,
    reporter,
    require_install,
    resolver,
    say_locked,
)
from skillbelt.cli.output import say
from skillbelt.errors import ConfigError
from skillbelt.files.contain import below
from skillbelt.install.entries import install_request, reference_of
from skillbelt.install.lock_file import SkillLock, read_lock
from skillbelt.install.placing import reading_place, using_place
from skillbelt.install.sync import (
    SyncMode,
    SyncResult,
    bad_entry,
    fetcher,
    perform_sync,
    plan_sync,
    prune,
)
from skillbelt.install.values import InstallPlace, LockEntry
from skillbelt.settings import Settings, load_settings
from skillbelt.text import one_line

DRIFT, REFUSED = 2, 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `sync`."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--frozen",
        action="store_true",
        help="never change the lock: fail for an entry that does not pin the content",
    )
    group.add_argument(
        "--check",
        action="store_true",
        help="only compare; exit code 2 for a difference, 4 for a policy",
    )
    group.add_argument(
        "--adopt", action="store_true", help="record the installed skills in the lock as they are"
    )
    parser.add_argument(
        "--prune", action="store_true", help="remove installed skills that the lock does not have"
    )
    parser.add_argument("--force", action="store_true", help="replace skills with local edits too")
    add_acceptance(parser)
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Install what the lock says; print what was done."""
    settings = load_settings(args.project, config=args.config)
    place, report = place_of(args, settings), reporter(args)
    mode: SyncMode = "frozen" if args.frozen else "adopt" if args.adopt else "install"
    holding = reading_place if args.check or args.dry_run else using_place
    with holding(place, settings):
        lock = read_lock(place)
        if args.frozen and lock.data is None:
            raise ConfigError(f"there is no {place.lock}; {place.command('add SOURCE')} writes it")
        plan = plan_sync(lock, settings, mode=mode, force=args.force, report=report)
    report("")
    if args.check:
        return _check(plan, lock, args)
    if args.dry_run:
        _say_unlocked(plan, args)
        result = _prune(plan, lock, settings, args)
        print_result(result, lock.entries, args, dry_run=True)
        return result.exit_code
    _say_unlocked(plan, args)
    if not args.prune and all(one.action == "keep" and not one.reason for one in plan.changes):
        print_result(plan, lock.entries, args)
        return plan.exit_code
    wanted = [one.name for one in plan.changes if one.action in ("install", "replace")]
    if wanted:
        _say_outside([lock.entries[name] for name in wanted], lock.place, args)
        require_install(install_request(lock.entries[name] for name in wanted), settings, args)
    with using_place(place, settings):
        if read_lock(place).data != lock.data:
            raise ConfigError(f"{place.lock} was changed meanwhile; run the command again")
        result = perform_sync(
            plan,
            lock,
            settings,
            fetcher(settings, report),
            mode=mode,
            report=report,
            accepts=accepted(args),
            packages=resolver(settings, args),
        )
        result = _prune(result, lock, settings, args)
    report("")
    print_result(result, lock.entries, args)
    return result.exit_code


def _say_outside(entries: list[LockEntry], place: InstallPlace, args: argparse.Namespace) -> None:
    """Print the folders outside the project that its lock file takes skills from."""
    for entry in entries:
        if place.scope == "project" and entry.source_type == "local":
            folder = reference_of(entry, place).url
            if not below(folder, os.path.abspath(place.base)):
                name = one_line(entry.name)
                say(f"{name}: comes from outside the project: {one_line(folder)}", args)


def _say_unlocked(plan: SyncResult, args: argparse.Namespace) -> None:
    """Name the installed skills that cannot be adopted, with what to do; no error."""
    for one in plan.drift if args.adopt and not args.json else ():
        if one.kind == "not-locked":
            say(f"{one_line(one.name)}: {one.message}; {one.remedy}", args)


def _prune(
    result: SyncResult, lock: SkillLock, settings: Settings, args: argparse.Namespace
) -> SyncResult:
    if not args.prune:
        return result
    removed, refused = prune(lock, settings, dry_run=args.dry_run)
    return result._replace(changes=(*result.changes, *removed), refused=(*result.refused, *refused))


def _check(plan: SyncResult, lock: SkillLock, args: argparse.Namespace) -> int:
    """Print the differences; change nothing."""
    differs = bool(plan.drift or lock.refused)
    code = DRIFT if differs else 0
    if any(one.kind == "policy" for one in plan.drift):
        code = REFUSED
    if args.json:
        print_result(plan, lock.entries, args)
        return code
    print_drift(plan.drift)
    for one in lock.refused:
        name, message = one_line(one.name), one_line(one.message)
        remedy = one_line(bad_entry(lock, one.name))
        say(f"skillbelt: {name}: the entry in {lock.place.lock} {message}; {remedy}", args)
    if not differs:
        said = f"all {len(lock.entries)} skills are as {lock.place.lock} says"
        say_locked(said, args, lock.entries)
    return code
