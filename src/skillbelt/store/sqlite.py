"""Sessions in one SQLite file, for all processes of the user.

When `append` returns, the events are on disk: they survive `kill -9` and a crash of the machine.
The file is data, not a cache, so an unreadable one is left unchanged and reported. A file that is
moved or removed while it is open is noticed: the next call uses the file at the path.
"""

from __future__ import annotations

import errno
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from skillbelt.errors import ConfigError, log_warning
from skillbelt.events import Event, NewEvent
from skillbelt.files.private import create_file, is_missing, make_folder
from skillbelt.late import Late
from skillbelt.metrics import count
from skillbelt.store.notifications import TopicCounts, TopicWatch
from skillbelt.store.values import (
    NO_CHANGE,
    EventRow,
    Lease,
    Scope,
    SessionInfo,
    SessionKey,
    SharedEntry,
    changes,
    check_lease,
    decoded,
    encoded,
    lease_topic,
)

if TYPE_CHECKING:
    import shutil
    import sqlite3
    import tempfile
else:
    sqlite3 = Late("sqlite3")  # cost: 4 ms, only where a file is opened
    # cost: 6 ms, only for a file that nothing can be written beside
    shutil, tempfile = Late("shutil"), Late("tempfile")

T = TypeVar("T")
Change = tuple[Scope, str, str | None]
Row = tuple[str, str, str]
# The key columns of an entry of the state.
Place = tuple[str | bytes, ...]
# The device and the inode of a file.
Identity = tuple[int, int]

_BUSY_SECONDS = 30.0
_MOST = 2**63 - 1
# Marks the file as ours: "SkBt".
_APPLICATION_ID = 0x536B4274
# How often a watch polls the file for changes by other processes.
_LOOK_SECONDS = 0.05
_COLUMNS = "app, user, name, created, updated, last"
_NAMED = "app = ? AND user = ? AND name = ?"
# Text and bytes in one order, that of the characters.
_ORDERED = "CAST(app AS BLOB)", "CAST(user AS BLOB)", "CAST(name AS BLOB)"
_ORDER = ", ".join(_ORDERED)
# The n-th entry brings a file of format n to format n + 1. An entry is never changed, only added.
# Columns without a type take text and bytes alike and convert neither (see `_cell`).
_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE session (id INTEGER PRIMARY KEY, app, user, name, created REAL, updated REAL,"
        " last INTEGER, UNIQUE (app, user, name))",
        "CREATE INDEX session_updated ON session (updated)",
        "CREATE TABLE event (session INTEGER, seq INTEGER, time REAL, type, agent, data,"
        " PRIMARY KEY (session, seq))",
        "CREATE TABLE state (scope, app, user, session, key, value,"
        " PRIMARY KEY (scope, app, user, session, key)) WITHOUT ROWID",
    ),
    (f"CREATE INDEX session_order ON session ({_ORDER})",),
    (
        "CREATE TABLE lease (app, user, name, number TEXT, holder, until REAL,"
        " PRIMARY KEY (app, user, name)) WITHOUT ROWID",
    ),
)
# One lock for all stores, so that a fork can wait until none of them is in use.
_LOCK = threading.RLock()
_STORES: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_LEFT: list[sqlite3.Connection] = []


