"""MCP over standard input and output: one client, one message per line."""

from __future__ import annotations

import asyncio
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
from skillbelt.runtime.runtime import Runtime
from skillbelt.untrusted_json import read_json

# One message; it is held in memory before it is parsed.
MAX_REQUEST_BYTES = 4 * 2**20

_CHUNK = 64 * 2**10
_NO_MESSAGE = "the line is not a JSON-RPC 2.0 message"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
Read = MemoryObjectReceiveStream[SessionMessage | Exception]
Write = MemoryObjectSendStream[SessionMessage]


async def serve_stdio(belt: Runtime, read_fd: int, write_fd: int) -> None:
    """Serve until the input ends or a signal arrives, then end everything that runs."""
    served = SkillServer(belt)
    options = served.server.create_initialization_options()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_on_signal, group.cancel_scope)
            served.start()
            most = MAX_REQUEST_BYTES
            async with streams(read_fd, write_fd, most) as (read, write):
                await served.server.run(read, write, options)
            group.cancel_scope.cancel()
    finally:
        served.close()


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(*_SIGNALS) as signals:
        async for _ in signals:
            scope.cancel()


@asynccontextmanager
async def streams(read_fd: int, write_fd: int, most: int) -> AsyncIterator[tuple[Read, Write]]:
    """Read and write messages of at most `most` bytes; invalid lines are answered here."""
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    reader = _LineReader(read_fd, most, incoming, write.clone())
    threading.Thread(target=reader.run, name="skillbelt-stdin", daemon=True).start()
    writer = _LineWriter(write_fd)
    threading.Thread(target=writer.run, name="skillbelt-stdout", daemon=True).start()
    async with anyio.create_task_group() as group:
        group.start_soon(writer.write_all, outgoing)
        try:
            yield read, write
        finally:  # also after a signal
            write.close()
            reader.close()


class _LineWriter:
    """Writes lines in a thread, so a client that does not read blocks nothing else.

    The thread is never joined: it may still be blocked when the process exits.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._lines: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()

    async def write_all(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write the messages in order."""
        async with outgoing:
            async for message in outgoing:
                written = self._loop.create_future()
                self._lines.put((_encode(message.message), written))
                await written

    def run(self) -> None:
        while True:
            data, written = self._lines.get()
            with suppress(OSError):  # the client disconnected, so the input ends too
                while data:
                    data = data[os.write(self._fd, data) :]
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_set_done, written)


def _encode(message: JSONRPCMessage) -> bytes:
    """Return the message as a line; an error response when it cannot be encoded."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:
        reason = "the response cannot be encoded as JSON"
        error = _error(INTERNAL_ERROR, reason, getattr(message, "id", None))
        return error.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def _plain_id(id: object) -> str | int | None:
    """Return the id if it can be sent back, else None."""
    if isinstance(id, str) and id.isprintable():
        return id
    return id if type(id) is int and abs(id) < 2**53 else None


def _error(code: int, message: str, id: str | int | None) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=code, message=message))


def _set_done(written: asyncio.Future[None]) -> None:
    if not written.done():
        written.set_result(None)


class _LineReader:
    """Reads lines in a thread, because a blocking read cannot be cancelled."""

    def __init__(
        self,
        fd: int,
        most: int,
        incoming: MemoryObjectSendStream[SessionMessage | Exception],
        answers: Write,
    ) -> None:
        self._fd, self._most = fd, most
        self._incoming, self._answers = incoming, answers
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Close both streams."""
        self._incoming.close()
        self._answers.close()

    def run(self) -> None:
        closed = (anyio.ClosedResourceError, anyio.BrokenResourceError, CancelledError)
        with suppress(RuntimeError, OSError, *closed):
            for line in self._lines():
                self._handle(line)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.close)

    def _lines(self) -> Iterator[bytes | None]:
        """Yield each line; None for a line that is too long, which is never held in memory."""
        rest, too_long = bytearray(), False
        while chunk := os.read(self._fd, _CHUNK):
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

    def _handle(self, line: bytes | None) -> None:
        if line is None:
            message = f"the message has more than {self._most} bytes (max_request_bytes)"
            return self._refuse(INVALID_REQUEST, message)
        if not line.strip():
            return None
        try:
            found = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except (ValidationError, ValueError, RecursionError):
            return self._answer_invalid(line)
        self._send(self._incoming.send(SessionMessage(found)))

    def _answer_invalid(self, line: bytes) -> None:
        """Answer a line that is not a valid message, with its id if it has one.

        An invalid response still ends the request that waits for it, with an error.
        """
        try:
            found = read_json(line)
        except ValueError:
            return self._refuse(PARSE_ERROR, "the line is not JSON")
        known = found if isinstance(found, dict) else {}
        id = _plain_id(known.get("id"))
        self._refuse(INVALID_REQUEST, _NO_MESSAGE, id if "method" in known else None)
        if known and "method" not in known:
            error = _error(PARSE_ERROR, "the response is invalid", id)
            self._send(self._incoming.send(SessionMessage(error)))

    def _refuse(self, code: int, message: str, id: str | int | None = None) -> None:
        self._send(self._answers.send(SessionMessage(_error(code, message, id))))

    def _send(self, sending: Coroutine[None, None, None]) -> None:
        """Block until the message was taken, so that a client cannot fill the memory."""
        try:
            asyncio.run_coroutine_threadsafe(sending, self._loop).result()
        except RuntimeError:
            sending.close()
            raise
