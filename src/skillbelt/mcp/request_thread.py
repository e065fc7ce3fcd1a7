"""One request at work in a thread of its own, and what it has to say to the loop meanwhile."""

from __future__ import annotations

import asyncio
import codecs
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import Generic, NamedTuple, TypeVar

from skillbelt.permission.gate import ASKER
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import Pending
from skillbelt.running.following import Watch
from skillbelt.sandbox.protocol import Running, Stream

MARK = "mcp_call"
_MAX_OUTPUT_BYTES = 64 * 2**10  # that wait for a client which reads slowly
T = TypeVar("T")


class Output(NamedTuple):
    """More was said by what runs; `Work.said` gives it."""


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
    """A job on its way. `events` is read in the loop; all else may be called from any thread."""

    def __init__(
        self, job: Job[T], owner: str, *, can_ask: bool, ended: Callable[[Work[T]], None]
    ) -> None:
        """`owner` is the conversation it is for; `can_ask` says whether anybody there can be asked.

        `ended` is called in its thread.
        """
        self.mark, self.owner, self.can_ask = os.urandom(16).hex(), owner, can_ask
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._job, self._ended = job, ended
        self._result: T | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._questions: list[Future[Answer | None]] = []
        self._running: Running | None = None
        self._cancelled = False
        self._waiting = bytearray()
        self._total, self._missed = 0, 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
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
        with self._lock:
            self._cancelled = True
            running = self._running
        self._ask_no_more()
        if running is not None:
            running.kill()

    def _ask_no_more(self) -> None:
        with self._lock:
            questions, self._questions = self._questions, []
        for reply in questions:
            _settle(reply, None)

    def ask(self, pending: Pending, seconds: float) -> Answer | None:
        """What the client says; blocks. None when it can not be asked or said nothing in time."""
        reply: Future[Answer | None] = Future()
        with self._lock:
            if self._cancelled or not self.can_ask:
                return None
            self._questions.append(reply)
        self._post(Question(pending, reply))
        try:
            return reply.result(seconds)
        except TimeoutError:
            return None

    def said(self) -> tuple[int, str]:
        """How many bytes came in all, and what was said since the last time."""
        with self._lock:
            data, missed = bytes(self._waiting), self._missed
            self._waiting.clear()
            self._missed = 0
            left_out = f"[{missed} bytes left out]\n" if missed else ""
            return self._total, left_out + self._decode(data)

    # In its thread

    def _carry(self) -> None:
        try:
            self._result = self._job(Watch(self._listen, self._note_start))
        except BaseException as error:
            self._error = error
        finally:
            self._post(Done())
            self._ask_no_more()
            self._ended(self)

    def _note_start(self, running: Running) -> None:
        with self._lock:
            self._running = running
            unwanted = self._cancelled
        if unwanted:
            running.kill()

    def _listen(self, _stream: Stream, data: bytes) -> None:
        with self._lock:
            quiet = not self._waiting
            self._total += len(data)
            self._waiting += data
            over = len(self._waiting) - _MAX_OUTPUT_BYTES
            if over > 0:
                del self._waiting[:over]
                self._missed += over
        if quiet and data:
            self._post(Output())

    def _post(self, event: Event) -> None:
        # The loop may have ended first; then nobody is left to be told.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.events.put_nowait, event)


def _settle(reply: Future[Answer | None], answer: Answer | None) -> None:
    if not reply.done():
        reply.set_result(answer)


def reply_to(question: Question, answer: Answer | None) -> None:
    """Give whoever asked the answer, unless it has one."""
    _settle(question.reply, answer)