class SqliteStore:
    """A store in a file. The folder and the file are created on first use, for the user alone.

    ConfigError, with a remedy, when the file is damaged, not ours, too new, or cannot be used.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self._db: sqlite3.Connection | None = None
        self._identity: Identity | None = None
        self._notifications = TopicCounts()
        with _LOCK:
            _STORES.add(self)

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
        changed = list(changes(delta))

        def work(db: sqlite3.Connection) -> list[Event]:
            check_lease(_find_lease(db, key) if lease else None, lease)
            return _append(db, key, rows, changed)

        return self._write(work)

    def events(self, key: SessionKey, after: int = 0) -> list[Event]:
        """Return the events with a higher number, in order; [] if the session does not exist."""
        query = (
            "SELECT seq, time, type, agent, data FROM event WHERE seq > ? AND session ="
            " (SELECT id FROM session WHERE app = ? AND user = ? AND name = ?) ORDER BY seq"
        )
        rows = self._read(query, min(after, _MOST), *_cells(key))
        try:
            return [_event(row) for row in rows]
        except ValueError as error:
            which = f"an event is not JSON, of session {'/'.join(key)}"
            raise ConfigError(f"{self.path}: {which}; {_BROKEN}") from error

    def first_events(self, key: SessionKey, most: int) -> list[Event]:
        """Return the first events that can be read, without reading the others."""
        query = (
            "SELECT seq, time, type, agent, data FROM event WHERE session ="
            " (SELECT id FROM session WHERE app = ? AND user = ? AND name = ?) ORDER BY seq LIMIT ?"
        )
        found = []
        for row in self._read(query, *_cells(key), most):
            with suppress(ValueError):
                found.append(_event(row))
        return found

    def state(self, key: SessionKey) -> dict[str, str]:
        """Return the entries of the app, of the user and of the session together."""
        query = (
            "SELECT key, value FROM state WHERE (scope, app, user, session) IN"
            " (VALUES (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?))"
        )
        owners = (*_owner("app", key), *_owner("user", key), *_owner("session", key))
        return self._read_state(query, *owners)

    def sessions(
        self,
        app: str | None = None,
        user: str | None = None,
        *,
        after: SessionKey | None = None,
        limit: int | None = None,
    ) -> list[SessionInfo]:
        """Return all sessions, or those of an app, of a user or both, in order of their keys."""
        where, values, order = _choose_sessions((app, user), after)
        query = f"SELECT {_COLUMNS} FROM session WHERE {where}"
        if limit is None:
            return sorted(self._infos(self._read(query, *values)))
        wanted = limit
        while True:
            rows = self._read(f"{query} ORDER BY {order} LIMIT {wanted:d}", *values)
            found = [row for row in rows if _info(row) is not None]
            if len(found) >= limit or len(rows) < wanted:
                return sorted(self._infos(rows))[:limit]
            # A page that damaged rows made short would look like the last one.
            wanted += max(wanted, limit - len(found))

    def _infos(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[SessionInfo]:
        """Yield the sessions of the rows; a damaged row is left out and logged."""
        for row in rows:
            if (info := _info(row)) is not None:
                yield info
            else:
                log_warning(
                    f"{self.path}: the entry of session {row[:3]!r} is damaged; it is left out"
                )

    @property
    def place(self) -> str:
        """Return where the store is, for messages."""
        return self.path

    def find_session(self, key: SessionKey) -> SessionInfo | None:
        """Return the entry of one session, as in `sessions`; None if there is none."""
        query = f"SELECT {_COLUMNS} FROM session WHERE {_NAMED}"
        return next(self._infos(self._read(query, *_cells(key))), None)

    def latest_sessions(
        self, limit: int, *, before: SessionInfo | None = None, without: str = ""
    ) -> list[SessionInfo]:
        """Return the sessions that were touched last, the newest first."""
        start = _encode(without)
        where, values = list[str](), list[object]()
        if start:
            where.append("substr(CAST(app AS BLOB), 1, ?) IS NOT ?")
            values += [len(start), start]
        if before is not None:
            where += ["updated <= ?", f"(updated < ? OR ({_ORDER}) < (?, ?, ?))"]
            values += [before.updated, before.updated, *map(_encode, before.key)]
        order = ", ".join(f"{one} DESC" for one in ("updated", *_ORDERED))
        query = (
            f"SELECT {_COLUMNS} FROM session WHERE {' AND '.join(where) or 'TRUE'}"
            f" ORDER BY {order} LIMIT ?"
        )
        return list(self._infos(self._read(query, *values, limit)))

    def event_rows(self, key: SessionKey, after: int, most: int) -> list[EventRow]:
        """Return the next events with a higher number, as they are stored."""
        query = (
            "SELECT seq, time, type, agent, data FROM event WHERE seq > ? AND session ="
            " (SELECT id FROM session WHERE app = ? AND user = ? AND name = ?) ORDER BY seq LIMIT ?"
        )
        rows = self._read(query, after, *_cells(key), most)
        return [EventRow(seq=row[0], time=row[1], **_texts(row[2:])) for row in rows]

    def session_state(self, key: SessionKey) -> dict[str, str]:
        """Return the session's own entries."""
        query = "SELECT key, value FROM state WHERE (scope, app, user, session) = (?, ?, ?, ?)"
        return self._read_state(query, *_owner("session", key))

    def shared_entries(self) -> list[SharedEntry]:
        """Return the entries of all apps and users."""
        query = "SELECT scope, app, user, key, value FROM state WHERE scope IN ('app', 'user')"
        return [
            SharedEntry(
                app=_cell_text(app),
                user=None if scope == "app" else _cell_text(user),
                key=_cell_text(name),
                value=_cell_text(value),
            )
            for scope, app, user, name, value in self._read(query)
        ]

    def extend(
        self, info: SessionInfo, rows: Sequence[EventRow], state: dict[str, str] | None
    ) -> bool:
        """Add rows after the last one of the session, with its times, and set its state if given.

        Return False, without a change, when they do not follow the last one there.
        """
        with suppress(ValueError):
            return self._write(lambda db: _extend(db, info, rows, state))
        return False

    def add_shared(self, entries: Sequence[SharedEntry]) -> None:
        """Set the entries."""
        if entries:
            self._write(lambda db: _add_shared(db, entries))

    def delete(self, key: SessionKey) -> bool:
        """Delete the session with its own events and state; return whether it existed."""
        return bool(self._remove(_NAMED, *_cells(key)))

    def expire(self, before: float) -> int:
        """Delete each session that was last touched before that time; return how many."""
        if self._read("SELECT 1 FROM lease WHERE until < ? LIMIT 1", before):
            self._write(lambda db: db.execute("DELETE FROM lease WHERE until < ?", (before,)))
        return self._remove("updated < ?", before)

    def take_lease(self, key: SessionKey, number: str, holder: str, seconds: float) -> Lease:
        """Take a lease on the session for a turn; return the lease that holds the session now."""

        def work(db: sqlite3.Connection) -> Lease:
            now, found = time.time(), _find_lease(db, key)
            if found is not None and found.number != number and found.until > now:
                return found
            taken = Lease(number, holder, now + seconds)
            row = (*_cells(key), number, _cell(holder), taken.until)
            db.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?, ?, ?)", row)
            return taken

        return self._write(work)

    def renew_lease(self, key: SessionKey, number: str, seconds: float) -> bool:
        """Extend the lease to `seconds` from now; False when it no longer holds the session."""
        query = f"UPDATE lease SET until = ? WHERE number = ? AND {_NAMED}"
        values = (time.time() + seconds, number, *_cells(key))
        return self._write(lambda db: db.execute(query, values).rowcount > 0)

    def release_lease(self, key: SessionKey, number: str) -> None:
        """Release the lease."""
        query = f"DELETE FROM lease WHERE number = ? AND {_NAMED}"
        self._write(lambda db: db.execute(query, (number, *_cells(key))))
        self._notifications.notify(lease_topic(key))

    def watch(self, topic: str) -> TopicWatch:
        """Return a watch that waits for `wake` here, or for any change by another process."""
        return TopicWatch(self._notifications, topic, self._look, _LOOK_SECONDS)

    def wake(self, topic: str) -> None:
        """Wake the watchers of the topic in this process.

        Other processes notice the changed file.
        """
        self._notifications.notify(topic)

    def now(self) -> float:
        """Return the time of this machine, the only one that uses the store."""
        return time.time()

    def _look(self) -> object:
        """Return a value that changes when another connection changes the file."""
        return self._read("PRAGMA data_version"), self._identity

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        with _LOCK:
            if self._db is not None:
                self._db.close()
                self._db = None

    def __del__(self, lock: threading.RLock = _LOCK) -> None:
        # The lock is an argument, since the module may already be empty when the interpreter ends.
        db: sqlite3.Connection | None = getattr(self, "_db", None)
        if db is not None:
            with lock:
                db.close()

    def _remove(self, where: str, *values: object) -> int:
        if not self._read(f"SELECT 1 FROM session WHERE {where} LIMIT 1", *values):
            return 0
        return self._write(lambda db: _remove(db, where, values))

    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows; none, without creating the file, when there is no file yet."""
        with _LOCK, self._convert_errors(_READ_REMEDIES):
            self._notice_move()
            if self._db is None and is_missing(self.path):
                return []
            try:
                return self._open().execute(query, values).fetchall()
            except (sqlite3.Error, OSError) as error:
                self.close()
                if not _may_be_unwritable(error):
                    raise
                return _read_in_place(self.path, query, values)

    def _read_state(self, query: str, *values: object) -> dict[str, str]:
        rows = self._read(query, *values)
        try:
            return {_cell_text(name): _cell_text(value) for name, value in rows}
        except ValueError as error:
            raise ConfigError(f"{self.path}: an entry of the state: {error}; {_BROKEN}") from error

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with _LOCK, self._convert_errors(_WRITE_REMEDIES):
            while True:
                self._notice_move()
                done = _transaction(self._open(), work)
                # If the file was moved meanwhile, repeat the change in the one at the path.
                if not self._notice_move():
                    return done

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._db, self._identity = _connect(self.path)
        return self._db

    def _notice_move(self) -> bool:
        """Whether the open file is no longer the one at the path; then close it."""
        if self._db is None or (found := _identity(self.path)) == self._identity:
            return False
        if found is None:
            # Write the log beside the file into the moved file. Not if another file is at the path:
            # the two would share an index of their logs.
            with suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.close()
        log_warning(
            f"{self.path} was moved or removed while it was in use;"
            " sessions are kept in a new file there"
        )
        return True

    @contextmanager
    def _convert_errors(self, remedies: Mapping[int, str]) -> Iterator[None]:
        """Turn errors of the disk and of SQLite into ConfigError with a remedy."""
        try:
            yield
        except sqlite3.Error as error:
            self.close()
            count("store_errors", store="sqlite")
            remedy = remedies.get(_code(error), _ELSEWHERE)
            raise ConfigError(f"{self.path}: {error}; {remedy}") from error
        except OSError as error:
            self.close()
            reason = error.strerror or str(error)
            raise ConfigError(f"{self.path}: {reason}; {_ELSEWHERE}") from error


def _forget_connections() -> None:
    """Drop the connections in a forked child: they are not usable there, not even to be closed.

    The lock keeps the fork until no thread is inside SQLite, whose own locks would otherwise stay
    locked forever in the child.
    """
    for store in _STORES:
        if store._db is not None:
            _LEFT.append(store._db)
            store._db = None
    _LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_LOCK.acquire,
        after_in_parent=_LOCK.release,
        after_in_child=_forget_connections,
    )


def _identity(path: str) -> Identity | None:
    try:
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return info.st_dev, info.st_ino


def _connect(path: str) -> tuple[sqlite3.Connection, Identity | None]:
    """Open the file and return which one it is; create it if it is missing."""
    make_folder(os.path.dirname(path))
    # Closing a descriptor of the file would free the locks that SQLite holds on it in this
    # process, so it is opened here only while no connection can exist yet.
    create_file(path)
    identity = _identity(path)
    db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        # Read in one transaction: another process may be creating the tables right now.
        if _transaction(db, lambda db: _format(db, path), "BEGIN") < len(_MIGRATIONS):
            _use_wal(db)
            _transaction(db, lambda db: _migrate(db, path))
        db.execute("PRAGMA synchronous = FULL")
        # Deleted data must not stay readable in the file.
        db.execute("PRAGMA secure_delete = ON")
    except BaseException:
        db.close()
        raise
    return db, identity


def _may_be_unwritable(error: Exception) -> bool:
    """Whether the disk may be full or read-only. SQLite needs to write there even to read."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
    return isinstance(error, sqlite3.Error) and _code(error) in _NO_WRITING


