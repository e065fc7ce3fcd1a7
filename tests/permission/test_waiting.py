from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing

import pytest

from skillbelt.errors import ConfigError
from skillbelt.events import Event, NewEvent
from skillbelt.permission.remembered import APP, RememberedAnswers
from skillbelt.permission.rules import Answer, Request
from skillbelt.permission.waiting import NotAnswered, Pending, Settled, WaitingRequests
from skillbelt.store.memory import MemoryStore
from skillbelt.store.protocol import NO_CHANGE, SessionKey
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


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    until(lambda: not ours())


@pytest.fixture
def ledger() -> RememberedAnswers:
    return RememberedAnswers(MemoryStore(), "/p")


@pytest.fixture
def desk(ledger: RememberedAnswers) -> Iterator[WaitingRequests]:
    with closing(WaitingRequests(ledger)) as desk:
        yield desk


@pytest.fixture
def listener(desk: WaitingRequests) -> Listener:
    return Listener(desk)


def waiting(desk: WaitingRequests, listener: Listener, *requests: Request) -> list[Future[Settled]]:
    """Ask for each request in turn, and wait until it is published."""
    futures = []
    for request in requests:
        futures.append(asked(desk, request))
        listener.next()
    return futures


def test_once_settles_one_request_and_the_next_asks_again(
    desk: WaitingRequests, listener: Listener
) -> None:
    """Case 87."""
    first = asked(desk, PDF)
    assert desk.answer(listener.next().id, ONCE)
    assert result(first) == Settled(ONCE, "once")
    second = asked(desk, PDF)
    listener.next()
    assert not second.done()


def test_once_leaves_others_waiting(desk: WaitingRequests, listener: Listener) -> None:
    first, second = waiting(desk, listener, PDF, PDF)
    desk.answer(desk.pending()[0].id, ONCE)
    assert result(first) == Settled(ONCE, "once")
    assert len(desk.pending()) == 1 and not second.done()


def test_always_is_remembered_before_the_asker_goes_on(
    desk: WaitingRequests, listener: Listener, ledger: RememberedAnswers
) -> None:
    """Case 87."""
    known: list[object] = []

    def ask() -> None:
        desk.ask(PDF)
        known.append(ledger.covering(PDF))

    asker = threading.Thread(target=ask)
    asker.start()
    desk.answer(listener.next().id, ALWAYS)
    asker.join(HANG_SECONDS)
    [entry] = ledger.all()
    assert known == [entry]
    assert entry.by == "ada"


def test_always_settles_what_waits_and_is_covered(
    desk: WaitingRequests, listener: Listener
) -> None:
    """Case 87."""
    futures = waiting(desk, listener, PDF, PDF._replace(session="s2", agent="other"))
    desk.answer(desk.pending()[0].id, ALWAYS)
    assert [result(one) for one in futures] == [Settled(ALWAYS, "always")] * 2


