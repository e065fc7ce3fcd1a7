"""`skillbelt trust`."""

from __future__ import annotations

import argparse
import sys
import time

from skillbelt.cli.output import print_diagnostics, print_json, print_table, say
from skillbelt.errors import ConfigError
from skillbelt.permission.audit import AuditEvent, open_audit, user_name
from skillbelt.settings import Settings, load_settings
from skillbelt.text import one_line
from skillbelt.trust import Record, Trust, TrustEntry


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `trust`."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "add", "remove"),
        default="list",
        help="what to do (default: list)",
    )
    parser.add_argument(
        "value",
        nargs="?",
        metavar="PATH|ORIGIN",
        help="a folder, or the URL that skills come from (default: this project)",
    )


def run(args: argparse.Namespace) -> int:
    """List what is trusted, add to it, or take from it."""
    # The project may be one that is not taken as the user's own until this says so.
    settings = load_settings(args.project, config=args.config, leave_strangers=True)
    trust = Trust(settings.state_dir)
    if args.action == "list":
        return _list(trust, args)
    value = settings.worktree if args.value is None else args.value
    record = _recorder(args.action, settings)
    if args.action == "add":
        return _print(trust.add(value, record), args)
    gone = trust.remove(value, record)
    if gone is None:
        print(f"skillbelt: {one_line(value)} {_not_listed(trust, value)}", file=sys.stderr)
        return 1
    above = trust.covering(value)
    if above is not None:
        say(f"still trusted, because {one_line(above.value)} is", args)
    return _print(gone, args)


def _recorder(action: str, settings: Settings) -> Record:
    """What writes the change into the audit log before it is made."""

    def record(entry: TrustEntry) -> None:
        data = {"action": action, "kind": entry.kind, "value": entry.value}
        who, log = user_name(), open_audit(settings)
        log.append(
            AuditEvent(time.time(), "trust", settings.project, who, initiator="user", data=data)
        )

    return record


def _not_listed(trust: Trust, value: str) -> str:
    above = trust.covering(value)
    if above is None:
        return "was not trusted; `skillbelt trust list` shows what is"
    return f"is trusted only because {one_line(above.value)} is; remove that one"


def _list(trust: Trust, args: argparse.Namespace) -> int:
    if args.value is not None:
        raise ConfigError("trust list takes no PATH or ORIGIN; `trust add` adds one")
    entries, problems = trust.entries(), trust.diagnostics
    if args.json:
        print_json({"trusted": [entry._asdict() for entry in entries]})
    elif entries:
        print_table(("kind", "since", "value"), [_row(entry) for entry in entries], wrap=True)
    elif not problems:
        say("nothing is trusted yet; `skillbelt trust add` trusts this project", args)
    print_diagnostics((*problems, *trust.exchanged()), args)
    return 1 if problems else 0


def _print(entry: TrustEntry, args: argparse.Namespace) -> int:
    if args.json:
        print_json(entry._asdict())
    else:
        print_table(("kind", "since", "value"), [_row(entry)], wrap=True)
    return 0


def _row(entry: TrustEntry) -> tuple[str, str, str]:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.time))
    return entry.kind, since, entry.value
