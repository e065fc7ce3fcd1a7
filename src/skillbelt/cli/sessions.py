"""`skillbelt sessions`."""

from __future__ import annotations

import argparse
import heapq
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from difflib import get_close_matches
from itertools import islice
from urllib.parse import quote, unquote

from skillbelt.cli.failure import Printed
from skillbelt.cli.keyboard import is_dumb
from skillbelt.cli.output import CLI_SESSION, count, print_json, print_table, say, wide_option
from skillbelt.cli.replay import replay
from skillbelt.conversation.transcript import describe, read_title, to_html, to_markdown
from skillbelt.errors import ConfigError, NotFound
from skillbelt.events import Event
from skillbelt.files.contain import NEW_FILE
from skillbelt.runtime.runtime import Runtime
from skillbelt.settings import load_settings
from skillbelt.store import SessionInfo, SessionKey, open_store
from skillbelt.store.protocol import OpenedStore, list_sessions
from skillbelt.text import ago, local_time, one_line

NOT_FOUND = 3
_COLOURS: Mapping[str, Mapping[str, str]] = {"last used": {}, "session": {}}
_OWN = "skillbelt:"  # permission requests and servers also have entries; they are not conversations
# The user speaks early in a conversation, after the host's messages.
_TITLE_EVENTS = 20
_LISTED = 1000
# How many names are searched for one like a mistyped name.
_COMPARED = 10_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `sessions`."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "show", "export", "delete"),
        default="list",
        help="what to do (default: list)",
    )
    parser.add_argument(
        "id",
        metavar="ID",
        nargs="?",
        help="the session, as `list` prints it: app/user/session, or only the session for one of "
        "`chat` and `ask`",
    )
    parser.add_argument(
        "--events",
        action="store_true",
        help="with show: the stored state and events instead of the conversation",
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=_count,
        default=_LISTED,
        help=f"with list: show the N that were used last (default: {_LISTED}; 0: all)",
    )
    parser.add_argument(
        "--format",
        choices=("md", "json", "html"),
        help="with export: the form of the document (default: md)",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="with export: write to a new file instead of standard output",
    )
    wide_option(parser)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, 0 or more")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """List the sessions, show one with its events, export one, or delete one."""
    if args.action != "export" and (args.format or args.output):
        raise ConfigError(
            f"sessions {args.action} takes no --format and no --output; `skillbelt sessions export "
            "ID --format md` does"
        )
    with closing(open_store(load_settings(args.project, config=args.config))) as store:
        if args.action == "list":
            return _list(store, args)
        key = parse_id(args.id or "", f"sessions {args.action} needs an ID")
        if args.action == "delete":
            return _delete(store, key, args)
        if (info := store.find_session(key)) is None:
            raise _not_found(store, key)
        return (_export if args.action == "export" else _show)(store, info, args)


def parse_id(text: str, need: str) -> SessionKey:
    """Parse an ID as `list` prints it; a ConfigError begins with `need`."""
    if text and "/" not in text:
        return SessionKey(*CLI_SESSION[:2], unquote(text, errors="surrogatepass"))
    try:
        app, user, session = (unquote(part, errors="surrogatepass") for part in text.split("/"))
    except ValueError as error:
        reason = f"{need} as `skillbelt sessions list` prints it: app/user/session"
        raise ConfigError(reason) from error
    return SessionKey(app, user, session)


def session_id(key: SessionKey) -> str:
    """Return the text that `parse_id` reads."""
    return "/".join(_escape(part) for part in key)


def _escape(text: str) -> str:
    """%-escape characters that would break an ID or are invisible."""
    return "".join(
        quote(char, safe="", errors="surrogatepass")
        if char in "%/" or one_line(char) != char
        else char
        for char in text
    )


def _not_found(store: OpenedStore, key: SessionKey) -> NotFound:
    known = (session_id(info.key) for info in islice(list_sessions(store), _COMPARED))
    close = get_close_matches(session_id(key), known, n=3)
    hint = f"closest: {', '.join(close)}" if close else "see `skillbelt sessions list`"
    return NotFound(f"no session {session_id(key)!r}", hint, exit_code=NOT_FOUND)


def _list(store: OpenedStore, args: argparse.Namespace) -> int:
    if args.id is not None:
        raise ConfigError("sessions list takes no ID; `skillbelt sessions show ID` shows one")
    found, more = _newest(
        (info for info in list_sessions(store) if not info.key.app.startswith(_OWN)), args.limit
    )
    if args.json:
        document = {"sessions": [_info_json(store, info) for info in found]}
        print_json({**document, "more": more} if more else document)
    elif found:
        _print_list(store, found, args)
        if more:
            say(f"{count(more, 'older session')} left out; --limit 0 shows all", args)
    else:
        say("no sessions yet", args)
    return 0


def _newest(infos: Iterable[SessionInfo], limit: int) -> tuple[list[SessionInfo], int]:
    """Return the last used sessions, the latest first, and the number of others.

    Only these are in memory at any time.
    """
    total = 0

    def counted() -> Iterator[SessionInfo]:
        nonlocal total
        for info in infos:
            total += 1
            yield info

    if limit:
        found = heapq.nlargest(limit, counted(), key=lambda info: info.updated)
    else:
        found = sorted(counted(), key=lambda info: -info.updated)
    return found, total - len(found)


def _print_list(store: OpenedStore, found: Sequence[SessionInfo], args: argparse.Namespace) -> None:
    """Print the sessions; on a terminal the number of events only with --wide."""
    rows = [
        (session_id(one.key), str(one.events), local_time(one.updated), _title(store, one.key))
        for one in found
    ]
    if not sys.stdout.isatty():
        print_table(("session", "events", "last used", "begins with"), rows)
    elif args.wide:
        head = ("last used", "events", "session", "begins with")
        shown = [(used, events, name, begins) for name, events, used, begins in rows]
        print_table(head, shown, wrap=True, colours=_COLOURS)
    else:
        now = time.time()
        short = [
            (ago(one.updated, now), _short_id(one.key), row[3])
            for one, row in zip(found, rows, strict=True)
        ]
        print_table(("last used", "session", "begins with"), short, colours=_COLOURS)


def _short_id(key: SessionKey) -> str:
    """Return the shortest name of a session: for the command line's own only the last part."""
    return _escape(key.session) if key[:2] == CLI_SESSION[:2] and key.session else session_id(key)


