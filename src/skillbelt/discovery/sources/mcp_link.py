"""A connection to an MCP server: bounded in time and bytes, over HTTP or to a command.

The official client speaks; what it speaks over is made here, because it would read lines and
answers of any length.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

import anyio
import httpx2
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import Implementation, jsonrpc_message_adapter

from mcp import Client
from skillbelt.discovery.sources.addresses import Door, Pinned, proxied
from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.discovery.sources.http import origin, trusted
from skillbelt.discovery.sources.located import MAX_LABEL_CHARS, MCP_COMMAND, is_label, label_of
from skillbelt.settings import ENV_PREFIX, process_environment
from skillbelt.text import one_line, shorten

if TYPE_CHECKING:
    from skillbelt.values import Limits

# What a command finds in its environment; its own secrets are its own business.
_KEPT = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
# A server that is skillbelt itself would have the same settings, and start itself in turn.
_ALONE = {f"{ENV_PREFIX}MCP_COMMANDS": ""}
_REFUSALS = (401, 403)
_TAIL_BYTES = 2_000
_END_SECONDS = 2.0
_LAST_WORDS_SECONDS = 0.3
_CHUNK = 64 * 2**10
# What the client has to say beside its errors is said to whoever wants it, and not on stderr.
logging.getLogger("mcp.client").addHandler(logging.NullHandler())
Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


class Server(NamedTuple):
    """An MCP server that was set: what it is called here, and how to get to it."""

    label: str
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    command: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()  # skills that are wanted though the server may not list them


def server_of(source: str) -> Server:
    """The server that a source means; SourceFailure for one that can not be."""
    if source.lower().startswith(MCP_COMMAND):
        label, _, command = source[len(MCP_COMMAND) :].partition("?")
        try:
            words = tuple(shlex.split(unquote(command)))
        except ValueError as error:
            raise _wrong(source, f"the command can not be read: {error}") from error
        return Server(_checked(label, source), command=words)
    parts = urlsplit(source[len("mcp+") :])
    if not parts.hostname:
        raise _wrong(source, "is not the address of a server")
    token = unquote(parts.username or "")
    if parts.password is not None:
        raise _wrong(source, "a server takes a token, not a user name and a password")
    netloc = parts.netloc.rpartition("@")[2]
    plain = urlunsplit(parts._replace(netloc=netloc, fragment=""))
    headers = (("Authorization", f"Bearer {token}"),) if token else ()
    named, *unlisted = parts.fragment.split("&")
    label = _checked(named, source) if named else label_of(source)
    return Server(label, plain, headers, unlisted=tuple(map(unquote, unlisted)))


def _checked(label: str, source: str) -> str:
    if not is_label(label):
        reason = f"a server is called by at most {MAX_LABEL_CHARS} letters, digits and hyphens"
        raise _wrong(source, reason)
    return label


def _wrong(source: str, reason: str) -> SourceFailure:
    return SourceFailure(source, reason, code="remote-address", remedy="mend the address")


@asynccontextmanager
async def connected(
    server: Server, source: str, limits: Limits, most: int, door: Door
) -> AsyncIterator[Client]:
    """A client of the server; SourceFailure when it can not be had.

    Of no answer more than `most` bytes are taken.
    """
    async with AsyncExitStack() as stack:
        if server.command:
            transport: Any = _command(server.command, source, most)
        else:
            http = await stack.enter_async_context(await _http(server, source, limits, most, door))
            transport = streamable_http_client(
                server.url, http_client=http, max_sse_event_size=most
            )
        info = Implementation(name="skillbelt", version="1")
        yield await stack.enter_async_context(
            Client(
                transport,
                client_info=info,
                cache=None,
                read_timeout_seconds=limits.http_timeout_seconds,
            )
        )


# HTTP


def _refused(source: str, status: int, *, token: bool) -> SourceFailure:
    reason = f"the server does not take {'its' if token else 'requests without a'} token ({status})"
    remedy = "write its token before the host: mcp+https://TOKEN@host/mcp"
    return SourceFailure(source, reason, code="mcp-failed", remedy=remedy)


async def _http(
    server: Server, source: str, limits: Limits, most: int, door: Door
) -> httpx2.AsyncClient:
    async def bound(response: httpx2.Response) -> None:
        if response.status_code in _REFUSALS:
            raise _refused(source, response.status_code, token=bool(server.headers))
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        # What is unpacked can have a thousand times the bytes that are counted.
        packed = response.headers.get("content-encoding", "identity") != "identity"
        response.stream = _Counted(response.stream, most, packed=packed)

    by_proxy = proxied(server.url)
    if by_proxy:
        _, host, port = origin(server.url)
        await door.check_proxied(host, port)
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **dict(server.headers)},
        # How long an answer may take is seen to by whoever asked.
        timeout=httpx2.Timeout(
            limits.http_timeout_seconds, read=limits.http_timeout_seconds + _END_SECONDS
        ),
        follow_redirects=False,
        event_hooks={"response": [bound]},
        verify=trusted(),
        transport=None if by_proxy else Pinned(door, trusted()),
    )


class _Counted(httpx2.AsyncByteStream):
    """An answer that ends where it gets too long."""

    def __init__(self, inner: httpx2.AsyncByteStream, most: int, *, packed: bool) -> None:
        self._inner, self._left, self._packed = inner, most, packed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._packed:
            raise httpx2.ReadError("the answer is compressed, which was not asked for")
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.ReadError("the answer is too long")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


# A command


@asynccontextmanager
async def _command(words: tuple[str, ...], source: str, most: int) -> AsyncIterator[Streams]:
    """Messages from and to a process, which ends with the block, and all it has started."""
    process = await _started(words, source)
    given, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, sent = anyio.create_memory_object_stream[SessionMessage](0)
    tail, patience = bytearray(), 0.0
    try:
        async with anyio.create_task_group() as group, given, read, write, sent:
            group.start_soon(_read, process, given, most)
            group.start_soon(_write, process, sent)
            group.start_soon(_note, process, tail)
            try:
                yield read, write
                patience = _END_SECONDS
            except Exception as error:
                with anyio.move_on_after(_LAST_WORDS_SECONDS):
                    await process.wait()
                    await anyio.sleep(_LAST_WORDS_SECONDS)
                raise _ended(source, process, bytes(tail), error) from error
            finally:
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process, patience)


async def _started(words: tuple[str, ...], source: str) -> Process:
    environ = process_environment()
    try:
        return await anyio.open_process(
            words,
            env={**{name: environ[name] for name in _KEPT if name in environ}, **_ALONE},
            start_new_session=True,
        )
    except (OSError, ValueError, IndexError) as error:
        reason = f"can not be started: {error}"
        remedy = "check the command in mcp_commands"
        raise SourceFailure(source, reason, code="mcp-command-failed", remedy=remedy) from error


def _ended(source: str, process: Process, tail: bytes, error: Exception) -> Exception:
    """What to tell of a command that ended by itself; all else stays as it is."""
    if process.returncode is None:
        return error
    last = shorten(one_line(tail.decode("utf-8", "replace").strip()[-200:]), 200)
    reason = f"the command ended with {process.returncode}" + (f": {last}" if last else "")
    remedy = "check the command in mcp_commands"
    return SourceFailure(source, reason, code="mcp-command-failed", remedy=remedy)


async def _read(
    process: Process, given: MemoryObjectSendStream[SessionMessage | Exception], most: int
) -> None:
    assert process.stdout is not None
    rest = bytearray()
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            *ends, last = (await process.stdout.receive(_CHUNK)).split(b"\n")
            for end in ends:
                await _give(bytes(rest + end), given)
                rest.clear()
            rest += last
            if len(rest) > most:
                break
    given.close()


async def _give(line: bytes, given: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    try:
        message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return  # what is no message is no concern of ours
    await given.send(message)


async def _write(process: Process, sent: MemoryObjectReceiveStream[SessionMessage]) -> None:
    assert process.stdin is not None
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for message in sent:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(f"{text}\n".encode())


async def _note(process: Process, tail: bytearray) -> None:
    """The last that a command says beside its messages, for whoever wants to know why it ended."""
    stream: ByteReceiveStream | None = process.stderr
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError):
        while stream is not None:
            tail += await stream.receive(_CHUNK)
            del tail[:-_TAIL_BYTES]


async def _end(process: Process, patience: float) -> None:
    """Let it end by itself for so long; then it is ended with all it started."""
    with suppress(OSError):
        if process.stdin is not None:
            await process.stdin.aclose()
        with anyio.move_on_after(patience):
            await process.wait()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    await process.aclose()
