"""`skillbelt store`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import closing

from skillbelt.cli.output import count, positive, print_json, say
from skillbelt.errors import ConfigError, UsageError
from skillbelt.objects.collect import collect
from skillbelt.objects.space import Objects
from skillbelt.permission.audit import AuditLog
from skillbelt.running.snapshots import clean_deleted
from skillbelt.settings import DATABASES, load_settings
from skillbelt.store import STATE_FILE, open_postgres, open_store
from skillbelt.store.protocol import list_sessions
from skillbelt.store.sqlite import SqliteStore
from skillbelt.store.transfer import Movable, move_store

_DAY_SECONDS = 86400
_REPORT_SECONDS = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `store`."""
    parser.add_argument("action", choices=("migrate", "expire", "collect"), help="what to do")
    parser.add_argument(
        "places",
        metavar="FROM TO",
        nargs="*",
        help="with migrate: a SQLite file or its folder, or postgresql://USER@HOST/DATABASE",
    )
    parser.add_argument(
        "--days",
        metavar="N",
        type=positive,
        help="with expire: delete the sessions that were not used for N days",
    )


def run(args: argparse.Namespace) -> int:
    """Move all sessions to another store, delete old ones, or clear the object store."""
    actions = {"migrate": _migrate, "expire": _expire, "collect": _collect}
    return actions[args.action](args)


def _collect(args: argparse.Namespace) -> int:
    if args.places or args.days is not None:
        raise UsageError("store collect takes no stores and no --days")
    settings = load_settings(args.project, config=args.config)
    objects = Objects.from_settings(settings)
    gone = collect(objects)
    here = clean_deleted(objects, os.path.join(settings.state_dir, "workspaces"))
    if args.json:
        print_json({"objects": settings.objects, **gone._asdict(), "workspaces": len(here)})
    else:
        kinds = f"{count(gone.trees, 'tree')}, {count(gone.blobs, 'blob')}"
        say(f"removed {count(gone.names, 'name')}, {kinds}: {gone.size:,} bytes", args)
        if here:
            deleted = "of conversations that were deleted elsewhere"
            say(f"removed {count(len(here), 'workspace')} of this machine, {deleted}", args)
    return 0


def _migrate(args: argparse.Namespace) -> int:
    if len(args.places) != 2 or args.days is not None:
        raise UsageError("store migrate takes two stores: FROM TO")
    source, target = (_open(place) for place in args.places)
    if source.place == target.place:
        raise UsageError("store migrate takes two stores, not one twice")
    if isinstance(source, SqliteStore) and not os.path.isfile(source.path):
        raise ConfigError(f"{source.path}: no such file; give the state.sqlite3 to move")
    with closing(source), closing(target):
        rest = _move_rest(args.places, source)
        total = sum(1 for _ in list_sessions(source))
        moved = move_store(source, target, _reporter(total, args))
    left = [name for name in _REST if name not in rest]
    if args.json:
        places = {"from": source.place, "to": target.place}
        counts = dict.fromkeys(_REST, 0) | rest
        print_json({**places, **moved._asdict(), **counts, "left": left, "verified": True})
    else:
        if any(rest.values()):
            records = count(rest["audit"], "audit record")
            origins = f", {count(rest['origins'], 'trusted origin')}" if "origins" in rest else ""
            say(f"{records} with unbroken chains{origins}", args)
        say(
            f"{count(moved.sessions, 'session')} with {count(moved.events, 'event')} are in"
            f" {target.place}, compared one by one; {moved.copied} were missing",
            args,
        )
        if left:
            say(_describe_left(left, source), args)
    return 0


# What a store contains besides sessions, and its name in messages.
_REST = {"audit": "the audit log", "origins": "what is trusted"}


def _describe_left(left: list[str], source: Movable) -> str:
    """Say what was not moved, where it stays, and what to do about it."""
    text = f"not moved: {' and '.join(_REST[one] for one in left)}"
    if not isinstance(source, SqliteStore):
        return f"{text}; it stays in {source.place}"
    text += "; it stays in the state folder, and this machine still trusts it"
    if "audit" in left:
        return text
    return f"{text}. To trust an origin on all machines: `skillbelt trust add URL`, with `store`"


def _move_rest(places: list[str], source: Movable) -> dict[str, int]:
    """Move everything except sessions to a database; return how many there are of each."""
    if not places[1].startswith(DATABASES):
        return {}
    target = open_postgres(places[1]).database
    from skillbelt.permission import audit_transfer  # extra: postgres

    if isinstance(source, SqliteStore):
        log = AuditLog(os.path.join(os.path.dirname(os.path.abspath(source.path)), "audit"))
        return {"audit": audit_transfer.move_files(log, target)}
    return audit_transfer.move_records(open_postgres(places[0]).database, target)


def _open(place: str) -> Movable:
    if place.startswith(DATABASES):
        return open_postgres(place)
    if "://" in place:
        raise UsageError("a store is a SQLite file or postgresql://USER@HOST/DATABASE")
    path = os.path.join(place, STATE_FILE) if os.path.isdir(place) else place
    return SqliteStore(path)


def _reporter(total: int, args: argparse.Namespace) -> Callable[[int], None]:
    """Return a function that shows the progress on a terminal, now and then."""
    if args.quiet or not sys.stderr.isatty():
        return lambda done: None
    shown = time.monotonic()

    def report(done: int) -> None:
        nonlocal shown
        if done == total or time.monotonic() > shown + _REPORT_SECONDS:
            shown = time.monotonic()
            end = "\n" if done == total else ""
            print(f"\r{done} of {total} sessions", end=end, file=sys.stderr, flush=True)

    return report


def _expire(args: argparse.Namespace) -> int:
    if args.places or args.days is None:
        raise UsageError("store expire needs --days N")
    with closing(open_store(load_settings(args.project, config=args.config))) as store:
        deleted = store.expire(store.now() - args.days * _DAY_SECONDS)
    if args.json:
        print_json({"deleted": deleted})
    else:
        say(f"deleted {count(deleted, 'session')}", args)
    return 0
