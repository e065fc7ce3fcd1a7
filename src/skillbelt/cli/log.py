"""`skillbelt log`."""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import islice
from urllib.parse import unquote

from skillbelt.cli.output import count, print_json, print_json_list, print_table, say, wide_option
from skillbelt.errors import ConfigError
from skillbelt.permission.audit import TYPES, AuditEvent, Verified, open_audit
from skillbelt.permission.audit_events import AuditStore
from skillbelt.permission.audit_words import (
    describe_actor,
    describe_outcome,
    describe_reason,
    describe_result,
    describe_subject,
    event_json,
)
from skillbelt.settings import load_settings
from skillbelt.store import open_store
from skillbelt.text import ago, local_time, one_line

_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_HEAD = ("time", "type", "who", "what", "outcome", "why")
# On a terminal the most important column comes first. Programs that read a pipe rely on the order
# above.
_ON_SCREEN = ("time", "outcome", "what", "who", "why")
_COLOURS = {
    "time": {},
    "outcome": {
        **dict.fromkeys(("allowed", "added", "ok", "changed"), "green"),
        **dict.fromkeys(("denied", "failed", "timed_out", "cancelled", "removed"), "red"),
        **{f"exit {code}": "red" if code else "green" for code in range(-64, 256)},
    },
}
_BATCH = 1_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `log`."""
    parser.add_argument("--session", metavar="S", help="only events of this session")
    parser.add_argument("--type", metavar="T", help=f"only events of this type: {', '.join(TYPES)}")
    parser.add_argument("--skill", metavar="NAME", help="only events about this skill")
    parser.add_argument(
        "--since",
        metavar="T",
        help="only events since then: Unix seconds, an ISO 8601 time, or an age such as 2h",
    )
    parser.add_argument(
        "--tenant", metavar="APP/USER", help="only events of the conversations of this user"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="only the newest N events")
    parser.add_argument(
        "--follow", action="store_true", help="keep printing new events until interrupted"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="verify that no record was changed, removed, added or moved; exit 1 if one was",
    )
    parser.add_argument(
        "--delete-before",
        metavar="T",
        help="delete the records of a log in PostgreSQL up to this time; form as for --since",
    )
    wide_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the events, oldest first."""
    wanted = _filters_of(args)
    settings = load_settings(args.project, config=args.config)
    log = open_audit(settings)
    if args.delete_before is not None:
        # The clock of this machine may be wrong, and deleted records are lost.
        return _delete(log, wanted, args, open_store(settings).now())
    if args.verify:
        return _verify(log, wanted, args)
    if args.follow:
        return _follow(log, wanted, args)
    events = log.read(**wanted)  # type: ignore[arg-type]
    if args.json:
        print_json_list("events", map(event_json, events))
    elif not _print_events(events, args):
        say("no such events", args) if _is_filtered(wanted) else say("the log is empty", args)
    return 0


def _print_events(events: Iterator[AuditEvent], args: argparse.Namespace) -> bool:
    """Print the events while they are read; return whether there was one."""
    found = False
    # The columns of a table are as wide as its rows need.
    while batch := list(islice(events, _BATCH if sys.stdout.isatty() else 1)):
        found = True
        if sys.stdout.isatty():
            _print_table(batch, args.wide)
        else:
            print_table(_HEAD, list(map(_row, batch)))
    return found


def _print_table(events: list[AuditEvent], wide: bool) -> None:
    """Print a table for a person: the most important first, who and why below if needed."""
    now = time.time()
    rows = [
        (
            local_time(event.time) if wide else ago(event.time, now),
            describe_outcome(event),
            f"{event.type} {what}" if (what := describe_subject(event)) else event.type,
            describe_actor(event),
            describe_reason(event, whole=wide),
            *((event.session, event.project) if wide else ()),
        )
        for event in events
    ]
    head = (*_ON_SCREEN, "session", "project") if wide else _ON_SCREEN
    print_table(head, rows, wrap=True, below=len(head) - 3, colours=_COLOURS)


