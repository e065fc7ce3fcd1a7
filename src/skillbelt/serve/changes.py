"""Clients are told when skills come, go or change."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp_types import (
    NotificationParams,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)

from skillbelt.catalog import Changes
from skillbelt.runtime import Runtime
from skillbelt.serve.offer import Offer
from skillbelt.serve.sessions import Sessions

logger = logging.getLogger(__name__)
_TOLD = (
    ToolListChangedNotification,
    ResourceListChangedNotification,
    PromptListChangedNotification,
)


class Watcher:
    """Watches the catalogue in a thread and tells every client that can be told.

    Clients of the newer protocol listen; those of the older one are told on their connection.
    """

    def __init__(self, belt: Runtime, offer: Offer, sessions: Sessions, most: int) -> None:
        """Of the older clients, the last `most` that came are known."""
        self._belt, self._offer, self._sessions, self._most = belt, offer, sessions, most
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        self._connected: OrderedDict[str, ServerSession] = OrderedDict()
        self._stop = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._watch, name="skillbelt-watch", daemon=True)

    async def connected(
        self, ctx: ServerRequestContext[Any, Any], _params: NotificationParams
    ) -> None:
        """Note a client of the older protocol that is ready to be told."""
        name = self._sessions.name(ctx)
        self._connected[name] = ctx.session
        self._connected.move_to_end(name)
        while len(self._connected) > self._most:
            self._connected.popitem(last=False)

    def start(self) -> None:
        """Begin to watch, for as long as the loop runs."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self) -> None:
        """Stop, and end the streams of those who listen."""
        self._stop.set()
        self.listen.close()

    def _watch(self) -> None:
        try:
            for changes in self._belt.catalog.watch(self._stop):
                self._soon(self._tell(changes))
        except Exception:
            logger.exception("the catalogue is not watched any more")

    def _soon(self, told: Coroutine[Any, Any, None]) -> None:
        loop = self._loop
        try:
            assert loop is not None
            loop.call_soon_threadsafe(self._begin, told)
        except RuntimeError:  # the loop has ended
            told.close()

    def _begin(self, told: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(told)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, changes: Changes) -> None:
        for event in (ToolsListChanged(), ResourcesListChanged(), PromptsListChanged()):
            await self._bus.publish(event)
        for name in changes.changed:
            published = await asyncio.to_thread(self._offer.published, name)
            if published is not None:
                await self._bus.publish(ResourceUpdated(uri=published.uri))
        for session in list(self._connected.values()):
            for kind in _TOLD:
                with suppress(Exception):  # a client that has gone is none to be told
                    await session.send_notification(kind())
