"""The JSON API of `serve http`: requests become operations, operations become responses.

A server holds no state of a conversation: the next request may go to another server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import parse_qsl

import anyio
from anyio import to_thread
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skillbelt.errors import ConfigError, SkillbeltError, StoreUnavailable
from skillbelt.integrations.common import follow
from skillbelt.permission.gate import ASKER
from skillbelt.permission.waiting import NotAnswered, Pending
from skillbelt.running.following import Watch
from skillbelt.runtime.runtime import Runtime
from skillbelt.runtime.threads import MAX_PARALLEL_CALLS
from skillbelt.sandbox.protocol import Stream
from skillbelt.serving.answers import HttpAnswer, HttpRefusal
from skillbelt.serving.endpoints import (
    ENDPOINTS,
    TENANT,
    ApiRequest,
    Download,
    Endpoint,
    Schema,
    check_room,
    describe_pending,
)
from skillbelt.serving.guard import HOLDER, guarded
from skillbelt.serving.listening import serve_app
from skillbelt.serving.openapi import USER_HEADER, describe_api
from skillbelt.serving.probes import Probes
from skillbelt.serving.relay import Relay
from skillbelt.serving.relayed_runs import RelayedRuns
from skillbelt.serving.tokens import Holder, TokenBook, check_name, choose_user
from skillbelt.tracing import CARRIED, extract, span
from skillbelt.untrusted_json import BadJson, read_json

logger = logging.getLogger(__name__)
# The bounds on the body of a JSON request, and of one that uploads an artifact.
MAX_JSON_BODY_BYTES = 4 * 2**20
MAX_UPLOAD_BYTES = 2**30
# Parallel uploads that are too large for memory: they are buffered on disk.
MAX_LARGE_UPLOADS = 16
# How often a client gets a sign of life from a silent run.
KEEP_ALIVE_SECONDS = 15.0
DEFAULT_USER = "http"
CALL = "http_call"  # in the metadata of a permission request: the request that it belongs to
_IN_MEMORY_BYTES = 2**20
_CHUNK = 2**18
_EVENTS = "text/event-stream"
_NAME_OF_TYPE: Mapping[str, type | tuple[type, ...]] = {
    "string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list,
    "object": dict, "null": type(None),
}  # fmt: skip


class HttpApi:
    """The application behind the guard; `close` refuses new calls and cancels running ones."""

    def __init__(
        self, belt: Runtime, tokens: TokenBook, endpoints: Sequence[Endpoint] = ENDPOINTS
    ) -> None:
        """Let permission questions wait if one of the `tokens` may answer them."""
        self._belt, self._tokens, self._endpoints = belt, tokens, endpoints
        self._patterns = [(one.pattern, one) for one in endpoints]
        self._seats = Seats(MAX_PARALLEL_CALLS)
        self._large = Seats(MAX_LARGE_UPLOADS)
        self._limiter: anyio.CapacityLimiter | None = None
        self._calls: dict[str, Callable[[Pending], None]] = {}
        self._left: set[str] = set()  # calls whose client disconnected while their threads work
        self._running: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        # If no one can answer, a permission question is refused at once.
        listen = belt.gate.desk.listen if tokens.answers else lambda _callback: lambda: None
        self._stop_listening = listen(self._tell_client)
        self.relay = Relay(lambda: belt.store)
        RelayedRuns(belt, self.relay)

    def close(self) -> None:
        """Cancel every call; each client gets a response."""
        self._stop_listening()
        self._seats.close()
        self.relay.close()
        loop = self._loop
        if loop is not None and not loop.is_closed():
            for task in list(self._running):
                loop.call_soon_threadsafe(task.cancel)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        self._loop = asyncio.get_running_loop()
        answer, headers = HttpAnswer(send), Headers(scope=scope)
        carried = {name: headers[name] for name in CARRIED if name in headers}
        with extract(carried):
            try:
                await self._serve(scope, receive, answer, headers)
            except (SkillbeltError, BadJson) as error:
                await answer.error(_refuse(error))
            except Exception as error:
                logger.exception("a request failed")
                await answer.error(error)

    async def _serve(
        self, scope: Scope, receive: Receive, answer: HttpAnswer, headers: Headers
    ) -> None:
        if scope["path"] == "/v1/openapi.json" and scope["method"] == "GET":
            return await answer.document(describe_api(self._endpoints))
        endpoint, found = self._find(scope["method"], scope["path"])
        route = {"http.request.method": endpoint.method, "http.route": endpoint.path}
        with span("serve", f"{endpoint.method} {endpoint.path}", **route) as traced:
            holder = scope[HOLDER]
            user = _user_of(holder, headers)
            request = ApiRequest(
                belt=self._belt,
                holder=holder,
                user=user,
                path=found,
                query=_read_query(endpoint, scope["query_string"]),
                body={},
                mime=headers.get("content-type", "application/octet-stream"),
            )
            async with _read_body(endpoint, request, headers, receive, self._large) as request:
                streams = endpoint.streams and _EVENTS in headers.get("accept", "")
                await self._answer(endpoint, request, receive, answer, streams=streams)
            traced.set(**{"http.response.status_code": answer.status})

    def _find(self, method: str, path: str) -> tuple[Endpoint, Mapping[str, str]]:
        known = False
        for pattern, endpoint in self._patterns:
            if found := pattern.fullmatch(path):
                known = True
                if endpoint.method == method:
                    names = found.groupdict()
                    if "session" in names:
                        check_name(names["session"], "the session")
                    return endpoint, names
        if known:
            raise HttpRefusal("method_not_allowed", f"{method} is not possible here")
        raise HttpRefusal("not_found", "there is nothing at this address; see /v1/openapi.json")

    async def _answer(
        self,
        endpoint: Endpoint,
        request: ApiRequest,
        receive: Receive,
        answer: HttpAnswer,
        *,
        streams: bool,
    ) -> None:
        """Do the work and send its result; a client that disconnects cancels it."""
        seat = self._seats.take(_owner_of(request))
        task = asyncio.ensure_future(
            self._run_endpoint(endpoint, request, answer, seat, streams=streams)
        )
        self._running.add(task)
        leaving = asyncio.ensure_future(_wait_until_gone(receive))
        try:
            await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
            await _settle(task, closing=self._seats.closed)
        finally:
            leaving.cancel()
            self._running.discard(task)
            if not task.done():
                task.cancel()
            seat.leave(unless_used=True)

    async def _run_endpoint(
        self,
        endpoint: Endpoint,
        request: ApiRequest,
        answer: HttpAnswer,
        seat: Seat,
        *,
        streams: bool,
    ) -> None:
        id = os.urandom(8).hex()
        asked = {TENANT: [request.holder.app, request.user], CALL: id}

        def work(watch: Watch) -> Coroutine[Any, Any, object]:
            def handle() -> object:
                ASKER.set(asked)  # in this thread's own copy of the context
                try:
                    with seat.use():
                        return endpoint.handle(request._replace(watch=watch))
                finally:
                    self._left.discard(id)

            return to_thread.run_sync(handle, limiter=self._threads(), abandon_on_cancel=True)

        try:
            if not streams:
                return await _send_result(answer, await follow(work, None))
            return await self._stream(id, work, answer)
        except asyncio.CancelledError:
            self._withdraw_questions(id, seat)
            raise

    def _withdraw_questions(self, id: str, seat: Seat) -> None:
        """Withdraw the questions of a call whose client disconnected.

        An answer would let nothing run.
        """
        self._left.add(id)
        if not seat.in_use:
            self._left.discard(id)
            return

        def withdraw() -> None:
            self._belt.gate.desk.withdraw(lambda request: request.metadata.get(CALL) == id)

        # In a thread, since it may write to the store.
        threading.Thread(target=withdraw, name="skillbelt-left", daemon=True).start()

    async def _stream(
        self, id: str, work: Callable[[Watch], Coroutine[Any, Any, object]], answer: HttpAnswer
    ) -> None:
        """Do the work; send its output and its questions as events, then its result."""
        await answer.start_events()
        loop = asyncio.get_running_loop()

        def tell(stream: Stream, text: str) -> Coroutine[Any, Any, None]:
            return answer.event("output", {"stream": stream, "text": text})

        def ask(pending: Pending) -> None:
            event = answer.event("permission", describe_pending(pending))
            asyncio.run_coroutine_threadsafe(event, loop)

        self._calls[id] = ask
        alive = asyncio.ensure_future(answer.keep_alive(KEEP_ALIVE_SECONDS))
        try:
            result = await follow(work, tell)
            await answer.event("result", result)
            await answer.piece(b"", last=True)
        finally:
            alive.cancel()
            self._calls.pop(id, None)

    def _threads(self) -> anyio.CapacityLimiter:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(MAX_PARALLEL_CALLS)
        return self._limiter

    def _tell_client(self, pending: Pending) -> None:
        """Send the question to the client of its call, if it reads events.

        NotAnswered if none may answer.
        """
        facts, call = pending.request.metadata, str(pending.request.metadata.get(CALL))
        if not self._tokens.may_answer(facts.get(TENANT), pending.request.type):
            raise NotAnswered("no token of this server answers this")
        if call in self._left:
            self._belt.gate.desk.withdraw(lambda request: request.metadata.get(CALL) == call)
        elif send := self._calls.get(call):
            send(pending)


class Seats:
    """Limits the calls that run at once; one user gets at most half of the free seats."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._taken: Counter[str] = Counter()
        self.closed = False

    def close(self) -> None:
        """Admit no more calls."""
        self.closed = True

    def take(self, owner: str) -> Seat:
        """Return a seat; HttpRefusal when none is free."""
        with self._lock:
            if self.closed:
                raise HttpRefusal("shutting_down", "the server is shutting down; try again")
            free = self._most - self._taken.total()
            if free <= 0 or self._taken[owner] > free:
                raise HttpRefusal("busy", "too many calls at once; try again later")
            self._taken[owner] += 1
        return Seat(self, owner)

    def give_back(self, owner: str) -> None:
        """Free a seat."""
        with self._lock:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]


