from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from skillbelt.errors import ConfigError, StoreUnavailable
from skillbelt.events import NewEvent
from skillbelt.store import SessionKey, Store
from skillbelt.store.postgres import database as database_module
from skillbelt.store.postgres import schema
from skillbelt.store.postgres.database import Database
from skillbelt.store.postgres.store import PostgresStore
from skillbelt.testing.suites import StoreConformance
from tests import warm
from tests.postgres import Server, create_database

KEY = SessionKey("app", "ada", "chat")
OTHER = SessionKey("app", "bob", "chat")


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def store(self, postgres_url: str) -> Iterator[Store]:
        with closing(PostgresStore(postgres_url)) as store:
            yield store


def test_a_server_that_is_away_is_a_clear_error_after_a_bounded_time(tmp_path: Path) -> None:
    url = f"postgresql://ada:hunter2@/belt?host={tmp_path}"
    store = PostgresStore(Database(url, patience=0.1, first_patience=0.1))
    with closing(store), pytest.raises(StoreUnavailable) as raised:
        store.append(KEY, [NewEvent("a")])
    text = str(raised.value)
    assert text.startswith(f"postgresql://ada@{tmp_path}/belt: the server cannot be reached (")
    assert "nothing was changed" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:hunter2/x@db/belt",
        "postgresql://ada@db/belt?hunter2=1",
        "postgresql://ada:x@hunter2@db/belt",
        "postgresql://ada:12/hunter2@db/belt",
    ],
)
def test_an_error_does_not_quote_a_wrong_url(url: str) -> None:
    with pytest.raises(ConfigError, match="store: is not a URL of PostgreSQL") as raised:
        PostgresStore(url)
    assert "hunter2" not in "".join(traceback.format_exception(raised.value))


def test_a_name_server_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said = 'could not translate host name "db" to address: Temporary failure in name resolution'
    calls: list[int] = []

    def connect(_: Database) -> None:
        calls.append(1)
        raise psycopg.OperationalError(said)

    monkeypatch.setattr(Database, "connect", connect)
    store = PostgresStore(Database("postgresql://db/belt", first_patience=0.5))
    with pytest.raises(StoreUnavailable, match="Temporary failure"):
        store.sessions()
    assert len(calls) > 1


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(postgres_url)) as store:
        yield store


