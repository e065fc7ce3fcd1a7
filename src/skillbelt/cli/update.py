"""`skillbelt update` and `skillbelt outdated`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping

from skillbelt.cli.installing import (
    accepted,
    add_acceptance,
    add_options,
    list_files,
    place_of,
    print_refusals,
    print_result,
    reporter,
    require_install,
    resolver,
    say_locked,
)
from skillbelt.cli.output import print_json, print_table, say
from skillbelt.cli.words import print_words
from skillbelt.errors import SkillbeltError
from skillbelt.install import describe
from skillbelt.install.entries import install_request
from skillbelt.install.lock_file import LockChanges, SkillLock, read_lock, write_lock
from skillbelt.install.placing import skill_folder, using_place
from skillbelt.install.policy import NOTHING_ACCEPTED
from skillbelt.install.sync import (
    Report,
    SyncRefusal,
    SyncResult,
    check_names,
    fetcher,
    refusal_of,
)
from skillbelt.install.update import (
    CONFLICT,
    FoundVersions,
    NewVersion,
    apply_versions,
    find_versions,
    preview_version,
    refuse_conflicts,
    renew_packages,
    with_packages,
)
from skillbelt.install.values import InstallPlace, PlannedChange
from skillbelt.settings import Settings, load_settings
from skillbelt.text import one_line

DRIFT, PARTLY, REFUSED = 2, 3, 4
_CURRENT = "every installed skill is the newest version of its source"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `update` and `outdated`."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="the skills (default: all)")
    changes = parser.prog.endswith(" update")
    if changes:
        parser.add_argument(
            "--check", action="store_true", help="change nothing; exit code 2 for a new version"
        )
        parser.add_argument(
            "--diff", action="store_true", help="print what a new version changes in your files"
        )
        parser.add_argument(
            "--packages",
            action="store_true",
            help="lock the newest packages, also of skills without a new version",
        )
        add_acceptance(parser)
    parser.set_defaults(changes=changes)
    add_options(parser, changes=changes)


def run(args: argparse.Namespace) -> int:
    """Look for new versions; `update` puts them in place after a question."""
    settings = load_settings(args.project, config=args.config)
    place = place_of(args, settings)
    report = reporter(args)
    with using_place(place, settings):
        lock = read_lock(place)
    accepts = accepted(args) if args.changes else NOTHING_ACCEPTED
    found = find_versions(lock, check_names(lock, args.names), settings, report, accepts)
    report("")
    if not args.changes:
        return _print_outdated(found, args)
    found = found.hold_back()
    preview = args.check or args.dry_run
    edited, refused = _preview(found, lock, settings, args) if args.diff or preview else ({}, [])
    if preview:
        return _print_plan(found, lock, edited, refused, args)
    if not args.json and not args.quiet:
        for version in found.new:
            _print_news(version, lock, settings)
    if found.new:
        require_install(install_request(one.after for one in found.new), settings, args)
    packages = resolver(settings, args, anew=args.packages)
    found = found._replace(new=tuple(with_packages(one, settings, packages) for one in found.new))
    return _update(found, lock, settings, args, report)


def _update(
    found: FoundVersions,
    lock: SkillLock,
    settings: Settings,
    args: argparse.Namespace,
    report: Report,
) -> int:
    result = apply_versions(found, lock, settings, report, accepted(args))
    if args.packages:
        with using_place(lock.place, settings):
            renewed, failed = _renew_packages(found.current, lock.place, settings, args)
        result = result._replace(
            changes=(*result.changes, *renewed), refused=(*result.refused, *failed)
        )
    entries = {one.before.name: one.after for one in found.new}
    print_result(result, entries, args, nothing=_CURRENT, installed=found.current)
    conflicts = any(one.code == CONFLICT for one in result.refused)
    return PARTLY if conflicts else result.exit_code


def _renew_packages(
    names: Iterable[str], place: InstallPlace, settings: Settings, args: argparse.Namespace
) -> tuple[list[PlannedChange], list[SyncRefusal]]:
    """Lock the newest packages of skills that stay as they are."""
    changes, refused = [], []
    packages = resolver(settings, args, anew=True)
    made = LockChanges(read_lock(place))
    for name in names:
        entry = made.lock.entries[name]
        try:
            renewed = renew_packages(entry, settings, packages)
        except (SkillbeltError, OSError) as error:
            refused.append(refusal_of(name, error))
            continue
        change = PlannedChange(
            action="keep",
            name=name,
            path=skill_folder(place, name),
            before=entry.content_digest,
            after=entry.content_digest,
            reason="packages" if renewed else "",
        )
        if renewed:
            made.put(renewed)
        changes.append(change)
    write_lock(made)
    return changes, refused


def _print_news(version: NewVersion, lock: SkillLock, settings: Settings) -> None:
    print(one_line(version.before.name), file=sys.stderr)
    folder = skill_folder(lock.place, version.before.name)
    for label, text in describe.describe_news(version, folder, settings):
        print_words(f"  {label:<12} {one_line(text)}", " " * 15, file=sys.stderr)


def _preview(
    found: FoundVersions, lock: SkillLock, settings: Settings, args: argparse.Namespace
) -> tuple[dict[str, tuple[str, ...]], list[SyncRefusal]]:
    """Return the edited files of each skill, and what cannot be merged; with --diff print lines."""
    edited: dict[str, tuple[str, ...]] = {}
    refused: list[SyncRefusal] = []
    report = reporter(args)
    for version in found.new:
        name = version.before.name
        report(f"comparing {name}")
        try:
            text, merged = preview_version(version, lock, settings, fetcher(settings, report))
        except (SkillbeltError, OSError) as error:
            refused.append(refusal_of(name, error))
            continue
        report("")
        if args.diff and not args.json:
            for line in text.expandtabs().splitlines():
                print(line if line.isprintable() else one_line(line))
        edited[name] = merged.files()
        if edited[name] and not (args.check or args.dry_run):  # otherwise the plan says it
            say(f"{one_line(name)}: your edits stay in {list_files(edited[name])}", args)
        refused += refuse_conflicts(name, merged)
    report("")
    return edited, refused


def _print_plan(
    found: FoundVersions,
    lock: SkillLock,
    edited: Mapping[str, tuple[str, ...]],
    refused: Iterable[SyncRefusal],
    args: argparse.Namespace,
) -> int:
    changes = tuple(
        PlannedChange(
            action="replace",
            name=one.before.name,
            path=skill_folder(lock.place, one.before.name),
            before=one.before.content_digest,
            after=one.after.content_digest,
            edited=edited.get(one.before.name, ()),
        )
        for one in found.new
    )
    result = SyncResult(changes=changes, refused=(*found.refused, *refused))
    entries = {one.before.name: one.after for one in found.new}
    print_result(result, entries, args, dry_run=True, nothing=_CURRENT, installed=found.current)
    if found.refused:
        return result.exit_code
    return DRIFT if found.new and args.check else 0


def _print_outdated(found: FoundVersions, args: argparse.Namespace) -> int:
    rows = [
        {
            "name": one.before.name,
            "source": one.before.source,
            "ref": one.before.ref,
            "commit": one.before.commit,
            "new_commit": one.after.commit,
            "digest": one.before.content_digest,
            "new_digest": one.after.content_digest,
        }
        for one in found.new
    ]
    if args.json:
        refused = [
            {"name": one.name, "code": one.code, "message": one.message, "remedy": one.remedy}
            for one in found.refused
        ]
        print_json({"outdated": rows, "current": list(found.current), "refused": refused})
    else:
        if rows:
            table = [
                (
                    row["name"],
                    (row["commit"] or row["digest"].removeprefix("sha256:"))[:12],
                    (row["new_commit"] or row["new_digest"].removeprefix("sha256:"))[:12],
                    row["source"],
                )
                for row in rows
            ]
            print_table(("name", "locked", "newest", "source"), table)
        print_refusals(found.refused)
        if not rows and not found.refused:
            say_locked(_CURRENT, args, found.current)
    if any(one.policy for one in found.refused):
        return REFUSED
    return PARTLY if found.refused else 0