def _verify(log: AuditStore, wanted: Mapping[str, object], args: argparse.Namespace) -> int:
    if args.follow or _is_filtered(wanted):
        raise ConfigError("--verify checks the whole log: remove --follow and the filters")
    found = log.verify()
    # A reader that closed the pipe still gets the exit code.
    with suppress(BrokenPipeError):
        if args.json:
            faults = [fault._asdict() for fault in found.faults]
            print_json({"whole": not found.broken, **found._asdict(), "faults": faults})
        else:
            _print_verified(found, args)
    return 1 if found.broken else 0


def _print_verified(found: Verified, args: argparse.Namespace) -> None:
    for fault in found.faults:
        place = f"{fault.path}:{fault.line}" if fault.line else fault.path
        print(f"{one_line(place)}: {one_line(fault.message)}")
    if found.broken > len(found.faults):
        print(f"and {found.broken - len(found.faults)} more")
    if found.unbound:
        say(
            f"{count(found.unbound, 'older line')} not checked: written before the hash chain", args
        )
    if found.broken:
        print(f"skillbelt: the log was changed: {count(found.broken, 'fault')}",
              file=sys.stderr)  # fmt: skip
    elif found.records:
        say(f"{count(found.records, 'record')}, none was changed", args)
    elif not found.unbound:
        say("the log is empty", args)


def _delete(
    log: AuditStore, wanted: Mapping[str, object], args: argparse.Namespace, now: float
) -> int:
    if args.follow or args.verify or _is_filtered(wanted):
        raise ConfigError(
            "--delete-before takes no filter, --follow or --verify: it deletes"
            " records of all kinds, the oldest first"
        )
    gone = log.expire(since(args.delete_before, now, "--delete-before"))
    if args.json:
        print_json({"deleted": gone})
    else:
        say(f"{count(gone, 'record')} deleted", args)
    return 0


def _parse_tenant(text: str) -> tuple[str, str]:
    parts = [unquote(part, errors="surrogatepass") for part in text.split("/")]
    if len(parts) != 2:
        raise ConfigError(
            f"--tenant {text!r} must be APP/USER, as `skillbelt sessions list` prints them before"
            " the session"
        )
    return parts[0], parts[1]


def since(text: str, now: float, option: str = "--since") -> float:
    """Parse the value of `--since` into Unix seconds; ConfigError when it is not a time."""
    age = _AGE.fullmatch(text.strip())
    try:
        if age:
            return now - float(age[1]) * _SECONDS[age[2]]
        try:
            moment = float(text)
        except ValueError:
            # Without a time zone it is local time.
            moment = datetime.fromisoformat(text.strip()).timestamp()
        if abs(moment) < float("inf"):
            return moment
    except (ValueError, OverflowError, OSError):
        pass
    raise ConfigError(
        f"{option} {text!r} is not a time: give Unix seconds, a date such as 2026-03-01 or "
        "2026-03-01T09:30, or an age such as 30m, 2h or 7d"
    )


def _filters_of(args: argparse.Namespace) -> dict[str, object]:
    if args.type is not None and args.type not in TYPES:
        raise ConfigError(f"--type must be one of {', '.join(TYPES)}, not {args.type!r}")
    if args.limit is not None and args.limit < 0:
        raise ConfigError(f"--limit must be zero or more, not {args.limit}")
    return {
        "session": args.session,
        "type": args.type,
        "skill": args.skill,
        "since": None if args.since is None else since(args.since, time.time()),
        "limit": args.limit,
        "tenant": None if args.tenant is None else _parse_tenant(args.tenant),
    }


def _is_filtered(wanted: Mapping[str, object]) -> bool:
    return any(value is not None for value in wanted.values())


def _follow(log: AuditStore, wanted: Mapping[str, object], args: argparse.Namespace) -> int:
    # Not with an event: the waiting thread may hold its lock when the signal arrives.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    say("following the log; Ctrl-C stops it", args)
    between = "  " if sys.stdout.isatty() else "\t"
    for event in log.follow(**wanted):  # type: ignore[arg-type]
        cells = between.join(one_line(cell) for cell in _row(event))
        print(json.dumps(event_json(event)) if args.json else cells, flush=True)
    return 0


def _row(event: AuditEvent) -> tuple[str, ...]:
    return (
        local_time(event.time),
        event.type,
        describe_actor(event),
        describe_subject(event),
        describe_result(event),
        describe_reason(event),
    )
