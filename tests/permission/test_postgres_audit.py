"""The audit log in PostgreSQL."""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

from skillbelt import Rule, Runtime, store
from skillbelt.artifacts.conformance import THREADS, together
from skillbelt.errors import ConfigError, StoreUnavailable
from skillbelt.permission.audit_events import AuditEvent
from skillbelt.permission.postgres_audit import PostgresAuditLog
from skillbelt.store.memory import MemoryStore
from skillbelt.store.postgres.database import Database
from skillbelt.store.postgres.store import PostgresStore
from skillbelt.testing.suites import AuditConformance
from tests.postgres import Server
from tests.tree import Tree

NUMBERS = itertools.count()


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    with closing(Database(postgres_url)) as database:
        yield database


@pytest.fixture
def log(database: Database) -> PostgresAuditLog:
    return PostgresAuditLog(database, "vm-1")


class TestPostgresAuditLog(AuditConformance):
    """Every promise of an audit log, kept in PostgreSQL."""


def fill(log: PostgresAuditLog, *numbers: int, session: str = "app/ada/1") -> None:
    for number in numbers:
        log.append(AuditEvent(time=float(number), type="run", session=session))


def change(url: str, query: LiteralString, *values: object) -> None:
    """Change the tables as their owner can."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET session_replication_role = replica")  # no trigger stops the owner
        db.execute(query, values)


def faults(log: PostgresAuditLog) -> list[tuple[int, str]]:
    found = log.verify()
    assert found.broken == len(found.faults)
    return [(fault.line, fault.message) for fault in found.faults]


# Many machines


def test_each_record_has_the_name_of_its_machine(database: Database) -> None:
    one, other = PostgresAuditLog(database, "vm-1"), PostgresAuditLog(database, "vm-2")
    fill(one, 1)
    fill(other, 2)
    fill(one, 3)
    assert [(event.time, event.machine) for event in other.read()] == [
        (1.0, "vm-1"),
        (2.0, "vm-2"),
        (3.0, "vm-1"),
    ]
    assert one.verify()[:3] == (3, 0, 0)


def test_processes_of_one_machine_share_its_chain(postgres_url: str, log: PostgresAuditLog) -> None:
    """Two processes that share only the database and the name of the machine."""
    with closing(Database(postgres_url)) as second:
        other = PostgresAuditLog(second, "vm-1")
        together(lambda number: fill((log, other)[number % 2], *range(20), session=str(number)))
    assert log.verify()[:3] == (THREADS * 20, 0, 0)


def test_a_follower_on_another_machine_sees_what_comes(
    postgres_url: str, log: PostgresAuditLog
) -> None:
    with closing(Database(postgres_url)) as second:
        following = PostgresAuditLog(second, "vm-2").follow()
        fill(log, 1)
        assert next(following).machine == "vm-1"
        fill(log, 2)
        assert next(following).time == 2
        following.close()


# Changes


def test_the_log_only_grows(postgres_url: str, log: PostgresAuditLog) -> None:
    """Not even the owner of the tables changes it by accident."""
    fill(log, 1, 2)
    for query in (
        "UPDATE skillbelt.audit SET type = 'load'",
        "DELETE FROM skillbelt.audit",
        "TRUNCATE skillbelt.audit",
        "DELETE FROM skillbelt.audit_head",
        "TRUNCATE skillbelt.audit_head",
    ):
        match = "the audit log only grows"
        with psycopg.connect(postgres_url) as db, pytest.raises(psycopg.Error, match=match):
            db.execute(query)
    assert log.verify()[:3] == (2, 0, 0)


def test_a_changed_record_is_found(postgres_url: str, log: PostgresAuditLog) -> None:
    fill(log, 1, 2, 3)
    change(
        postgres_url,
        "UPDATE skillbelt.audit SET record = replace(record, 'ada', 'eve'),"
        " session = 'app/eve/1', \"user\" = 'eve' WHERE seq = 2",
    )
    [(line, message)] = faults(log)
    assert (line, message[:24]) == (2, "is not what was written:")


def test_a_changed_column_is_found(postgres_url: str, log: PostgresAuditLog) -> None:
    """Otherwise a search would not find the record."""
    fill(log, 1, 2, 3)
    change(postgres_url, "UPDATE skillbelt.audit SET type = 'load', app = NULL WHERE seq = 2")
    assert faults(log) == [(2, "is found under other columns than its own: they were changed")]


def test_a_removed_record_is_found(postgres_url: str, log: PostgresAuditLog) -> None:
    fill(log, 1, 2, 3)
    change(postgres_url, "DELETE FROM skillbelt.audit WHERE seq = 2")
    assert faults(log) == [(3, "1 records are missing before this one (number 3)")]


def test_an_end_that_was_cut_off_is_found(postgres_url: str, log: PostgresAuditLog) -> None:
    fill(log, 1, 2, 3)
    change(postgres_url, "DELETE FROM skillbelt.audit WHERE seq > 1")
    assert faults(log) == [(1, "the last 2 records are missing after this: the end was cut off")]


def test_an_added_record_is_found(postgres_url: str, log: PostgresAuditLog) -> None:
    fill(log, 1, 2)
    change(
        postgres_url,
        "INSERT INTO skillbelt.audit (chain, seq, time, type, session, skill, record)"
        """ VALUES ('vm-1', 3, 0, 'run', '', '', '{"seq":3,"prev":"x","time":0,"type":"run"}')""",
    )
    assert {line for line, _ in faults(log)} == {3}


def test_a_lost_head_is_found(postgres_url: str, log: PostgresAuditLog) -> None:
    fill(log, 1)
    change(postgres_url, "DELETE FROM skillbelt.audit_head")
    [(_, message)] = faults(log)
    assert message.startswith("the head is missing or damaged")


# Retention


def test_old_records_go_and_the_rest_is_still_checked(log: PostgresAuditLog) -> None:
    fill(log, 1, 2, 3, 4)
    assert log.expire(3.0) == 2
    assert [event.time for event in log.read()] == [3, 4]
    assert log.verify()[:3] == (2, 0, 0)
    assert log.expire(3.0) == 0
    fill(log, 5)
    assert log.expire(100.0) == 3
    assert log.verify()[:3] == (0, 0, 0)
    fill(log, 6)
    assert log.verify()[:3] == (1, 0, 0)


def test_only_the_beginning_of_a_chain_goes(log: PostgresAuditLog) -> None:
    """A record whose clock was wrong stays until those before it are deleted."""
    fill(log, 1, 50, 2, 51)
    assert log.expire(10.0) == 1
    assert [event.time for event in log.read()] == [50, 2, 51]


# Who may do what


# As docs/how-to/observe.md has them.
RIGHTS = re.findall(
    r"^GRANT (.*) TO server;$",
    Path(__file__).parents[2].joinpath("docs/how-to/observe.md").read_text("utf-8"),
    re.MULTILINE,
)


@pytest.fixture
def member(postgres_url: str, log: PostgresAuditLog) -> Iterator[Database]:
    """The database as a role that does not own the tables sees it."""
    fill(log, 1, session="app/ada/1")
    fill(log, 2, session="app/bob/1")
    fill(log, 3, session="app/ada/b/1")
    fill(log, 4, session="")
    role = f"member_{os.getpid()}_{next(NUMBERS)}"
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        for right in RIGHTS:
            query = sql.SQL("GRANT {} TO {}").format(sql.SQL(right), sql.Identifier(role))
            db.execute(query)
        with closing(Database(postgres_url.replace("postgres@", f"{role}@"))) as database:
            yield database
        for text in ("DROP OWNED BY {}", "DROP ROLE {}"):
            db.execute(sql.SQL(text).format(sql.Identifier(role)))


def test_row_level_security_shows_a_tenant_its_own(member: Database) -> None:
    log = PostgresAuditLog(member, "vm-2")
    assert [event.time for event in log.read(tenant=("app", "ada"))] == [1]
    assert list(log.read(tenant=("app", "ada/b"))) == []
    rows = member.read("SELECT count(*) FROM skillbelt.audit")
    assert rows == [(0,)]


@pytest.mark.parametrize("what", ["read", "verify", "follow"])
def test_a_role_that_sees_some_is_not_told_that_it_is_all(member: Database, what: str) -> None:
    log = PostgresAuditLog(member, "vm-2")
    with pytest.raises(ConfigError, match="row-level security keeps"):
        if what == "verify":
            log.verify()
        else:
            next(iter(log.read() if what == "read" else log.follow()))


def test_a_role_without_rights_on_the_tables_appends_and_changes_nothing(
    member: Database, log: PostgresAuditLog
) -> None:
    fill(PostgresAuditLog(member, "vm-2"), 9)
    assert log.verify()[:3] == (5, 0, 0)
    for query in (
        "UPDATE skillbelt.audit SET type = 'x'",
        "DELETE FROM skillbelt.audit",
        "UPDATE skillbelt.audit_head SET seq = 0",
        "INSERT INTO skillbelt.audit (chain, seq, time, type, session, skill, record)"
        " VALUES ('x', 1, 0, '', '', '', '')",
    ):
        with pytest.raises(ConfigError, match="permission denied"):
            member.insist(lambda db, _, query=query: db.execute(query).rowcount)  # type: ignore[misc]


# Without the server


def test_a_run_that_cannot_be_recorded_is_not_started(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: the rule allows the run, and the log cannot be written."""
    url = f"postgresql://postgres@/x?host={tree.root}/nowhere"
    away = PostgresStore(Database(url, patience=0.1, first_patience=0.1))
    monkeypatch.setitem(store._OPENED, url, away)
    tree.skill("project/.agents/skills/pdf")
    settings = tree.settings(store=url)
    made = tree.project / "made"
    rules = [Rule("*", "*", "allow")]
    with Runtime(settings=settings, store=MemoryStore(), rules=rules) as belt:
        with pytest.raises(StoreUnavailable, match="the audit log cannot be written"):
            belt.run_sync("pdf", f"touch {made}")
        with pytest.raises(StoreUnavailable, match="the audit log cannot be written"):
            belt.load("pdf")
    assert not made.exists()