@pytest.mark.parametrize(
    "change",
    [
        {"type": "run"},
        {"skill": "docx"},
        {"hash": "h2"},
        {"origin": "url:https://example.test"},
        {"always": ("pdf", "docx")},
        {"always": (), "patterns": ("docx",)},
        {"always": (), "patterns": ()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_always_leaves_what_it_does_not_cover(
    desk: WaitingRequests, listener: Listener, change: dict[str, object]
) -> None:
    other = PDF._replace(**change)  # type: ignore[arg-type]
    first, second = waiting(desk, listener, PDF, other)
    desk.answer(desk.pending()[0].id, ALWAYS)
    result(first)
    assert [one.request for one in desk.pending()] == [other]
    assert not second.done()


def test_always_for_a_skill_of_unknown_content_settles_only_itself(
    desk: WaitingRequests, listener: Listener
) -> None:
    unknown = PDF._replace(hash="")
    first, second = waiting(desk, listener, unknown, unknown)
    desk.answer(desk.pending()[0].id, ALWAYS)
    assert result(first).by == "always"
    assert not second.done()


def test_always_settles_what_is_covered_together_with_earlier_answers(
    desk: WaitingRequests, listener: Listener, ledger: RememberedAnswers
) -> None:
    ledger.remember(PDF._replace(always=("docx",)))
    futures = waiting(desk, listener, PDF, PDF._replace(always=("pdf", "docx")))
    desk.answer(desk.pending()[0].id, ALWAYS)
    assert [result(one).by for one in futures] == ["always", "always"]


def test_always_settles_what_is_covered_without_a_ledger() -> None:
    with closing(WaitingRequests()) as desk:
        futures = waiting(desk, Listener(desk), PDF, PDF)
        desk.answer(desk.pending()[0].id, ALWAYS)
        assert [result(one).by for one in futures] == ["always", "always"]


def test_what_was_remembered_while_it_was_on_its_way_is_not_asked_for(
    desk: WaitingRequests, listener: Listener, ledger: RememberedAnswers
) -> None:
    ledger.remember(PDF, "ada")
    assert desk.ask(PDF) == Settled(Answer("always", by="ada"), "always")
    assert listener.told.empty()


def test_reject_rejects_all_that_waits_in_the_session(
    desk: WaitingRequests, listener: Listener
) -> None:
    """Case 87."""
    run = PDF._replace(type="run", skill="docx")
    futures = waiting(desk, listener, PDF, run, PDF._replace(session="s2"))
    desk.answer(desk.pending()[0].id, REJECT)
    assert [result(one) for one in futures[:2]] == [Settled(REJECT, "rejected")] * 2
    assert [one.request.session for one in desk.pending()] == ["s2"]
    assert not futures[2].done()


def test_reject_without_a_session_rejects_only_itself(
    desk: WaitingRequests, listener: Listener
) -> None:
    first, second = waiting(desk, listener, PDF._replace(session=""), PDF._replace(session=""))
    desk.answer(desk.pending()[0].id, REJECT)
    assert result(first).by == "rejected"
    assert not second.done()


def test_nothing_is_remembered_of_once_and_reject(
    desk: WaitingRequests, listener: Listener, ledger: RememberedAnswers
) -> None:
    for answer in (ONCE, REJECT):
        future = asked(desk, PDF)
        desk.answer(listener.next().id, answer)
        result(future)
    assert ledger.all() == []


def test_the_first_answer_counts(desk: WaitingRequests, listener: Listener) -> None:
    future = asked(desk, PDF)
    pending = listener.next()
    assert desk.answer(pending.id, ONCE)
    assert not desk.answer(pending.id, REJECT)
    assert result(future) == Settled(ONCE, "once")


def test_an_answer_to_what_nobody_asked_is_told_so(desk: WaitingRequests) -> None:
    assert not desk.answer("", ONCE)
    assert not desk.answer("0123456789abcdef", ALWAYS)


def test_of_many_answers_at_once_exactly_one_counts(
    desk: WaitingRequests, listener: Listener
) -> None:
    future = asked(desk, PDF)
    pending = listener.next()
    begin = threading.Barrier(8)
    counted: list[str] = []

    def answer(name: str) -> None:
        begin.wait(HANG_SECONDS)
        if desk.answer(pending.id, Answer("once", name)):
            counted.append(name)

    threads = [threading.Thread(target=answer, args=[str(number)]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    settled = result(future)
    assert settled.answer and counted == [settled.answer.message]


def test_the_time_out_denies_and_leaves_nothing(desk: WaitingRequests, listener: Listener) -> None:
    assert desk.ask(PDF, timeout_seconds=0.05) == Settled(None, "timeout")
    assert desk.pending() == []
    assert not desk.answer(listener.next().id, ONCE)


def test_a_desk_has_a_time_out_of_its_own() -> None:
    with closing(WaitingRequests(timeout_seconds=0.05)) as desk:
        Listener(desk)
        assert desk.ask(PDF).by == "timeout"


@pytest.mark.parametrize("seconds", [-1.0, 0.0])
def test_no_time_at_all_is_a_time_out(
    desk: WaitingRequests, listener: Listener, seconds: float
) -> None:
    assert desk.ask(PDF, seconds).by == "timeout"


def test_a_wait_may_be_without_end(desk: WaitingRequests, listener: Listener) -> None:
    future = asked(desk, PDF, float("inf"))
    desk.answer(listener.next().id, ONCE)
    assert result(future).by == "once"


def test_nobody_listening_settles_at_once(desk: WaitingRequests) -> None:
    assert desk.ask(PDF) == Settled(None, "nobody")
    assert desk.pending() == []


def test_closing_rejects_all_that_waits(desk: WaitingRequests, listener: Listener) -> None:
    """Case 90."""
    futures = waiting(desk, listener, PDF, PDF._replace(session="s2"))
    ids = [one.id for one in desk.pending()]
    desk.close()
    assert [result(one) for one in futures] == [Settled(None, "disposed")] * 2
    assert desk.pending() == []
    assert not any(desk.answer(id, ONCE) for id in ids)


def test_a_closed_desk_refuses_at_once(desk: WaitingRequests, listener: Listener) -> None:
    desk.close()
    desk.close()
    assert desk.ask(PDF) == Settled(None, "disposed")
    Listener(desk).end()
    assert desk.ask(PDF) == Settled(None, "disposed")


def test_a_request_of_a_type_nobody_knows_is_published(
    desk: WaitingRequests, listener: Listener
) -> None:
    future = asked(desk, PDF._replace(type="teleport"))
    pending = listener.next()
    assert pending.request.type == "teleport"
    desk.answer(pending.id, ONCE)
    assert result(future).by == "once"


def test_what_is_published_is_what_waits() -> None:
    with closing(WaitingRequests(project="/p")) as desk:
        listener = Listener(desk)
        asked(desk, PDF)
        pending = listener.next()
        assert desk.pending() == [pending]
        assert pending.request is PDF
        assert pending.project == "/p"


def test_every_listener_is_told(desk: WaitingRequests, listener: Listener) -> None:
    other = Listener(desk)
    asked(desk, PDF)
    assert listener.next() == other.next()


def test_a_listener_is_told_of_what_waits_already(
    desk: WaitingRequests, listener: Listener
) -> None:
    asked(desk, PDF)
    assert listener.next() == Listener(desk).next()


def test_who_has_ended_is_told_nothing(desk: WaitingRequests, listener: Listener) -> None:
    other = Listener(desk)
    other.end()
    other.end()
    future = asked(desk, PDF)
    desk.answer(listener.next().id, ONCE)
    assert result(future).by == "once"
    assert other.told.empty()


def test_when_the_last_listener_ends_nobody_is_left(
    desk: WaitingRequests, listener: Listener
) -> None:
    other = Listener(desk)
    [future] = waiting(desk, listener, PDF)
    other.end()
    assert desk.pending()
    listener.end()
    assert result(future) == Settled(None, "nobody")


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_a_listener_that_raises_has_not_taken_the_request(
    desk: WaitingRequests, error: type[BaseException]
) -> None:
    def fail(_: Pending) -> None:
        raise error("no")

    desk.listen(fail)
    assert desk.ask(PDF) == Settled(None, "nobody")
    assert desk.pending() == []


def test_a_listener_that_raises_does_not_stop_the_others(
    desk: WaitingRequests, listener: Listener
) -> None:
    raised = threading.Event()

    def fail(_: Pending) -> None:
        raised.set()
        raise RuntimeError("no")

    desk.listen(fail)
    future = asked(desk, PDF)
    pending = listener.next()
    assert raised.wait(HANG_SECONDS)
    until(lambda: len(ours()) == 0)
    assert desk.answer(pending.id, ONCE)
    assert result(future).by == "once"


def test_a_listener_that_blocks_does_not_keep_the_asker(
    desk: WaitingRequests, listener: Listener
) -> None:
    free = threading.Event()
    desk.listen(lambda _: free.wait(HANG_SECONDS))
    future = asked(desk, PDF)
    desk.answer(listener.next().id, ONCE)
    assert result(future).by == "once"
    assert not free.is_set()
    free.set()


def test_a_listener_may_answer_itself(desk: WaitingRequests) -> None:
    desk.listen(lambda pending: desk.answer(pending.id, ALWAYS))
    assert desk.ask(PDF) == Settled(ALWAYS, "always")


def test_a_listener_may_ask_and_close(desk: WaitingRequests) -> None:
    inner: list[Settled] = []

    def told(pending: Pending) -> None:
        if pending.request == PDF:
            inner.append(desk.ask(PDF._replace(skill="docx"), 0.05))
            desk.close()

    desk.listen(told)
    assert desk.ask(PDF) == Settled(None, "disposed")
    assert inner == [Settled(None, "timeout")]


def test_pending_requests_come_oldest_first(desk: WaitingRequests, listener: Listener) -> None:
    names = ["c", "a", "b"]
    waiting(desk, listener, *(PDF._replace(skill=name) for name in names))
    assert [one.request.skill for one in desk.pending()] == names


class FullStore(MemoryStore):
    """A store that has no space left."""

    def append(
        self,
        key: SessionKey,
        events: Sequence[NewEvent],
        delta: Mapping[str, str | None] = NO_CHANGE,
        *,
        lease: str = "",
    ) -> list[Event]:
        raise ConfigError("the disk is full")


def test_an_always_that_can_not_be_written_down_counts_for_now_and_says_so() -> None:
    with closing(WaitingRequests(RememberedAnswers(FullStore(), "/p"))) as desk:
        listener = Listener(desk)
        future = asked(desk, PDF)
        with pytest.raises(ConfigError, match="full"):
            desk.answer(listener.next().id, ALWAYS)
        assert result(future) == Settled(ALWAYS, "always")


class HookedStore(MemoryStore):
    """A store that calls a hook before it reads or writes."""

    def __init__(self) -> None:
        super().__init__()
        self.before_read: Callable[[], object] = bool
        self.before_write: Callable[[], object] = bool

    def state(self, key: SessionKey) -> dict[str, str]:
        self.before_read()
        return super().state(key)

    def append(
        self,
        key: SessionKey,
        events: Sequence[NewEvent],
        delta: Mapping[str, str | None] = NO_CHANGE,
        *,
        lease: str = "",
    ) -> list[Event]:
        self.before_write()
        return super().append(key, events, delta, lease=lease)


def test_an_answer_that_is_being_remembered_was_first() -> None:
    """Neither another answer nor the timeout comes between."""
    store = HookedStore()
    writing, written = threading.Event(), threading.Event()

    def write() -> None:
        writing.set()
        written.wait(HANG_SECONDS)

    store.before_write = write
    with closing(WaitingRequests(RememberedAnswers(store, "/p"))) as desk:
        listener = Listener(desk)
        future = asked(desk, PDF, timeout_seconds=0.5)
        id = listener.next().id
        threading.Thread(target=desk.answer, args=[id, ALWAYS]).start()
        assert writing.wait(HANG_SECONDS)
        assert not desk.answer(id, REJECT)
        with pytest.raises(TimeoutError):
            future.result(1.0)
        written.set()
        assert result(future) == Settled(ALWAYS, "always")


def test_who_ends_before_a_request_is_published_is_not_told() -> None:
    store = HookedStore()
    with closing(WaitingRequests(RememberedAnswers(store, "/p"))) as desk:
        listener = Listener(desk)
        store.before_read = listener.end
        assert desk.ask(PDF) == Settled(None, "nobody")
        until(lambda: not ours())
        assert listener.told.empty()


def test_a_store_that_can_not_be_written_to_is_no_reason_not_to_listen_here() -> None:
    with closing(WaitingRequests(store=FullStore(), project="/p")) as desk:
        listener = Listener(desk)
        future = asked(desk, PDF)
        desk.answer(listener.next().id, ONCE)
        assert result(future).by == "once"


def test_an_answer_of_no_known_kind_changes_nothing(
    desk: WaitingRequests, listener: Listener
) -> None:
    future = asked(desk, PDF)
    pending = listener.next()
    with pytest.raises(ConfigError):
        desk.answer(pending.id, Answer("maybe"))  # type: ignore[arg-type]
    assert desk.answer(pending.id, ONCE)
    assert result(future).by == "once"


def test_nothing_of_a_request_is_written_to_the_store_that_is_answered_at_once() -> None:
    store = MemoryStore()
    with closing(WaitingRequests(store=store, project="/p")) as desk:
        desk.listen(lambda pending: desk.answer(pending.id, ONCE), elsewhere=False)
        assert desk.ask(PDF).by == "once"
        assert store.sessions(APP) == []


@pytest.mark.parametrize("elsewhere", [True, False])
def test_what_waits_for_a_listener_here_is_seen_and_answered_elsewhere(elsewhere: bool) -> None:
    store = MemoryStore()
    here, there = (
        WaitingRequests(store=store, project="/p"),
        WaitingRequests(store=store, project="/p"),
    )
    with closing(here), closing(there):
        here.listen(lambda _: None, elsewhere=elsewhere)
        future = asked(here, PDF)
        until(there.pending)
        [pending] = there.pending()
        assert pending.request == PDF
        assert there.answer(pending.id, ONCE)
        assert result(future).by == "once"
        assert there.pending() == []


def test_a_wrong_answer_of_a_callback_reaches_the_one_who_asks(desk: WaitingRequests) -> None:
    desk.listen(lambda pending: desk.answer(pending.id, Answer("yes")))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="kind must be one of"):
        result(asked(desk, PDF))


def test_who_listens_here_alone_is_not_asked_by_others() -> None:
    store = MemoryStore()
    here, there = (
        WaitingRequests(store=store, project="/p"),
        WaitingRequests(store=store, project="/p"),
    )
    with closing(here), closing(there):
        here.listen(lambda pending: here.answer(pending.id, ONCE) and None, elsewhere=False)
        assert here.ask(PDF) == Settled(ONCE, "once")
        assert there.ask(PDF).by == "nobody"


def test_a_mistake_in_a_callback_is_logged_with_its_traceback(
    desk: WaitingRequests, caplog: pytest.LogCaptureFixture
) -> None:
    desk.listen(lambda pending: pending.reqest)  # type: ignore[attr-defined]
    assert result(asked(desk, PDF)).by == "nobody"
    until(lambda: not ours())
    [record] = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], AttributeError)


def test_a_callback_that_declines_is_not_logged(
    desk: WaitingRequests, caplog: pytest.LogCaptureFixture
) -> None:
    def decline(_pending: Pending) -> None:
        raise NotAnswered("not mine")

    desk.listen(decline)
    assert result(asked(desk, PDF)).by == "nobody"
    assert not caplog.records