class Seat:
    """A place for one call. It is taken until its thread ends, even if the client disconnected."""

    def __init__(self, seats: Seats, owner: str) -> None:
        self._seats, self._owner = seats, owner
        self._lock = threading.Lock()
        self._used = self._left = False

    @property
    def in_use(self) -> bool:
        """Whether a thread holds it."""
        with self._lock:
            return self._used and not self._left

    @contextmanager
    def use(self) -> Iterator[None]:
        """Hold it in a block, in the thread of the call."""
        with self._lock:
            self._used = True
        try:
            yield
        finally:
            self.leave()

    def leave(self, *, unless_used: bool = False) -> None:
        """Release it, once; a thread that uses it does so itself."""
        with self._lock:
            if self._left or (unless_used and self._used):
                return
            self._left = True
        self._seats.give_back(self._owner)


async def _settle(task: asyncio.Task[None], *, closing: bool) -> None:
    """Wait for a call that may have been cancelled; during shutdown, respond to it."""
    try:
        await task
    except asyncio.CancelledError:
        if closing:
            raise HttpRefusal("shutting_down", "the server is shutting down") from None


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_result(answer: HttpAnswer, result: object) -> None:
    if not isinstance(result, Download):
        return await answer.document(result)
    with result.file as file:
        await answer.start(200, result.mime, {**result.headers, "content-length": str(result.size)})
        while data := await to_thread.run_sync(file.read, _CHUNK):
            await answer.piece(data)
        await answer.piece(b"", last=True)


