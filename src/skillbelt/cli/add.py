"""`skillbelt add`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from skillbelt.cli.gates import can_ask
from skillbelt.cli.installing import accepted, add_acceptance, require_install, resolver
from skillbelt.cli.output import (
    count,
    print_diagnostics,
    print_json,
    print_table,
    say,
    show_progress,
    wants_progress,
)
from skillbelt.cli.words import print_words
from skillbelt.errors import PermissionDenied, UsageError
from skillbelt.install.add import (
    SYSTEM,
    AddTarget,
    RefusedSkill,
    SkillChange,
    SkillOffer,
    check_clients,
    install_offers,
    install_request,
    offer_skills,
)
from skillbelt.install.content_store import incoming
from skillbelt.install.fetching import OpenSource, open_source
from skillbelt.install.find_skills import FoundSkill
from skillbelt.install.lock_file import find_place
from skillbelt.install.placing import client_name
from skillbelt.install.policy import find_source_faults
from skillbelt.install.source_syntax import check_ref, parse_typed
from skillbelt.install.values import SourceReference
from skillbelt.late import Late
from skillbelt.settings import Settings, load_settings
from skillbelt.text import one_line, shell_word, shorten

if TYPE_CHECKING:
    from importlib import util

    from skillbelt.install import describe
else:
    util = Late("importlib.util")  # cost: 1 ms, only for a choice
    describe = Late("skillbelt.install.describe")  # cost: 15 ms, not with -q and --json

PARTLY, REFUSED = 3, 4
_ABOUT_CHARS = 300
_MANY = 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `add`."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a folder, owner/repo, an address, an archive, oci://…, clawhub:…, plugin@marketplace",
    )
    parser.add_argument(
        "-s",
        "--skill",
        metavar="NAME",
        action="append",
        default=[],
        help="a skill to add (may be repeated)",
    )
    parser.add_argument("--all", action="store_true", help="add every skill of the source")
    parser.add_argument("-l", "--list", action="store_true", help="list the source's skills")
    parser.add_argument(
        "--to",
        metavar="CLIENT",
        action="append",
        default=[],
        help="a client that gets a link, such as claude-code (may be repeated)",
    )
    parser.add_argument(
        "-g", "--global", dest="user", action="store_true", help="for all your projects"
    )
    parser.add_argument("--ref", metavar="REF", help="a branch, a tag or a commit of a repository")
    parser.add_argument("--pin", action="store_true", help="stay at this commit in later updates")
    parser.add_argument("--copy", action="store_true", help="give clients copies in place of links")
    parser.add_argument(
        "-y", "--yes", action="store_true", help="allow what is asked for, once; never a denied one"
    )
    add_acceptance(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and change nothing"
    )


def run(args: argparse.Namespace) -> int:
    """Fetch, show, ask and install; the exit code says whether all of it was done."""
    settings = load_settings(args.project, config=args.config)
    reference = _read_reference(args)
    target = AddTarget(
        place=find_place(settings, "user" if args.user else "project"),
        clients=tuple(dict.fromkeys(map(client_name, args.to))),
        copy=args.copy,
        pin=args.pin,
        accepts=accepted(args),
    )
    check_clients(target, settings)
    if reference.kind != "marketplace" and (refused := _refuse_source(reference, settings)):
        _print([], refused, target, args)
        return REFUSED
    with incoming(settings) as folder:
        progress = show_progress if wants_progress(args) else None
        source = open_source(
            reference, settings, folder, wanted=_given_names(reference, args), progress=progress
        )
        _clear(args)
        if args.list:
            return _print_list(source, args)
        chosen = _choose(source, args)
        if not chosen:
            say("no skill was selected, so nothing is installed (space selects one)", args)
            return 0
        offered = list(offer_skills(source, chosen, target, settings, progress))
        _clear(args)
        return _finish(offered, target, settings, args)


def _refuse_source(reference: SourceReference, settings: Settings) -> list[RefusedSkill]:
    """Return why nothing of the source may be installed; it is not fetched then."""
    return [
        RefusedSkill(
            name=reference.skill or reference.source,
            code=one.code,
            message=one.message,
            remedy=one.remedy,
        )
        for one in find_source_faults(reference.url, settings)
    ]


def _clear(args: argparse.Namespace) -> None:
    if wants_progress(args):
        show_progress("")


def _read_reference(args: argparse.Namespace) -> SourceReference:
    base = os.path.abspath(args.project or ".")
    found = parse_typed(args.source, folder=base)
    if found.kind == "github" and os.path.isdir(os.path.join(base, args.source)):
        here = shell_word(f"./{args.source}")
        say(f"{one_line(args.source)} means a repository on GitHub; the folder is {here}", args)
    if args.ref:
        if found.kind not in ("github", "gitlab", "git", "clawhub", "oci"):
            raise UsageError("add: --ref is for repositories, and this source is not one")
        found = found._replace(ref=check_ref(args.ref, found.source))
    return found


# --- which skills --------------------------------------------------------------------------------


def _given_names(reference: SourceReference, args: argparse.Namespace) -> list[str]:
    """Return the given names; none for all skills, or for a choice at the terminal."""
    if args.all or args.list:
        return []
    return [*args.skill, *([reference.skill] if reference.skill else [])]


def _choose(source: OpenSource, args: argparse.Namespace) -> list[FoundSkill]:
    named = _given_names(source.reference, args)
    if args.all or "*" in named:
        return list(source.found.skills)
    if named:
        return source.choose(named)
    if len(source.found.skills) == 1:
        return list(source.found.skills)
    if args.json or not can_ask() or util.find_spec("prompt_toolkit") is None:
        names = ", ".join(skill.name for skill in source.found.skills[:12])
        more = len(source.found.skills) - 12
        error = UsageError(
            f"add: {source.reference.source} has {len(source.found.skills)} skills; give --skill "
            f"NAME or --all ({names}{f' and {more} more' if more > 0 else ''})"
        )
        word = shell_word(source.reference.typed or source.reference.source)
        error.remedy = f"`skillbelt add {word} --list` says what each of them is for"
        raise error
    from skillbelt.cli.check_list import choose_many  # extra: agent

    rows = [(skill.name, shorten(skill.description, _ABOUT_CHARS)) for skill in source.found.skills]
    picked = choose_many(f"Skills of {source.reference.source}", rows)
    return [source.found.skills[number] for number in picked]


def _print_list(source: OpenSource, args: argparse.Namespace) -> int:
    if args.json:
        print_json(
            {
                "source": source.reference.source,
                "commit": source.commit,
                "skills": [
                    {
                        "name": skill.name,
                        "description": skill.description,
                        "path": skill.skill_path,
                        "plugin": skill.plugin,
                    }
                    for skill in source.found.skills
                ],
                "skipped": [one._asdict() for one in source.found.skipped],
            }
        )
        return 0
    rows = [(skill.name, skill.description) for skill in source.found.skills]
    print_table(("NAME", "DESCRIPTION"), rows)
    for one in source.found.skipped:
        say(f"skipped {one_line(one.path)}: {one_line(one.reason)}", args)
    return 0


# --- the question and the result -----------------------------------------------------------------


def _finish(
    offered: Sequence[SkillOffer | RefusedSkill],
    target: AddTarget,
    settings: Settings,
    args: argparse.Namespace,
) -> int:
    offers = [one for one in offered if isinstance(one, SkillOffer)]
    refused = [one for one in offered if isinstance(one, RefusedSkill)]
    new = [one for one in offers if not one.is_installed]
    if not args.json:
        for offer in new:
            _show(offer, args)
        _print_refused(refused)  # before the question, which is about the others
    shown = len(refused)
    changes: list[SkillChange] = []
    if args.dry_run:
        changes = [one.change(one.fetched.reference.source) for one in offers]
    elif offers and _ask(new, refused, target, settings, args):
        progress = show_progress if wants_progress(args) else None
        packages = resolver(settings, args)
        for done in install_offers(offers, target, settings, progress=progress, packages=packages):
            if isinstance(done, SkillChange):
                changes.append(done)
            else:
                refused.append(done)
        _clear(args)
    _print(changes, refused if args.json else refused[shown:], target, args)
    if not refused or changes:
        return PARTLY if refused else 0
    return 1 if any(one.code == SYSTEM for one in refused) else REFUSED


def _ask(
    new: Sequence[SkillOffer],
    refused: list[RefusedSkill],
    target: AddTarget,
    settings: Settings,
    args: argparse.Namespace,
) -> bool:
    """Ask about new skills; add those that were refused to the refusals."""
    if not new:
        return True
    reference = new[0].fetched.reference
    try:
        request = install_request(new, target)
        require_install(request, settings, args, source=reference.typed or reference.source)
        return True
    except PermissionDenied as error:
        # After the user said no, the message does not say how to allow it.
        remedy = "" if can_ask() and "is denied by" not in error.reason else error.remedy
        refused += [
            RefusedSkill(
                name=offer.name,
                code=error.kind,
                message=one_line(error.reason).rstrip("."),
                remedy=remedy,
            )
            for offer in new
        ]
        return False


def _show(offer: SkillOffer, args: argparse.Namespace) -> None:
    if args.quiet:
        return
    print(f"{one_line(offer.name)}", file=sys.stderr)
    for label, text in describe.describe_offer(offer):
        print_words(f"  {label:<10} {text}", " " * 13, file=sys.stderr)
    if args.verbose:
        print_diagnostics(describe.check_offer(offer), args)


def _print(
    changes: Iterable[SkillChange],
    refused: Iterable[RefusedSkill],
    target: AddTarget,
    args: argparse.Namespace,
) -> None:
    if args.json:
        print_json(
            {
                "changes": [
                    {
                        "name": one.name,
                        "action": one.action,
                        "from": one.before,
                        "to": one.after,
                        "digest": one.after,
                        "commit": one.commit,
                        "source": one.source,
                        "links": one.links,
                        "copies": one.copies,
                    }
                    for one in changes
                ],
                "refused": [one._asdict() for one in refused],
            }
        )
        return
    words = {"install": "installed", "replace": "replaced", "keep": "unchanged"}
    if args.dry_run:
        words |= {"install": "would be installed", "replace": "would be replaced"}
    for one in changes:
        name = one_line(one.name)
        print(f"{name}: {words[one.action]} in {target.place.skills}")
        for word, paths in (("linked", one.links), ("copied", one.copies)):
            for path in paths:
                print(f"{name}: {word} to {os.path.dirname(path)}")
    _print_refused(refused)


def _print_refused(refused: Iterable[RefusedSkill]) -> None:
    """Print why skills are not installed; those of one reason together."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for bad in refused:
        reasons.setdefault((bad.message, bad.remedy), []).append(one_line(bad.name))
    for (message, remedy), names in reasons.items():
        shown = ", ".join(names) if len(names) < _MANY else count(len(names), "skill")
        text = f"skillbelt: {shown}: {message}{f'; {remedy}' if remedy else ''}"
        print_words(text, "  ", sys.stderr)