def test_what_cannot_be_recorded_is_refused(own_postgres: Server) -> None:
    with closing(Database(own_postgres.url("postgres"), patience=0.3)) as database:
        log = PostgresAuditLog(database, "vm-1")
        fill(log, 1)
        own_postgres.stop()
        with pytest.raises(StoreUnavailable, match=r"the audit log cannot be written: .* not done"):
            fill(log, 2)
        own_postgres.start()
        fill(log, 3)
        assert [event.time for event in log.read()] == [1, 3]
        assert log.verify()[:3] == (2, 0, 0)


def test_a_server_that_restarts_loses_and_repeats_nothing(own_postgres: Server) -> None:
    """Killed while threads append: every appended event exists once, and the chain is intact."""
    done: list[tuple[str, int]] = []
    with closing(Database(own_postgres.url("postgres"))) as database:
        log = PostgresAuditLog(database, "vm-1")
        fill(log, 0, session="first")

        def work(thread: int) -> None:
            for number in range(15):
                fill(log, number, session=str(thread))
                done.append((str(thread), number))
                if (thread, number) == (0, 5):
                    own_postgres.stop(signal.SIGQUIT)
                    own_postgres.start()

        together(work)
        kept = [
            (event.session, int(event.time)) for event in log.read() if event.session != "first"
        ]
        assert (
            sorted(kept) == sorted(done) == [(str(t), n) for t in range(THREADS) for n in range(15)]
        )
        assert log.verify()[:3] == (1 + THREADS * 15, 0, 0)


def test_a_thread_that_is_interrupted_does_not_let_others_go_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread writes for all: an event that it did not write counts as written for none."""
    log = PostgresAuditLog(database, "vm-1")
    began, others = threading.Event(), list[BaseException]()

    def interrupted(*_: object) -> None:
        began.wait(150)
        raise KeyboardInterrupt

    def other() -> None:
        try:
            fill(log, 2)
        except ConfigError as error:
            others.append(error)

    # The second event joins the batch of the first, which is held back until then.
    entries = log._queue
    with log._writing:
        first, second = (threading.Thread(target=other) for _ in range(2))
        for thread in (first, second):
            thread.start()
        while len(entries) < 2:
            time.sleep(0.001)
        monkeypatch.setattr(database, "insist", interrupted)
        began.set()
        with pytest.raises(KeyboardInterrupt):
            log._write_batch()
    monkeypatch.undo()
    for thread in (first, second):
        thread.join(150)
    assert [str(error)[:36] for error in others] == ["the audit log cannot be written: the"] * 2
    assert list(log.read()) == []
