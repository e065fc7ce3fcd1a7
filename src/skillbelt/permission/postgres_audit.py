"""The audit log of many machines in PostgreSQL, with the promises of the one in files.

Each machine has its own chain of records: with one chain for all, each would wait for the disk
once for every record of every other (design/fleet.md has the figures). Of the events
that threads of a process append at once, one thread writes all.
"""

import os
import threading
import time
import uuid
import weakref
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from skillbelt.errors import ConfigError, StoreUnavailable
from skillbelt.permission.audit_events import (
    FOLLOW_SECONDS,
    AuditEvent,
    AuditFilter,
    Check,
    Fault,
    Head,
    Verified,
    decode_event,
    encode_event,
    hash_of,
    machine_name,
    tenant_of,
)
from skillbelt.store.postgres.database import Tenant
from skillbelt.store.postgres.store import decode_text, encode_text

if TYPE_CHECKING:
    import psycopg

    from skillbelt.store.postgres.database import Database

_TOPIC = "audit"
_PAGE = 1_000
_BATCH = 100
_BATCH_BYTES = 4 * 2**20
# How often one process notifies followers of new records; they also poll.
_WAKE_SECONDS = 0.2
_EXPIRE_BATCH = 5_000
_APPEND = "SELECT skillbelt.audit_append_1(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_COLUMNS = 'time, type, session, skill, app, "user"'
_LOGS: "weakref.WeakSet[PostgresAuditLog]" = weakref.WeakSet()


class _Entry:
    """An event to be written."""

    def __init__(self, event: AuditEvent) -> None:
        self.line = encode_event(event).decode("ascii").removesuffix("\n")
        self.row = columns_of(event)
        self.done = False
        self.error: ConfigError | None = None


