from __future__ import annotations

import threading
import time

import pytest

from skillbelt.events import NewEvent
from skillbelt.permission.remembered import APP
from skillbelt.permission.rules import Answer, Request
from skillbelt.permission.waiting import (
    GRACE_SECONDS,
    LEFT_SECONDS,
    NO_LISTENER,
    STALE_SECONDS,
    TIMEOUT,
    Pending,
    Posted,
    Settled,
    SharedRequests,
)
from skillbelt.store.protocol import SessionKey, Store
from tests.desks import HANG_SECONDS

DESK = SessionKey(APP, "/p", "desk")
REQUEST = Request(
    type="run",
    patterns=("git add x", "git rm x"),
    always=("git",),
    summary="wants to run git",
    initiator="user",
    agent="agent",
    session="s1",
    skill="pdf",
    hash="h1",
    origin="local",
    trusted=False,
    metadata={"cwd": "/é", "list": [1, None]},
)
PENDING = Pending("0123456789abcdef", REQUEST, 1.5, "/p")
ONCE = Settled(Answer("once", "fine", "ada"), "once")


@pytest.fixture
def board(store: Store) -> SharedRequests:
    return SharedRequests(store, "/p")


def waiting(board: SharedRequests) -> dict[str, Posted]:
    return board.waiting(board.listing(), {})


def logs(store: Store) -> list[str]:
    return [info.key.session for info in store.sessions(APP) if info.key != DESK]


def test_what_is_posted_is_found_by_others(board: SharedRequests, store: Store) -> None:
    board.post(PENDING, 60)
    other = SharedRequests(store, "/p")
    posted = other.find(PENDING.id)
    assert posted and posted.pending == PENDING
    assert posted.asker == board.id
    assert waiting(other) == {PENDING.id: posted}


def test_another_project_does_not_see_it(board: SharedRequests, store: Store) -> None:
    board.post(PENDING, 60)
    assert waiting(SharedRequests(store, "/q")) == {}
    assert SharedRequests(store, "/q").find(PENDING.id) is None


def test_metadata_that_is_no_json_is_posted_as_text(board: SharedRequests) -> None:
    loop: list[object] = []
    loop.append(loop)
    for odd in ({"a": object}, {"a": float("nan")}, {"a": loop}):
        pending = PENDING._replace(id=str(odd), request=REQUEST._replace(metadata=odd))
        board.post(pending, 60)
        posted = board.find(pending.id)
        assert posted and isinstance(posted.pending.request.metadata["a"], str)


def test_the_first_outcome_counts(board: SharedRequests) -> None:
    board.post(PENDING, 60)
    assert board.outcome(PENDING.id) is None
    assert board.settle(PENDING.id, ONCE)
    assert not board.settle(PENDING.id, TIMEOUT)
    assert board.outcome(PENDING.id) == ONCE


