from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from skillbelt.permission.remembered import APP, RememberedAnswers
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import Pending, Settled, SharedRequests, WaitingRequests
from skillbelt.store.protocol import SessionKey, Store
from tests.desks import (
    ALWAYS,
    HANG_SECONDS,
    ONCE,
    PDF,
    REJECT,
    Listener,
    asked,
    ours,
    result,
    until,
)

DESK = SessionKey(APP, "/p", "desk")
POLL_SECONDS = 0.02


@pytest.fixture
def store(store: Store) -> Iterator[Store]:
    """A store; after the test, no request is left in it, and no thread."""
    yield store
    until(lambda: not ours())
    assert [info.key for info in store.sessions(APP) if info.key.session.startswith("desk:")] == []
    assert [key for key in store.state(DESK) if not key.startswith("user:")] == []


def desk_on(store: Store, ledger: bool = True) -> WaitingRequests:
    made = RememberedAnswers(store, "/p") if ledger else None
    return WaitingRequests(made, store=store, project="/p", poll_seconds=POLL_SECONDS)


@pytest.fixture
def asker(store: Store) -> Iterator[WaitingRequests]:
    with closing(desk_on(store)) as desk:
        yield desk


@pytest.fixture
def other(store: Store) -> Iterator[WaitingRequests]:
    with closing(desk_on(store)) as desk:
        yield desk


@pytest.fixture
def listener(other: WaitingRequests) -> Listener:
    return Listener(other)


def test_another_desk_is_told_what_is_asked(
    asker: WaitingRequests, other: WaitingRequests, listener: Listener
) -> None:
    future = asked(asker, PDF._replace(metadata={"cwd": "/x"}))
    pending = listener.next()
    assert pending.request == PDF._replace(metadata={"cwd": "/x"})
    assert pending.project == "/p"
    assert asker.pending() == other.pending() == [pending]
    other.answer(pending.id, ONCE)
    result(future)


@pytest.mark.parametrize(
    ("answer", "by"),
    [(ONCE, "once"), (ALWAYS, "always"), (REJECT, "rejected")],
    ids=["once", "always", "reject"],
)
def test_another_desk_answers(
    asker: WaitingRequests, other: WaitingRequests, listener: Listener, answer: Answer, by: str
) -> None:
    future = asked(asker, PDF)
    pending = listener.next()
    assert other.answer(pending.id, answer)
    assert not other.answer(pending.id, ONCE)
    assert result(future) == Settled(answer, by)
    assert asker.pending() == other.pending() == []


def test_always_from_elsewhere_is_remembered_before_the_asker_goes_on(store: Store) -> None:
    ledger = RememberedAnswers(store, "/p")
    with closing(desk_on(store)) as asker, closing(desk_on(store, ledger=False)) as other:
        other.listen(lambda pending: other.answer(pending.id, ALWAYS))
        assert asker.ask(PDF).by == "always"
        assert ledger.covering(PDF)


def test_always_is_remembered_by_who_answers_if_the_asker_has_no_ledger(store: Store) -> None:
    ledger = RememberedAnswers(store, "/p")
    with closing(desk_on(store, ledger=False)) as asker, closing(desk_on(store)) as other:
        other.listen(lambda pending: other.answer(pending.id, ALWAYS))
        assert asker.ask(PDF).by == "always"
        until(lambda: ledger.covering(PDF))


def test_always_settles_what_waits_at_other_desks(
    asker: WaitingRequests, other: WaitingRequests, listener: Listener, store: Store
) -> None:
    with closing(desk_on(store, ledger=False)) as third:
        docx = PDF._replace(skill="docx")
        futures = [asked(asker, PDF), asked(third, PDF), asked(third, docx)]
        told = [listener.next() for _ in futures]
        other.answer(next(one.id for one in told if one.request == PDF), ALWAYS)
        assert [result(one).by for one in futures[:2]] == ["always", "always"]
        assert [one.request for one in other.pending()] == [docx]
        other.answer(other.pending()[0].id, ONCE)
        result(futures[2])


def test_reject_settles_what_waits_at_other_desks(
    asker: WaitingRequests, other: WaitingRequests, listener: Listener, store: Store
) -> None:
    with closing(desk_on(store)) as third:
        futures = [asked(asker, PDF), asked(third, PDF), asked(other, PDF)]
        told = [listener.next() for _ in futures]
        other.answer(told[0].id, REJECT)
        assert [result(one) for one in futures] == [Settled(REJECT, "rejected")] * 3


