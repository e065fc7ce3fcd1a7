"""One request at work in a thread."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from skillbelt.mcp.request_thread import MARK, Done, Output, Question, Work, reply_to
from skillbelt.permission.gate import ASKER
from skillbelt.permission.rules import Answer, Request
from skillbelt.permission.waiting_store import Pending
from skillbelt.running.following import Watch

pytestmark = pytest.mark.anyio
ASKED = Pending("1", Request("run", ("ls",)), 0.0)


def work(job: Any, can_ask: bool = True) -> Work[Any]:
    made: Work[Any] = Work(job, "chat", can_ask=can_ask, ended=lambda _: None)
    made.start()
    return made


def asking(seconds: float = 10, times: int = 1, can_ask: bool = True) -> Work[Any]:
    """A job that asks, and gives what it was told."""
    made: Work[Any] = Work(
        lambda _: [made.ask(ASKED, seconds) for _ in range(times)],
        "chat",
        can_ask=can_ask,
        ended=lambda _: None,
    )
    made.start()
    return made


class Command:
    """A command that runs until it is killed."""

    def __init__(self) -> None:
        self.killed = threading.Event()

    def kill(self) -> None:
        self.killed.set()


async def test_what_a_job_gives_or_raises_is_there_at_its_end() -> None:
    good, bad = work(lambda _: 7), work(lambda _: 1 / 0)
    assert await good.events.get() == Done()
    assert good.result() == 7
    assert await bad.events.get() == Done()
    with pytest.raises(ZeroDivisionError):
        bad.result()


async def test_whoever_asks_in_its_thread_is_known_by_its_mark() -> None:
    one, two = work(lambda _: ASKER.get()), work(lambda _: ASKER.get())
    for each in (one, two):
        await each.events.get()
    assert one.result() == {MARK: one.mark}
    assert one.mark != two.mark
    assert dict(ASKER.get()) == {}


async def test_output_is_told_once_until_it_is_taken() -> None:
    more = threading.Event()

    def job(watch: Watch) -> None:
        assert watch.listener is not None
        watch.listener("stdout", b"a\xc3")
        watch.listener("stderr", b"\xa4b")
        more.wait()
        watch.listener("stdout", b"c")

    running = work(job)
    assert await running.events.get() == Output()
    while running._total < 4:
        await anyio.sleep(0.01)
    assert running.said() == (4, "a\u00e4b")
    more.set()
    assert await running.events.get() == Output()
    assert running.said() == (5, "c")
    assert await running.events.get() == Done()


async def test_what_nobody_takes_does_not_fill_the_memory() -> None:
    def job(watch: Watch) -> None:
        assert watch.listener is not None
        for _ in range(100):
            watch.listener("stdout", b"x" * 10_000)

    running = work(job)
    while not isinstance(await running.events.get(), Done):
        pass
    total, text = running.said()
    assert total == 1_000_000
    assert text.startswith("[934464 bytes left out]\n")
    assert len(text) < 70_000


async def test_cancelling_ends_what_runs_now_or_starts_later() -> None:
    go, commands = threading.Event(), [Command(), Command()]

    def job(watch: Watch) -> None:
        assert watch.started is not None
        watch.started(commands[0])  # type: ignore[arg-type]
        go.wait()
        watch.started(commands[1])  # type: ignore[arg-type]

    running = work(job)
    while running._running is None:
        await anyio.sleep(0.01)
    running.cancel()
    assert commands[0].killed.is_set()
    go.set()
    await running.events.get()
    assert commands[1].killed.is_set()


async def test_an_answer_reaches_who_asked() -> None:
    running = asking()
    question = await running.events.get()
    assert isinstance(question, Question)
    assert question.pending == ASKED
    reply_to(question, Answer("once"))
    reply_to(question, Answer("reject"))
    await running.events.get()
    assert running.result() == [Answer("once")]


async def test_nobody_answers_who_can_not_ask_or_was_cancelled_or_is_too_late() -> None:
    silent, late, cancelled = asking(can_ask=False), asking(0.01), asking(times=2)
    assert isinstance(await cancelled.events.get(), Question)
    cancelled.cancel()
    for each in (silent, late, cancelled):
        while not isinstance(await each.events.get(), Done):
            pass
    assert (silent.result(), late.result(), cancelled.result()) == ([None], [None], [None, None])
