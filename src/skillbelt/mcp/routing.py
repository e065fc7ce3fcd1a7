"""Let a client's session continue at any server that shares the store.

The SDK keeps sessions in the memory of one server. So the client's handshake is stored too, and a
server that does not know a session repeats the handshake for it. A request about state that only
one server has (a call that waits for an answer of its client) is forwarded to that server.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from anyio import CapacityLimiter, to_thread
from mcp_types import INVALID_PARAMS
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skillbelt.errors import SkillbeltError
from skillbelt.integrations.common import MAX_SERVED_SESSIONS
from skillbelt.mcp.sessions import SESSION
from skillbelt.mcp.stdio import MAX_REQUEST_BYTES
from skillbelt.runtime.threads import MAX_PARALLEL_CALLS
from skillbelt.serving.answers import HttpAnswer, HttpRefusal
from skillbelt.serving.relay import SERVING, Relay
from skillbelt.store import SessionKey, Store
from skillbelt.tracing import CARRIED, extract
from skillbelt.untrusted_json import BadJson, read_json

KIND = "mcp"
_SESSION_HEADER = b"mcp-session-id"
_TOUCH_SECONDS = 3_600.0
_CLIENT = "client"  # in the record of a session: the parameters of the client's handshake
_AT = "at:"  # and the servers that know the session
_RELAYED = "skillbelt.relayed"  # in the scope of a request that came from another server
# The headers that another server needs; the token was checked here.
_PASSED_ON = frozenset(
    (b"accept", b"content-type", b"host", b"mcp-method", b"mcp-name", b"mcp-protocol-version",
     _SESSION_HEADER)
)  # fmt: skip
_ACCEPT = [
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
]


class KeptAnswer(NamedTuple):
    """A response that was collected instead of sent."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class SessionRouting:
    """Forwards a request to the SDK's application, or to the server that has its state."""

    def __init__(self, app: ASGIApp, store: Callable[[], Store], relay: Relay) -> None:
        self._app, self._store, self._relay = app, store, relay
        # The SDK's id of each session here, by the id that its client knows.
        self._known: OrderedDict[str, str] = OrderedDict()
        self._touched: dict[str, float] = {}
        self._adopting: dict[str, asyncio.Lock] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._limiter: CapacityLimiter | None = None
        relay.handle(KIND, self._replay)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        self._loop = asyncio.get_running_loop()
        headers = Headers(scope=scope)
        with extract({name: headers[name] for name in CARRIED if name in headers}):
            try:
                await self._route(scope, receive, send)
            except SkillbeltError as error:
                await HttpAnswer(send).error(error)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, rest = await _read(receive) if scope["method"] == "POST" else (b"", receive)
        message = _parse(body)
        session = Headers(scope=scope).get(_SESSION_HEADER.decode(), "")
        holder = "" if _RELAYED in scope else self._holder_of(message)
        if holder:
            try:
                return await self._pass_on(holder, scope, body, rest, send)
            except HttpRefusal as error:
                if "method" not in message:
                    raise
                # An error of the protocol, which the client can distinguish from a broken
                # connection.
                fault = {"code": INVALID_PARAMS, "message": str(error)}
                answer = {"jsonrpc": "2.0", "id": message.get("id"), "error": fault}
                return await HttpAnswer(send).document(answer)
        if not session:
            return await self._begin(scope, message, rest, send)
        ending = scope["method"] == "DELETE"
        if ending or message.get("method") == "notifications/cancelled":
            await self._notify_others(session, scope, body)
        if ending:
            await self._in_thread(self._store().delete, _session_record(session))
        await self._continue_session(session, scope, _Body(body, rest), send)
        if ending:
            self._known.pop(session, None)
            self._touched.pop(session, None)
        return None

    def _holder_of(self, message: Mapping[str, Any]) -> str:
        """Return the server that waits for this message; empty if any server can handle it."""
        if "method" not in message:
            return self._relay.holder_of(message.get("id"))
        params = message.get("params")
        return self._relay.holder_of(params.get("requestState")) if isinstance(params, dict) else ""

    # Sessions

    async def _begin(
        self, scope: Scope, message: Mapping[str, Any], receive: Receive, send: Send
    ) -> None:
        """Forward a request without a session, and store the session that a handshake begins."""

        async def note(answer: Message) -> None:
            id = _session_of(answer)
            if id and message.get("method") == "initialize":
                delta = {_CLIENT: json.dumps(message.get("params")), _AT + self._relay.id: "1"}
                # Before the client learns its id: its next request may go to another server.
                await self._in_thread(self._store().append, _session_record(id), [], delta)
                self._relay.listen()
                self._remember(id, id)
            await send(answer)

        await self._app(scope, receive, note)

    async def _continue_session(self, session: str, scope: Scope, body: _Body, send: Send) -> None:
        """Forward a request of a session; adopt a session that is unknown here."""
        known = self._known.get(session) or await self._adopt(session, scope)
        if not known:
            return await self._app(scope, body.receive(), send)
        await self._touch(session)
        retry = False

        async def check(answer: Message) -> None:
            nonlocal retry
            # The SDK forgets clients that were silent for long; the conversation still exists.
            retry = retry or (answer.get("status") == 404 and scope["method"] != "DELETE")
            if not retry:
                await send(_rename(answer, known, session))

        await self._app(_with_session(scope, known, session), body.receive(), check)
        if retry:
            self._known.pop(session, None)
            known = await self._adopt(session, scope) or known
            rename = partial(_send_renamed, send, known, session)
            await self._app(_with_session(scope, known, session), body.receive(), rename)
        return None

    async def _adopt(self, session: str, scope: Scope) -> str:
        """Repeat the handshake of a session that began elsewhere; return its id here, or ""."""
        async with self._adopting.setdefault(session, asyncio.Lock()):
            if known := self._known.get(session):
                return known
            place = _session_record(session)
            record = await self._in_thread(self._store().state, place)
            if _CLIENT not in record:
                self._adopting.pop(session, None)
                return ""
            hello = {"jsonrpc": "2.0", "id": "handshake", "method": "initialize"}
            answer = await self._ask(scope, {**hello, "params": read_json(record[_CLIENT])})
            known = dict(answer.headers).get(_SESSION_HEADER, b"").decode("latin-1")
            if answer.status != 200 or not known:
                raise HttpRefusal("busy", "the session cannot go on here; try again later")
            await self._in_thread(self._store().append, place, [], {_AT + self._relay.id: "1"})
            self._relay.listen()
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self._ask(_with_session(scope, known, session), ready)
            self._remember(session, known)
            self._adopting.pop(session, None)
            return known

    async def _ask(self, scope: Scope, message: Mapping[str, Any]) -> KeptAnswer:
        """Send our own message to the SDK's application."""
        kept = [
            one
            for one in scope["headers"]
            if one[0] in (b"host", _SESSION_HEADER, b"mcp-protocol-version")
        ]
        if message["method"] == "initialize":
            kept = [one for one in kept if one[0] == b"host"]
        own = {**scope, "method": "POST", "query_string": b"", "headers": [*kept, *_ACCEPT]}
        return await _collect(self._app, own, json.dumps(message).encode(), lambda: False)

    def _remember(self, session: str, known: str) -> None:
        self._known[session] = known
        self._known.move_to_end(session)
        self._touched[session] = time.monotonic()
        while len(self._known) > MAX_SERVED_SESSIONS:
            gone, _ = self._known.popitem(last=False)
            self._touched.pop(gone, None)

    async def _touch(self, session: str) -> None:
        """Update the time of a session's record, so that it does not expire."""
        if time.monotonic() - self._touched.get(session, 0.0) < _TOUCH_SECONDS:
            return
        self._touched[session] = time.monotonic()
        place = _session_record(session)
        if await self._in_thread(self._store().state, place):
            await self._in_thread(self._store().append, place, [], {_AT + self._relay.id: "1"})

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await to_thread.run_sync(partial(work, *arguments))

    # Other servers

    async def _pass_on(
        self, server: str, scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Let another server answer; a client that disconnects ends it there too."""
        gone = asyncio.Event()

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()

        leaving = asyncio.ensure_future(watch())
        work = partial(self._relay.call, server, KIND, _pack(scope, body), gone.is_set)
        try:
            answer = await to_thread.run_sync(
                work, abandon_on_cancel=True, limiter=self._waiting_threads()
            )
        finally:
            gone.set()
            leaving.cancel()
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in answer["headers"]]
        await send({"type": "http.response.start", "status": answer["status"], "headers": pairs})
        await send({"type": "http.response.body", "body": base64.b64decode(answer["body"])})

    def _waiting_threads(self) -> CapacityLimiter:
        """A limiter for threads that wait for a running command.

        Short work must not queue behind them.
        """
        if self._limiter is None:
            self._limiter = CapacityLimiter(MAX_PARALLEL_CALLS)
        return self._limiter

    async def _notify_others(self, session: str, scope: Scope, body: bytes) -> None:
        """Notify every other server that knows the session, without waiting for them."""
        if _RELAYED in scope:
            return
        record = await self._in_thread(self._store().state, _session_record(session))
        others = {key.removeprefix(_AT) for key in record if key.startswith(_AT)} - {self._relay.id}
        for server in others:
            work = partial(self._relay.tell, server, KIND, _pack(scope, body))
            await self._in_thread(work)

    def _replay(self, data: Mapping[str, Any], is_over: Callable[[], bool]) -> Mapping[str, Any]:
        """Answer a request that another server received."""
        assert self._loop is not None
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in data["headers"]]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
            "method": data["method"], "path": data["path"], "raw_path": data["path"].encode(),
            "query_string": b"", "headers": pairs, "root_path": "", _RELAYED: True,
        }  # fmt: skip
        work = _collect(self, scope, base64.b64decode(data["body"]), is_over)
        answer = asyncio.run_coroutine_threadsafe(work, self._loop).result()
        shown = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers
        ]
        body = base64.b64encode(answer.body).decode()
        return {"status": answer.status, "headers": shown, "body": body}


class _Body:
    """The body of a request that was read, to be read again."""

    def __init__(self, data: bytes, rest: Receive) -> None:
        self._data, self._rest = data, rest

    def receive(self) -> Receive:
        first = [{"type": "http.request", "body": self._data, "more_body": False}]

        async def again() -> Message:
            return first.pop() if first else await self._rest()

        return again


async def _read(receive: Receive) -> tuple[bytes, Receive]:
    """Return the body, and a function that replays it; the SDK handles one beyond the limit."""
    messages: list[Message] = []
    size, more = 0, True
    while more and size <= MAX_REQUEST_BYTES:
        messages.append(await receive())
        size += len(messages[-1].get("body", b""))
        more = messages[-1].get("more_body", False)
    body = b"".join(one.get("body", b"") for one in messages)

    async def again() -> Message:
        return messages.pop(0) if messages else await receive()

    return body, again


def _parse(body: bytes) -> Mapping[str, Any]:
    """Return the message; None for one that the SDK will refuse."""
    try:
        found = read_json(body, most=MAX_REQUEST_BYTES) if body else {}
    except BadJson:
        return {"method": ""}
    return found if isinstance(found, dict) else {"method": ""}


async def _collect(
    app: ASGIApp, scope: Scope, body: bytes, is_over: Callable[[], bool]
) -> KeptAnswer:
    """Return the response of the app to a request that has no connection."""
    sent: list[Message] = []
    first = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        while not first and not is_over():
            await asyncio.sleep(0.2)
        return first.pop() if first else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = next((one for one in sent if one["type"] == "http.response.start"), None)
    if start is None:
        raise HttpRefusal("gone", "the request was given up")
    whole = b"".join(one.get("body", b"") for one in sent if one is not start)
    return KeptAnswer(start["status"], tuple(map(tuple, start.get("headers", ()))), whole)


def _pack(scope: Scope, body: bytes) -> dict[str, Any]:
    pairs = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name in _PASSED_ON
    ]
    encoded = base64.b64encode(body).decode()
    return {"method": scope["method"], "path": scope["path"], "headers": pairs, "body": encoded}


def _session_record(session: str) -> SessionKey:
    digest = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
    return SessionKey(SERVING, "", f"mcp:{digest[:32]}")


def _session_of(answer: Message) -> str:
    """Return the session in the headers of a response."""
    pairs: Iterable[tuple[bytes, bytes]] = answer.get("headers", ())
    ok = answer["type"] == "http.response.start" and answer["status"] == 200
    return dict(pairs).get(_SESSION_HEADER, b"").decode("latin-1") if ok else ""


def _with_session(scope: Scope, known: str, session: str) -> Scope:
    """Return the scope with the SDK's id of the session instead of the client's."""
    pairs = [one for one in scope["headers"] if one[0] != _SESSION_HEADER]
    return {**scope, "headers": [*pairs, (_SESSION_HEADER, known.encode())], SESSION: session}


def _rename(answer: Message, known: str, session: str) -> Message:
    if answer["type"] != "http.response.start" or known == session:
        return answer
    pairs = [
        (name, session.encode() if name == _SESSION_HEADER else value)
        for name, value in answer.get("headers", ())
    ]
    return {**answer, "headers": pairs}


async def _send_renamed(send: Send, known: str, session: str, answer: Message) -> None:
    await send(_rename(answer, known, session))
