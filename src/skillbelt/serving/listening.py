"""Serve HTTP on a socket: bounded connections, whole requests, and an orderly shutdown.

`serve mcp --http` and `serve http` share it. Both listen on the loopback address by default.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import anyio
import h11
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from skillbelt.files.handles import spare_handles
from skillbelt.integrations.common import MAX_SERVED_SESSIONS
from skillbelt.runtime.threads import MAX_PARALLEL_CALLS
from skillbelt.serving.answers import HttpAnswer, HttpRefusal

# The timeout for receiving a request, so that slow clients do not occupy connections. A long upload
# extends it as long as this many bytes arrive in that time, which takes a line of 280 kbit/s.
REQUEST_TIMEOUT_SECONDS = 30.0
PROGRESS_BYTES = 2**20

BACKLOG = 64  # connections accepted in one go, before any of them is read
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_GRACE_SECONDS = 2
# How long a client may take to read its response when the server shuts down.
_ANSWER_SECONDS = 5.0
_INCOMPLETE = (h11.IDLE, h11.SEND_BODY)
_SHUTTING_DOWN = HttpRefusal("shutting_down", "the server is shutting down")


class _Uvicorn(uvicorn.Server):
    """Leaves signals to `serve_app`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_app(
    app: ASGIApp,
    listening: socket.socket,
    *,
    close: Callable[[], None],
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve the app until a signal arrives.

    Calls `ready` first, and `close` to cancel running calls.
    """
    most = limit_connections(MAX_SERVED_SESSIONS + MAX_PARALLEL_CALLS)
    draining = DrainingApp(app)
    config = uvicorn.Config(
        draining,
        log_config=None,
        # Clients without the token must not be able to write to stderr.
        log_level="error",
        access_log=False,
        server_header=False,
        # The caller is the peer of the connection; no header changes that.
        proxy_headers=False,
        http=timed_protocol(REQUEST_TIMEOUT_SECONDS, most),
        backlog=BACKLOG,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ws="none",
    )
    server = _Uvicorn(config)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_shut_down_on_signal, server, close, draining)
            ready()
            await server.serve([listening])
            group.cancel_scope.cancel()
    finally:
        close()


async def _shut_down_on_signal(
    server: uvicorn.Server, close: Callable[[], None], draining: DrainingApp
) -> None:
    with anyio.open_signal_receiver(*_SIGNALS) as signals:
        async with anyio.create_task_group() as group:
            async for _ in signals:
                if draining.refusing:  # a second signal ends it at once
                    server.force_exit = server.should_exit = True
                    draining.end()
                else:
                    draining.refuse()
                    group.start_soon(shut_down, server, close, draining)


async def shut_down(
    server: uvicorn.Server, close: Callable[[], None], draining: DrainingApp
) -> None:
    """Cancel running calls, let each get its response, and only then close the connections."""
    await anyio.to_thread.run_sync(close)
    with anyio.move_on_after(_ANSWER_SECONDS):
        await draining.wait_until_answered()
    draining.end()
    server.should_exit = True


# Connections: every local process can connect, with a token or without. A request must be complete
# in time, and a connection without a complete request makes room for a new one.


def limit_connections(wanted: int) -> int:
    """Return the number of allowed connections: at most half of the free handles."""
    return max(1, min(wanted, spare_handles() // 2))


def timed_protocol(seconds: float, most: int) -> type[TimedConnection]:
    """Return a protocol class for uvicorn with this timeout and number of connections."""
    return type(
        "TimedConnection", (TimedConnection,), {"seconds": seconds, "most": most, "waiting": {}}
    )


class TimedConnection(H11Protocol):
    """A connection with a timeout for the whole request; only PROGRESS_BYTES of it extend it."""

    seconds: ClassVar[float]
    most: ClassVar[int]
    # Connections without a complete request, the oldest first.
    waiting: ClassVar[dict[TimedConnection, asyncio.TimerHandle]]
    # Bytes of the request since its timer started.
    came = 0

    def connection_made(self, transport: Any) -> None:
        """Start the timer, and drop the oldest waiting connection above the limit."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            next(iter(self.waiting), self)._drop()
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        super().connection_lost(exc)
        self._stop_timer()

    def data_received(self, data: bytes) -> None:
        """Stop the timer once the request is complete."""
        self.came += len(data)
        super().data_received(data)
        self._update_timer()

    def on_response_complete(self) -> None:
        """Start the timer for the next request."""
        super().on_response_complete()
        self._update_timer()

    def _update_timer(self) -> None:
        if self.transport.is_closing() or self.conn.their_state not in _INCOMPLETE:
            self._stop_timer()
        elif self not in self.waiting:
            self._start_timer()

    def _start_timer(self) -> None:
        self.came = 0
        self.waiting[self] = self.loop.call_later(self.seconds, self._check_progress)

    def _check_progress(self) -> None:
        if self.came >= PROGRESS_BYTES:
            self._start_timer()  # and it keeps its place among the waiting ones
        else:
            self._drop()

    def _stop_timer(self) -> None:
        if (timer := self.waiting.pop(self, None)) is not None:
            timer.cancel()

    def _drop(self) -> None:
        self._stop_timer()  # now, or the next connection would drop this one again
        self.transport.abort()


class CompleteRequests:
    """Passes a request on once it is complete; a request that is cut off is dropped."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        """Buffer up to `most` bytes. The app must refuse a longer request."""
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the request, then call the app.

        Return without a response when the client disconnected.
        """
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        received: list[Message] = []
        size, more = 0, True
        while more and size <= self._most:
            received.append(await receive())
            if received[-1]["type"] != "http.request":
                return None
            size += len(received[-1].get("body", b""))
            more = received[-1].get("more_body", False)

        async def replay() -> Message:
            return received.pop(0) if received else await receive()

        # No event is stored for a second delivery, and a client that asks for one would hang.
        headers = [one for one in scope["headers"] if one[0] != b"last-event-id"]
        return await self._app({**scope, "headers": headers}, replay, send)


class DrainingApp:
    """Tracks the requests that wait for a response.

    After `end`, every open request sees its client disconnect, so that it finishes.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.refusing = False
        self._ending = asyncio.Event()
        self._unanswered = 0
        self._answered = asyncio.Event()

    def refuse(self) -> None:
        """Refuse new requests."""
        self.refusing = True

    async def wait_until_answered(self) -> None:
        """Wait for the response to every call that was received completely."""
        while self._unanswered:
            self._answered.clear()
            await self._answered.wait()

    def end(self) -> None:
        """Finish open requests, and refuse new ones."""
        self.refuse()
        self._ending.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; 503 during shutdown."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if self.refusing:
            return await HttpAnswer(send).error(_SHUTTING_DOWN)
        # A stream that a client opened with GET waits for no response.
        state = {"begun": False, "done": False, "gone": False, "call": scope["method"] != "GET"}
        state["received"] = False

        async def track(message: Message) -> None:
            state["begun"] = True
            state["done"] = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        try:
            await self._app(scope, lambda: self._receive(receive, state), track)
        finally:
            if state["received"]:
                self._unanswered -= 1
                self._answered.set()
            if self._ending.is_set() and state["begun"] and not state["done"]:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        if self._ending.is_set() and not state["begun"]:
            await HttpAnswer(send).error(_SHUTTING_DOWN)
        return None

    async def _receive(self, receive: Receive, state: dict[str, bool]) -> Message:
        """Return the next message, or a disconnect during shutdown.

        After a disconnect the answer is immediate: some callers poll with a zero timeout.
        """
        if state["gone"]:
            return {"type": "http.disconnect"}
        coming = asyncio.ensure_future(receive())
        ending = asyncio.ensure_future(self._ending.wait())
        waiting: tuple[asyncio.Future[Any], ...] = (coming, ending)
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            found = coming.result() if coming.done() else {"type": "http.disconnect"}
            state["gone"] = found["type"] == "http.disconnect"
            whole = found["type"] == "http.request" and not found.get("more_body")
            if whole and state["call"] and not state["received"]:
                state["received"] = True
                self._unanswered += 1
            return found
        finally:
            for each in waiting:
                each.cancel()