def test_of_many_outcomes_at_once_one_counts(board: SharedRequests) -> None:
    board.post(PENDING, 60)
    begin = threading.Barrier(6)
    won = []

    def settle(name: str) -> None:
        begin.wait(HANG_SECONDS)
        settled = Settled(Answer("reject", name), "rejected")
        if board.settle(PENDING.id, settled):
            won.append(settled)

    threads = [threading.Thread(target=settle, args=[str(number)]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert won == [board.outcome(PENDING.id)]


@pytest.mark.parametrize("by", ["timeout", "nobody", "disposed"])
def test_an_outcome_may_be_no_answer(board: SharedRequests, by: str) -> None:
    board.post(PENDING, 60)
    board.settle(PENDING.id, Settled(None, by))
    assert board.outcome(PENDING.id) == Settled(None, by)


def test_what_is_settled_waits_no_more(board: SharedRequests) -> None:
    board.post(PENDING, 60)
    board.settle(PENDING.id, ONCE)
    assert board.find(PENDING.id) is None
    assert waiting(board) == {}


def test_an_answer_that_comes_too_late_leaves_nothing(board: SharedRequests, store: Store) -> None:
    board.post(PENDING, 60)
    board.remove(PENDING.id)
    assert not board.settle(PENDING.id, ONCE)
    assert logs(store) == []


def test_what_is_past_its_deadline_is_removed_by_whoever_lists_it(
    board: SharedRequests, store: Store
) -> None:
    board.post(PENDING, -GRACE_SECONDS - 1)
    assert waiting(board) == {}
    assert logs(store) == []


def test_a_slow_asker_is_left_a_moment(board: SharedRequests, store: Store) -> None:
    board.post(PENDING, -1)
    assert list(waiting(board)) == [PENDING.id]


def test_what_was_settled_and_never_fetched_is_removed(board: SharedRequests, store: Store) -> None:
    board.post(PENDING, 600)
    board.settle(PENDING.id, ONCE)
    old = {id: info._replace(updated=1.0) for id, info in board.listing().items()}
    assert time.time() > 1.0 + LEFT_SECONDS
    waiting(board)
    assert board.outcome(PENDING.id) == ONCE
    board.waiting(old, {})
    assert logs(store) == []


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"request": None, "time": 1, "deadline": 1, "desk": ""},
        {"request": {}, "time": 1, "deadline": 1, "desk": ""},
        {"request": {**REQUEST._asdict(), "skill": 7}, "time": 1, "deadline": 1e12, "desk": ""},
        {"request": {**REQUEST._asdict(), "patterns": [7]}, "time": 1, "deadline": 9e9, "desk": ""},
        {"request": {**REQUEST._asdict(), "always": 7}, "time": 1, "deadline": 9e9, "desk": ""},
        {"request": {**REQUEST._asdict(), "metadata": 7}, "time": 1, "deadline": 9e9, "desk": ""},
        {"request": REQUEST._asdict(), "time": "soon", "deadline": 9e9, "desk": ""},
    ],
    ids=range(8),
)
def test_what_is_no_request_is_neither_listed_nor_kept(
    board: SharedRequests, store: Store, data: dict[str, object]
) -> None:
    store.append(SessionKey(APP, "/p", "desk:odd"), [NewEvent("asked", data=data)])
    assert board.find("odd") is None
    board.post(PENDING, 60)
    assert list(waiting(board)) == [PENDING.id]
    assert logs(store) == [f"desk:{PENDING.id}"]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"answer": None, "by": "always"},
        {"answer": "always", "by": "always"},
        {"answer": {"kind": "always"}, "by": "always"},
        {"answer": {"kind": "maybe", "message": "", "by": ""}, "by": "always"},
        {"answer": {"kind": ["once"], "message": "", "by": ""}, "by": "once"},
    ],
    ids=range(6),
)
def test_an_outcome_that_can_not_be_read_allows_nothing(
    board: SharedRequests, store: Store, data: dict[str, object]
) -> None:
    board.post(PENDING, 60)
    place = SessionKey(APP, "/p", f"desk:{PENDING.id}")
    store.append(place, [NewEvent("settled", data=data)])
    assert board.outcome(PENDING.id) == NO_LISTENER


def test_who_listens_is_seen_by_others_and_not_by_itself(
    board: SharedRequests, store: Store
) -> None:
    other = SharedRequests(store, "/p")
    assert not other.elsewhere()
    board.beat(True)
    assert other.elsewhere()
    assert not board.elsewhere()
    assert not SharedRequests(store, "/q").elsewhere()


def test_who_no_longer_listens_leaves_nothing(board: SharedRequests, store: Store) -> None:
    board.beat(True)
    board.beat(False)
    assert not SharedRequests(store, "/p").elsewhere()
    assert store.state(DESK) == {}


@pytest.mark.parametrize("value", ["", "now", "nan", "inf", "1.5", "9e9"])
def test_who_was_not_heard_of_lately_does_not_listen(
    board: SharedRequests, store: Store, value: str
) -> None:
    store.append(DESK, [], {"listener:gone": value})
    assert not board.elsewhere()


def test_who_was_not_heard_of_lately_is_forgotten(board: SharedRequests, store: Store) -> None:
    old = repr(time.time() - STALE_SECONDS - 1)
    store.append(DESK, [], {"listener:gone": old, "user:else": "1", "else": "1"})
    board.beat(True)
    assert sorted(store.state(DESK)) == ["else", f"listener:{board.id}", "user:else"]
