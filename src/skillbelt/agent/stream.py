"""From a run to whoever follows it: events in their order, from the run itself and from threads."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Protocol

from skillbelt.agent.events import AgentEvent, RunOutput
from skillbelt.running.following import LoopQueue
from skillbelt.values import Limits

# Events that the caller has not taken; then the agent waits.
MAX_UNREAD_EVENTS = 256
# Output of commands that the caller has not taken; more is not streamed.
MAX_UNREAD_BYTES = 2**20


class Listening(Protocol):
    """Whoever is told."""

    async def tell(self, event: AgentEvent) -> None:
        """Take an event, when there is room for it."""

    def emit(self, event: AgentEvent) -> None:
        """Take an event from any thread, at once."""


class Channel:
    """Events on their way to whoever iterates over them; a run waits when too many are unread.

    Output beyond its limit is left out; the result of its run has its beginning anyway.
    """

    def __init__(self, limits: Limits) -> None:
        self._most_events = max(MAX_UNREAD_EVENTS, 1)
        self._queue: LoopQueue[AgentEvent | None] = LoopQueue(MAX_UNREAD_BYTES)
        self._taken = asyncio.Event()

    async def tell(self, event: AgentEvent) -> None:
        """Add an event when there is room for it."""
        while len(self._queue) >= self._most_events:
            self._taken.clear()
            await self._taken.wait()
        self._queue.put(event)

    def emit(self, event: AgentEvent) -> None:
        """Add an event from any thread; output is dropped when there is too much of it."""
        self._queue.put(event, len(event.data) if isinstance(event, RunOutput) else 0)

    def end(self) -> None:
        """Mark the end: no event comes after those so far."""
        self._queue.put(None)

    async def next(self) -> AgentEvent | None:
        """Return the next event; None at the end."""
        event = await self._queue.next()
        self._taken.set()
        return event


async def settled(tasks: Sequence[asyncio.Future[None]], seconds: float | None = None) -> None:
    """Wait for tasks that are being ended, whatever else is cancelled meanwhile."""
    from anyio import CancelScope

    with CancelScope(shield=True):
        await asyncio.wait(tasks, timeout=seconds)


def begun(work: Coroutine[object, object, None]) -> asyncio.Task[None]:
    """The work as a task of this loop."""
    return asyncio.get_running_loop().create_task(work)