def _title(store: OpenedStore, key: SessionKey) -> str:
    first = store.first_events(key, _TITLE_EVENTS)
    return read_title(event.data for event in first if event.type == "message")


def _info_json(store: OpenedStore, info: SessionInfo) -> dict[str, object]:
    return {
        "id": session_id(info.key),
        **info.key._asdict(),
        "created": info.created,
        "updated": info.updated,
        "events": info.events,
        "title": _title(store, info.key),
    }


def _document(store: OpenedStore, info: SessionInfo, events: Sequence[Event]) -> dict[str, object]:
    log = [event._asdict() for event in events]
    return {**_info_json(store, info), "state": store.state(info.key), "log": log}


def _show(store: OpenedStore, info: SessionInfo, args: argparse.Namespace) -> int:
    events = store.events(info.key)
    if args.json:
        print_json(_document(store, info, events))
        return 0
    facts = {
        "id": session_id(info.key),
        "created": local_time(info.created),
        "last used": local_time(info.updated),
    }
    print_table(("", ""), list(facts.items()), wrap=True)
    if args.events:
        _print_inside(store.state(info.key), events)
        return 0
    drawn = sys.stdout.isatty() and not is_dumb()
    lines = list(replay(events) if drawn else describe(events))
    print("", *lines or ["no messages; --events shows what is stored"], sep="\n")
    return 0


def _export(store: OpenedStore, info: SessionInfo, args: argparse.Namespace) -> int:
    form = args.format or ("json" if args.json else "md")
    if args.json and form != "json":
        raise ConfigError(f"sessions export: --json and --format {form} contradict each other")
    events, title = store.events(info.key), _title(store, info.key)
    facts = {"session": session_id(info.key), "last used": local_time(info.updated)}
    if form == "json":
        text = json.dumps(_document(store, info, events), indent=2) + "\n"
    elif form == "html":
        text = to_html(events, title, facts)
    else:
        text = to_markdown(events, title, facts)
    if args.output is None:
        Printed.document = form == "json"
        print(text, end="")
        return 0
    path = os.path.abspath(os.path.expanduser(args.output))
    try:
        # Never over another file: a name may be mistyped.
        with open(os.open(path, NEW_FILE, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{path!r} cannot be written: {error.strerror}") from error
    say(f"wrote {one_line(path)}", args)
    return 0


def _print_inside(state: Mapping[str, str], events: Sequence[Event]) -> None:
    print("state" if state else "no state")
    for key, value in sorted(state.items()):
        print(f"  {one_line(key)}: {one_line(value)}")
    print("events" if events else "no events")
    rows = [
        (str(event.seq), local_time(event.time), event.type, event.agent, _data(event.data))
        for event in events
    ]
    if rows:
        print_table(("", "time", "type", "agent", "data"), rows)


def _delete(store: OpenedStore, key: SessionKey, args: argparse.Namespace) -> int:
    with Runtime(settings=load_settings(args.project, config=args.config), store=store) as belt:
        deleted = belt.delete_session(key.user, key.session, app=key.app)
    if not deleted:
        raise _not_found(store, key)
    if args.json:
        print_json({"deleted": session_id(key)})
    else:
        say(f"deleted {session_id(key)}", args)
    return 0


def _data(data: object) -> str:
    return json.dumps(data, ensure_ascii=False)