def test_an_answer_here_settles_what_waits_at_other_desks(
    asker: WaitingRequests, other: WaitingRequests, listener: Listener
) -> None:
    here, there = asked(other, PDF), asked(asker, PDF)
    told = [listener.next(), listener.next()]
    posted = {one.id for one in asker.pending()}
    other.answer(next(one.id for one in told if one.id not in posted), REJECT)
    assert [result(here).by, result(there).by] == ["rejected", "rejected"]


def test_an_answer_from_elsewhere_reaches_what_waits_here(
    asker: WaitingRequests, other: WaitingRequests, listener: Listener
) -> None:
    posted = asked(asker, PDF)
    pending = listener.next()
    here = Listener(asker)
    here.next()
    local = asked(asker, PDF)
    here.next()
    other.answer(pending.id, REJECT)
    assert [result(posted), result(local)] == [Settled(REJECT, "rejected")] * 2


def test_who_does_not_listen_may_answer_too(
    asker: WaitingRequests, listener: Listener, store: Store
) -> None:
    future = asked(asker, PDF)
    listener.next()
    with closing(desk_on(store)) as third:
        [pending] = third.pending()
        assert third.answer(pending.id, ONCE)
    assert result(future).by == "once"


def test_the_asking_desk_itself_may_answer(asker: WaitingRequests, listener: Listener) -> None:
    future = asked(asker, PDF)
    assert asker.answer(listener.next().id, ONCE)
    assert result(future).by == "once"


def test_who_begins_to_listen_at_the_asking_desk_is_told(
    asker: WaitingRequests, listener: Listener
) -> None:
    future = asked(asker, PDF)
    pending = listener.next()
    late = Listener(asker)
    assert late.next() == pending
    listener.end()
    assert asker.answer(pending.id, ONCE)
    assert result(future).by == "once"


def test_who_begins_to_listen_elsewhere_is_told(
    asker: WaitingRequests, other: WaitingRequests, listener: Listener
) -> None:
    future = asked(asker, PDF)
    pending = listener.next()
    assert Listener(other).next() == pending
    other.answer(pending.id, ONCE)
    result(future)


def test_of_two_desks_that_answer_at_once_one_counts(asker: WaitingRequests, store: Store) -> None:
    counted: list[str] = []
    both = threading.Barrier(2)

    def answers(desk: WaitingRequests, name: str) -> None:
        def told(pending: Pending) -> None:
            both.wait(HANG_SECONDS)
            if desk.answer(pending.id, Answer("once", name)):
                counted.append(name)

        desk.listen(told)

    with closing(desk_on(store)) as one, closing(desk_on(store)) as two:
        answers(one, "one")
        answers(two, "two")
        settled = [asker.ask(PDF) for _ in range(10)]
        until(lambda: len(counted) == 10)
    assert [one.answer.message for one in settled if one.answer] == counted


def test_the_time_out_takes_the_request_away(
    asker: WaitingRequests, other: WaitingRequests, listener: Listener
) -> None:
    assert asker.ask(PDF, timeout_seconds=1.0).by == "timeout"
    assert not other.answer(listener.next().id, ONCE)
    assert other.pending() == []


def test_closing_takes_the_request_away(
    asker: WaitingRequests, other: WaitingRequests, listener: Listener
) -> None:
    """Case 90."""
    future = asked(asker, PDF)
    pending = listener.next()
    asker.close()
    assert result(future) == Settled(None, "disposed")
    assert not other.answer(pending.id, ONCE)


def test_closing_where_somebody_listens_does_not_decide_for_others(
    asker: WaitingRequests, other: WaitingRequests, listener: Listener, store: Store
) -> None:
    with closing(desk_on(store)) as third:
        left = Listener(third)
        future = asked(asker, PDF)
        assert listener.next() == left.next()
        other.close()
        assert third.answer(third.pending()[0].id, ONCE)
        assert result(future).by == "once"


def test_when_the_last_who_listened_elsewhere_ends_nobody_is_left(
    asker: WaitingRequests, listener: Listener
) -> None:
    future = asked(asker, PDF)
    listener.next()
    listener.end()
    assert result(future) == Settled(None, "nobody")
    assert asker.ask(PDF) == Settled(None, "nobody")