def _read_in_place(path: str, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """Read the file without writing beside it. No process has it open: it could not write either.

    A log beside the file is part of it, and SQLite reads a log only where it can write: in a copy.
    """
    log = f"{path}-wal"
    if is_missing(log) or not os.stat(log).st_size:
        return _read_once(path, f"file:{quote(path)}?mode=ro&immutable=1", query, values)
    with tempfile.TemporaryDirectory(prefix="skillbelt-") as folder:
        copy = os.path.join(folder, "copy")
        shutil.copyfile(path, copy)
        shutil.copyfile(log, f"{copy}-wal")
        return _read_once(path, f"file:{quote(copy)}?mode=rw", query, values)


def _read_once(
    path: str, address: str, query: str, values: Sequence[object]
) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(address, uri=True)) as db:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")  # so that SQLite creates no index of the log
        return db.execute(query, values).fetchall() if _format(db, path) else []


def _format(db: sqlite3.Connection, path: str) -> int:
    """Return the format of the file, 0 for an empty one.

    ConfigError for a file that is not ours.
    """
    [(owner,)] = db.execute("PRAGMA application_id")
    [(number,)] = db.execute("PRAGMA user_version")
    [(tables,)] = db.execute("SELECT count(*) FROM sqlite_master")
    if owner != _APPLICATION_ID and (owner or number or tables):
        raise ConfigError(f"{path}: is another program's database; {_ELSEWHERE}")
    if number > len(_MIGRATIONS):
        raise ConfigError(
            f"{path}: was written by a newer skillbelt (format {number}, this one knows "
            f"{len(_MIGRATIONS)}); upgrade skillbelt, or set state_dir to another folder"
        )
    return int(number)


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch to a write-ahead log, so that readers never wait for a writer.

    SQLite itself does not wait for a lock when it switches.
    """
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if _code(error) != _BUSY or time.monotonic() > until:
                raise
        time.sleep(0.01)


def _migrate(db: sqlite3.Connection, path: str) -> None:
    for statements in _MIGRATIONS[_format(db, path) :]:
        for statement in statements:
            db.execute(statement)
    db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")


def _transaction(
    db: sqlite3.Connection,
    work: Callable[[sqlite3.Connection], T],
    begin: str = "BEGIN IMMEDIATE",
) -> T:
    try:
        db.execute(begin)
        done = work(db)
        db.execute("COMMIT")
        return done
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _append(
    db: sqlite3.Connection, key: SessionKey, rows: list[Row], changed: list[Change]
) -> list[Event]:
    now = time.time()
    session, last = _session(db, key, now)
    events = [Event(seq, now, *row[:2], decoded(row[2])) for seq, row in enumerate(rows, last + 1)]
    db.executemany(
        "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)",
        [(session, seq, now, *map(_cell, row)) for seq, row in enumerate(rows, last + 1)],
    )
    db.execute(
        "UPDATE session SET updated = ?, last = ? WHERE id = ?", (now, last + len(rows), session)
    )
    _change(db, [((*_owner(scope, key), _cell(name)), value) for scope, name, value in changed])
    return events


def _extend(
    db: sqlite3.Connection,
    info: SessionInfo,
    rows: Sequence[EventRow],
    state: dict[str, str] | None,
) -> bool:
    """Do `SqliteStore.extend`; ValueError, which rolls it back, when the rows do not follow."""
    session, last = _session(db, info.key, info.created)
    if [row.seq for row in rows] != list(range(last + 1, last + 1 + len(rows))):
        raise ValueError("the rows do not follow the last event")
    db.executemany(
        "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)",
        [(session, row.seq, row.time, *map(_cell, row[2:])) for row in rows],
    )
    db.execute(
        "UPDATE session SET created = ?, updated = ?, last = ? WHERE id = ?",
        (info.created, info.updated, last + len(rows), session),
    )
    if state is not None:
        owner = _owner("session", info.key)
        db.execute("DELETE FROM state WHERE (scope, app, user, session) = (?, ?, ?, ?)", owner)
        _change(db, [((*owner, _cell(name)), value) for name, value in state.items()])
    return True


def _add_shared(db: sqlite3.Connection, entries: Sequence[SharedEntry]) -> None:
    changed: list[tuple[Place, str | None]] = []
    for entry in entries:
        scope: Scope = "app" if entry.user is None else "user"
        owner = _owner(scope, SessionKey(entry.app, entry.user or "", ""))
        changed.append(((*owner, _cell(entry.key)), entry.value))
    _change(db, changed)


def _choose_sessions(
    owner: tuple[str | None, str | None], after: SessionKey | None
) -> tuple[str, list[bytes], str]:
    """Return the condition for a page of sessions, its values, and the order.

    All are expressions of the index `session_order`, so that a page is read from the index.
    Otherwise SQLite would read and sort all sessions of the user for each page, even when the order
    names a column that the condition fixes.
    """
    given = [None if one is None else _encode(one) for one in owner]
    fixed = 0 if given[0] is None else 1 if given[1] is None else 2
    where = [f"{name} = ?" for name, one in zip(_ORDERED, given, strict=False) if one is not None]
    values, order = [one for one in given if one is not None], ", ".join(_ORDERED[fixed:])
    if after is not None:
        keys = [_encode(one) for one in after]
        if keys[:fixed] > values[:fixed]:
            where.append("FALSE")
        elif keys[:fixed] == values[:fixed]:
            where.append(f"({order}) > ({', '.join('?' * (3 - fixed))})")
            values += keys[fixed:]
    return " AND ".join(where) or "TRUE", values, order


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _find_lease(db: sqlite3.Connection, key: SessionKey) -> Lease | None:
    query = f"SELECT number, holder, until FROM lease WHERE {_NAMED}"
    for number, holder, until in db.execute(query, _cells(key)).fetchall():
        return Lease(number, _cell_text(holder), until)
    return None


def _texts(cells: tuple[Any, ...]) -> dict[str, str]:
    return dict(zip(("type", "agent", "data"), map(_cell_text, cells), strict=True))


def _info(row: tuple[Any, ...]) -> SessionInfo | None:
    """Return the session of a row; None for a damaged one."""
    with suppress(ValueError):
        key = SessionKey(*map(_cell_text, row[:3]))
        if all(isinstance(one, int | float) for one in row[3:]):
            return SessionInfo(key, *row[3:])
    return None


def _event(row: tuple[Any, ...]) -> Event:
    seq, at, kind, agent, data = row
    if not (isinstance(seq, int) and isinstance(at, int | float)):
        raise ValueError("the number or the time of an event is not a number")
    return Event(
        seq=seq,
        time=at,
        type=_cell_text(kind),
        agent=_cell_text(agent),
        data=decoded(_cell_text(data)),
    )


def _session(db: sqlite3.Connection, key: SessionKey, now: float) -> tuple[int, int]:
    """Return the row of the session, created if it is missing, and the number of its last event."""
    cells = _cells(key)
    query = f"SELECT id, last FROM session WHERE {_NAMED}"
    for session, last in db.execute(query, cells).fetchall():
        return session, last
    made = db.execute(
        "INSERT INTO session (app, user, name, created, updated, last) VALUES (?, ?, ?, ?, ?, 0)",
        (*cells, now, now),
    )
    return made.lastrowid or 0, 0


def _change(db: sqlite3.Connection, changed: Sequence[tuple[Place, str | None]]) -> None:
    """Set the values at the places in the state; None removes one."""
    db.executemany(
        "DELETE FROM state WHERE (scope, app, user, session, key) = (?, ?, ?, ?, ?)",
        [place for place, value in changed if value is None],
    )
    db.executemany(
        "INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?, ?)",
        [(*place, _cell(value)) for place, value in changed if value is not None],
    )


def _remove(db: sqlite3.Connection, where: str, values: tuple[object, ...]) -> int:
    chosen = f"FROM session WHERE {where}"
    db.execute(f"DELETE FROM event WHERE session IN (SELECT id {chosen})", values)
    db.execute(
        "DELETE FROM state WHERE scope = 'session' AND (app, user, session) IN"
        f" (SELECT app, user, name {chosen})",
        values,
    )
    named = f"SELECT app, user, name {chosen}"
    db.execute(f"DELETE FROM lease WHERE (app, user, name) IN ({named})", values)
    return db.execute(f"DELETE {chosen}", values).rowcount


@lru_cache(maxsize=256)
def _owner(scope: Scope, key: SessionKey) -> Place:
    app, user, session = _cells(key)
    return {
        "app": ("app", app, "", ""),
        "user": ("user", app, user, ""),
        "session": ("session", app, user, session),
    }[scope]


def _cells(key: SessionKey) -> tuple[str | bytes, str | bytes, str | bytes]:
    return _cell(key.app), _cell(key.user), _cell(key.session)


def _cell(text: str) -> str | bytes:
    """Return the text as SQLite can hold it: one with a surrogate as bytes, which equal no text."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _cell_text(cell: object) -> str:
    """Return the text of a cell; ValueError for a damaged one."""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "surrogatepass")
    if not isinstance(cell, str):
        raise ValueError(f"there is {str(cell)[:50]!r} in place of a text")
    return cell


_ELSEWHERE = "set state_dir to a folder that only skillbelt uses"
_BROKEN = (
    "nothing in it was changed; move it away together with its -wal and -shm files, keep them for "
    "a recovery with the sqlite3 tool's .recover, and a new file is created"
)
# SQLite's codes, as `sqlite3` names them.
_BUSY, _IOERR, _CORRUPT, _FULL, _NOTADB = 5, 10, 11, 13, 26
_READ_REMEDIES = {
    _CORRUPT: _BROKEN,
    _NOTADB: _BROKEN,
    _BUSY: "another process holds it; end that one, or try again",
    _FULL: "free some space and try again",
    _IOERR: "check the disk and try again",
}
_WRITE_REMEDIES = {
    **_READ_REMEDIES,
    _FULL: "nothing of this change was kept; free some space and try again",
    _IOERR: "nothing of this change was kept; check the disk and try again",
}
# Those for a disk that cannot be written: PERM, READONLY, IOERR, FULL, CANTOPEN.
_NO_WRITING = (3, 8, _IOERR, _FULL, 14)


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary error code; an error that Python raises itself has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
