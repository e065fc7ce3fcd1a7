"""From a run to whoever follows it: events in their order, from the run itself and from threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Protocol

from skillbelt.agent.events import AgentEvent, RunOutput
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
        self._most_bytes = MAX_UNREAD_BYTES
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        self._taken = asyncio.Event()
        self._lock, self._ahead = threading.Lock(), 0

    async def tell(self, event: AgentEvent) -> None:
        """Take an event, when there is room for it."""
        while self._events.qsize() >= self._most_events:
            self._taken.clear()
            await self._taken.wait()
        self._events.put_nowait(event)

    def emit(self, event: AgentEvent) -> None:
        """Take an event from any thread; output is left out when there is too much of it."""
        if isinstance(event, RunOutput):
            with self._lock:
                if self._ahead + len(event.data) > self._most_bytes:
                    return
                self._ahead += len(event.data)
        with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def end(self) -> None:
        """Nothing comes after what was told so far."""
        self._events.put_nowait(None)

    async def next(self) -> AgentEvent | None:
        """The next event; None at the end."""
        event = await self._events.get()
        self._taken.set()
        if isinstance(event, RunOutput):
            with self._lock:
                self._ahead -= len(event.data)
        return event


async def settled(tasks: Sequence[asyncio.Future[None]], seconds: float | None = None) -> None:
    """Wait for tasks that are being ended, whatever else is cancelled meanwhile."""
    from anyio import CancelScope

    with CancelScope(shield=True):
        await asyncio.wait(tasks, timeout=seconds)


def begun(work: Coroutine[object, object, None]) -> asyncio.Task[None]:
    """The work as a task of this loop."""
    return asyncio.get_running_loop().create_task(work)