# Reading a request


def _refuse(error: Exception) -> Exception:
    if isinstance(error, BadJson):
        return HttpRefusal("wrong_arguments", f"the body {error}")
    down = isinstance(error, StoreUnavailable)
    if down or (isinstance(error, ConfigError) and _is_outage(error.__cause__)):
        # The address and the message of the store are only for the log.
        logger.warning("a request failed: %s", error)
        return HttpRefusal("not_ready", "the store does not answer; try again later")
    return error


def _is_outage(cause: BaseException | None) -> bool:
    """Whether a file or a database failed, rather than the request being wrong."""
    room = type(cause).__module__.partition(".")[0]
    return isinstance(cause, OSError) or room in ("sqlite3", "psycopg", "psycopg_pool")


def _user_of(holder: Holder, headers: Headers) -> str:
    try:
        return choose_user(holder, headers.getlist(USER_HEADER), DEFAULT_USER)
    except ConfigError as error:
        raise HttpRefusal("forbidden", str(error)) from error


@asynccontextmanager
async def _read_body(
    endpoint: Endpoint, request: ApiRequest, headers: Headers, receive: Receive, large: Seats
) -> AsyncIterator[ApiRequest]:
    """Yield the request with the JSON of its body, or with a file of its upload.

    A body that is too large, or more than the user may upload, is refused as soon as that is known.
    So is a large upload while there are too many.
    """
    most = room = MAX_UPLOAD_BYTES if endpoint.uploads else MAX_JSON_BODY_BYTES
    size = headers.get("content-length", "0")
    if not size.isdecimal() or int(size) > most:
        raise HttpRefusal("too_large", f"a body has at most {most} bytes")
    if endpoint.uploads:
        room = await to_thread.run_sync(check_room, request, int(size))
    with SpooledTemporaryFile(_IN_MEMORY_BYTES) as file, ExitStack() as stack:
        more, length, before = True, 0, 0
        while more:
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                raise HttpRefusal("config", "the request broke off")
            data = message.get("body", b"")
            more, before, length = message.get("more_body", False), length, length + len(data)
            if length > most:
                raise HttpRefusal("too_large", f"a body has at most {most} bytes")
            if length > room:
                room = await to_thread.run_sync(check_room, request, length)
            if endpoint.uploads and before <= _IN_MEMORY_BYTES < length:
                stack.callback(large.take(_owner_of(request)).leave)
            await to_thread.run_sync(file.write, data) if endpoint.uploads else file.write(data)
        file.seek(0)
        if endpoint.uploads:
            yield request._replace(upload=cast(BinaryIO, file))
        else:
            yield request._replace(body=_parse_body(endpoint, file.read()))


