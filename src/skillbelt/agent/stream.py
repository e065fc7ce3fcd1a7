"""The stream of events from a run to its caller; events come from the loop and from threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Protocol

from anyio import CancelScope

from skillbelt.agent.events import AgentEvent, RunOutput
from skillbelt.values import Limits


class EventSink(Protocol):
    """A receiver of events."""

    async def send(self, event: AgentEvent) -> None:
        """Take an event; wait while the stream is full."""

    def send_threadsafe(self, event: AgentEvent) -> None:
        """Take an event from any thread without waiting."""


class EventStream:
    """Events between a run and its caller; the run waits when too many are unread.

    Output above its limit is dropped; the result of the run has its beginning anyway.
    """

    def __init__(self, limits: Limits) -> None:
        self._max_events = max(limits.max_unread_events, 1)
        self._max_bytes = limits.max_unread_bytes
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        self._taken = asyncio.Event()
        self._lock, self._unread_bytes = threading.Lock(), 0

    async def send(self, event: AgentEvent) -> None:
        """Take an event; wait while the stream is full."""
        while self._events.qsize() >= self._max_events:
            self._taken.clear()
            await self._taken.wait()
        self._events.put_nowait(event)

    def send_threadsafe(self, event: AgentEvent) -> None:
        """Take an event from any thread without waiting; drop output above the limit."""
        if isinstance(event, RunOutput):
            with self._lock:
                if self._unread_bytes + len(event.data) > self._max_bytes:
                    return
                self._unread_bytes += len(event.data)
        with suppress(RuntimeError):  # the loop is closed: there is no caller any more
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def end(self) -> None:
        """Mark the end of the stream."""
        self._events.put_nowait(None)

    async def next(self) -> AgentEvent | None:
        """Return the next event; None at the end."""
        event = await self._events.get()
        self._taken.set()
        if isinstance(event, RunOutput):
            with self._lock:
                self._unread_bytes -= len(event.data)
        return event


async def wait_shielded(
    tasks: Sequence[asyncio.Future[None]], seconds: float | None = None
) -> None:
    """Wait for cancelled tasks, even when this task is cancelled meanwhile."""
    with CancelScope(shield=True):
        await asyncio.wait(tasks, timeout=seconds)


def start_task(work: Coroutine[object, object, None]) -> asyncio.Task[None]:
    """Start a task in this loop."""
    return asyncio.get_running_loop().create_task(work)
