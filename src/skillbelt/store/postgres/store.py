"""Sessions in PostgreSQL, for all processes of all machines."""

import hashlib
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from skillbelt.errors import ConfigError
from skillbelt.events import Event, NewEvent
from skillbelt.store.notifications import TopicWatch
from skillbelt.store.postgres.database import Database, Row, Tenant, set_tenant
from skillbelt.store.postgres.listening import mark_topic
from skillbelt.store.protocol import (
    NO_CHANGE,
    EventRow,
    Lease,
    SessionInfo,
    SessionKey,
    SharedEntry,
    changes,
    check_lease,
    decoded,
    encoded,
    lease_topic,
)

_MOST = 2**63 - 1
# How many sessions one transaction of `expire` deletes.
_BATCH = 500
_CLOCK_SECONDS = 60.0
_APPEND = "SELECT skillbelt.append_1(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_APPEND_LEASED = _APPEND.replace("append_1(", "append_2(%s, ")
_NOW = "extract(epoch FROM clock_timestamp())::float8"
_TAKE = (
    'INSERT INTO skillbelt.lease AS held (digest, app, "user", number, holder, until)'
    f" VALUES (%s, %s, %s, %s, %s, {_NOW} + %s) ON CONFLICT (digest) DO UPDATE"
    " SET number = excluded.number, holder = excluded.holder, until = excluded.until"
    f" WHERE held.number = excluded.number OR held.until <= {_NOW} RETURNING number, holder, until"
)
_RELEASE = (
    "WITH gone AS (DELETE FROM skillbelt.lease WHERE digest = %s AND number = %s RETURNING 1)"
    " SELECT pg_notify('skillbelt', %s) FROM gone"
)
_EVENTS = (
    "SELECT seq, time, type, agent, data FROM skillbelt.event WHERE seq > %s AND session ="
    " (SELECT id FROM skillbelt.session WHERE digest = %s) ORDER BY seq"
)
_ORDER = 'app, "user", name'
_COLUMNS = f"{_ORDER}, created, updated, last"


class PostgresStore:
    """A store in a PostgreSQL database. Nothing is connected or created before it is needed."""

    def __init__(self, url: str | Database) -> None:
        self.database = url if isinstance(url, Database) else Database(url)
        # When the server was asked for its time, its answer, and the offset between our two clocks.
        self._clock = (0.0, 0.0, 0.0)

    def append(
        self,
        key: SessionKey,
        events: Sequence[NewEvent],
        delta: Mapping[str, str | None] = NO_CHANGE,
        *,
        lease: str = "",
    ) -> list[Event]:
        """Add the events and change the state, all or nothing; return the events as stored."""
        rows = [(event.type, event.agent, encoded(event.data)) for event in events]
        # Sorted, so that two appends never deadlock.
        changed = sorted(changes(delta))
        owners = {scope: _digest(*_owner(scope, key)) for scope in ("app", "user", "session")}
        cells = [tuple(map(encode_text, row)) for row in rows]
        app, user, name = map(encode_text, key)
        values = [
            [types for types, _, _ in cells],
            [agents for _, agents, _ in cells],
            [data for _, _, data in cells],
            [owners[scope] for scope, _, _ in changed],
            [None if scope == "app" else user for scope, _, _ in changed],
            [_digest(one) for _, one, _ in changed],
            [encode_text(one) for _, one, _ in changed],
            [None if value is None else encode_text(value) for _, _, value in changed],
        ]
        once = uuid.uuid4()

        def attempt(db: "psycopg.Connection[Row]", again: bool) -> str:
            given = (once, again, owners["session"], app, user, name, *values)
            query = _APPEND_LEASED if lease else _APPEND
            [(result,)] = db.execute(query, (lease, *given) if lease else given).fetchall()
            return str(result or "")

        done = self.database.insist(attempt)
        check_lease(Lease(lease, "", 0.0) if done else None, lease)
        last, at = done.split()
        self.database.prune()
        return [
            Event(seq, float(at), *row[:2], decoded(row[2]))
            for seq, row in enumerate(rows, int(last) + 1)
        ]

    def events(self, key: SessionKey, after: int = 0) -> list[Event]:
        """Return the events with a higher number, in order; [] if the session does not exist."""
        after = max(min(after, _MOST), 0)
        rows = self.database.read(_EVENTS, (after, _session_digest(key)), _tenant(key))
        try:
            return [_event(row) for row in rows]
        except ValueError as error:
            which = f"an event of session {'/'.join(key)} is not JSON"
            raise ConfigError(
                f"{self.database.place}: {which}; restore it from a backup"
            ) from error

    def first_events(self, key: SessionKey, most: int) -> list[Event]:
        """Return the first events that can be read, without reading the others."""
        values = (0, _session_digest(key), most)
        found = []
        for row in self.database.read(f"{_EVENTS} LIMIT %s", values, _tenant(key)):
            with suppress(ValueError):
                found.append(_event(row))
        return found

    def state(self, key: SessionKey) -> dict[str, str]:
        """Return the entries of the app, of the user and of the session together."""
        owners = [_digest(*_owner(scope, key)) for scope in ("app", "user", "session")]
        query = "SELECT key, value FROM skillbelt.state WHERE owner = ANY(%s)"
        rows = self.database.read(query, (owners,), _tenant(key))
        return {decode_text(name): decode_text(value) for name, value in rows}

    def sessions(
        self,
        app: str | None = None,
        user: str | None = None,
        *,
        after: SessionKey | None = None,
        limit: int | None = None,
    ) -> list[SessionInfo]:
        """Return all sessions, or those of an app, of a user or both, in order of their keys."""
        wanted = {"app": app, '"user"': user}
        given = {name: encode_text(value) for name, value in wanted.items() if value is not None}
        where = "".join(f" AND {name} = %s" for name in given)
        values: list[object] = list(given.values())
        if after is not None:
            where += f" AND ({_ORDER}) > (%s, %s, %s)"
            values += map(encode_text, after)
        values.append(limit)
        # Sessions with long keys have a separate index; see schema.py.
        usual, long = (
            f"(SELECT {_COLUMNS} FROM skillbelt.session WHERE {kind}{where}"
            f" ORDER BY {_ORDER} LIMIT %s)"
            for kind in ("NOT long", "long")
        )
        query = f"{usual} UNION ALL {long} ORDER BY {_ORDER} LIMIT %s"
        tenant = self._listed_tenant(app, user)
        rows = self.database.read(query, [*values, *values, limit], tenant)
        return [_info(row) for row in rows]

    @property
    def place(self) -> str:
        """Return where the store is, for messages."""
        return self.database.place

    def find_session(self, key: SessionKey) -> SessionInfo | None:
        """Return the entry of one session, as in `sessions`; None if there is none."""
        query = f"SELECT {_COLUMNS} FROM skillbelt.session WHERE digest = %s"
        rows = self.database.read(query, (_session_digest(key),), _tenant(key))
        return _info(rows[0]) if rows else None

    def latest_sessions(
        self, limit: int, *, before: SessionInfo | None = None, without: str = ""
    ) -> list[SessionInfo]:
        """Return the sessions that were touched last, the newest first."""
        where, values = "TRUE", list[object]()
        if without:
            start = encode_text(without)
            where += " AND substr(app, 1, %s) <> %s"
            values += [len(start), start]
        if before is not None:
            where += f" AND updated <= %s AND (updated < %s OR ({_ORDER}) < (%s, %s, %s))"
            values += [before.updated, before.updated, *map(encode_text, before.key)]
        order = ", ".join(f"{one} DESC" for one in ("updated", *_ORDER.split(", ")))
        query = f"SELECT {_COLUMNS} FROM skillbelt.session WHERE {where} ORDER BY {order} LIMIT %s"
        tenant = self._listed_tenant(None, None)
        return [_info(row) for row in self.database.read(query, [*values, limit], tenant)]

    def event_rows(self, key: SessionKey, after: int, most: int) -> list[EventRow]:
        """Return the next events with a higher number, as they are stored."""
        values = (after, _session_digest(key), most)
        rows = self.database.read(f"{_EVENTS} LIMIT %s", values, _tenant(key))
        return [
            EventRow(
                seq=seq,
                time=at,
                type=decode_text(kind),
                agent=decode_text(agent),
                data=decode_text(data),
            )
            for seq, at, kind, agent, data in rows
        ]

    def session_state(self, key: SessionKey) -> dict[str, str]:
        """Return the session's own entries."""
        query = "SELECT key, value FROM skillbelt.state WHERE owner = %s"
        rows = self.database.read(query, (_session_digest(key),), _tenant(key))
        return {decode_text(name): decode_text(value) for name, value in rows}

    def shared_entries(self) -> list[SharedEntry]:
        """Return the entries of all apps and users."""
        self._listed_tenant(None, None)
        query = (
            'SELECT app, "user", key, value FROM skillbelt.state'
            " WHERE key LIKE 'app:%%' OR key LIKE 'user:%%'"
        )
        return [
            SharedEntry(
                app=decode_text(app),
                user=None if user is None else decode_text(user),
                key=decode_text(name),
                value=decode_text(value),
            )
            for app, user, name, value in self.database.read(query, ())
        ]

    def extend(
        self, info: SessionInfo, rows: Sequence[EventRow], state: dict[str, str] | None
    ) -> bool:
        """Add rows after the last one of the session, with its times, and set its state if given.

        Return False, without a change, when they do not follow the last one there.
        """
        with suppress(ValueError):
            return self.database.write(lambda db: _extend(db, info, rows, state), _tenant(info.key))
        return False

    def add_shared(self, entries: Sequence[SharedEntry]) -> None:
        """Set the entries."""
        if entries:
            self._listed_tenant(None, None)
            self.database.write(lambda db: _add_shared(db, entries))

    def delete(self, key: SessionKey) -> bool:
        """Delete the session with its own events and state; return whether it existed."""
        if not self.database.read(
            "SELECT 1 FROM skillbelt.session WHERE digest = %s",
            (_session_digest(key),),
            _tenant(key),
        ):
            return False
        chosen = "SELECT id FROM skillbelt.session WHERE digest = %s FOR UPDATE"
        removed = self.database.write(
            lambda db: _remove(db, chosen, _session_digest(key)), _tenant(key)
        )
        return removed > 0

    def expire(self, before: float) -> int:
        """Delete each session that was last touched before that time; return how many."""
        chosen = (
            "SELECT id FROM skillbelt.session WHERE updated < %s ORDER BY updated"
            f" LIMIT {_BATCH} FOR UPDATE SKIP LOCKED"
        )
        self._listed_tenant(None, None)
        query = "DELETE FROM skillbelt.lease WHERE until < %s"
        self.database.insist(lambda db, _: db.execute(query, [before]).rowcount)
        total = 0
        while removed := self.database.write(lambda db: _remove(db, chosen, before)):
            total += removed
        return total

    def take_lease(self, key: SessionKey, number: str, holder: str, seconds: float) -> Lease:
        """Take a lease on the session for a turn; return the lease that holds the session now.

        The call is idempotent for one number, so a lost answer does no harm.
        """
        tenant, digest = _tenant(key), _session_digest(key)
        row = (digest, *tenant, number, encode_text(holder), seconds)

        def attempt(db: "psycopg.Connection[Row]", _: bool) -> Row | None:
            with db.transaction():
                set_tenant(db, tenant)
                query = "SELECT number, holder, until FROM skillbelt.lease WHERE digest = %s"
                taken = db.execute(_TAKE, row).fetchone()
                return taken or db.execute(query, [digest]).fetchone()

        while (found := self.database.insist(attempt)) is None:
            pass  # released between the two statements
        return Lease(found[0], decode_text(found[1]), found[2])

    def renew_lease(self, key: SessionKey, number: str, seconds: float) -> bool:
        """Extend the lease to `seconds` from now; False when it no longer holds the session."""
        query = f"UPDATE skillbelt.lease SET until = {_NOW} + %s WHERE digest = %s AND number = %s"
        return self._change_lease(key, query, [seconds, _session_digest(key), number]) > 0

    def release_lease(self, key: SessionKey, number: str) -> None:
        """Release the lease; without a server it expires by itself."""
        topic = mark_topic(lease_topic(key))
        self._change_lease(key, _RELEASE, [_session_digest(key), number, topic], patience=1.0)

    def _change_lease(
        self, key: SessionKey, query: str, values: list[object], patience: float | None = None
    ) -> int:
        """Change a lease without waiting for the disk: it need not survive a crash of the server.

        At worst a lease expires earlier or later, and an append still checks whose it is.
        """

        def attempt(db: "psycopg.Connection[Row]", _: bool) -> int:
            with db.transaction():
                set_tenant(db, _tenant(key))
                db.execute("SELECT set_config('synchronous_commit', 'off', true)")
                return db.execute(query, values).rowcount

        return self.database.insist(attempt, patience=patience)

    def watch(self, topic: str) -> TopicWatch:
        """Return a watch that waits until `wake` is called with the topic, on any machine."""
        return self.database.watch(topic)

    def wake(self, topic: str) -> None:
        """Wake the watchers of the topic."""
        self.database.wake(topic)

    def now(self) -> float:
        """Return the time of the server, which is asked once a minute."""
        steady, wall = time.monotonic(), time.time()
        began, server, drift = self._clock
        # While a machine sleeps, the offset between its two clocks changes.
        if steady - began > _CLOCK_SECONDS or abs(wall - steady - drift) > 1 or not server:
            [(server,)] = self.database.read(f"SELECT {_NOW}")
            began = time.monotonic()
            self._clock = began, server, time.time() - began
        return float(server + time.monotonic() - began)

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        self.database.close()

    def _listed_tenant(self, app: str | None, user: str | None) -> Tenant | None:
        """Return the tenant to list.

        ConfigError where row-level security shows only some sessions.
        """
        if app is not None and user is not None:
            return Tenant(encode_text(app), encode_text(user))
        self.database.read("SELECT 1")  # which connects, so that the next line is known
        if self.database.row_security:
            raise ConfigError(
                f"{self.database.place}: row-level security shows this role the sessions of one"
                " app and one user at a time; name both, or use the role that owns the tables"
            )
        return None


def encode_text(text: str) -> str:
    """Return the text as PostgreSQL can hold it, in the same order.

    It has no NUL and no lone surrogates. Each of these is encoded as two characters, and so are
    the two characters that begin such a pair.
    """
    return text.translate(_ESCAPES)


def decode_text(text: str) -> str:
    """Return the text that `encode_text` was given; a pair that it never wrote stays as it is."""
    if "\x01" not in text and "\ue000" not in text:
        return text
    parts = iter(text)
    pairs = (one + next(parts, "") if one in "\x01\ue000" else one for one in parts)
    return "".join(_UNESCAPED.get(pair, pair) for pair in pairs)


_ESCAPED = {
    "\0": "\x01\x01",
    "\x01": "\x01\x02",
    **{chr(0xD800 + n): f"\ue000{chr(0x100 + n)}" for n in range(0x800)},
    "\ue000": "\ue000\ue000",
}
_ESCAPES = str.maketrans(_ESCAPED)
_UNESCAPED = {pair: one for one, pair in _ESCAPED.items()}


def _digest(*parts: str) -> bytes:
    """Return a digest of the parts, for an index, which holds no long texts."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        sha.update(len(data).to_bytes(8, "big") + data)
    return sha.digest()


def _owner(scope: str, key: SessionKey) -> tuple[str, ...]:
    return scope, *key[: {"app": 1, "user": 2, "session": 3}[scope]]


def _session_digest(key: SessionKey) -> bytes:
    return _digest(*_owner("session", key))


def _tenant(key: SessionKey) -> Tenant:
    return Tenant(encode_text(key.app), encode_text(key.user))


def _event(row: tuple[Any, ...]) -> Event:
    seq, at, kind, agent, data = row
    return Event(
        seq=seq,
        time=at,
        type=decode_text(kind),
        agent=decode_text(agent),
        data=decoded(decode_text(data)),
    )


def _info(row: tuple[Any, ...]) -> SessionInfo:
    return SessionInfo(SessionKey(*map(decode_text, row[:3])), *row[3:])


def _extend(
    db: "psycopg.Connection[Row]",
    info: SessionInfo,
    rows: Sequence[EventRow],
    state: dict[str, str] | None,
) -> bool:
    """Do `PostgresStore.extend`; ValueError, which rolls it back, when the rows do not follow."""
    digest = _session_digest(info.key)
    cells = app, user, _ = tuple(map(encode_text, info.key))
    db.execute(
        'INSERT INTO skillbelt.session (digest, app, "user", name, created, updated, last)'
        " VALUES (%s, %s, %s, %s, %s, %s, 0) ON CONFLICT (digest) DO NOTHING",
        [digest, *cells, info.created, info.updated],
    )
    query = "SELECT id, last FROM skillbelt.session WHERE digest = %s FOR UPDATE"
    [(session, last)] = db.execute(query, [digest]).fetchall()
    if [row.seq for row in rows] != list(range(last + 1, last + 1 + len(rows))):
        raise ValueError("the rows do not follow the last event")
    with db.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO skillbelt.event VALUES (%s, %s, %s, %s, %s, %s)",
            [(session, row.seq, row.time, *map(encode_text, row[2:])) for row in rows],
        )
    db.execute(
        "UPDATE skillbelt.session SET created = %s, updated = %s, last = %s WHERE id = %s",
        [info.created, info.updated, last + len(rows), session],
    )
    if state is not None:
        db.execute("DELETE FROM skillbelt.state WHERE owner = %s", [digest])
        _put_state(db, [(digest, app, user, name, value) for name, value in state.items()])
    return True


def _add_shared(db: "psycopg.Connection[Row]", entries: Sequence[SharedEntry]) -> None:
    found = []
    for entry in entries:
        scope = "app" if entry.user is None else "user"
        owner = _digest(*_owner(scope, SessionKey(entry.app, entry.user or "", "")))
        user = None if entry.user is None else encode_text(entry.user)
        found.append((owner, encode_text(entry.app), user, entry.key, entry.value))
    _put_state(db, found)


def _put_state(
    db: "psycopg.Connection[Row]", entries: Sequence[tuple[bytes, str, str | None, str, str]]
) -> None:
    with db.cursor() as cursor:
        cursor.executemany(
            'INSERT INTO skillbelt.state (owner, mark, app, "user", key, value)'
            " VALUES (%s, %s, %s, %s, %s, %s)"
            " ON CONFLICT (owner, mark) DO UPDATE SET value = excluded.value",
            [
                (owner, _digest(name), app, user, encode_text(name), encode_text(value))
                for owner, app, user, name, value in entries
            ],
        )


def _remove(db: "psycopg.Connection[Row]", chosen: str, value: object) -> int:
    """Delete the chosen sessions with all their rows, and return how many there were."""
    ids = [id for (id,) in db.execute(chosen, [value])]
    # The session comes last: row-level security shows no events without theirs.
    db.execute("DELETE FROM skillbelt.event WHERE session = ANY(%s)", [ids])
    owners = "SELECT digest FROM skillbelt.session WHERE id = ANY(%s)"
    db.execute(f"DELETE FROM skillbelt.state WHERE owner IN ({owners})", [ids])
    db.execute(f"DELETE FROM skillbelt.lease WHERE digest IN ({owners})", [ids])
    db.execute("DELETE FROM skillbelt.session WHERE id = ANY(%s)", [ids])
    return len(ids)