class PostgresAuditLog:
    """The log of all machines in a database.

    ConfigError, with a remedy, when the database cannot be used.
    """

    def __init__(self, database: "Database", machine: str = "") -> None:
        self._database = database
        self.machine = machine or machine_name()
        self._woke = 0.0
        self._begin()
        _LOGS.add(self)

    def _begin(self) -> None:
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._queue: list[_Entry] = []

    def append(self, event: AuditEvent) -> None:
        """Write the event; ConfigError when that fails, so that no action goes unrecorded."""
        entry = _Entry(event._replace(machine=event.machine or self.machine))
        with self._lock:
            self._queue.append(entry)
        with self._writing:
            while not entry.done:
                self._write_batch()
        if entry.error is not None:
            raise self._write_error(entry.error) from entry.error
        self._wake()

    def read(
        self,
        *,
        session: str | None = None,
        type: str | None = None,
        skill: str | None = None,
        since: float | None = None,
        limit: int | None = None,
        tenant: tuple[str, str] | None = None,
        until: float | None = None,
    ) -> Iterator[AuditEvent]:
        """Yield the current events, oldest first; at most the newest `limit`.

        `tenant` is the app and the user whose conversations count, and no others. With `until` none
        is newer.
        """
        chosen = AuditFilter(
            session=session, type=type, skill=skill, since=since, tenant=tenant, until=until
        )
        yield from (event for _, _, event in self._select(chosen, limit))

    def follow(
        self,
        *,
        session: str | None = None,
        type: str | None = None,
        skill: str | None = None,
        since: float | None = None,
        limit: int | None = None,
        tenant: tuple[str, str] | None = None,
        stop: threading.Event | None = None,
        seconds: float = FOLLOW_SECONDS,
    ) -> Generator[AuditEvent, None, None]:
        """Yield the events of `read`, then each new event, until `stop` is set."""
        chosen = AuditFilter(session=session, type=type, skill=skill, since=since, tenant=tenant)
        with self._database.watch(_TOPIC) as watch:
            # Numbers of records count in the order of commits within a chain, and only there.
            seen = self._ends()
            for chain, seq, event in self._select(chosen, limit):
                if seq <= seen.get(chain, 0):
                    yield event
            while not (stop is not None and stop.is_set()):
                watch.wait(seconds)
                before, seen = seen, self._ends()
                for chain, end in sorted(seen.items()):
                    yield from self._read_between(chain, before.get(chain, 0), end, chosen)

    def verify(self) -> Verified:
        """Check that all records are there, unchanged and in order, in the chain of each machine.

        `path` of a fault is the database and the machine, `line` the number of the record.
        """
        self._need_all("the whole log")
        return self._database.insist(lambda db, _: self._verify(db), changes=False)

    def expire(self, before: float) -> int:
        """Delete older records from the beginning of each chain; return how many.

        The heads keep number and hash of the last deleted record, so that the rest can be verified.
        The role needs the right to delete from the tables.
        """
        self._need_all("the whole log")
        total = 0
        for chain in self._ends():
            while removed := self._expire(chain, before):
                total += removed
        return total

    # Writing

    def _write_batch(self) -> None:
        with self._lock:
            batch, size = list[_Entry](), 0
            while self._queue and len(batch) < _BATCH and size < _BATCH_BYTES:
                batch.append(self._queue.pop(0))
                size += len(batch[-1].line)
        once, chain = uuid.uuid4(), encode_text(self.machine)
        lines, rows = [one.line for one in batch], zip(*(one.row for one in batch), strict=True)
        columns = [list(column) for column in rows]

        def attempt(db: "psycopg.Connection[Any]", again: bool) -> None:
            db.execute(_APPEND, (once, again, chain, lines, *columns))

        # An interruption of this thread must not let the others continue as if it had written.
        error: ConfigError | None = ConfigError("the thread that wrote it was interrupted")
        try:
            self._database.insist(attempt)
            error = None
        except ConfigError as raised:
            error = raised
        finally:
            for entry in batch:
                entry.done, entry.error = True, error
        with suppress(ConfigError):  # a role that may only insert does not delete
            self._database.prune()

    def _write_error(self, error: ConfigError) -> ConfigError:
        kind = StoreUnavailable if isinstance(error, StoreUnavailable) else ConfigError
        return kind(
            f"the audit log cannot be written: {error}; no action may go unrecorded, so it was not"
            " done"
        )

    def _wake(self) -> None:
        now = time.monotonic()
        if now - self._woke >= _WAKE_SECONDS:
            self._woke = now
            self._database.wake(_TOPIC)

    # Reading

    def _select(
        self, chosen: AuditFilter, limit: int | None
    ) -> Iterator[tuple[str, int, AuditEvent]]:
        """Yield the matching events with chain and number, page by page to save memory."""
        if limit == 0:
            return
        tenant = self._tenant(chosen)
        where, values = _build_condition(chosen)
        query = f"SELECT coalesce(max(id), 0) FROM skillbelt.audit WHERE {where}"
        [(last,)] = self._database.read(query, values, tenant)
        first = 0
        if limit is not None:
            newest = f"SELECT id FROM skillbelt.audit WHERE {where} ORDER BY id DESC LIMIT %s"
            query = f"SELECT coalesce(min(id), 1) - 1 FROM ({newest}) AS newest"
            [(first,)] = self._database.read(query, [*values, limit], tenant)
        query = (
            f"SELECT id, chain, seq, record FROM skillbelt.audit WHERE id > %s AND id <= %s"
            f" AND {where} ORDER BY id LIMIT {_PAGE}"
        )
        while rows := self._database.read(query, [first, last, *values], tenant):
            first = rows[-1][0]
            for _, chain, seq, record in rows:
                event = decode_event(record.encode())
                if event is not None and chosen.takes(event):
                    yield chain, seq, event

    def _read_between(
        self, chain: str, after: int, end: int, chosen: AuditFilter
    ) -> Iterator[AuditEvent]:
        """Yield the matching events of a chain after a number, up to another."""
        where, values = _build_condition(chosen)
        query = (
            "SELECT seq, record FROM skillbelt.audit WHERE chain = %s AND seq > %s AND seq <= %s"
            f" AND {where} ORDER BY seq LIMIT {_PAGE}"
        )
        while after < end:
            rows = self._database.read(query, [chain, after, end, *values], self._tenant(chosen))
            if not rows:
                return
            after = rows[-1][0]
            for _, record in rows:
                event = decode_event(record.encode())
                if event is not None and chosen.takes(event):
                    yield event

    def _ends(self) -> dict[str, int]:
        """Return the number of the last record in each chain."""
        return dict(self._database.read("SELECT chain, seq FROM skillbelt.audit_head"))

    def _tenant(self, chosen: AuditFilter) -> Tenant | None:
        if chosen.tenant is None:
            self._need_all("the events of all users")
            return None
        return Tenant(*map(encode_text, chosen.tenant))

    def _need_all(self, what: str) -> None:
        """Raise ConfigError where row-level security hides part of the log from this role."""
        self._database.read("SELECT 1")  # connects, so that the next line is known
        if self._database.row_security:
            raise ConfigError(
                f"{self._database.place}: row-level security keeps {what} from this role; name an"
                " app and a user, or use the role that owns the tables"
            )

    # Checking

    def _verify(self, db: "psycopg.Connection[Any]") -> Verified:
        total = Verified(0, 0, 0, ())
        with db.transaction():
            # A snapshot of the whole log, while others write.
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            query = (
                "SELECT chain, seq, hash, gone, gone_hash FROM skillbelt.audit_head RIGHT JOIN"
                " (SELECT chain FROM skillbelt.audit_head"
                " UNION SELECT DISTINCT chain FROM skillbelt.audit) AS known USING (chain)"
                " ORDER BY chain"
            )
            for chain, seq, last, gone, gone_hash in db.execute(query).fetchall():
                head = None
                if seq is not None:
                    head = Head(seq=seq, hash=last, gone=gone, gone_hash=gone_hash, older=0)
                total = _add(total, self._verify_chain(db, chain, head))
        return total

    def _verify_chain(
        self, db: "psycopg.Connection[Any]", chain: str, head: Head | None
    ) -> Verified:
        place = f"{self._database.place} {decode_text(chain)}"
        check, odd = Check(head, f"{place} (audit_head)"), list[Fault]()
        query = f"SELECT seq, record, {_COLUMNS} FROM skillbelt.audit WHERE chain = %s ORDER BY seq"
        with db.cursor(name="skillbelt_verify") as cursor:
            cursor.itersize = _PAGE
            for seq, record, *columns in cursor.execute(query, [chain]):
                line = record.encode()
                check.take(place, seq, line)
                event = decode_event(line)
                if event is None or list(columns_of(event)) != columns:
                    fault = "is found under other columns than its own: they were changed"
                    odd.append(Fault(place, seq, fault))
        found = check.end()
        return found._replace(broken=found.broken + len(odd), faults=(*found.faults, *odd))

    def _expire(self, chain: str, before: float) -> int:
        def work(db: "psycopg.Connection[Any]") -> int:
            db.execute("SELECT set_config('skillbelt.audit_expire', 'on', true)")
            head = db.execute(
                "SELECT seq, gone FROM skillbelt.audit_head WHERE chain = %s FOR UPDATE", [chain]
            ).fetchone()
            young = db.execute(
                "SELECT min(seq) FROM skillbelt.audit WHERE chain = %s AND time >= %s",
                [chain, before],
            ).fetchone()
            if head is None or young is None:
                return 0
            last = min(head[0] if young[0] is None else young[0] - 1, head[1] + _EXPIRE_BATCH)
            row = db.execute(
                "SELECT record FROM skillbelt.audit WHERE chain = %s AND seq = %s", [chain, last]
            ).fetchone()
            if last <= head[1] or row is None:
                return 0
            db.execute(
                "UPDATE skillbelt.audit_head SET gone = %s, gone_hash = %s WHERE chain = %s",
                [last, hash_of(row[0].encode()), chain],
            )
            return db.execute(
                "DELETE FROM skillbelt.audit WHERE chain = %s AND seq <= %s", [chain, last]
            ).rowcount

        return self._database.write(work)


