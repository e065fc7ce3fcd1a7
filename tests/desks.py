"""Requests, those who ask and those who listen, for the tests of where requests wait."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from skillbelt.permission.rules import Answer, Request
from skillbelt.permission.waiting import Pending, Settled, WaitingRequests

HANG_SECONDS = 500
PDF = Request("skill", ("pdf",), ("pdf",), skill="pdf", hash="h1", origin="local", session="s1")
ONCE, ALWAYS, REJECT = Answer("once"), Answer("always", by="ada"), Answer("reject", "not now")


class Listener:
    """Somebody who is told of requests and keeps them."""

    def __init__(self, desk: WaitingRequests) -> None:
        self.told: queue.SimpleQueue[Pending] = queue.SimpleQueue()
        self.end = desk.listen(self.told.put)

    def next(self) -> Pending:
        return self.told.get(timeout=HANG_SECONDS)


def until(true: Callable[[], object]) -> None:
    """Wait until it is so; a test that hangs fails."""
    end = time.monotonic() + HANG_SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def asked(
    desk: WaitingRequests, request: Request, timeout_seconds: float | None = None
) -> Future[Settled]:
    """What asking gives, from a thread of its own."""
    future: Future[Settled] = Future()

    def ask() -> None:
        try:
            future.set_result(desk.ask(request, timeout_seconds))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return future


def result(future: Future[Settled]) -> Settled:
    return future.result(HANG_SECONDS)


def ours() -> list[str]:
    names = ("skillbelt-waiting", "skillbelt-listener")
    return [one.name for one in threading.enumerate() if one.name.startswith(names)]
