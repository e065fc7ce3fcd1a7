"""Requesters and answerers on machines that share only a PostgreSQL server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from skillbelt.errors import StoreUnavailable
from skillbelt.permission.gate import Gate
from skillbelt.permission.remembered import APP, RememberedAnswers
from skillbelt.permission.rules import Answer, Request
from skillbelt.permission.waiting import (
    Pending,
    SharedRequests,
    WaitingRequests,
    has_ended,
    process_mark,
)
from skillbelt.store.postgres.database import Database
from skillbelt.store.postgres.store import PostgresStore
from skillbelt.store.protocol import SessionKey
from tests import warm
from tests.desks import until
from tests.postgres import Server
from tests.tree import Tree

PDF = Request("skill", ("pdf",), ("pdf",), skill="pdf", hash="h1", origin="local", session="s1")
NAME = "team/shop"


@pytest.fixture
def stores(postgres_url: str) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    """The database as two machines see it."""
    with closing(PostgresStore(postgres_url)) as one, closing(PostgresStore(postgres_url)) as other:
        yield one, other


def desk_of(store: PostgresStore, project: str = NAME, poll_seconds: float = 50) -> WaitingRequests:
    """A desk that polls so rarely that it gets no answer in time unless it is woken."""
    ledger = RememberedAnswers(store, project)
    return WaitingRequests(ledger, store=store, project=project, poll_seconds=poll_seconds)


def answering(desk: WaitingRequests, kind: str = "once") -> list[Pending]:
    heard: list[Pending] = []

    def answer(pending: Pending) -> None:
        heard.append(pending)
        desk.answer(pending.id, Answer(kind, by="bob"))  # type: ignore[arg-type]

    desk.listen(answer)
    return heard


def test_a_question_is_answered_on_another_machine_by_news_alone(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    one, other = map(desk_of, stores)
    heard = answering(other)
    settled = one.ask(PDF, 40)
    assert (settled.by, [pending.request for pending in heard]) == ("once", [PDF])
    for desk in (one, other):
        desk.close()


def test_always_is_remembered_for_every_machine(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    one, other = map(desk_of, stores)
    answering(other, "always")
    assert one.ask(PDF, 40).by == "always"
    for store in stores:
        found = RememberedAnswers(store, NAME).covering(PDF)
        assert found is not None
        assert found.by == "bob"
    for desk in (one, other):
        desk.close()


def test_another_project_neither_sees_nor_answers_it(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    """An answer needs the project, not only the id of the request."""
    one, bystander, other = desk_of(stores[0]), desk_of(stores[1], "team/other"), desk_of(stores[1])
    heard = answering(bystander)
    tried: list[bool] = []

    def answer(pending: Pending) -> None:
        tried.append(bystander.answer(pending.id, Answer("always", by="eve")))
        other.answer(pending.id, Answer("reject", "no"))

    other.listen(answer)
    assert one.ask(PDF, 40).by == "rejected"
    assert (heard, tried) == ([], [False])
    assert RememberedAnswers(stores[1], "team/other").all() == []
    for desk in (one, bystander, other):
        desk.close()


def test_forged_news_answer_nothing(
    stores: tuple[PostgresStore, PostgresStore], postgres_url: str
) -> None:
    """A role that may only connect can wake others, and no more."""
    one, other = map(desk_of, stores)
    asked = threading.Event()
    other.listen(lambda pending: asked.set())
    answers: list[str] = []
    asker = threading.Thread(target=lambda: answers.append(one.ask(PDF, 40).by))
    asker.start()
    assert asked.wait(150)
    [pending] = other.pending()
    with psycopg.connect(postgres_url, autocommit=True) as db:
        for text in (pending.id, "once", json.dumps({"by": "once"}), f"{APP} {NAME}", "x" * 7000):
            db.execute("SELECT pg_notify('skillbelt', %s)", [text])
        for _ in range(200):
            stores[1].wake(f"{APP} {NAME}")
    assert answers == []
    other.answer(pending.id, Answer("reject"))
    asker.join(150)
    assert answers == ["rejected"]
    for desk in (one, other):
        desk.close()


def test_clocks_that_differ_by_an_hour_do_no_harm(
    stores: tuple[PostgresStore, PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No listener counts as gone, and no request as abandoned."""
    one, other = map(desk_of, stores)
    heard = answering(other)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert one.ask(PDF, 40).by == "once"
    assert len(heard) == 1
    for desk in (one, other):
        desk.close()


def test_a_process_of_another_machine_is_never_taken_for_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, pid, started = process_mark().split(" ")
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert has_ended(f"{machine} {gone.pid} {started}")
    clone = machine.rpartition("/")[0] + "/another-name"
    assert not has_ended(f"{clone} {gone.pid} {started}")
    assert not has_ended(f"{clone} {pid} 1")
    assert os.uname().nodename in machine


