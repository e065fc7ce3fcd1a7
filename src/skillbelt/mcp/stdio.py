"""MCP over standard input and output: one client, one message a line."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress
from queue import SimpleQueue

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from skillbelt.mcp.server import SkillServer
from skillbelt.mcp.streams import Wire
from skillbelt.runtime.runtime import Runtime

# One message; it is held in memory before it is parsed.
MAX_REQUEST_BYTES = 4 * 2**20

_CHUNK = 64 * 2**10
_NO_MESSAGE = "the line is no message of JSON-RPC 2.0"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
Read = MemoryObjectReceiveStream[SessionMessage | Exception]
Write = MemoryObjectSendStream[SessionMessage]


async def serve_stdio(belt: Runtime, wire: Wire) -> None:
    """Serve until the input ends or a signal comes; everything that runs is ended then."""
    served = SkillServer(belt)
    options = served.server.create_initialization_options()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_until_signal, group.cancel_scope)
            served.start()
            async with streams(wire, MAX_REQUEST_BYTES) as (read, write):
                await served.server.run(read, write, options)
            group.cancel_scope.cancel()
    finally:
        served.close()


async def _until_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(*_SIGNALS) as signals:
        async for _ in signals:
            scope.cancel()


@asynccontextmanager
async def streams(wire: Wire, most: int) -> AsyncIterator[tuple[Read, Write]]:
    """Messages of at most so many bytes, in and out. A line that is none is answered here."""
    given, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, sent = anyio.create_memory_object_stream[SessionMessage](0)
    reader = _Reader(wire.read, most, given, write.clone())
    threading.Thread(target=reader.run, name="skillbelt-stdin", daemon=True).start()
    writer = _Writer(wire.write)
    threading.Thread(target=writer.run, name="skillbelt-stdout", daemon=True).start()
    async with anyio.create_task_group() as group:
        group.start_soon(writer.take, sent)
        try:
            yield read, write
        finally:  # also when a signal ends it
            write.close()
            reader.close()


class _Writer:
    """Writes lines in a thread of its own: a client that does not read holds up nothing else.

    Nobody waits for the thread, which may be stuck for good when the process is to end.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._lines: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()

    async def take(self, sent: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write each message, one after another."""
        async with sent:
            async for message in sent:
                written = self._loop.create_future()
                self._lines.put((_line(message.message), written))
                await written

    def run(self) -> None:
        while True:
            data, written = self._lines.get()
            with suppress(OSError):  # the client has gone; its input ends as well
                while data:
                    data = data[os.write(self._handle, data) :]
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_done, written)


def _line(message: JSONRPCMessage) -> bytes:
    """A message as it is sent; in place of what no encoder takes, an error that it has."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:
        told = "the answer can not be written as JSON"
        error = _error(INTERNAL_ERROR, told, getattr(message, "id", None))
        return error.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def _plain_id(id: object) -> str | int | None:
    """The id, if it is one that can be sent back."""
    if isinstance(id, str) and id.isprintable():
        return id
    return id if type(id) is int and abs(id) < 2**53 else None


def _error(code: int, message: str, id: str | int | None) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=code, message=message))


def _done(written: asyncio.Future[None]) -> None:
    if not written.done():
        written.set_result(None)


class _Reader:
    """Reads lines in a thread of its own, as nothing else can be made to stop waiting for them."""

    def __init__(
        self,
        handle: int,
        most: int,
        given: MemoryObjectSendStream[SessionMessage | Exception],
        answers: Write,
    ) -> None:
        self._handle, self._most = handle, most
        self._given, self._answers = given, answers
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Take no more, and give none."""
        self._given.close()
        self._answers.close()

    def run(self) -> None:
        closed = (anyio.ClosedResourceError, anyio.BrokenResourceError, CancelledError)
        with suppress(RuntimeError, OSError, *closed):
            for line in self._lines():
                self._take(line)
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.close)

    def _lines(self) -> Iterator[bytes | None]:
        """Each line; None for one that is too long, which is never held whole."""
        rest, too_long = bytearray(), False
        while chunk := os.read(self._handle, _CHUNK):
            *ends, last = chunk.split(b"\n")
            for end in ends:
                rest += end
                yield None if too_long or len(rest) > self._most else bytes(rest)
                rest, too_long = bytearray(), False
            rest += last
            if len(rest) > self._most:
                rest, too_long = bytearray(), True
        if rest and not too_long:
            yield bytes(rest)

    def _take(self, line: bytes | None) -> None:
        if line is None:
            message = f"the message has more than {self._most} bytes (max_request_bytes)"
            return self._refuse(INVALID_REQUEST, message)
        if not line.strip():
            return None
        try:
            found = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except (ValidationError, ValueError, RecursionError):
            return self._settle(line)
        self._wait(self._given.send(SessionMessage(found)))

    def _settle(self, line: bytes) -> None:
        """Answer what can not be used, by its id if it has one.

        An answer that can not be read is one all the same: nobody waits for another.
        """
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return self._refuse(PARSE_ERROR, "the line is no JSON")
        known = found if isinstance(found, dict) else {}
        id = _plain_id(known.get("id"))
        self._refuse(INVALID_REQUEST, _NO_MESSAGE, id if "method" in known else None)
        if known and "method" not in known:
            error = _error(PARSE_ERROR, "the answer can not be read", id)
            self._wait(self._given.send(SessionMessage(error)))

    def _refuse(self, code: int, message: str, id: str | int | None = None) -> None:
        self._wait(self._answers.send(SessionMessage(_error(code, message, id))))

    def _wait(self, sending: Coroutine[None, None, None]) -> None:
        """Until it was taken, so that a client can not fill the memory."""
        try:
            asyncio.run_coroutine_threadsafe(sending, self._loop).result()
        except RuntimeError:
            sending.close()
            raise
