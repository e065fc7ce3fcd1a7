"""One request at work in a thread of its own, and what it has to say to the loop meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Generic, NamedTuple, TypeVar

from skillbelt.permission.gate import ASKER
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import Pending
from skillbelt.running.following import Decoder, Follower, LoopQueue, Watch
from skillbelt.sandbox.protocol import Stream

MARK = "mcp_call"
_MAX_OUTPUT_BYTES = 64 * 2**10  # that wait for a client which reads slowly
T = TypeVar("T")


class Output(NamedTuple):
    """More output of what runs; `total` counts the bytes of all of it so far."""

    text: str
    total: int


class Question(NamedTuple):
    """Somebody must be asked before it goes on."""

    pending: Pending
    reply: Future[Answer | None]


class Done(NamedTuple):
    """It has ended; `Work.result` gives what came of it."""


Event = Output | Question | Done
# What a request does, told how to follow and end what it runs.
Job = Callable[[Watch], T]


class Work(Generic[T]):
    """A job on its way. `next` is for the loop; all else may be called from any thread."""

    def __init__(
        self, job: Job[T], owner: str, *, can_ask: bool, ended: Callable[[Work[T]], None]
    ) -> None:
        """`owner` is the conversation it is for; `can_ask` says whether anybody there can be asked.

        `ended` is called in its thread.
        """
        self.mark, self.owner, self.can_ask = os.urandom(16).hex(), owner, can_ask
        self._events: LoopQueue[Event] = LoopQueue(_MAX_OUTPUT_BYTES)
        self._follower = Follower(self._listen)
        self._decoder = Decoder(self._put_output)
        self._job, self._ended = job, ended
        self._result: T | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._questions: list[Future[Answer | None]] = []
        self._total = 0
        # In the context of whoever makes it, but for who asks.
        context = copy_context()
        context.run(ASKER.set, {MARK: self.mark})
        self.thread = threading.Thread(
            target=context.run, args=(self._carry,), name="skillbelt-mcp", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self.thread.start()

    def result(self) -> T:
        """What came of it, once it is done; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def cancel(self) -> None:
        """End what it runs, now or once it starts; nobody is asked for it any more."""
        self._follower.kill()
        self._ask_no_more()

    def _ask_no_more(self) -> None:
        with self._lock:
            questions, self._questions = self._questions, []
        for reply in questions:
            _settle(reply, None)

    def ask(self, pending: Pending, seconds: float) -> Answer | None:
        """What the client says; blocks. None when it can not be asked or said nothing in time."""
        reply: Future[Answer | None] = Future()
        with self._lock:
            if self._follower.killed or not self.can_ask:
                return None
            self._questions.append(reply)
        self._events.put(Question(pending, reply))
        try:
            return reply.result(seconds)
        except TimeoutError:
            return None

    async def next(self) -> Event:
        """Return the next event; output that waits is one event."""
        event = await self._events.next()
        while isinstance(event, Output) and isinstance(self._events.peek(), Output):
            more = await self._events.next()
            assert isinstance(more, Output)
            event = Output(event.text + more.text, more.total)
        if isinstance(event, Output) and (dropped := self._events.take_dropped()):
            event = Output(f"{event.text}[{dropped} bytes left out]\n", self._total)
        return event

    # In its thread

    def _carry(self) -> None:
        try:
            self._result = self._job(self._follower.watch)
        except BaseException as error:
            self._error = error
        finally:
            self._events.put(Done())
            self._ask_no_more()
            self._ended(self)

    def _listen(self, stream: Stream, data: bytes) -> None:
        self._total += len(data)
        self._decoder(stream, data)

    def _put_output(self, _stream: Stream, text: str) -> None:
        self._events.put(Output(text, self._total), len(text.encode()))


def _settle(reply: Future[Answer | None], answer: Answer | None) -> None:
    if not reply.done():
        reply.set_result(answer)


def reply_to(question: Question, answer: Answer | None) -> None:
    """Give whoever asked the answer, unless it has one."""
    _settle(question.reply, answer)
