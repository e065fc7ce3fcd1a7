"""`skillbelt trust`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from skillbelt.cli.output import print_diagnostics, print_json, print_table, say
from skillbelt.discovery.trusted import open_trust
from skillbelt.errors import ConfigError, NotFound
from skillbelt.permission.audit import AuditEvent, open_audit, user_name
from skillbelt.settings import Settings, load_settings
from skillbelt.text import one_line
from skillbelt.trust import Record, Trust, TrustEntry


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `trust`."""
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
        help="a folder, or the URL of a skill source (default: this project)",
    )


def run(args: argparse.Namespace) -> int:
    """List the trusted folders and origins, add one, or remove one."""
    # The settings of the project are ignored unless it is already trusted.
    settings = load_settings(args.project, config=args.config, leave_strangers=True)
    trust = open_trust(settings)
    if args.action == "list":
        return _list(trust, args)
    value = settings.worktree if args.value is None else args.value
    record = _recorder(args.action, settings)
    if args.action == "add":
        return _print(trust.add(value, record), args)
    gone = trust.remove(value, record)
    if gone is None:
        raise _describe_unlisted(trust, value)
    above = trust.covering(value)
    if above is not None:
        say(f"still trusted, because {one_line(above.value)} is", args)
    return _print(gone, args)


def _recorder(action: str, settings: Settings) -> Record:
    """Return a callback that writes the change to the audit log before it is made."""

    def record(entry: TrustEntry) -> None:
        data = {"action": action, "kind": entry.kind, "value": entry.value}
        event = AuditEvent(
            time=time.time(),
            type="trust",
            project=settings.project,
            user=user_name(),
            initiator="user",
            data=data,
        )
        open_audit(settings).append(event)

    return record


def _describe_unlisted(trust: Trust, value: str) -> NotFound:
    above = trust.covering(value)
    if above is None:
        return NotFound(
            f"{one_line(value)} was not trusted", "`skillbelt trust list` lists what is"
        )
    reason = f"{one_line(value)} is trusted only because {one_line(above.value)} is"
    return NotFound(reason, "remove that one")


def _list(trust: Trust, args: argparse.Namespace) -> int:
    if args.value is not None:
        raise ConfigError("trust list takes no PATH or ORIGIN; `trust add` adds one")
    entries, problems = trust.entries(), trust.diagnostics
    if args.json:
        print_json({"trusted": [entry._asdict() for entry in entries]})
    elif entries:
        _print_table(entries)
    elif not problems:
        say("nothing is trusted yet; `skillbelt trust add` trusts this project", args)
    print_diagnostics((*problems, *trust.exchanged()), args)
    return 1 if problems else 0


def _print(entry: TrustEntry, args: argparse.Namespace) -> int:
    if args.json:
        print_json(entry._asdict())
    else:
        _print_table([entry])
    return 0


def _print_table(entries: Sequence[TrustEntry]) -> None:
    """Print the entries; their origin is a column only if machines share some."""
    rows = [_row(entry) for entry in entries]
    if any(entry.place for entry in entries):
        places = (f"{one.place} by {one.by}" if one.place else "this machine" for one in entries)
        rows = [(*row, one_line(place)) for row, place in zip(rows, places, strict=True)]
        print_table(("kind", "since", "value", "from"), rows, wrap=True)
    else:
        print_table(("kind", "since", "value"), rows, wrap=True)


def _row(entry: TrustEntry) -> tuple[str, ...]:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.time))
    return entry.kind, since, entry.value
