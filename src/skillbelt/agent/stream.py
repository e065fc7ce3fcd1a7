"""The stream of events from a run to its caller; events come from the loop and from threads."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Protocol

from anyio import CancelScope

from skillbelt.agent.events import AgentEvent, RunOutput
from skillbelt.running.loop_queue import LoopQueue

# Events that the caller has not taken; then the agent waits.
MAX_UNREAD_EVENTS = 256
# Output of commands that the caller has not taken; more is not streamed.
MAX_UNREAD_BYTES = 2**20


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

    def __init__(self) -> None:
        self._max_events = max(MAX_UNREAD_EVENTS, 1)
        self._queue: LoopQueue[AgentEvent | None] = LoopQueue(MAX_UNREAD_BYTES)
        self._taken = asyncio.Event()

    async def send(self, event: AgentEvent) -> None:
        """Add an event; wait while the stream is full."""
        while len(self._queue) >= self._max_events:
            self._taken.clear()
            await self._taken.wait()
        self._queue.put(event)

    def send_threadsafe(self, event: AgentEvent) -> None:
        """Add an event from any thread without waiting; drop output above the limit."""
        self._queue.put(event, len(event.data) if isinstance(event, RunOutput) else 0)

    def end(self) -> None:
        """Mark the end of the stream."""
        self._queue.put(None)

    async def next(self) -> AgentEvent | None:
        """Return the next event; None at the end."""
        event = await self._queue.next()
        self._taken.set()
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
