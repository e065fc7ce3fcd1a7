from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from skillbelt.cli import main
from skillbelt.errors import ConfigError
from skillbelt.events import NewEvent
from skillbelt.permission import audit_transfer
from skillbelt.permission.audit import AuditLog
from skillbelt.permission.audit_events import AuditEvent
from skillbelt.permission.audit_transfer import move_audit, move_files
from skillbelt.permission.postgres_audit import PostgresAuditLog
from skillbelt.settings import load_settings
from skillbelt.store import STATE_FILE, SessionKey
from skillbelt.store.postgres.database import Database
from skillbelt.store.postgres.origins import PostgresOrigins
from skillbelt.store.postgres.store import PostgresStore
from skillbelt.store.protocol import SessionInfo, list_sessions
from skillbelt.store.sqlite import SqliteStore
from skillbelt.store.transfer import Movable, move_store
from skillbelt.testing.suites import TEXTS
from skillbelt.trust import TrustEntry
from tests import warm
from tests.examples import first_one
from tests.postgres import create_database
from tests.tree import Tree

KEY = SessionKey("app", "ada", "chat")
LONG = SessionKey("app", "ada", "long")
Open = Callable[[str], Movable]


@pytest.fixture(params=first_one("postgres", "sqlite"))
def open_new(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_server: str
) -> Iterator[Open]:
    """Opens the store of a name, of this kind."""
    with ExitStack() as stack:
        urls: dict[str, str] = {}

        def opened(name: str) -> Movable:
            if request.param == "sqlite":
                return stack.enter_context(closing(SqliteStore(str(tmp_path / name))))
            if name not in urls:
                urls[name] = stack.enter_context(create_database(postgres_server))
            return stack.enter_context(closing(PostgresStore(urls[name])))

        yield opened


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(str(tmp_path / "source.sqlite3"))) as store:
        fill(store)
        yield store


def fill(store: SqliteStore) -> None:
    for text in TEXTS:
        key = SessionKey("odd", text, text)
        delta = {text: text, "user:x": text, "app:\0": "1"}
        store.append(key, [NewEvent(text, text, {text: text, "n": 0.1})], delta)
    store.append(KEY, [], {"a": "1"})
    store.append(LONG, [NewEvent("a", "", {"n": n}) for n in range(2500)], {"user:lang": "de"})


def content(store: Movable) -> object:
    keys = [info.key for info in list_sessions(store)]
    return (
        [store.find_session(key) for key in keys],
        [(store.events(key), store.state(key)) for key in keys],
        sorted(store.shared_entries(), key=str),
    )


def test_everything_is_the_same_afterwards(source: SqliteStore, open_new: Open) -> None:
    target = open_new("target")
    told: list[int] = []
    moved = move_store(source, target, told.append)
    assert content(target) == content(source)
    assert (moved.sessions, moved.copied) == (len(TEXTS) + 2, len(TEXTS) + 2)
    assert moved.events == len(TEXTS) + 2500
    assert told == list(range(1, moved.sessions + 1))
    [event] = target.append(LONG, [NewEvent("next")])
    assert event.seq == 2501


def test_a_second_time_nothing_is_missing(source: SqliteStore, open_new: Open) -> None:
    first = move_store(source, open_new("target"))
    assert move_store(source, open_new("target")) == first._replace(copied=0)


def test_what_came_since_is_added(source: SqliteStore, open_new: Open) -> None:
    target = open_new("target")
    move_store(source, target)
    source.append(LONG, [NewEvent("more")], {"b": "2"})
    source.append(KEY, [], {"a": None, "c": "3"})
    assert move_store(source, target).copied == 2
    assert content(target) == content(source)


def test_there_and_back_again(source: SqliteStore, open_new: Open, tmp_path: Path) -> None:
    move_store(source, open_new("target"))
    with closing(SqliteStore(str(tmp_path / "back.sqlite3"))) as back:
        move_store(open_new("target"), back)
        assert content(back) == content(source)


