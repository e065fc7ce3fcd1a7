"""The page of the audit log: filters, paging, and export as a file."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from typing import NamedTuple

from starlette.responses import Response, StreamingResponse

from skillbelt.console.visit import ShownPage, Visit
from skillbelt.permission.audit_events import TYPES, AuditEvent
from skillbelt.permission.audit_words import (
    describe_actor,
    describe_outcome,
    describe_reason,
    describe_subject,
    event_json,
)

PAGE = 100
# Events with the same time that pages show; the export has all.
MAX_SKIPPED = 999
# Bytes of an export that are sent at once.
PIECE_BYTES = 2**16
# Characters that begin a formula in a spreadsheet, including their full-width forms.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
AGES = {"1h": 3_600.0, "24h": 86_400.0, "7d": 604_800.0, "30d": 2_592_000.0}
_COLUMNS = ("time", "type", "who", "what", "outcome", "why", "skill", "session", "project")


class LogRow(NamedTuple):
    """An event in words."""

    time: float
    type: str
    who: str
    what: str
    outcome: str
    why: str
    event: AuditEvent


class LogQuery(NamedTuple):
    """A query on the log; `before` is the time of a page's oldest event, and how many of
    that time were shown.
    """

    type: str = ""
    skill: str = ""
    session: str = ""
    age: str = ""
    before: str = ""

    @classmethod
    def of(cls, visit: Visit) -> LogQuery:
        """Parse the query of a URL."""
        given = {name: visit.query.get(name, "").strip()[:300] for name in cls._fields}
        return cls(**given)


def show(visit: Visit) -> ShownPage:
    """Show a page of the log, newest first."""
    query = LogQuery.of(visit)
    events, before = read_page(visit, query, PAGE)
    again = {name: value for name, value in query._asdict().items() if name != "before"}
    return ShownPage(
        "log.html",
        {
            "rows": [describe_row(one) for one in events],
            "query": query,
            "types": TYPES,
            "ages": list(AGES),
            "older": visit.url("/log", **again, before=before) if before else "",
            "export_json": visit.url("/log/export", **again, form="jsonl"),
            "export_csv": visit.url("/log/export", **again, form="csv"),
            "is_live": not query.before,
        },
    )


def read_page(visit: Visit, query: LogQuery, limit: int) -> tuple[list[AuditEvent], str]:
    """Return the next events, newest first, and the next cursor; "" at the end."""
    moment, _, shown = query.before.partition("|")
    until, skip = _number(moment), int(shown) if shown.isdecimal() and len(shown) < 4 else 0
    found = list(
        visit.parts.belt.gate.audit.read(
            type=query.type if query.type in TYPES else None,
            skill=query.skill or None,
            session=query.session or None,
            since=_since(visit, query),
            limit=limit + skip + 1,
            until=until,
        )
    )
    # Events with the same time may be on two pages.
    found = found[: len(found) - skip] if skip else found
    more, page = len(found) > limit, found[-limit:]
    page.reverse()
    if not more or not page:
        return page, ""
    oldest = page[-1].time
    same = sum(one.time == oldest for one in page) + (skip if until == oldest else 0)
    if same > MAX_SKIPPED:
        return page, f"{math.nextafter(oldest, -math.inf)!r}|0"
    return page, f"{oldest!r}|{same}"


def describe_row(event: AuditEvent) -> LogRow:
    """Return an event in words."""
    return LogRow(
        time=event.time,
        type=event.type,
        who=describe_actor(event),
        what=describe_subject(event),
        outcome=describe_outcome(event),
        why=describe_reason(event, whole=False),
        event=event,
    )


def export(visit: Visit) -> Response:
    """Stream every matching event, oldest first."""
    query, form = LogQuery.of(visit), visit.query.get("form", "jsonl")
    events = visit.parts.belt.gate.audit.read(
        type=query.type if query.type in TYPES else None,
        skill=query.skill or None,
        session=query.session or None,
        since=_since(visit, query),
    )
    name = "log.csv" if form == "csv" else "log.jsonl"
    return StreamingResponse(
        _in_pieces(_csv(events) if form == "csv" else _json(events)),
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


def _in_pieces(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield several lines at a time, because sending a chunk costs more than a line."""
    held, size = [], 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def _json(events: Iterator[AuditEvent]) -> Iterator[bytes]:
    for event in events:
        yield json.dumps(event_json(event)).encode() + b"\n"


def _csv(events: Iterator[AuditEvent]) -> Iterator[bytes]:
    yield (",".join(_COLUMNS) + "\r\n").encode()
    for event in events:
        row = describe_row(event)
        cells = (*row[:6], event.skill, event.session, event.project)
        out = io.StringIO()
        csv.writer(out).writerow([_cell(str(one)) for one in cells])
        # File names may not be valid UTF-8.
        yield out.getvalue().encode("utf-8", "backslashreplace")


def _cell(text: str) -> str:
    """Return a cell that no spreadsheet reads as a formula."""
    return f"'{text}" if text.lstrip()[:1] in _FORMULA or text[:1] in ("\t", "\r", "\n") else text


def _since(visit: Visit, query: LogQuery) -> float | None:
    age = AGES.get(query.age)
    return None if age is None else visit.parts.belt.store.now() - age


def _number(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
