"""One request in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from skillbelt.mcp.requests import REQUEST_ID, ProgressOutput, Question, RunningRequest
from skillbelt.permission.gate import ASKER
from skillbelt.permission.rules import Answer, Request
from skillbelt.permission.waiting import Pending
from skillbelt.running.following import Watch

pytestmark = pytest.mark.anyio
PENDING = Pending("1", Request("run", ("ls",)), 0.0)


def start(operation: Callable[[Watch], Any], can_ask: bool = True) -> RunningRequest[Any]:
    made: RunningRequest[Any] = RunningRequest(
        operation, "chat", can_ask=can_ask, on_end=lambda _: None
    )
    made.start()
    return made


def start_asking(seconds: float = 10, times: int = 1, can_ask: bool = True) -> RunningRequest[Any]:
    """An operation that asks, and returns the answers."""
    made: RunningRequest[Any] = RunningRequest(
        lambda _: [made.ask(PENDING, seconds) for _ in range(times)],
        "chat",
        can_ask=can_ask,
        on_end=lambda _: None,
    )
    made.start()
    return made


async def wait_for_end(request: RunningRequest[Any]) -> None:
    while await request.next() is not None:
        pass


async def wait_for_question(request: RunningRequest[Any]) -> Question:
    while not isinstance(event := await request.next(), Question):
        assert event is not None
    return event


async def test_what_does_not_end_in_time_is_answered_all_the_same() -> None:
    proceed = threading.Event()
    request = start(lambda _: proceed.wait())
    request.give_up()
    await wait_for_end(request)
    with pytest.raises(MCPError, match="the server is shutting down"):
        request.result.result(0)
    proceed.set()
    request.join(150)


class Command:
    """A command that runs until it is killed."""

    def __init__(self) -> None:
        self.killed = threading.Event()

    def kill(self) -> None:
        self.killed.set()


async def test_the_result_or_the_error_is_there_at_the_end() -> None:
    good, bad = start(lambda _: 7), start(lambda _: 1 / 0)
    await wait_for_end(good)
    assert good.result.result() == 7
    await wait_for_end(bad)
    with pytest.raises(ZeroDivisionError):
        bad.result.result()


async def test_the_place_is_free_before_the_result_is_seen() -> None:
    ended: list[RunningRequest[Any]] = []
    made: RunningRequest[Any] = RunningRequest(
        lambda _: None, "chat", can_ask=False, on_end=ended.append
    )
    made.start()
    await made.next()
    assert ended == [made]


async def test_the_context_of_its_thread_carries_its_id() -> None:
    one, two = start(lambda _: ASKER.get()), start(lambda _: ASKER.get())
    for each in (one, two):
        await wait_for_end(each)
    assert one.result.result() == {REQUEST_ID: one.id}
    assert one.id != two.id
    assert dict(ASKER.get()) == {}


async def test_output_that_waits_is_one_event() -> None:
    said, more = threading.Event(), threading.Event()

    def operation(watch: Watch) -> None:
        assert watch.listener is not None
        watch.listener("stdout", b"a\xc3")
        watch.listener("stderr", b"b")
        watch.listener("stdout", b"\xa4")
        said.set()
        more.wait()
        watch.listener("stdout", b"c")

    running = start(operation)
    await anyio.to_thread.run_sync(said.wait)
    assert await running.next() == ProgressOutput("ab\u00e4", 4)
    more.set()
    assert await running.next() == ProgressOutput("c", 5)
    assert await running.next() is None


async def test_unread_output_is_bounded() -> None:
    said, more = threading.Event(), threading.Event()

    def operation(watch: Watch) -> None:
        assert watch.listener is not None
        for _ in range(100):
            watch.listener("stdout", b"x" * 10_000)
        said.set()
        more.wait()
        watch.listener("stdout", b"later")

    running = start(operation)
    await anyio.to_thread.run_sync(said.wait)
    note = "[940000 bytes left out]\n"
    assert await running.next() == ProgressOutput("x" * 60_000 + note, 1_000_000)
    more.set()
    assert await running.next() == ProgressOutput("later", 1_000_005)


async def test_cancelling_kills_the_command_now_or_when_it_starts() -> None:
    begun, go, commands = threading.Event(), threading.Event(), [Command(), Command()]

    def operation(watch: Watch) -> None:
        assert watch.started is not None
        watch.started(commands[0])  # type: ignore[arg-type]
        begun.set()
        go.wait()
        watch.started(commands[1])  # type: ignore[arg-type]

    running = start(operation)
    await anyio.to_thread.run_sync(begun.wait)
    running.cancel()
    assert commands[0].killed.is_set()
    go.set()
    await wait_for_end(running)
    assert commands[1].killed.is_set()


async def test_the_first_answer_counts() -> None:
    running = start_asking()
    question = await wait_for_question(running)
    assert question.pending == PENDING
    question.settle(Answer("once"))
    question.settle(Answer("reject"))
    await wait_for_end(running)
    assert running.result.result() == [Answer("once")]


async def test_no_answer_without_a_form_after_cancelling_or_after_the_timeout() -> None:
    silent, late = start_asking(can_ask=False), start_asking(0.01)
    cancelled = start_asking(times=2)
    await wait_for_question(cancelled)
    cancelled.cancel()
    for each in (silent, late, cancelled):
        await wait_for_end(each)
    results = [each.result.result() for each in (silent, late, cancelled)]
    assert results == [[None], [None], [None, None]]