def test_a_session_that_went_on_there_is_not_overwritten(
    source: SqliteStore, open_new: Open
) -> None:
    target = open_new("target")
    move_store(source, target)
    target.append(LONG, [NewEvent("elsewhere")])
    before = content(target)
    source.append(LONG, [NewEvent("here")])
    with pytest.raises(ConfigError, match="the session 'app/ada/long' has other events there"):
        move_store(source, target)
    assert content(target) == before


def test_an_entry_with_another_value_there_is_not_overwritten(
    source: SqliteStore, open_new: Open
) -> None:
    target = open_new("target")
    target.append(KEY, [], {"user:lang": "fr"})
    with pytest.raises(ConfigError, match="'user:lang' of 'app/ada' has another value there"):
        move_store(source, target)
    assert target.state(LONG) == {"user:lang": "fr"}


class _Lossy(SqliteStore):
    """Loses the last event of what it is given."""

    def event_rows(self, key, after, most):  # type: ignore[no-untyped-def]
        return [row for row in super().event_rows(key, after, most) if row.seq != 2500]


def test_a_copy_that_is_not_equal_is_told(source: SqliteStore, tmp_path: Path) -> None:
    with (
        closing(_Lossy(str(tmp_path / "target"))) as target,
        pytest.raises(ConfigError, match="'app/ada/long' is not equal after it was copied"),
    ):
        move_store(source, target)


def test_rows_that_do_not_follow_are_refused(source: SqliteStore, open_new: Open) -> None:
    target = open_new("target")
    info = source.find_session(LONG)
    assert isinstance(info, SessionInfo)
    assert not target.extend(info, source.event_rows(LONG, 5, 5), {})
    assert target.sessions() == []


# The audit log and the trusted origins


@pytest.fixture
def databases(postgres_server: str) -> Iterator[tuple[str, str]]:
    """The first has records of two machines, the oldest of one deleted, and an origin."""
    with create_database(postgres_server) as one, create_database(postgres_server) as other:
        with closing(PostgresStore(one)) as store:
            for number in range(6):
                log = PostgresAuditLog(store.database, f"vm-{number % 2}")
                log.append(AuditEvent(time=float(number), type="t", session=f"s{number}"))
            assert PostgresAuditLog(store.database).expire(1.0) == 1
            origin = TrustEntry(kind="origin", value="https://e.test/a", time=1.0, place="", by="x")
            PostgresOrigins(store.database).add(origin)
        yield one, other


def audit_of(database: Database) -> tuple[list[object], list[object]]:
    heads = "SELECT * FROM skillbelt.audit_head ORDER BY chain"
    rows = "SELECT chain, seq, time, session, record FROM skillbelt.audit ORDER BY id"
    return database.read(heads), database.read(rows)


def test_the_audit_log_and_the_trusted_origins_move_too(
    tree: Tree, databases: tuple[str, str]
) -> None:
    for _ in range(2):
        done = tree.run("store", "migrate", *databases, "--json")
        assert done.exit_code == 0, done.stderr
        assert (done.document["audit"], done.document["origins"]) == (5, 1)
        assert done.document["left"] == []
    with closing(PostgresStore(databases[0])) as one, closing(PostgresStore(databases[1])) as other:
        assert audit_of(other.database) == audit_of(one.database)
        assert [found.value for found in PostgresOrigins(other.database).entries()] == [
            "https://e.test/a"
        ]
        log = PostgresAuditLog(other.database, "vm-0")
        log.append(AuditEvent(time=9.0, type="t"))
        assert (log.verify().records, log.verify().broken) == (6, 0)


def test_an_audit_log_that_went_on_goes_on_there(databases: tuple[str, str]) -> None:
    with closing(PostgresStore(databases[0])) as one, closing(PostgresStore(databases[1])) as other:
        move_audit(one.database, other.database)
        PostgresAuditLog(one.database, "vm-1").append(AuditEvent(time=9.0, type="t"))
        assert move_audit(one.database, other.database) == 6
        assert audit_of(other.database) == audit_of(one.database)