def test_a_request_that_every_listener_elsewhere_failed_on_is_settled(
    asker: WaitingRequests, other: WaitingRequests
) -> None:
    def fail(_: Pending) -> None:
        raise RuntimeError("no")

    other.listen(fail)
    assert asker.ask(PDF) == Settled(None, "nobody")


def test_a_request_that_every_listener_here_failed_on_is_asked_for_elsewhere(
    asker: WaitingRequests, other: WaitingRequests, listener: Listener
) -> None:
    told: list[Pending] = []

    def fail(pending: Pending) -> None:
        told.append(pending)
        raise RuntimeError("no")

    asker.listen(fail)
    future = asked(asker, PDF)
    pending = listener.next()
    time.sleep(10 * POLL_SECONDS)
    assert told == [pending]
    other.answer(pending.id, ONCE)
    assert result(future).by == "once"


def test_a_request_that_every_listener_here_and_elsewhere_failed_on_is_settled(
    asker: WaitingRequests, other: WaitingRequests
) -> None:
    def fail(_: Pending) -> None:
        raise RuntimeError("no")

    asker.listen(fail)
    other.listen(fail)
    assert asker.ask(PDF) == Settled(None, "nobody")


def test_when_the_last_listener_here_ends_those_elsewhere_are_asked(
    asker: WaitingRequests, other: WaitingRequests, listener: Listener
) -> None:
    here = Listener(asker)
    future = asked(asker, PDF)
    here.next()
    here.end()
    other.answer(listener.next().id, ONCE)
    assert result(future).by == "once"


def test_a_request_that_vanishes_from_the_store_is_settled(
    asker: WaitingRequests, listener: Listener, store: Store
) -> None:
    future = asked(asker, PDF)
    pending = listener.next()
    store.delete(SessionKey(APP, "/p", f"desk:{pending.id}"))
    assert result(future) == Settled(None, "nobody")


def test_what_was_remembered_meanwhile_is_not_asked_for(
    asker: WaitingRequests, listener: Listener, store: Store
) -> None:
    RememberedAnswers(store, "/p").remember(PDF, "ada")
    assert asker.ask(PDF) == Settled(Answer("always", by="ada"), "always")


def test_a_desk_of_another_project_hears_nothing(asker: WaitingRequests, store: Store) -> None:
    with closing(WaitingRequests(store=store, project="/q")) as stranger:
        Listener(stranger)
        assert asker.ask(PDF) == Settled(None, "nobody")


def test_who_listens_says_so_again_and_again(
    other: WaitingRequests, listener: Listener, store: Store
) -> None:
    [first] = store.state(DESK).values()
    until(lambda: list(store.state(DESK).values()) != [first])
    assert SharedRequests(store, "/p").elsewhere()


def test_a_desk_looks_into_the_store_with_one_thread_and_only_while_needed(
    asker: WaitingRequests, other: WaitingRequests
) -> None:
    assert ours() == []
    listeners = [Listener(other), Listener(other)]
    assert ours() == ["skillbelt-waiting"]
    futures = [asked(asker, PDF._replace(skill=str(number))) for number in range(3)]
    told = [listeners[0].next() for _ in futures]
    until(lambda: ours() == ["skillbelt-waiting"] * 2)
    for pending in told:
        other.answer(pending.id, ONCE)
    for future in futures:
        result(future)
    until(lambda: ours() == ["skillbelt-waiting"])
    for listener in listeners:
        listener.end()
    until(lambda: ours() == [])


def test_many_requests_from_elsewhere_are_answered_in_any_order(
    asker: WaitingRequests, other: WaitingRequests, listener: Listener
) -> None:
    futures = {str(n): asked(asker, PDF._replace(skill=str(n), session="")) for n in range(60)}
    told = sorted((listener.next() for _ in futures), key=lambda one: one.id)
    for pending in told:
        assert other.answer(pending.id, Answer("once", pending.request.skill))
    for name, future in futures.items():
        assert result(future).answer == Answer("once", name)


def test_what_a_crashed_asker_left_is_not_published(
    other: WaitingRequests, listener: Listener, store: Store
) -> None:
    SharedRequests(store, "/p").post(Pending("0" * 16, PDF, time.time() - 600, "/p"), -300)
    until(lambda: [info.key for info in store.sessions(APP)] == [DESK])
    assert listener.told.empty()