def _owner_of(request: ApiRequest) -> str:
    """Return the owner of seats: one user of an app."""
    return f"{request.holder.app}/{request.user}"


def _parse_body(endpoint: Endpoint, data: bytes) -> Mapping[str, Any]:
    if endpoint.body is None:
        return {}
    given = read_json(data, most=MAX_JSON_BODY_BYTES)
    check_fields(given, endpoint.body, "the body")
    return cast(Mapping[str, Any], given)


def _read_query(endpoint: Endpoint, text: bytes) -> Mapping[str, str]:
    pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True)
    given = dict(pairs)
    if len(given) != len(pairs):
        raise HttpRefusal("wrong_arguments", "each parameter may be given once")
    for name, value in given.items():
        schema = endpoint.query.get(name)
        if schema is None:
            known = ", ".join(endpoint.query) or "none"
            raise HttpRefusal(
                "wrong_arguments", f"unknown parameter {name[:80]!r}; there are: {known}"
            )
        if schema["type"] == "integer" and not re.fullmatch("[0-9]{1,15}", value):
            raise HttpRefusal("wrong_arguments", f"{name} takes a whole number")
        if value not in schema.get("enum", (value,)):
            raise HttpRefusal("wrong_arguments", f"{name} takes one of {', '.join(schema['enum'])}")
    return given


def check_fields(given: object, schema: Schema, what: str) -> None:
    """Check an object against its schema; HttpRefusal names the field that is wrong."""
    if not isinstance(given, dict):
        raise HttpRefusal("wrong_arguments", f"{what} must be an object")
    fields = schema["properties"]
    for name in schema["required"]:
        if name not in given:
            raise HttpRefusal("wrong_arguments", f"{what} lacks {name!r}")
    for name, value in given.items():
        if name not in fields:
            raise HttpRefusal("wrong_arguments", f"{what} has an unknown field {name[:80]!r}")
        _check_type(value, fields[name], f"{what}: {name}")


def _check_type(value: object, schema: Schema, what: str) -> None:
    named = schema.get("type", ())
    types = (named,) if isinstance(named, str) else tuple(named)
    fits = [
        isinstance(value, _NAME_OF_TYPE[one]) and (not isinstance(value, bool) or one == "boolean")
        for one in types
    ]
    if types and not any(fits):
        raise HttpRefusal("wrong_arguments", f"{what} must be {' or '.join(types)}")
    if "enum" in schema and value not in schema["enum"]:
        raise HttpRefusal("wrong_arguments", f"{what} must be one of {', '.join(schema['enum'])}")


async def serve_api(
    belt: Runtime,
    listening: socket.socket,
    host: str,
    tokens: TokenBook,
    *,
    origins: Sequence[str] = (),
    hosts: Sequence[str] = (),
    ready: Callable[[], None] = lambda: None,
    endpoints: Sequence[Endpoint] = ENDPOINTS,
    beside: Callable[[ASGIApp], ClosableApp] | None = None,
) -> None:
    """Serve the API until a signal arrives, then end everything that runs. Calls `ready` first.

    `beside` gets the API and returns an application for the requests that the API does not handle.
    """
    api, port = HttpApi(belt, tokens, endpoints), listening.getsockname()[1]
    app = guarded(
        Probes(api, belt, "http"), tokens=tokens, host=host, port=port, origins=origins, hosts=hosts
    )
    whole = beside(app) if beside is not None else None

    def close() -> None:
        if whole is not None:
            whole.close()
        api.close()

    await serve_app(whole or app, listening, close=close, ready=ready)


class ClosableApp(Protocol):
    """An application that can end its running work."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

    def close(self) -> None:
        """End the running work."""