def child(code: str, url: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A process with a store in the database, which begins after a line on its stdin."""
    begin = (
        "import sys\n"
        "from skillbelt.events import NewEvent\n"
        "from skillbelt.store import SessionKey\n"
        "from skillbelt.store.postgres.store import PostgresStore\n"
        f"KEY = SessionKey{tuple(KEY)!r}\n"
        "store = PostgresStore(sys.argv[1])\n"
        "sys.stdin.readline()\n"
    )
    return warm.Popen[bytes](
        [sys.executable, "-W", "error", "-c", begin + code, url, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finish(*children: subprocess.Popen[bytes]) -> list[str]:
    """Let the processes begin at once; what they printed."""
    for process in children:
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.close()
        process.stdin = None
    outputs = [process.communicate()[0].decode() for process in children]
    assert [process.returncode for process in children] == [0] * len(children), outputs
    return outputs


def test_eight_processes_share_one_session(store: PostgresStore, postgres_url: str) -> None:
    """All begin with an empty database, so they also make the tables at once."""
    code = (
        "for turn in range(10):\n"
        "    batch = [NewEvent(sys.argv[2], '', {'turn': turn, 'n': n}) for n in range(3)]\n"
        "    store.append(KEY, batch, {sys.argv[2]: str(turn)})\n"
        "store.close()\n"
    )
    finish(*(child(code, postgres_url, str(number)) for number in range(8)))
    events = store.events(KEY)
    assert [event.seq for event in events] == list(range(1, 8 * 10 * 3 + 1))
    assert [event.data["n"] for event in events] == [0, 1, 2] * 80
    for number in range(8):
        turns = [event.data["turn"] for event in events if event.type == str(number)]
        assert turns == [turn for turn in range(10) for _ in range(3)]
    assert store.state(KEY) == {str(number): "9" for number in range(8)}


def test_a_forked_process_has_connections_of_its_own(store: PostgresStore) -> None:
    store.append(KEY, [NewEvent("parent")])
    with store.watch("topic"):
        pid = os.fork()
        if pid == 0:
            status = 1
            with suppress(BaseException):
                store.append(KEY, [NewEvent("child")])
                store.close()
                status = 0
            os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        store.append(KEY, [NewEvent("parent")])
    assert [event.type for event in store.events(KEY)] == ["parent", "child", "parent"]


def run_sql(url: str, *statements: str) -> list[tuple[object, ...]]:
    """Run statements beside the store; the rows of the last one."""
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            found = db.execute(statement)
        return found.fetchall() if found.description else []


def test_a_newer_schema_is_left_alone(store: PostgresStore, postgres_url: str) -> None:
    store.append(KEY, [NewEvent("a")])
    store.close()
    run_sql(postgres_url, "UPDATE skillbelt.version SET number = 99")
    with pytest.raises(ConfigError, match=r"newer skillbelt \(schema 99.*upgrade skillbelt here"):
        store.append(KEY, [NewEvent("b")])
    assert run_sql(postgres_url, "SELECT count(*) FROM skillbelt.event") == [(1,)]


def test_tables_are_made_once_however_many_begin(postgres_url: str) -> None:
    made: list[object] = []

    def begin() -> None:
        with closing(PostgresStore(postgres_url)) as store:
            made.append(store.sessions())

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [[]] * 8
    assert run_sql(postgres_url, "SELECT count(*) FROM skillbelt.version") == [(1,)]


def test_a_migration_that_fails_leaves_nothing(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (*schema.MIGRATIONS, ("CREATE TABLE skillbelt.half ()", "CREATE NONSENSE"))
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", broken)
        with pytest.raises(ConfigError, match="syntax error"):
            store.sessions()
    assert run_sql(postgres_url, "SELECT to_regnamespace('skillbelt')::text") == [(None,)]
    assert store.append(KEY, [NewEvent("a")])[0].seq == 1


def test_a_database_in_another_encoding_is_refused(postgres_server: str) -> None:
    options = {"ENCODING": "LATIN1", "TEMPLATE": "template0"}
    with (
        create_database(postgres_server, **options) as url,
        closing(PostgresStore(url)) as store,
        pytest.raises(ConfigError, match="encoding LATIN1; create one with `createdb"),
    ):
        store.sessions()


def test_a_database_that_does_not_exist_is_an_error_at_once(postgres_server: str) -> None:
    with (
        closing(PostgresStore(postgres_server.replace("/postgres?", "/nowhere?"))) as store,
        pytest.raises(ConfigError, match='"nowhere" does not exist; ') as raised,
    ):
        store.sessions()
    assert not isinstance(raised.value, StoreUnavailable)


def test_nothing_is_prepared_in_a_connection(store: PostgresStore) -> None:
    """A proxy gives each statement to another connection of the server."""
    for _ in range(10):
        store.append(KEY, [NewEvent("a")])
        store.events(KEY)
        assert store.database.read("SELECT name FROM pg_prepared_statements") == []


def test_an_error_has_nothing_of_the_rows_in_it(store: PostgresStore, postgres_url: str) -> None:
    store.append(KEY, [NewEvent("a")])
    run_sql(postgres_url, "ALTER TABLE skillbelt.event ADD CONSTRAINT odd CHECK (type <> 'b')")
    with pytest.raises(ConfigError, match='violates check constraint "odd"; ') as raised:
        store.append(KEY, [NewEvent("b", "", {"said": "in confidence"})])
    assert "confidence" not in str(raised.value)
    assert "CONTEXT" not in str(raised.value)


def test_rows_that_no_store_wrote_are_no_crash(store: PostgresStore, postgres_url: str) -> None:
    store.append(KEY, [NewEvent("a")], {"n": "1"})
    run_sql(
        postgres_url,
        "UPDATE skillbelt.event SET type = E'\\x01'",
        "UPDATE skillbelt.state SET value = E'\\x01x\\x01'",
        "UPDATE skillbelt.session SET name = E'\\uE000z'",
    )
    assert [event.type for event in store.events(KEY)] == ["\x01"]
    assert store.state(KEY) == {"n": "\x01x\x01"}
    assert [info.key.session for info in store.sessions()] == ["\ue000z"]
    run_sql(postgres_url, "UPDATE skillbelt.event SET data = '[1]'")
    with pytest.raises(ConfigError, match="an event of session app/ada/chat is not JSON"):
        store.events(KEY)


def test_old_sessions_that_another_deletes_are_not_waited_for(
    store: PostgresStore, postgres_url: str
) -> None:
    for key in (KEY, OTHER):
        store.append(key, [NewEvent("a")])
    with psycopg.connect(postgres_url) as db:
        db.execute("SELECT 1 FROM skillbelt.session WHERE \"user\" = 'ada' FOR UPDATE")
        assert store.expire(store.now() + 60) == 1
    assert [info.key for info in store.sessions()] == [KEY]


# What is heard from elsewhere


def test_closing_while_the_listener_speaks_leaves_nothing_open(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.watch("topic"):
        hearing(store)
        listener = store.database._listener
        assert listener
        end = listener.close

        def close() -> None:
            store.wake("topic")  # as its thread may at any moment
            end()

        monkeypatch.setattr(listener, "close", close)
    store.close()
    assert store.database._pool is None


def test_a_watch_hears_another_process(store: PostgresStore, postgres_url: str) -> None:
    with store.watch("topic") as watch:
        hearing(store)
        while watch.wait(0):
            pass
        finish(child("store.append(KEY, [NewEvent('a')]); store.wake('topic')", postgres_url))
        assert watch.wait(150)
        assert len(store.events(KEY)) == 1


def hearing(store: PostgresStore) -> None:
    """Wait until notifications arrive, so that looking regularly is not what helps."""
    database = store.database
    while not (database._listener and database._listener.hears):
        with database._notifications.changed:
            database._notifications.changed.wait(1)


def test_a_watch_goes_on_while_nothing_can_be_heard(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy may pass on no notifications: the watch polls."""
    monkeypatch.setattr(Database, "wake", lambda self, topic: None)
    with store.watch("topic") as watch:
        assert watch.wait(150)
        assert watch.wait(150)


def test_a_watch_hears_again_after_its_connection_was_lost(
    store: PostgresStore, postgres_url: str
) -> None:
    with store.watch("topic") as watch:
        hearing(store)
        end_connections(postgres_url)
        while store.database._listener and store.database._listener.hears:
            watch.wait(0.1)
        hearing(store)
        while watch.wait(0):
            pass
        store.wake("topic")
        assert watch.wait(150)


def end_connections(url: str) -> None:
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    run_sql(url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")


# Connections that are lost


def test_a_lost_connection_is_made_again(store: PostgresStore, postgres_url: str) -> None:
    for number in range(5):
        end_connections(postgres_url)
        assert store.append(KEY, [NewEvent("a")])[0].seq == number + 1
        end_connections(postgres_url)
        assert len(store.events(KEY)) == number + 1
    end_connections(postgres_url)
    assert store.delete(KEY) is True


def test_a_connection_that_cannot_write_is_made_again(store: PostgresStore) -> None:
    """This happens when the address of the primary leads to another server."""
    store.append(KEY, [NewEvent("a")])
    store.database.read("SELECT set_config('default_transaction_read_only', 'on', false)")
    assert store.append(KEY, [NewEvent("b")])[0].seq == 2


@pytest.mark.parametrize("lost", [False, True])
def test_an_error_says_when_an_earlier_try_may_have_been_made(
    store: PostgresStore, lost: bool
) -> None:
    def attempt(db: psycopg.Connection[tuple[object, ...]], again: bool) -> None:
        if lost and not again:
            raise psycopg.OperationalError("the connection is lost")
        db.execute("SELECT 1/0")

    with pytest.raises(ConfigError, match="division by zero") as raised:
        store.database.insist(attempt)
    assert ("made as a whole or not at all" in str(raised.value)) is lost


class Wire:
    """Passes on the bytes of a client and the server, until it is cut."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url.split("?")[0] + f"?host={folder}"
        self._server = url.split("host=")[1] + "/.s.PGSQL.5432"
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / ".s.PGSQL.5432"))
        self._listening.listen()
        # Of the next message from the client: is it cut before it, or before the answer to it?
        self.cut = ""
        self.cuts = 0
        self.blocked = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            back = threading.Thread(target=self._answer, args=(client, server), daemon=True)
            back.start()
            self._pass_on(client, server)
            back.join()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while said := client.recv(65536):
                if self.cut == "before" and MARK in said:
                    self._end(client)
                    break
                server.sendall(said)
                if self.cut == "at once" and MARK in said:
                    self.blocked.wait()
                    self._end(client)
                    break
        if not self.blocked.is_set():
            self._shut(server)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while answer := server.recv(65536):
                if self.cut == "after":
                    self._end(client)
                    break
                client.sendall(answer)
        self._shut(client)

    def _end(self, client: socket.socket) -> None:
        self.cut = ""
        self.cuts += 1
        self._shut(client)

    def _shut(self, side: socket.socket) -> None:
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


MARK = b"mark-of-the-test"


@pytest.fixture
def wire(postgres_url: str, tmp_path: Path) -> Iterator[Wire]:
    with closing(Wire(tmp_path, postgres_url)) as wire:
        yield wire


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_change_whose_answer_is_lost_is_made_once(wire: Wire, when: str) -> None:
    """After: the server has made it, and its answer never arrives. Before: it never heard of it."""
    with closing(PostgresStore(wire.url)) as store:
        for number in range(3):
            store.append(KEY, [NewEvent("usual")])
            wire.cut = when
            events = store.append(KEY, [NewEvent(MARK.decode())], {"user:n": str(number)})
            assert wire.cuts == number + 1
            assert store.events(KEY)[-1:] == events
            assert len(store.events(KEY)) == 2 * number + 2
            assert store.state(KEY) == {"user:n": str(number)}
        wire.cut = "after"
        assert store.delete(KEY) is True


def test_a_change_that_the_server_still_makes_is_not_made_again(
    wire: Wire, postgres_url: str
) -> None:
    """The connection is cut while the change waits for a lock; the server goes on without it."""
    with closing(PostgresStore(wire.url)) as store, psycopg.connect(postgres_url) as other:
        store.append(KEY, [NewEvent("usual")])
        other.execute("SELECT 1 FROM skillbelt.session FOR UPDATE")
        wire.cut = "at once"
        appended: list[object] = []
        thread = threading.Thread(
            target=lambda: appended.extend(store.append(KEY, [NewEvent(MARK.decode())]))
        )
        thread.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
        until(lambda: run_sql(postgres_url, waiting) == [(1,)])
        wire.blocked.set()
        until(lambda: run_sql(postgres_url, waiting) == [(2,)])
        other.rollback()
        thread.join()
        assert store.events(KEY)[1:] == appended
        assert len(appended) == 1


def until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.01)


def test_work_in_a_transaction_is_done_once(wire: Wire) -> None:
    with closing(PostgresStore(wire.url)) as store:
        database = store.database
        store.append(KEY, [NewEvent("usual")])
        calls: list[int] = []

        def work(db: psycopg.Connection[tuple[object, ...]]) -> int:
            calls.append(1)
            db.execute("UPDATE skillbelt.session SET name = name || %s", ["x"])
            wire.cut = "after" if len(calls) == 1 else ""
            return len(calls)

        # It is cut off after that statement: the server gives it up, and it is done again.
        assert database.write(work) == len(calls) == 2
        assert database.read("SELECT name FROM skillbelt.session") == [("chatx",)]


@contextmanager
def restarts(server: Server, times: int) -> Iterator[None]:
    """End the server as in a crash and start it again, several times, while something goes on."""

    def restart() -> None:
        for _ in range(times):
            server.stop(signal.SIGQUIT)
            server.start()

    thread = threading.Thread(target=restart)
    thread.start()
    yield
    thread.join()


@pytest.mark.long
def test_no_change_is_lost_or_made_twice_while_the_server_crashes(own_postgres: Server) -> None:
    done: dict[int, list[int]] = {number: [] for number in range(4)}
    with closing(PostgresStore(own_postgres.url("postgres"))) as store:
        store.append(KEY, [])
        crashing = restarts(own_postgres, 3)

        def work(number: int) -> None:
            for turn in range(60):
                [event] = store.append(KEY, [NewEvent(str(number), "", {"turn": turn})])
                done[number].append(event.seq)

        threads = [threading.Thread(target=work, args=(number,)) for number in done]
        with crashing:
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join()
        events = store.events(KEY)
        assert [event.seq for event in events] == list(range(1, 4 * 60 + 1))
        for number, seqs in done.items():
            mine = [event for event in events if event.type == str(number)]
            assert [event.seq for event in mine] == seqs
            assert [event.data["turn"] for event in mine] == list(range(60))


def test_a_server_that_stays_away_is_told_and_nothing_is_half_written(own_postgres: Server) -> None:
    database = Database(own_postgres.url("postgres"), patience=0.2)
    with closing(PostgresStore(database)) as store:
        store.append(KEY, [NewEvent("a")], {"n": "1"})
        own_postgres.stop()
        with pytest.raises(StoreUnavailable, match="the server cannot be reached"):
            store.append(KEY, [NewEvent("b"), NewEvent("c")], {"n": "2"})
        with pytest.raises(StoreUnavailable):
            store.events(KEY)
        own_postgres.start()
        database.patience = 60.0
        assert [event.type for event in store.events(KEY)] == ["a"]
        assert store.state(KEY) == {"n": "1"}


def test_numbers_of_changes_are_forgotten_in_time(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(KEY, [NewEvent("a")])
    run_sql(postgres_url, "UPDATE skillbelt.applied SET made = now() - interval '2 hours'")
    monkeypatch.setattr(store.database, "_pruned", float("-inf"))
    store.append(KEY, [NewEvent("b")])
    assert run_sql(postgres_url, "SELECT count(*) FROM skillbelt.applied") == [(1,)]


# Tenants


@pytest.fixture
def tenant_url(store: PostgresStore, postgres_url: str) -> Iterator[str]:
    """The same database, for a role that does not own the tables."""
    store.sessions()
    role = f"tenant_{os.getpid()}"
    run_sql(
        postgres_url,
        f"CREATE ROLE {role} LOGIN",
        *(statement.format(role=role) for statement in GRANTS),
    )
    yield postgres_url.replace("postgres@", f"{role}@")
    run_sql(postgres_url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


# As docs/how-to/postgres.md has them.
GRANTS = [
    line.strip().replace(" TO server;", " TO {role}")
    for line in (Path(__file__).parents[2] / "docs/how-to/postgres.md")
    .read_text("utf-8")
    .split("\n")
    if line.strip().startswith("GRANT")
]


def test_a_query_without_a_tenant_sees_nothing(store: PostgresStore, tenant_url: str) -> None:
    for key in (KEY, OTHER):
        store.append(key, [NewEvent("a")], {"mine": "1", "user:x": "2", "app:x": "3"})
    for table in ("session", "event", "state"):
        assert run_sql(tenant_url, f"SELECT * FROM skillbelt.{table}") == []
    tell = ("SET skillbelt.app = '=app'", "SET skillbelt.\"user\" = '=ada'")
    names = run_sql(tenant_url, *tell, 'SELECT "user", name FROM skillbelt.session')
    assert names == [("ada", "chat")]
    assert len(run_sql(tenant_url, *tell, "SELECT * FROM skillbelt.event")) == 1
    assert len(run_sql(tenant_url, *tell, "SELECT * FROM skillbelt.state")) == 3
    theirs = "UPDATE skillbelt.session SET name = 'stolen' WHERE \"user\" = 'bob' RETURNING name"
    assert run_sql(tenant_url, *tell, theirs) == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        run_sql(tenant_url, *tell, "UPDATE skillbelt.session SET \"user\" = 'bob'")


def test_a_role_that_does_not_own_the_tables_can_be_used(
    store: PostgresStore, tenant_url: str
) -> None:
    store.append(OTHER, [NewEvent("theirs")], {"app:x": "1", "user:x": "theirs"})
    with closing(PostgresStore(tenant_url)) as tenant:
        tenant.append(KEY, [NewEvent("a")], {"mine": "1", "user:y": "2"})
        assert [event.type for event in tenant.events(KEY)] == ["a"]
        assert tenant.state(KEY) == {"mine": "1", "user:y": "2", "app:x": "1"}
        assert [info.key for info in tenant.sessions("app", "ada")] == [KEY]
        assert [event.type for event in tenant.first_events(KEY, 5)] == ["a"]
        for whole in (tenant.sessions, lambda: tenant.expire(time.time() + 60)):
            with pytest.raises(ConfigError, match="row-level security shows this role"):
                whole()
        assert tenant.delete(KEY) is True
        assert tenant.state(KEY) == {"user:y": "2", "app:x": "1"}
    assert [info.key for info in store.sessions()] == [OTHER]


def test_a_role_without_rights_is_told_what_it_lacks(postgres_url: str) -> None:
    role = f"stranger_{os.getpid()}"
    run_sql(postgres_url, f"CREATE ROLE {role} LOGIN")
    try:
        url = postgres_url.replace("postgres@", f"{role}@")
        with (
            closing(PostgresStore(url)) as store,
            pytest.raises(ConfigError, match=r"permission denied.*docs/how-to/postgres\.md"),
        ):
            store.sessions()
    finally:
        run_sql(postgres_url, f"DROP ROLE {role}")


def test_a_change_is_made_though_old_numbers_cannot_be_deleted(
    store: PostgresStore, tenant_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = tenant_url.removeprefix("postgresql://").partition("@")[0]
    run_sql(postgres_url, f"REVOKE DELETE ON skillbelt.applied FROM {role}")
    with closing(PostgresStore(tenant_url)) as tenant:
        monkeypatch.setattr(tenant.database, "_pruned", float("-inf"))
        assert tenant.append(KEY, [NewEvent("a")])[0].seq == 1


def test_a_password_that_changed_while_a_server_ran(
    own_postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open connections go on; a new one is refused with the remedy, until the passfile is right."""
    admin = own_postgres.url("postgres")
    run_sql(admin, "CREATE ROLE guard SUPERUSER LOGIN PASSWORD 'first'", "CREATE DATABASE belt")
    hba = own_postgres.folder / "data" / "pg_hba.conf"
    hba.write_text(f"local all guard scram-sha-256\n{hba.read_text()}")
    run_sql(admin, "SELECT pg_reload_conf()")
    passfile = tmp_path / "pgpass"
    monkeypatch.setenv("PGPASSFILE", str(passfile))
    monkeypatch.setattr(database_module, "_POOL_SECONDS", 0.5)

    def set_password(password: str) -> None:
        passfile.write_text(f"*:*:*:guard:{password}\n")
        passfile.chmod(0o600)

    set_password("first")
    with closing(PostgresStore(own_postgres.url("belt", "guard"))) as store:
        store.append(KEY, [NewEvent("a")])
        run_sql(admin, "ALTER ROLE guard PASSWORD 'second'")
        store.append(KEY, [NewEvent("b")])
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'guard'"
        run_sql(admin, end)
        with pytest.raises(ConfigError, match=r"authentication failed.*~/\.pgpass is read again"):
            store.append(KEY, [NewEvent("lost")])
        set_password("second")
        store.append(KEY, [NewEvent("c")])
        assert [event.type for event in store.events(KEY)] == ["a", "b", "c"]


def test_the_latest_sessions_come_in_pages(store: PostgresStore) -> None:
    names = ["a", "é", "own:x", "b", "\x00", ""]
    keys = [SessionKey(name, "u", str(at)) for at, name in enumerate(names)]
    for key in keys:
        store.append(key, [NewEvent("x")])
    store.append(keys[0], [NewEvent("y")])
    found: list[SessionKey] = []
    page = store.latest_sessions(2, without="own:")
    while page:
        found += [one.key for one in page]
        page = store.latest_sessions(2, before=page[-1], without="own:")
    assert found[0] == keys[0]
    assert sorted(found) == sorted(one for one in keys if one.app != "own:x")
    assert len(found) == len(set(found))
