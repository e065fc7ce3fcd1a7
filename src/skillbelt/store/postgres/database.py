"""Access to a PostgreSQL database: connections, retries, and notifications from other machines.

A lost connection is not an error if the server comes back in time: the call is retried. A change
carries a random number that is committed with it. So a retry recognises a change whose answer was
lost, and does not make it twice. See design/fleet.md.
"""

import atexit
import json
import logging
import os
import re
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import conninfo
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from skillbelt.errors import ConfigError, StoreUnavailable
from skillbelt.metrics import count
from skillbelt.store.notifications import TopicCounts, TopicWatch
from skillbelt.store.postgres.listening import POLL_SECONDS, Listener, mark_topic
from skillbelt.store.postgres.schema import migrate
from skillbelt.untrusted_json import read_json

T = TypeVar("T")
Row = tuple[Any, ...]
Work = Callable[["psycopg.Connection[Row]"], T]
Attempt = Callable[["psycopg.Connection[Row]", bool], T]

# How long a call retries while the server is away: before the first connection, and after it.
FIRST_SECONDS = 10.0
PATIENCE_SECONDS = 30.0
MAX_CONNECTIONS = 10
# How long to wait for the pool before looking for the reason, such as a changed password.
_POOL_SECONDS = 5.0
# How long the numbers of changes are kept. No call retries after that long.
KEPT_SECONDS = 3600
_PRUNE_SECONDS = 600.0
# Defaults for parameters that the URL does not set. A peer that vanished is detected within half a
# minute.
_DEFAULTS = {
    "connect_timeout": "5",
    "application_name": "skillbelt",
    "client_encoding": "UTF8",
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
# No prepared statements: a proxy may send the next statement over another connection to the server,
# where its name is unknown or means another statement.
_OURS = {"autocommit": True, "prepare_threshold": None}
# Timeouts: a forgotten transaction does not hold its locks forever, and no call waits for a lock
# forever.
_CONFIGURE = (
    "SELECT set_config('lock_timeout', '30s', false),"
    " set_config('idle_in_transaction_session_timeout', '30s', false)"
)
# Transient SQL states: lost connections, a server that stops, starts, is full or is not the
# primary, and transactions that the server aborted.
_TRANSIENT = ("08", "57P01", "57P02", "57P03", "57P05", "53300", "25006", "40001", "40P01", "25P03")
# SQL states after which the statement certainly had no effect.
_NO_EFFECT = ("25006", "40001", "40P01", "53300")
_UNKNOWN = "the change was made as a whole or not at all: check before you repeat it"
_PORTS = re.compile(r"[\d,]*")
_DATABASES: "weakref.WeakSet[Database]" = weakref.WeakSet()
_LEFT: list[object] = []
_ENDED = threading.Event()

# The pool says in the log why a connection failed; so does the error. Without this, Python would
# print it to stderr where no logging is set up.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class Tenant(NamedTuple):
    """The tenant whose rows a transaction may see (row-level security), as the tables encode it."""

    app: str
    user: str


class Database:
    """A PostgreSQL database, connected on first use. Thread-safe.

    Raises ConfigError, with a remedy, when it cannot be used, and its subclass StoreUnavailable
    when the server stays away. No message holds a password.
    """

    def __init__(
        self,
        url: str,
        *,
        patience: float = PATIENCE_SECONDS,
        first_patience: float = FIRST_SECONDS,
        connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._parameters = _parse(url)
        self.place = _describe(self._parameters)
        self.patience, self._first_patience = patience, first_patience
        self._connections = connections
        self._begin()
        _DATABASES.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._pool: ConnectionPool[psycopg.Connection[Row]] | None = None
        self._listener: Listener | None = None
        self._notifications = TopicCounts()
        self._pruned = time.monotonic()
        self.row_security = False

    def read(self, query: str, values: Sequence[object] = (), tenant: Tenant | None = None) -> Any:
        """Return the rows of a query that changes nothing."""

        def attempt(db: "psycopg.Connection[Row]", _: bool) -> list[Row]:
            if not self.row_security:
                return db.execute(query, values).fetchall()
            with db.pipeline(), db.transaction():
                set_tenant(db, tenant)
                found = db.execute(query, values)
            return found.fetchall()

        return self.insist(attempt, changes=False)

    def write(self, work: Work[T], tenant: Tenant | None = None) -> T:
        """Run `work` in one transaction, with effect once; return its result, which must be JSON.

        `work` is called again when the connection was lost or the server aborted the transaction,
        so it must have no effect outside the database.
        """
        once = uuid.uuid4()

        def attempt(db: "psycopg.Connection[Row]", again: bool) -> T:
            with db.transaction():
                if again and (found := _find_applied(db, once)) is not None:
                    done: T = read_json(found)
                    return done
                set_tenant(db, tenant)
                result = work(db)
                db.execute(
                    "INSERT INTO skillbelt.applied (id, result) VALUES (%s, %s)",
                    [once, json.dumps(result)],
                )
                return result

        return self.insist(attempt)

    def insist(
        self, attempt: Attempt[T], *, changes: bool = True, patience: float | None = None
    ) -> T:
        """Call `attempt` until it succeeds; its second argument is True for a retry.

        StoreUnavailable when the server stays away for longer than `patience`.
        """
        until = time.monotonic() + (self.patience if patience is None else patience)
        again = False
        pause = 0.02
        while True:
            try:
                with self._connection(until) as db:
                    return attempt(db, again)
            except (psycopg.Error, PoolTimeout, PoolClosed) as raised:
                error = self._find_reason(raised)
                if not _is_transient(error):
                    raise self._describe_error(error, unknown=changes and again) from error
                again = again or not _had_no_effect(error)
                if time.monotonic() + pause > until:
                    raise self._away(error, unknown=changes and again) from error
            self._drop_broken()
            time.sleep(pause)
            pause = min(2 * pause, 1.0)

    def watch(self, topic: str) -> TopicWatch:
        """Return a watch that waits until `wake` is called with the same topic, on any machine."""
        self._open_pool()
        return TopicWatch(self._notifications, mark_topic(topic), self._look, POLL_SECONDS)

    def _look(self) -> object:
        """Return a value that changes when news may have been missed, or while none can arrive."""
        with self._lock:
            if self._listener is None and not _ENDED.is_set():
                self._listener = Listener(self._notifications, self.connect, self.wake)
            listener = self._listener
        if listener is not None and listener.hears:
            return listener, listener.gaps
        return time.monotonic() // POLL_SECONDS

    def wake(self, topic: str) -> None:
        """Wake the watchers of the topic. Without a server they poll a little later."""
        query = "SELECT set_config('synchronous_commit', 'off', true), pg_notify('skillbelt', %s)"
        with suppress(ConfigError):
            self.insist(
                lambda db, _: db.execute(query, [mark_topic(topic)]), changes=False, patience=1.0
            )

    def connect(self) -> "psycopg.Connection[Row]":
        """Open a connection beside the pool; psycopg.Error when that fails."""
        db = psycopg.connect(**self._parameters, **_OURS)  # type: ignore[arg-type]
        _configure(db)
        return db

    def close(self) -> None:
        """Close all connections; the next call opens them again."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()  # before the pool, which it uses
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def forget(self) -> None:
        """Drop the connections of the parent process after a fork; the parent still uses them."""
        _LEFT.append((self._pool, self._listener))
        self._begin()

    def prune(self) -> None:
        """Delete, now and then, the numbers of changes that no call retries any more."""
        now = time.monotonic()
        if now - self._pruned < _PRUNE_SECONDS:
            return
        self._pruned = now
        query = "DELETE FROM skillbelt.applied WHERE made < now() - make_interval(secs => %s)"
        # The change before this is committed; a failure here does not make it an error.
        with suppress(ConfigError):
            self.insist(lambda db, _: db.execute(query, [KEPT_SECONDS]), patience=1.0)

    @contextmanager
    def _connection(self, until: float) -> Iterator["psycopg.Connection[Row]"]:
        pool = self._pool or self._open_pool()
        left = max(until - time.monotonic(), 0.1)
        with pool.connection(timeout=min(left, _POOL_SECONDS)) as db:
            try:
                yield db
            except psycopg.errors.ReadOnlySqlTransaction:
                db.close()  # the address may lead to another server by now
                raise

    def _open_pool(self) -> "ConnectionPool[psycopg.Connection[Row]]":
        with self._lock:
            if self._pool is None:
                self._prepare()
                self._pool = ConnectionPool(
                    "",
                    kwargs={**self._parameters, **_OURS},
                    min_size=0,
                    max_size=self._connections,
                    max_idle=60.0,
                    reconnect_timeout=self.patience,
                    configure=_configure,
                    name="skillbelt",
                    num_workers=2,
                    open=True,
                )
            return self._pool

    def _prepare(self) -> None:
        """Check that the database can be used, and create or migrate the tables."""
        until = time.monotonic() + self._first_patience
        while True:
            try:
                with self.connect() as db:
                    self._check(db)
                return
            except psycopg.Error as error:
                if not _is_transient(error):
                    raise self._describe_error(error) from error
                if time.monotonic() + 0.2 > until:
                    raise self._away(error, unknown=False) from error
            time.sleep(0.2)

    def _check(self, db: "psycopg.Connection[Row]") -> None:
        [(encoding,)] = db.execute("SHOW server_encoding").fetchall()
        if encoding != "UTF8":
            raise ConfigError(
                f"{self.place}: the database has the encoding {encoding}; create one with"
                " `createdb --encoding=UTF8 --template=template0` and set store to it"
            )
        migrate(db, self.place)
        query = "SELECT row_security_active('skillbelt.session')"
        [(self.row_security,)] = db.execute(query).fetchall()

    def _find_reason(self, error: Exception) -> Exception:
        """Return why the pool has no connection: its own error says only that it timed out."""
        pool = self._pool
        if not isinstance(error, PoolTimeout) or pool is None:
            return error
        if not pool.get_stats().get("connections_errors"):
            return error
        try:
            self.connect().close()
        except psycopg.Error as reason:
            return reason
        return error

    def _drop_broken(self) -> None:
        if self._pool is not None:
            with suppress(psycopg.Error, PoolTimeout, PoolClosed):
                self._pool.check()

    def _describe_error(self, error: Exception, *, unknown: bool = False) -> ConfigError:
        count("store_errors", store="postgresql")
        state = getattr(error, "sqlstate", None) or ""
        if not state and any(word in str(error) for word in _NO_PASSWORD):
            state = "28"
        remedy = next(
            (text for code, text in _REMEDIES.items() if state.startswith(code)), _USUALLY
        )
        change = f"; {_UNKNOWN}" if unknown else ""
        return ConfigError(f"{self.place}: {self._clean(error)}{change}; {remedy}")

    def _away(self, error: Exception, *, unknown: bool) -> StoreUnavailable:
        change = _UNKNOWN if unknown else "nothing was changed"
        count("store_errors", store="postgresql")
        return StoreUnavailable(
            f"{self.place}: the server cannot be reached ({self._clean(error)}); {change};"
            " see that it runs, that its address is right, that it is the primary and that it takes"
            " more connections"
        )

    def _clean(self, error: Exception) -> str:
        """Return the text of the error in one line, without a password or the content of rows."""
        said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
        text = " ".join((said or str(error)).split())
        for name in ("password", "sslpassword"):
            if secret := self._parameters.get(name):
                text = text.replace(secret, "***")
        return text


def set_tenant(db: "psycopg.Connection[Row]", tenant: Tenant | None) -> None:
    """Set, until the end of the transaction, whose rows it may see."""
    if tenant is not None:
        db.execute(
            "SELECT set_config('skillbelt.app', %s, true), set_config('skillbelt.user', %s, true)",
            [f"={tenant.app}", f"={tenant.user}"],
        )


def _find_applied(db: "psycopg.Connection[Row]", once: uuid.UUID) -> str | None:
    row = db.execute("SELECT result FROM skillbelt.applied WHERE id = %s", [once]).fetchone()
    return None if row is None else str(row[0])


def _configure(db: "psycopg.Connection[Any]") -> None:
    db.execute(_CONFIGURE)


def _parse(url: str) -> dict[str, str]:
    """Return the parameters of the URL.

    ConfigError, which quotes none of it, when it is not a URL of PostgreSQL.
    """
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        given = {}
    # Parts of a password may be what libpq takes for a port, a host or a name.
    server, _, name = url.partition("://")[2].partition("/")
    split = server.count("@") > 1 or "@" in name.partition("?")[0]
    if not given or split or not _PORTS.fullmatch(str(given.get("port", ""))):
        raise ConfigError(
            "store: is not a URL of PostgreSQL; write postgresql://USER@HOST:PORT/DATABASE, with"
            " %-escapes for special characters, and keep the password in PGPASSWORD or ~/.pgpass"
        )
    return _DEFAULTS | {name: str(value) for name, value in given.items() if value is not None}


def _describe(parameters: dict[str, str]) -> str:
    """Return the address of the database for messages, without a password or other parameters."""
    user = f"{parameters['user']}@" if "user" in parameters else ""
    host = parameters.get("host") or parameters.get("hostaddr", "")
    port = f":{parameters['port']}" if "port" in parameters else ""
    service = f"?service={parameters['service']}" if "service" in parameters else ""
    return f"postgresql://{user}{host}{port}/{parameters.get('dbname', '')}{service}"


def _is_transient(error: Exception) -> bool:
    """Whether to retry: the server is away for now, or aborted the transaction."""
    if isinstance(error, PoolTimeout | PoolClosed):
        return True
    if isinstance(error, psycopg.errors.UniqueViolation):
        return error.diag.constraint_name == "applied_pkey"
    state = getattr(error, "sqlstate", None)
    if state is None:
        refused = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return refused and not _is_final(str(error))
    return str(state).startswith(_TRANSIENT)


def _had_no_effect(error: Exception) -> bool:
    """Whether the statement certainly had no effect, and will have none."""
    if isinstance(error, PoolTimeout | PoolClosed):
        return True
    return str(getattr(error, "sqlstate", None) or "").startswith(_NO_EFFECT)


def _is_final(text: str) -> bool:
    """Whether connecting failed permanently. The server gives its reason only as English text."""
    return "Temporary failure" not in text and any(word in text for word in _FINAL)


_FINAL = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied",
          "could not translate host name", "root certificate", "does not support SSL",
          "is not permitted to log in", "definition of service")  # fmt: skip
_NO_PASSWORD = ("authentication failed", "no password supplied")
_USUALLY = "correct the setting store, or see the log of the server"
_REMEDIES = {
    "28": (
        "correct the user in store, or the password: ~/.pgpass is read again for each connection,"
        " PGPASSWORD and store need a restart"
    ),
    "3D000": "create the database with `createdb`, or correct the setting store",
    "42501": (
        "let the role that owns the tables run skillbelt once, which makes them, and grant this"
        " role the rights that docs/how-to/postgres.md lists"
    ),
    "53": "check the disk and the memory of the server",
    "57014": "see statement_timeout of this role and database, and what keeps the server busy",
    "55P03": "another process holds the session; end that one, or try again",
}


def _forget_all() -> None:
    for database in list(_DATABASES):
        database.forget()


def _close_all() -> None:
    _ENDED.set()
    for database in list(_DATABASES):
        database.close()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
