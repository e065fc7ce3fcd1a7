"""Requesters and answerers as separate processes, with one SQLite file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from skillbelt.permission.remembered import APP, RememberedAnswers
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import Pending, Settled, WaitingRequests
from skillbelt.store.protocol import SessionKey
from skillbelt.store.sqlite import SqliteStore
from tests import warm
from tests.desks import ALWAYS, ONCE, PDF, REJECT, Listener, asked, result, until

DESK = SessionKey(APP, "/p", "desk")
ROUNDS = 10
BEGIN = """
import json, sys, threading, time
from skillbelt.permission.waiting import WaitingRequests
from skillbelt.permission.remembered import RememberedAnswers
from skillbelt.permission.rules import Answer, Request
from skillbelt.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
ledger = RememberedAnswers(store, "/p")
desk = WaitingRequests(ledger, store=store, project="/p", poll_seconds=0.05)
PDF = Request("skill", ("pdf",), ("pdf",), skill="pdf", hash="h1", origin="local", session="s1")
def say(*values):
    sys.stdout.write(json.dumps(values) + "\\n")
    sys.stdout.flush()
"""
ASK = "say(*desk.ask(PDF, float(sys.argv[2])), ledger.covering(PDF) is not None)"


class Child:
    """A process with a desk of the project; it is killed if it still runs at the end."""

    def __init__(self, path: Path, code: str, *arguments: str) -> None:
        self.process = warm.Popen[str](
            [sys.executable, "-W", "error", "-c", BEGIN + code, str(path), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def said(self) -> list[object]:
        """Return the next line it printed."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the process ended without a word"
        said: list[object] = json.loads(line)
        return said

    def rest(self) -> list[str]:
        """Let it run to its end; return what it printed."""
        out, _ = self.process.communicate("\n", timeout=500)
        assert self.process.returncode == 0
        return out.splitlines()

    def ended(self) -> int:
        self.process.communicate(timeout=500)
        return self.process.returncode


class Family:
    """The processes of a test, and this one's store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = SqliteStore(str(path))
        self.desk = WaitingRequests(
            RememberedAnswers(self.store, "/p"), store=self.store, project="/p", poll_seconds=0.05
        )
        self.children: list[Child] = []

    def child(self, code: str, *arguments: str) -> Child:
        self.children.append(Child(self.path, code, *arguments))
        return self.children[-1]

    def left(self) -> list[str]:
        """Return the entries of requests and listeners that are left in the store."""
        logs = [info.key.session for info in self.store.sessions(APP)]
        keys = [key for key in self.store.state(DESK) if not key.startswith("user:")]
        return [name for name in logs if name.startswith("desk:")] + keys

    def close(self) -> None:
        self.desk.close()
        for child in self.children:
            child.process.kill()
            child.process.communicate()
        self.store.close()


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    with closing(Family(tmp_path / "state.sqlite3")) as family:
        yield family


@pytest.mark.parametrize(
    ("answer", "by"),
    [(ONCE, "once"), (ALWAYS, "always"), (REJECT, "rejected")],
    ids=["once", "always", "reject"],
)
def test_one_process_asks_and_another_answers(family: Family, answer: Answer, by: str) -> None:
    listener = Listener(family.desk)
    child = family.child(ASK, "50")
    pending = listener.next()
    assert pending.request == PDF
    assert family.desk.answer(pending.id, answer)
    assert child.said() == [list(answer), by, by == "always"]
    assert child.ended() == 0
    listener.end()
    assert family.left() == []


def test_always_settles_what_waits_in_other_processes(family: Family) -> None:
    listener = Listener(family.desk)
    children = [family.child(ASK, "50") for _ in range(3)]
    told = [listener.next() for _ in children]
    assert family.desk.answer(told[0].id, ALWAYS)
    assert [child.said()[1] for child in children] == ["always"] * 3
    assert [child.ended() for child in children] == [0] * 3


def test_reject_settles_what_waits_in_other_processes(family: Family) -> None:
    listener = Listener(family.desk)
    children = [family.child(ASK, "50") for _ in range(3)]
    told = [listener.next() for _ in children]
    assert family.desk.answer(told[0].id, REJECT)
    assert [child.said()[:2] for child in children] == [[list(REJECT), "rejected"]] * 3


def test_a_process_without_anybody_to_ask_is_told_at_once(family: Family) -> None:
    assert family.child(ASK, "50").said() == [None, "nobody", False]


ANSWER = """
def told(pending):
    say(sys.argv[2], desk.answer(pending.id, Answer("once", sys.argv[2])))
end = desk.listen(told)
say("ready", True)
sys.stdin.readline()
end()
for thread in threading.enumerate():
    if thread.name == "skillbelt-listener":
        thread.join()
"""


def test_of_processes_that_answer_at_once_one_counts(family: Family) -> None:
    children = [family.child(ANSWER, name) for name in ("one", "two")]
    assert [child.said() for child in children] == [["ready", True]] * 2
    settled = [family.desk.ask(PDF, 50) for _ in range(ROUNDS)]
    said = [json.loads(line) for child in children for line in child.rest()]
    counted = [name for name, counts in said if counts]
    assert sorted(counted) == sorted(one.answer.message for one in settled if one.answer)
    assert len(counted) == ROUNDS
    assert family.left() == []


LISTEN = """
end = desk.listen(lambda pending: say(pending.id))
say("ready")
sys.stdin.readline()
end()
"""


def test_a_killed_listener_is_missed_after_a_few_seconds(family: Family) -> None:
    """It counts as gone after a few seconds of silence, long before the timeout."""
    child = family.child(LISTEN)
    assert child.said() == ["ready"]
    future = asked(family.desk, PDF, 600)
    [id] = child.said()
    child.process.kill()
    assert result(future) == Settled(None, "nobody")
    assert not family.desk.answer(str(id), ONCE)
    Listener(family.desk).end()
    assert family.left() == []


def test_a_listener_that_ends_is_missed_at_once(family: Family) -> None:
    child = family.child(LISTEN)
    assert child.said() == ["ready"]
    future = asked(family.desk, PDF, 600)
    child.said()
    child.rest()
    assert result(future) == Settled(None, "nobody")
    assert family.left() == []


def test_what_a_killed_asker_left_is_gone_at_once(family: Family) -> None:
    listener = Listener(family.desk)
    child = family.child(ASK, "600")
    pending: Pending = listener.next()
    assert family.desk.pending() == [pending]
    child.process.kill()
    child.process.wait(150)
    assert family.desk.pending() == []
    assert not family.desk.answer(pending.id, ONCE)
    listener.end()
    assert family.left() == []


def test_an_answer_to_a_killed_asker_is_refused(family: Family) -> None:
    child = family.child("desk.listen(lambda _: None)\n" + ASK, "600")
    until(family.desk.pending)
    [pending] = family.desk.pending()
    child.process.kill()
    child.process.wait(150)
    assert family.desk.is_abandoned(pending.id)
    assert not family.desk.answer(pending.id, ONCE)
    assert family.desk.pending() == []