def test_other_audit_records_of_the_same_machine_are_not_mixed(databases: tuple[str, str]) -> None:
    with closing(PostgresStore(databases[0])) as one, closing(PostgresStore(databases[1])) as other:
        PostgresAuditLog(other.database, "vm-1").append(AuditEvent(time=9.0, type="other"))
        before = audit_of(other.database)
        with pytest.raises(ConfigError, match="audit log of 'vm-1' has other records there"):
            move_audit(one.database, other.database)
        assert audit_of(other.database)[1] == before[1]


def test_a_broken_audit_log_is_not_moved(databases: tuple[str, str]) -> None:
    with closing(PostgresStore(databases[0])) as one, closing(PostgresStore(databases[1])) as other:
        with one.database.connect() as db:
            db.execute("ALTER TABLE skillbelt.audit DISABLE TRIGGER keep")
            db.execute("UPDATE skillbelt.audit SET record = replace(record, 's3', 's9')")
            db.commit()
        with pytest.raises(ConfigError, match="the audit log is broken"):
            move_audit(one.database, other.database)
        assert audit_of(other.database) == ([], [])


# An audit log in files


@pytest.fixture
def files(tmp_path: Path, source: SqliteStore) -> AuditLog:
    """Beside the store; several files, the oldest of them deleted."""
    log = AuditLog(os.path.join(os.path.dirname(source.path), "audit"), max_bytes=900, max_files=3)
    for number in range(40):
        log.append(AuditEvent(time=float(number), type="t", session=f"a/u\0é/{number}"))
    assert next(log.read()).time > 0
    return log


def test_an_audit_log_in_files_moves_with_its_chain(
    tree: Tree, source: SqliteStore, files: AuditLog, postgres_url: str
) -> None:
    events = list(files.read())
    for _ in range(2):
        done = tree.run("store", "migrate", source.path, postgres_url, "--json")
        assert done.exit_code == 0, done.stderr
        assert (done.document["audit"], done.document["left"]) == (len(events), ["origins"])
    with closing(PostgresStore(postgres_url)) as target:
        log = PostgresAuditLog(target.database)
        assert list(log.read()) == events
        assert list(log.read(session="a/u\0é/39")) == events[-1:]
        # This machine has a chain of its own there, and both can be verified.
        log.append(AuditEvent(time=99.0, type="t"))
        assert (log.verify().records, log.verify().broken) == (len(events) + 1, 0)


def test_an_audit_log_in_files_goes_on_where_a_move_was_cut(
    source: SqliteStore, files: AuditLog, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_transfer, "_PAGE", 4)
    add, pages = audit_transfer._add_rows, [1, 2]

    def add_some(*given: Any) -> None:
        if not pages:
            raise KeyboardInterrupt
        pages.pop()
        add(*given)

    with closing(PostgresStore(postgres_url)) as target:
        monkeypatch.setattr(audit_transfer, "_add_rows", add_some)
        with pytest.raises(KeyboardInterrupt):
            move_files(files, target.database)
        monkeypatch.setattr(audit_transfer, "_add_rows", add)
        files.append(AuditEvent(time=50.0, type="later"))
        assert move_files(files, target.database) == len(list(files.read()))
        assert list(PostgresAuditLog(target.database).read()) == list(files.read())


