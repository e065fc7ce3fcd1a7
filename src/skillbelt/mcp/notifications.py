"""Notifications: changed lists, changed resources, and log messages.

Clients of the newer protocol receive changes on a stream they open with `subscriptions/listen`;
those of the older one receive them on their connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, get_args

from mcp.server.session import ServerSession
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
    LOG_LEVEL_META_KEY,
    EmptyResult,
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    NotificationParams,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams,
    ServerNotification,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    ToolListChangedNotification,
    UnsubscribeRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from skillbelt.discovery.catalog import Changes
from skillbelt.mcp.protocol import sendable
from skillbelt.mcp.published import PublishedSkills
from skillbelt.mcp.requests import Context
from skillbelt.mcp.resources import unknown
from skillbelt.mcp.sessions import ServedSessions
from skillbelt.runtime.runtime import Runtime
from skillbelt.text import one_line, shorten
from skillbelt.values import Diagnostic

logger = logging.getLogger(__name__)
LOGGER = "skillbelt"
LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)  # lowest first
MAX_SUBSCRIPTIONS = 1_000  # of one client
MAX_QUEUED = 1_000  # notifications for a client that does not read
_MAX_LOG_CHARS = 500
_TOO_MANY = f"a client can subscribe to at most {MAX_SUBSCRIPTIONS} resources"


class ClientLogs:
    """The log level of each client; without one a client gets no log messages.

    A client of the older protocol sets the level once for its connection. One of the newer protocol
    sends it with each request, and gets the messages of that request only.
    """

    def __init__(self, sessions: ServedSessions) -> None:
        self._sessions = sessions
        self._levels: dict[str, LoggingLevel] = {}

    async def set_level(self, ctx: Context, params: SetLevelRequestParams) -> EmptyResult:
        """Answer `logging/setLevel`."""
        name = self._sessions.name(ctx)
        if name not in self._levels:
            self._sessions.at_end(ctx, lambda: self._levels.pop(name, None))
        self._levels[name] = params.level
        return EmptyResult()

    async def send(self, ctx: Context, level: LoggingLevel, texts: Iterable[str]) -> None:
        """Send log messages about a request to its client, if it wants that level."""
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            wanted = (ctx.meta or {}).get(LOG_LEVEL_META_KEY)
        else:
            wanted = self._levels.get(self._sessions.name(ctx))
        if _includes(wanted, level):
            for text in texts:
                await ctx.session.send_notification(log_message(level, text), ctx.request_id)

    def wants(self, name: str, level: LoggingLevel) -> bool:
        """Whether the connection of that name wants messages of that level."""
        return _includes(self._levels.get(name), level)


def log_message(level: LoggingLevel, text: str) -> LoggingMessageNotification:
    """Return the notification for one log message."""
    data = sendable(shorten(one_line(text), _MAX_LOG_CHARS))
    params = LoggingMessageNotificationParams(level=level, logger=LOGGER, data=data)
    return LoggingMessageNotification(params=params)


def _includes(wanted: object, level: LoggingLevel) -> bool:
    return wanted in LEVELS and LEVELS.index(level) >= LEVELS.index(wanted)


class NotificationQueue:
    """Sends notifications to one client in its own task; duplicates are queued once.

    A client that stopped reading delays no other, and its queue is bounded.
    """

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._queued: dict[str, ServerNotification] = {}
        self._task: asyncio.Task[None] | None = None

    def post(self, notifications: Iterable[ServerNotification]) -> None:
        """Queue notifications; call this in the running loop."""
        for one in notifications:
            if len(self._queued) < MAX_QUEUED:
                self._queued.setdefault(one.model_dump_json(), one)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._send())

    def close(self) -> None:
        """Drop the queue and send nothing more."""
        self._queued.clear()
        if self._task is not None:
            self._task.cancel()

    async def _send(self) -> None:
        while self._queued:
            one = self._queued.pop(next(iter(self._queued)))
            try:
                await self._session.send_notification(one)
            except Exception as error:  # the client disconnected
                logger.debug("a notification was not sent: %r", error)


class Subscriptions:
    """The resources each client subscribed to, and their digests. Thread-safe."""

    def __init__(self, published: PublishedSkills) -> None:
        self._published = published
        self._lock = threading.Lock()
        self._checking = threading.Lock()
        self._owners: dict[str, set[str]] = {}
        self._digests: dict[str, str] = {}

    def add(self, owner: str, uris: Iterable[str]) -> bool:
        """Subscribe the owner; False, and no change, above the limit."""
        wanted = set(uris)
        if len(wanted) > MAX_SUBSCRIPTIONS:
            return False
        now = self._published.digests(wanted - self._digests.keys())
        with self._lock:
            whole = self._owners.get(owner, set()) | wanted
            if len(whole) > MAX_SUBSCRIPTIONS:
                return False
            self._owners[owner] = whole
            self._digests = {**now, **self._digests}
        return True

    def remove(self, owner: str, uris: Iterable[str]) -> None:
        """Unsubscribe the owner from these resources."""
        with self._lock:
            self._owners.get(owner, set()).difference_update(uris)
            self._drop_unused()

    def drop(self, owner: str) -> None:
        """Unsubscribe the owner from everything."""
        with self._lock:
            self._owners.pop(owner, None)
            self._drop_unused()

    def of(self, owner: str) -> frozenset[str]:
        """Return the resources the owner subscribed to."""
        with self._lock:
            return frozenset(self._owners.get(owner, ()))

    def exists(self, uri: str) -> bool:
        """Whether there is a file at the address; known for subscribed addresses."""
        return bool(self._digests.get(uri) or self._published.digests([uri])[uri])

    def changed(self) -> list[str]:
        """Return the addresses whose file appeared, vanished or changed since the last call."""
        with self._checking:
            now = self._published.digests(list(self._digests))
            with self._lock:
                found = [uri for uri, mark in now.items() if self._digests.get(uri, mark) != mark]
                self._digests |= {uri: now[uri] for uri in found}
        return sorted(found)

    def _drop_unused(self) -> None:
        wanted = set().union(*self._owners.values()) if self._owners else set()
        self._digests = {uri: mark for uri, mark in self._digests.items() if uri in wanted}


class ChangeNotifier:
    """Watches the catalogue in threads and notifies every client."""

    def __init__(
        self,
        belt: Runtime,
        published: PublishedSkills,
        sessions: ServedSessions,
        logs: ClientLogs,
        *,
        most: int,
    ) -> None:
        """Start with no clients; of the older protocol, the `most` newest are notified."""
        self._belt, self._sessions, self._logs, self._most = belt, sessions, logs, most
        self._subscriptions = Subscriptions(published)
        self._bus = InMemorySubscriptionBus()
        self._listeners = ListenHandler(self._bus)
        self._clients: OrderedDict[str, NotificationQueue] = OrderedDict()
        self._problems: Sequence[Diagnostic] = ()
        self._stop = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = [
            threading.Thread(target=target, name="skillbelt-watch", daemon=True)
            for target in (self._watch_catalog, self._poll_subscriptions)
        ]

    def start(self) -> None:
        """Start to watch, for as long as the loop runs."""
        self._loop = asyncio.get_running_loop()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop watching, and end the streams of the listeners."""
        self._stop.set()
        self._listeners.close()

    # Requests and notifications of clients

    async def connected(self, ctx: Context, _params: NotificationParams) -> None:
        """Register a client of the older protocol that is ready for notifications."""
        name, queue = self._sessions.name(ctx), NotificationQueue(ctx.session)
        self._sessions.at_end(ctx, lambda: self._disconnect(name, queue))
        self._disconnect(name, self._clients.get(name))
        self._clients[name] = queue
        while len(self._clients) > self._most:
            self._disconnect(*next(iter(self._clients.items())))

    def _disconnect(self, name: str, queue: NotificationQueue | None) -> None:
        if queue is not None and self._clients.get(name) is queue:
            queue.close()
            del self._clients[name]
            self._subscriptions.drop(name)

    async def subscribe(self, ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        """Answer `resources/subscribe`."""
        name, uri = self._sessions.name(ctx), params.uri
        if not await asyncio.to_thread(self._subscriptions.add, name, [uri]):
            raise MCPError(INVALID_PARAMS, _TOO_MANY)
        if not await asyncio.to_thread(self._subscriptions.exists, uri):
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
            raise MCPError(INVALID_PARAMS, _TOO_MANY)
        try:
            return await self._listeners(ctx, params)
        finally:
            self._subscriptions.drop(owner)

    # In threads

    def _watch_catalog(self) -> None:
        try:
            for changes in self._belt.catalog.watch(self._stop):
                self._run_in_loop(self._notify_lists, changes, self._count_new_problems())
                self._check_subscriptions()
        except Exception:
            logger.exception("stopped watching the catalogue")

    def _count_new_problems(self) -> int:
        known, self._problems = self._problems, self._belt.catalog.problems
        return sum(one not in known for one in self._problems)

    def _poll_subscriptions(self) -> None:
        """Poll, because the catalogue reports no change of a file beside SKILL.md."""
        while not self._stop.wait(self._belt.settings.watch_seconds):
            try:
                self._check_subscriptions()
            except Exception:
                logger.exception("cannot check the subscribed resources")

    def _check_subscriptions(self) -> None:
        uris = self._subscriptions.changed()
        if uris:
            self._run_in_loop(self._notify_resources, uris)

    def _run_in_loop(self, notify: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        loop = self._loop
        assert loop is not None
        try:
            loop.call_soon_threadsafe(self._start_task, notify, *args)
        except RuntimeError:  # the loop is closed
            self._stop.set()

    # In the loop

    def _start_task(self, notify: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        task = asyncio.ensure_future(notify(*args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify_lists(self, changes: Changes, problems: int) -> None:
        for name, queue in self._clients.items():
            queue.post(
                [
                    ToolListChangedNotification(),
                    ResourceListChangedNotification(),
                    PromptListChangedNotification(),
                    *self._log_messages(name, changes, problems),
                ]
            )
        for event in (ToolsListChanged(), ResourcesListChanged(), PromptsListChanged()):
            await self._bus.publish(event)

    def _log_messages(self, name: str, changes: Changes, problems: int) -> list[ServerNotification]:
        messages: list[ServerNotification] = []
        if self._logs.wants(name, "info"):
            messages.append(log_message("info", _summarize(changes)))
        if problems and self._logs.wants(name, "warning"):
            text = f"{problems} new problems with skills; `skillbelt doctor` shows them"
            messages.append(log_message("warning", text))
        return messages

    async def _notify_resources(self, uris: list[str]) -> None:
        for name, queue in self._clients.items():
            wanted = self._subscriptions.of(name)
            queue.post(_make_update(uri) for uri in uris if uri in wanted)
        for uri in uris:
            await self._bus.publish(ResourceUpdated(uri=uri))


def _make_update(uri: str) -> ResourceUpdatedNotification:
    return ResourceUpdatedNotification(params=ResourceUpdatedNotificationParams(uri=uri))


def _summarize(changes: Changes) -> str:
    # No names: some of them may not be for this client.
    counts = (len(changes.added), len(changes.changed), len(changes.removed))
    return "the skills changed: {} new, {} changed, {} gone".format(*counts)