def columns_of(event: AuditEvent) -> tuple[object, ...]:
    """Return the indexed columns of an event."""
    texts = map(encode_text, (event.type, event.session, event.skill))
    tenant = tenant_of(event.session)
    owner = (None, None) if tenant is None else tuple(map(encode_text, tenant))
    return (event.time if abs(event.time) < float("inf") else 0.0, *texts, *owner)


def _build_condition(chosen: AuditFilter) -> tuple[str, list[object]]:
    """Return the WHERE condition for the filter, and its values."""
    parts, values = ["TRUE"], list[object]()
    app, user = chosen.tenant or (None, None)
    for column, text in (
        ("type", chosen.type), ("skill", chosen.skill), ("session", chosen.session),
        ("app", app), ('"user"', user),
    ):  # fmt: skip
        if text is not None:
            parts.append(f"md5({column}) = md5(%s) AND {column} = %s")
            values += [encode_text(text)] * 2
    if chosen.since is not None:
        parts.append("time >= %s")
        values.append(chosen.since)
    if chosen.until is not None:
        parts.append("time <= %s")
        values.append(chosen.until)
    return " AND ".join(parts), values


def _add(one: Verified, other: Verified) -> Verified:
    faults: Sequence[Fault] = (*one.faults, *other.faults)
    return Verified(
        records=one.records + other.records,
        unbound=one.unbound + other.unbound,
        broken=one.broken + other.broken,
        faults=tuple(faults[:100]),
    )


def _forget_locks() -> None:
    for log in list(_LOGS):
        log._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
