"""`skillbelt import`."""

from __future__ import annotations

import argparse

from skillbelt.cli.installing import add_options, place_of, print_result, reporter
from skillbelt.cli.output import say
from skillbelt.errors import ConfigError, SkillbeltError
from skillbelt.install.adoption import (
    TOOLS,
    AdoptedSkill,
    adopt_skill,
    find_adoptable,
    plan_adoption,
)
from skillbelt.install.lock_file import SkillLock, read_lock
from skillbelt.install.placing import using_place
from skillbelt.install.sync import SyncRefusal, SyncResult, refusal_of
from skillbelt.install.values import PlannedChange
from skillbelt.settings import Settings, load_settings
from skillbelt.text import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `import`."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="the skills (default: all)")
    parser.add_argument(
        "--from",
        dest="tools",
        choices=TOOLS,
        action="append",
        default=[],
        help="only skills of this tool (may be repeated)",
    )
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Record the skills that other tools installed; print what was recorded."""
    settings = load_settings(args.project, config=args.config)
    place = place_of(args, settings)
    with using_place(place, settings):
        lock = read_lock(place)
        reporter(args)("looking for what other tools installed")
        found = list(find_adoptable(lock, settings, args.tools or TOOLS))
        wanted = set(args.names)
        known = {one.name for one in found}
        for name in args.names:
            if name not in known:
                raise ConfigError(_explain_missing(name, lock))
        chosen = [one for one in found if not wanted or one.name in wanted]
        result = _adopt(chosen, lock, settings, args)
        entries = read_lock(place).entries
    reporter(args)("")
    nothing = "no other tool installed a skill that is not in the lock yet"
    # Said also where the lock is empty.
    print_result(result, entries, args, dry_run=args.dry_run, nothing=nothing, installed=TOOLS)
    for one in chosen:
        if isinstance(one, AdoptedSkill):
            source = _describe_source(one)
            say(f"{one_line(one.name)}: {one.record.tool} installed it from {source}", args)
    if result.changes and not args.dry_run:
        say(f"{place.command('update')} takes the versions of their sources", args)
    return result.exit_code


def _explain_missing(name: str, lock: SkillLock) -> str:
    if name in lock.entries:
        return f"{lock.place.lock} has {name!r} already"
    command = lock.place.command("import --dry-run")
    return f"no other tool installed a skill {name!r}; {command} lists them"


def _describe_source(skill: AdoptedSkill) -> str:
    reference = skill.record.reference
    return one_line(f"{reference.source}{f'#{reference.ref}' if reference.ref else ''}")


def _adopt(
    found: list[AdoptedSkill | SyncRefusal],
    lock: SkillLock,
    settings: Settings,
    args: argparse.Namespace,
) -> SyncResult:
    changes: list[PlannedChange] = []
    refused: list[SyncRefusal] = []
    report = reporter(args)
    for number, one in enumerate(found, 1):
        if isinstance(one, SyncRefusal):
            refused.append(one)
            continue
        report(f"recording {one.name} ({number} of {len(found)})")
        try:
            if args.dry_run:
                changes.append(plan_adoption(one, lock.place))
            else:
                changes.append(adopt_skill(one, lock, settings))
        except (SkillbeltError, OSError) as error:
            refused.append(refusal_of(one.name, error))
    return SyncResult(changes=tuple(changes), refused=tuple(refused))