def test_a_changed_audit_log_in_files_is_not_moved(
    tree: Tree, source: SqliteStore, files: AuditLog, postgres_url: str
) -> None:
    path = Path(files.folder, "log.1.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"type":"t"', b'"type":"x"', 1))
    done = tree.run("store", "migrate", source.path, postgres_url, "--json")
    assert done.exit_code == 2
    assert "the audit log is broken" in done.document["error"]["message"]
    with closing(PostgresStore(postgres_url)) as target:
        assert audit_of(target.database) == ([], [])
        assert target.sessions() == []


def test_another_audit_log_under_the_same_name_is_not_mixed(
    files: AuditLog, postgres_url: str
) -> None:
    with closing(PostgresStore(postgres_url)) as target:
        move_files(files, target.database)
        before = audit_of(target.database)
        shutil.rmtree(files.folder)
        os.unlink(files.head_path)
        for number in range(99):
            files.append(AuditEvent(time=float(number), type="other"))
        with pytest.raises(ConfigError, match="has other records there"):
            move_files(files, target.database)
        assert audit_of(target.database) == before


# The command

KILLS = 3


def migrate(tree: Tree, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "skillbelt", "store", "migrate", *arguments]
    return warm.Popen[bytes](
        command, cwd=tree.project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@pytest.mark.long
def test_a_move_that_is_killed_ends_the_same_when_begun_again(
    tree: Tree, source: SqliteStore, postgres_url: str
) -> None:
    """Killed as soon as there is a little more than the last time."""
    dice = random.Random(7)
    with closing(PostgresStore(postgres_url)) as target:
        for _ in range(KILLS):
            enough = rows(target) + dice.randint(1, 1200)
            process = migrate(tree, source.path, postgres_url)
            while process.poll() is None and rows(target) < enough:
                pass
            process.kill()
            process.wait()
        done = tree.run("store", "migrate", source.path, postgres_url, "--json")
        assert done.exit_code == 0, done.stderr
        assert content(target) == content(source)
    assert done.document["verified"] is True
    assert done.document["sessions"] == len(TEXTS) + 2
    assert done.document["digest"] == move_store(source, target).digest


def rows(store: PostgresStore) -> int:
    [(number,)] = store.database.read("SELECT count(*) FROM skillbelt.event")
    return int(number)


def test_the_command_says_what_it_does_not_move(
    tree: Tree, source: SqliteStore, tmp_path: Path
) -> None:
    done = tree.run("store", "migrate", source.path, str(tmp_path / "other.sqlite3"))
    assert "not moved: the audit log and what is trusted; it stays in the state" in done.stderr


def test_the_command_names_both_stores_but_no_password(
    tree: Tree, source: SqliteStore, postgres_url: str
) -> None:
    url = postgres_url.replace("postgres@", "postgres:hunter2@")
    for more in ([], ["--json"]):
        done = tree.run("store", "migrate", os.path.dirname(source.path), url, *more)
        assert (done.exit_code, "hunter2" in str(done)) == (2, False)
        done = tree.run("store", "migrate", source.path, url, *more)
        assert (done.exit_code, "hunter2" in str(done)) == (0, False)
    assert done.document["left"] == ["origins"], "a team does not trust what one user does"
    assert done.document["from"] == source.path
    assert done.document["to"] == PostgresStore(url).place


@pytest.mark.parametrize(
    "arguments",
    [["migrate"], ["migrate", "a"], ["migrate", "a", "b", "c"], ["migrate", "a", "a"],
     ["migrate", "mysql://x:hunter2@e.test/a", "b"], ["expire"], ["expire", "a", "--days", "1"],
     ["expire", "--days", "0"], ["migrate", "a", "b", "--days", "1"], ["forget"],
     ["migrate", "missing.sqlite3", "b"]],
)  # fmt: skip
def test_wrong_usage(tree: Tree, arguments: list[str]) -> None:
    done = tree.run("store", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stderr


def test_old_sessions_are_deleted(tree: Tree, postgres_url: str) -> None:
    tree.setenv("SKILLBELT_STORE", postgres_url)
    with closing(PostgresStore(postgres_url)) as store:
        store.append(KEY, [NewEvent("old")])
        old = store.find_session(KEY)
        assert old
        store.extend(old._replace(updated=old.updated - 3 * 86400), [], None)
        store.append(LONG, [NewEvent("new")])
        assert tree.run("store", "expire", "--days", "4", "--json").document == {"deleted": 0}
        assert tree.run("store", "expire", "--days", "2") == (0, "", "deleted 1 session\n")
        assert [info.key for info in store.sessions()] == [LONG]


def test_the_age_of_sessions_is_by_the_clock_of_the_store(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clock of the machine that deletes them may be wrong."""
    monkeypatch.setattr(SqliteStore, "now", lambda self: time.time() + 3 * 86400)
    with closing(SqliteStore(os.path.join(load_settings().state_dir, STATE_FILE))) as store:
        store.append(KEY, [NewEvent("old")])
        assert main(["store", "expire", "--days", "2"]) == 0
        assert store.sessions() == []
    assert capsys.readouterr().err == "deleted 1 session\n"
