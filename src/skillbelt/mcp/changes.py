"""Clients are told when skills come, go or change, and when files do that they subscribed to."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    EmptyResult,
    NotificationParams,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams,
    ServerNotification,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    ToolListChangedNotification,
    UnsubscribeRequestParams,
)

from skillbelt.discovery.catalog import Changes
from skillbelt.mcp.logs import Logs, message
from skillbelt.mcp.mailbox import Mailbox
from skillbelt.mcp.published import Offer
from skillbelt.mcp.requests import Context
from skillbelt.mcp.resources import unknown
from skillbelt.mcp.sessions import Sessions
from skillbelt.mcp.subscriptions import MOST, Subscriptions
from skillbelt.runtime.runtime import Runtime
from skillbelt.values import Diagnostic

logger = logging.getLogger(__name__)


class Watcher:
    """Watches the catalogue in a thread and tells every client that can be told.

    Clients of the newer protocol listen; those of the older one are told on their connection.
    """

    def __init__(
        self, belt: Runtime, offer: Offer, sessions: Sessions, logs: Logs, most: int
    ) -> None:
        """Of the older clients, the last `most` that came are known."""
        self._belt, self._sessions, self._logs, self._most = belt, sessions, logs, most
        self._subscriptions = Subscriptions(offer)
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus)
        self._connected: OrderedDict[str, Mailbox] = OrderedDict()
        self._problems: Sequence[Diagnostic] = ()
        self._stop = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = [
            threading.Thread(target=target, name="skillbelt-watch", daemon=True)
            for target in (self._watch, self._look)
        ]

    def start(self) -> None:
        """Begin to watch, for as long as the loop runs."""
        self._loop = asyncio.get_running_loop()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop, and end the streams of those who listen."""
        self._stop.set()
        self._listening.close()

    # What clients ask for

    async def connected(self, ctx: Context, _params: NotificationParams) -> None:
        """Note a client of the older protocol that is ready to be told."""
        name, mailbox = self._sessions.name(ctx), Mailbox(ctx.session)
        self._sessions.at_end(ctx, lambda: self._gone(name, mailbox))
        self._gone(name, self._connected.get(name))
        self._connected[name] = mailbox
        while len(self._connected) > self._most:
            self._gone(*next(iter(self._connected.items())))

    def _gone(self, name: str, mailbox: Mailbox | None) -> None:
        if mailbox is not None and self._connected.get(name) is mailbox:
            mailbox.close()
            del self._connected[name]
            self._subscriptions.drop(name)

    async def subscribe(self, ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        """Answer `resources/subscribe`."""
        name, uri = self._sessions.name(ctx), params.uri
        if not await asyncio.to_thread(self._subscriptions.add, name, [uri]):
            raise MCPError(INVALID_PARAMS, f"nobody can subscribe to more than {MOST} resources")
        if not await asyncio.to_thread(self._subscriptions.there, uri):
            self._subscriptions.remove(name, [uri])
            raise unknown(uri, "there is no such resource")
        return EmptyResult()

    async def unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        """Answer `resources/unsubscribe`."""
        self._subscriptions.remove(self._sessions.name(ctx), [params.uri])
        return EmptyResult()

    async def listen(
        self, ctx: Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Answer `subscriptions/listen`, for as long as the client listens."""
        owner = os.urandom(16).hex()
        uris = params.notifications.resource_subscriptions or []
        if not await asyncio.to_thread(self._subscriptions.add, owner, uris):
            raise MCPError(INVALID_PARAMS, f"nobody can subscribe to more than {MOST} resources")
        try:
            return await self._listening(ctx, params)
        finally:
            self._subscriptions.drop(owner)

    # In threads

    def _watch(self) -> None:
        try:
            for changes in self._belt.catalog.watch(self._stop):
                self._soon(self._changed, changes, self._new_problems())
                self._updates()
        except Exception:
            logger.exception("the catalogue is not watched any more")

    def _new_problems(self) -> int:
        known, self._problems = self._problems, self._belt.catalog.problems
        return sum(one not in known for one in self._problems)

    def _look(self) -> None:
        """The catalogue says nothing of a file that lies beside a SKILL.md."""
        while not self._stop.wait(self._belt.settings.watch_seconds):
            try:
                self._updates()
            except Exception:
                logger.exception("what was subscribed to can not be looked at")

    def _updates(self) -> None:
        uris = self._subscriptions.changed()
        if uris:
            self._soon(self._updated, uris)

    def _soon(self, tell: Callable[..., Coroutine[Any, Any, None]], *given: object) -> None:
        loop = self._loop
        assert loop is not None
        try:
            loop.call_soon_threadsafe(self._begin, tell, *given)
        except RuntimeError:  # the loop has ended
            self._stop.set()

    # In the loop

    def _begin(self, tell: Callable[..., Coroutine[Any, Any, None]], *given: object) -> None:
        task = asyncio.ensure_future(tell(*given))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _changed(self, changes: Changes, problems: int) -> None:
        for name, mailbox in self._connected.items():
            mailbox.post(
                [
                    ToolListChangedNotification(),
                    ResourceListChangedNotification(),
                    PromptListChangedNotification(),
                    *self._messages(name, changes, problems),
                ]
            )
        for event in (ToolsListChanged(), ResourcesListChanged(), PromptsListChanged()):
            await self._bus.publish(event)

    def _messages(self, name: str, changes: Changes, problems: int) -> list[ServerNotification]:
        told: list[ServerNotification] = []
        if self._logs.wanted(name, "info"):
            told.append(message("info", _summary(changes)))
        if problems and self._logs.wanted(name, "warning"):
            text = f"{problems} new problems with skills; `skillbelt doctor` shows them"
            told.append(message("warning", text))
        return told

    async def _updated(self, uris: list[str]) -> None:
        for name, mailbox in self._connected.items():
            wanted = self._subscriptions.of(name)
            mailbox.post(_update(uri) for uri in uris if uri in wanted)
        for uri in uris:
            await self._bus.publish(ResourceUpdated(uri=uri))


def _update(uri: str) -> ResourceUpdatedNotification:
    return ResourceUpdatedNotification(params=ResourceUpdatedNotificationParams(uri=uri))


def _summary(changes: Changes) -> str:
    # No names: some of them may not be for this client.
    counts = (len(changes.added), len(changes.changed), len(changes.removed))
    return "the skills changed: {} new, {} changed, {} gone".format(*counts)