def test_without_the_server_a_question_is_refused_in_time(own_postgres: Server) -> None:
    with closing(Database(own_postgres.url("postgres"), patience=0.3)) as database:
        desk = desk_of(PostgresStore(database))
        assert desk.ask(PDF, 40).by == "nobody"
        own_postgres.stop()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            desk.ask(PDF, 40)
        desk.close()


def test_a_server_that_goes_while_a_question_waits_ends_the_question(own_postgres: Server) -> None:
    """After the timeout it is refused, with the reason; it does not hang."""
    url = own_postgres.url("postgres")
    with closing(Database(url, patience=0.3)) as first, closing(Database(url)) as second:
        one, other = desk_of(PostgresStore(first)), desk_of(PostgresStore(second))
        seen = threading.Event()
        other.listen(lambda pending: seen.set())
        raised: list[BaseException] = []

        def ask() -> None:
            try:
                one.ask(PDF, 3)
            except StoreUnavailable as error:
                raised.append(error)

        asker = threading.Thread(target=ask)
        asker.start()
        assert seen.wait(150)
        own_postgres.stop()
        asker.join(150)
        assert len(raised) == 1
        own_postgres.start()
        for desk in (one, other):
            desk.close()


ASKS = """
import sys
from skillbelt.permission.gate import Gate
from skillbelt.permission.rules import Request
from skillbelt.settings import load_settings
from skillbelt.store import open_store
settings = load_settings(sys.argv[1])
gate = Gate(settings, lambda: open_store(settings))
place = sys.argv[1] + "/.agents/skills/pdf"
request = Request("run", ("ls",), ("ls",), summary="run ls", skill="pdf", hash="h1", origin=place)
print(gate.check(request).by, flush=True)
gate.close()
"""


def machine(tree: Tree, name: str, url: str, **more: str) -> tuple[Path, dict[str, str]]:
    """A checkout and the environment of a machine that shares only the database."""
    home = tree.path(f"{name}/home")
    home.mkdir(parents=True)
    checkout = tree.git(f"{name}/src/shop")
    environment = {
        **os.environ,
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "SKILLBELT_STORE": url,
        "SKILLBELT_PROJECT_NAME": NAME,
        **more,
    }
    return checkout, environment


def test_two_machines_ask_and_answer_with_the_commands(tree: Tree, postgres_url: str) -> None:
    """`permissions watch` and `permissions answer` on one, a runtime that asks on the other."""
    there, theirs = machine(tree, "b", postgres_url)
    here, ours = machine(tree, "a", postgres_url)
    where = ["--project", str(there)]
    command = [sys.executable, "-m", "skillbelt", "permissions"]
    watcher = warm.Popen[str](
        [*command, "watch", "--json", *where], env=theirs, stdout=subprocess.PIPE, text=True
    )
    with closing(PostgresStore(postgres_url)) as store:
        shared = SharedRequests(store, NAME)
        until(shared.elsewhere)
    asker = warm.Popen[str](
        [sys.executable, "-c", ASKS, str(here)], env=ours, stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdout
    request = json.loads(watcher.stdout.readline())
    assert (request["origin"], request["summary"]) == ("project:.agents/skills/pdf", "run ls")
    answer = warm.Popen[str](
        [*command, "answer", request["id"], "always", *where],
        env=theirs,
        stdout=subprocess.PIPE,
        text=True,
    )
    answer.communicate(timeout=500)
    assert answer.returncode == 0
    assert asker.communicate(timeout=500)[0] == "always\n"
    watcher.kill()
    watcher.communicate()
    # On the machine that answered, the same is now allowed without a question.
    again = warm.Popen[str](
        [sys.executable, "-c", ASKS, str(there)], env=theirs, stdout=subprocess.PIPE, text=True
    )
    assert again.communicate(timeout=500)[0] == "remembered\n"


def test_a_folder_without_a_name_is_one_of_its_user_and_machine(
    tree: Tree, postgres_url: str
) -> None:
    """Every container has an `/app`: an answer for one does not count for another."""
    settings = tree.settings(store=postgres_url)
    with closing(PostgresStore(postgres_url)) as store:
        gate = Gate(settings, lambda: store)
        assert gate.project_key.endswith(f"@{os.uname().nodename}:{settings.project}")
        assert Gate(settings._replace(project_name=NAME), lambda: store).project_key == NAME
        gate.ledger.remember(PDF)
        assert store.state(SessionKey(APP, settings.project, "ledger")) == {}
