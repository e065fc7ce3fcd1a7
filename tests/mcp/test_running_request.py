"""One request in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from skillbelt.mcp.requests import REQUEST_ID, Question, RunningRequest
from skillbelt.permission.gate import ASKER
from skillbelt.permission.rules import Answer, Request
from skillbelt.permission.waiting_store import Pending
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
    made: RunningRequest[Any] = start(
        lambda _: [made.ask(PENDING, seconds) for _ in range(times)], can_ask=can_ask
    )
    return made


async def wait_for_end(request: RunningRequest[Any]) -> None:
    while not request.result.done():
        await request.wait()


async def wait_for_question(request: RunningRequest[Any]) -> Question:
    while (question := request.next_question()) is None:
        await request.wait()
    return question


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
    await made.wait()
    assert ended == [made]


async def test_the_context_of_its_thread_carries_its_id() -> None:
    one, two = start(lambda _: ASKER.get()), start(lambda _: ASKER.get())
    for each in (one, two):
        await wait_for_end(each)
    assert one.result.result() == {REQUEST_ID: one.id}
    assert one.id != two.id
    assert dict(ASKER.get()) == {}


async def test_output_is_read_once() -> None:
    more = threading.Event()

    def operation(watch: Watch) -> None:
        assert watch.listener is not None
        watch.listener("stdout", b"a\xc3")
        watch.listener("stderr", b"\xa4b")
        more.wait()
        watch.listener("stdout", b"c")

    running = start(operation)
    await running.wait()
    while running._total < 4:
        await anyio.sleep(0.01)
    assert running.read_output() == (4, "a\u00e4b")
    assert running.read_output() == (4, "")
    more.set()
    await wait_for_end(running)
    assert running.read_output() == (5, "c")


async def test_unread_output_is_bounded() -> None:
    def operation(watch: Watch) -> None:
        assert watch.listener is not None
        for _ in range(100):
            watch.listener("stdout", b"x" * 10_000)

    running = start(operation)
    await wait_for_end(running)
    total, text = running.read_output()
    assert total == 1_000_000
    assert text.startswith("[934464 bytes left out]\n")
    assert len(text) < 70_000


async def test_cancelling_kills_the_command_now_or_when_it_starts() -> None:
    go, commands = threading.Event(), [Command(), Command()]

    def operation(watch: Watch) -> None:
        assert watch.started is not None
        watch.started(commands[0])  # type: ignore[arg-type]
        go.wait()
        watch.started(commands[1])  # type: ignore[arg-type]

    running = start(operation)
    while running._running is None:
        await anyio.sleep(0.01)
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
