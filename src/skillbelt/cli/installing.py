"""Parts that the commands for installed skills share: options, the target folder, and output."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING

from skillbelt.cli.gates import open_gate
from skillbelt.cli.output import (
    change_options,
    count,
    print_json,
    say,
    show_progress,
    wants_progress,
)
from skillbelt.cli.words import print_words
from skillbelt.errors import ConfigError, PermissionDenied
from skillbelt.install.declaring import (
    ResolvedPackages,
    ResolvePackages,
    find_declaring,
)
from skillbelt.install.lock_file import find_place
from skillbelt.install.names import typed_name
from skillbelt.install.package_locks import packages_module
from skillbelt.install.policy import Acceptance
from skillbelt.install.values import Drift, InstallPlace, LockEntry, PlannedChange
from skillbelt.permission.rules import Request
from skillbelt.settings import Settings
from skillbelt.text import one_line, shell_word, shorten
from skillbelt.values import SKILL_FILE

if TYPE_CHECKING:
    from skillbelt.install.sync import Report, SyncRefusal, SyncResult

_MOST_NAMED_CHARS = 200
_MOST_FILES = 8
_WORDS = {
    "install": "installed",
    "replace": "replaced",
    "remove": "removed",
    "link": "linked",
    "unlink": "unlinked",
    "keep": "unchanged",
}
_WOULD = {
    "install": "would be installed",
    "replace": "would be replaced",
    "remove": "would be removed",
    "link": "would be linked",
    "unlink": "would be unlinked",
    "keep": "unchanged",
}


def add_options(parser: argparse.ArgumentParser, *, changes: bool = True) -> None:
    """Add the options of every installing command; `changes`: those of commands that write."""
    parser.add_argument(
        "-g",
        "--global",
        dest="user",
        action="store_true",
        help="the skills in your home, not those of the project",
    )
    if changes:
        parser.add_argument(
            "--dry-run", action="store_true", help="say what would be done, and change nothing"
        )
        parser.add_argument(
            "-y",
            "--yes",
            action="store_true",
            help="allow what is asked for, once; never a denied one",
        )
    else:  # for scripts that give them to every command
        change_options(parser)


def add_acceptance(parser: argparse.ArgumentParser) -> None:
    """Add the options that accept what the policy of the settings would refuse."""
    parser.add_argument(
        "--allow-unsigned",
        action="store_true",
        help="accept skills without a trusted signature; the lock records it",
    )
    parser.add_argument(
        "--allow-signer-change",
        action="store_true",
        help="accept a changed signer",
    )


def accepted(args: argparse.Namespace) -> Acceptance:
    """Return which refusals the options override."""
    return Acceptance(unsigned=args.allow_unsigned, signer=args.allow_signer_change)


def place_of(args: argparse.Namespace, settings: Settings) -> InstallPlace:
    """Return where the command installs."""
    return find_place(settings, "user" if args.user else "project")


def reporter(args: argparse.Namespace) -> Report:
    """Return a function that shows progress on a terminal; an empty text clears it."""
    return show_progress if wants_progress(args) else lambda text: None


def resolver(
    settings: Settings, args: argparse.Namespace, *, anew: bool = False
) -> ResolvePackages:
    """Return the function that resolves the packages of a skill, and says why it cannot.

    With `anew`, also packages that are locked already.
    """

    def resolve(name: str, folder: str, known: Mapping[str, object]) -> ResolvedPackages:
        if not find_declaring(folder):
            return ResolvedPackages()
        report = reporter(args)
        gate = open_gate(settings, args)
        try:
            found: ResolvedPackages = packages_module().resolve_packages(
                name, folder, gate, settings, known={} if anew else known, progress=report
            )
        finally:
            gate.close()
            report("")
        if found.reason:
            command = f"update{' -g' if args.user else ''} --packages {typed_name(name)}"
            remedy = f"`skillbelt {command}` tries again"
            say(f"{one_line(name)}: its packages are not locked: {found.reason}; {remedy}", args)
        return found

    return resolve


def command_again(args: argparse.Namespace, *more: str, source: str = "") -> str:
    """Return the command as it was typed, with more options, as advice shows it.

    `source` is how the source of `add` is shown: one may hold a secret.
    """
    typed = [word for word in args.typed if word not in ("--json", *more)]
    words = [source if source and word == args.source else word for word in typed]
    return f"`{' '.join(map(shell_word, ('skillbelt', *words, *more)))}`"


def require_install(
    request: Request, settings: Settings, args: argparse.Namespace, *, source: str = ""
) -> None:
    """Ask for permission; PermissionDenied, with the command that allows it if none was asked."""
    gate = open_gate(settings, args)
    try:
        decision = gate.check(request)
    finally:
        gate.close()
    if decision.allowed:
        return
    reason = decision.reason
    if decision.by == "nobody":
        what = shorten(request.summary, _MOST_NAMED_CHARS)
        reason = f"permission to {what} is needed, and there is no terminal to ask at"
    error = PermissionDenied(request.skill or request.type, reason)
    if decision.by == "nobody":
        error.remedy = f"{command_again(args, '--yes', source=source)} allows it"
    raise error


def print_result(
    result: SyncResult,
    entries: Mapping[str, LockEntry],
    args: argparse.Namespace,
    *,
    dry_run: bool = False,
    nothing: str = "nothing to do",
    installed: Sized | None = None,
) -> None:
    """Print what was done and what was not.

    `nothing` is the message when nothing had to be done and there are `installed` skills (default:
    the entries).
    """
    if args.json:
        print_json(
            {
                "changes": [_describe_change(one, entries.get(one.name)) for one in result.changes],
                "refused": [_describe_refusal(one) for one in result.refused],
                "drift": [one._asdict() for one in result.drift],
            }
        )
        return
    words = _WOULD if dry_run else _WORDS
    changed = [one for one in result.changes if one.action != "keep" or one.reason]
    for one in changed:
        recorded = "would be recorded in the lock" if dry_run else "recorded in the lock"
        word = recorded if one.action == "keep" else words[one.action]
        if one.edited:
            would = "would be " if dry_run else ""
            word = f"{would}updated; your edits stay in {list_files(one.edited)}"
        print(f"{one_line(one.name)}: {word}")
    print_refusals(result.refused)
    kept = len(result.changes) - len(changed)
    if kept:
        say(f"{count(kept, 'skill')} unchanged", args)
    elif not result.changes and not result.refused:
        say_locked(nothing, args, entries if installed is None else installed)


def list_files(paths: Sequence[str]) -> str:
    """Return the first paths for a message, and how many more there are."""
    more = f" and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else ""
    return ", ".join(map(one_line, paths[:_MOST_FILES])) + more


def say_locked(text: str, args: argparse.Namespace, installed: Sized) -> None:
    """Print the state of the installed skills, or that the lock file has none."""
    add = f"`skillbelt add{' -g' if args.user else ''} SOURCE`"
    say(text if len(installed) else f"nothing is installed yet; {add} installs skills", args)


def print_refusals(refused: Iterable[SyncRefusal]) -> None:
    """Print to stderr what was not done, and what to do; --quiet does not hide it."""
    for one in refused:
        remedy = f"; {one_line(one.remedy)}" if one.remedy else ""
        text = f"skillbelt: {one_line(one.name)}: {one_line(one.message)}{remedy}"
        print_words(text, "  ", sys.stderr)


def print_drift(drift: Iterable[Drift]) -> None:
    """Print each difference between the lock and the disk."""
    for one in drift:
        remedy = f" ({one_line(one.remedy)})" if one.remedy else ""
        text = f"{one_line(one.name)}: {one_line(one.path)}: {one_line(one.message)}{remedy}"
        print_words(text, "  ")


def _describe_change(change: PlannedChange, entry: LockEntry | None) -> dict[str, object]:
    return {
        "name": change.name,
        "action": change.action,
        "from": change.before,
        "to": change.after,
        "digest": change.after or change.before,
        "commit": entry.commit if entry else "",
        "source": entry.source if entry else "",
        "path": change.path,
    }


def _describe_refusal(refusal: SyncRefusal) -> dict[str, object]:
    return {
        "name": refusal.name,
        "code": refusal.code,
        "message": refusal.message,
        "remedy": refusal.remedy,
    }


def find_folder(path: str, base: str) -> str:
    """Return the folder of a skill that was named; ConfigError for a path without one."""
    full = os.path.normpath(os.path.join(base, os.path.expanduser(path)))
    if os.path.basename(full) == SKILL_FILE:
        full = os.path.dirname(full)
    if not os.path.isfile(os.path.join(full, SKILL_FILE)):
        installed = os.path.join(".agents", "skills", path)
        hint = "give the folder of a skill (`skillbelt init NAME` creates one)"
        if os.path.isfile(os.path.join(base, installed, SKILL_FILE)):
            hint = f"did you mean {installed}?"
        raise ConfigError(f"no {SKILL_FILE} in {path!r}; {hint}")
    return full
