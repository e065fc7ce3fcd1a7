"""A client of MCP servers that list skills: bounded in time and bytes, over HTTP or to a command.

The official client speaks the protocol; its transports are replaced here, because they read lines
and responses of any length.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import re
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import anyio
import httpx2
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    Implementation,
    PaginatedRequestParams,
    Request,
    RequestParams,
    Result,
    jsonrpc_message_adapter,
)
from pydantic import Field

from mcp import Client
from skillbelt.discovery.sources.bounds import (
    MAX_REMOTE_INDEX_BYTES,
    MAX_REMOTE_SKILLS,
    SOURCE_TIMEOUT_SECONDS,
)
from skillbelt.discovery.sources.failure import OutOfTime, SourceFailure
from skillbelt.discovery.sources.http import tls_context
from skillbelt.discovery.sources.mcp_address import McpServer, parse_server
from skillbelt.discovery.sources.source_hosts import PinnedTransport, SourceHosts, uses_proxy
from skillbelt.errors import SourceError
from skillbelt.hosts import origin
from skillbelt.settings import ENV_PREFIX, process_environment
from skillbelt.text import one_line, shorten

if TYPE_CHECKING:
    from skillbelt.values import Limits

# The variables that a command inherits; secrets it needs are its own configuration.
_INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
# A server that is skillbelt itself would read the same settings and start itself again.
_NO_RECURSION = {f"{ENV_PREFIX}MCP_COMMANDS": ""}
EXTENSION = "io.modelcontextprotocol/skills"
_MAX_PAGES = 1_000
_MAX_EMPTY_PAGES = 50
_OVERHEAD_BYTES = 2**20  # of a response, besides the requested content
_MAX_ESCAPE_BYTES = 6  # bytes of JSON that one byte of text may need
_SHOWN = 200
_VALIDATOR = re.compile(r"(?<!\d)\d++ validation errors? for .*", re.DOTALL)
_REQUEST_TIMEOUT = -32001  # the official client's code for a timeout
_UNAUTHORIZED = (401, 403)
_TAIL_BYTES = 2_000
_END_SECONDS = 2.0
_STDERR_SECONDS = 0.3
_CHUNK = 64 * 2**10
# Without a handler the client's warnings would go to stderr.
logging.getLogger("mcp.client").addHandler(logging.NullHandler())
T = TypeVar("T")
Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


class ListSkills(Request[PaginatedRequestParams, Literal["skills/list"]]):
    """Request a page of skills."""

    method: Literal["skills/list"] = "skills/list"
    params: PaginatedRequestParams


class ListSkillsResult(Result):
    """A page of skills; each is checked later, one by one."""

    skills: list[Any]
    next_cursor: str | None = Field(alias="nextCursor", default=None)


class SkillUriParams(RequestParams):
    """The URI of a skill's SKILL.md."""

    uri: str


class GetSkill(Request[SkillUriParams, Literal["skills/get"]]):
    """Request one skill, listed or not."""

    method: Literal["skills/get"] = "skills/get"
    params: SkillUriParams


class GetSkillResult(Result):
    """One skill, checked later like those of a list."""

    skill: Any


def list_skills(
    url: str, limits: Limits, seconds: float, allowed: SourceHosts
) -> tuple[str, list[object]]:
    """Return the server's label and the entries it lists; raises SourceError."""
    server = parse_server(url)

    async def listed(client: Client) -> list[object]:
        found = await _list(client, url)
        return found + await _get_unlisted(client, server, found)

    most = MAX_REMOTE_INDEX_BYTES + _OVERHEAD_BYTES
    connection = connect(server, url, limits, most, allowed)
    return server.label, _run(connection, listed, url, seconds)


def read_files(
    url: str, limits: Limits, wanted: list[tuple[str, int]], allowed: SourceHosts
) -> dict[str, bytes]:
    """Return the server's files at these URIs, each with its largest size; raises SourceError."""

    async def read(client: Client) -> dict[str, bytes]:
        return {uri: await _read_file(client, url, uri, size) for uri, size in wanted}

    most = _MAX_ESCAPE_BYTES * max((size for _, size in wanted), default=0) + _OVERHEAD_BYTES
    connection = connect(parse_server(url), url, limits, most, allowed)
    return _run(connection, read, url, SOURCE_TIMEOUT_SECONDS)


def _run(
    connection: AbstractAsyncContextManager[Client],
    what: Callable[[Client], Coroutine[Any, Any, T]],
    url: str,
    seconds: float,
) -> T:
    """Run the coroutine in a thread with its own event loop: the caller may be in a loop."""

    async def main() -> T:
        async with asyncio.timeout(seconds), connection as client:
            return await what(client)

    outcome: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(main()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="skillbelt-mcp-source", daemon=True)
    thread.start()
    thread.join(seconds + 5.0)
    if outcome:
        return outcome[0]
    raise _failure(url, errors[0] if errors else TimeoutError(), seconds)


def _failure(url: str, error: BaseException, seconds: float) -> SourceError:
    """Reduce any exception to the one failure to report."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = next(
            (one for one in error.exceptions if _has_source_error(one)), error.exceptions[0]
        )
    if isinstance(error, SourceError):
        return error
    if isinstance(error, TimeoutError):
        return OutOfTime(url, f"no answer within {seconds:g} s")
    if getattr(error, "code", 0) == _REQUEST_TIMEOUT:
        return OutOfTime(url, "no answer in time")
    # A validation error spans many lines; keep only what precedes it.
    message = re.sub(_VALIDATOR, "the response does not follow the protocol", str(error))
    reason = shorten(one_line(message or type(error).__name__), _SHOWN)
    remedy = "check the server and its address, then `skillbelt refresh`"
    return SourceFailure(url, reason, code="mcp-failed", remedy=remedy)


def _has_source_error(error: BaseException) -> bool:
    return isinstance(error, SourceError) or (
        isinstance(error, BaseExceptionGroup) and any(map(_has_source_error, error.exceptions))
    )


async def _list(client: Client, url: str) -> list[object]:
    found: list[object] = []
    cursor: str | None = None
    size = empty = 0
    for _ in range(_MAX_PAGES):
        before = cursor
        try:
            page = await client.session.send_request(
                ListSkills(params=PaginatedRequestParams(cursor=cursor)), ListSkillsResult
            )
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND:
                raise _no_skills(url) from error
            raise
        size += len(json.dumps([page.skills, page.next_cursor]))
        found += page.skills
        if len(found) > MAX_REMOTE_SKILLS or size > MAX_REMOTE_INDEX_BYTES:
            reason = f"lists more than {MAX_REMOTE_SKILLS} skills, or their entries are too long"
            remedy = "serve fewer skills"
            raise SourceFailure(url, reason, code="remote-too-large", remedy=remedy)
        cursor = page.next_cursor
        if cursor is None:
            return found
        empty += not page.skills
        if cursor == before or empty > _MAX_EMPTY_PAGES:
            break
    raise SourceFailure(url, "its list does not end", code="mcp-failed", remedy="fix the server")


async def _get_unlisted(client: Client, server: McpServer, found: list[object]) -> list[object]:
    """Return the skills that the source names but the list does not have."""
    known = {item.get("uri") for item in found if isinstance(item, dict)}
    more: list[object] = []
    for uri in server.unlisted:
        if uri in known:
            continue
        try:
            request = GetSkill(params=SkillUriParams(uri=uri))
            given = await client.session.send_request(request, GetSkillResult)
            same = isinstance(given.skill, dict) and given.skill.get("uri") == uri
            more.append(given.skill if same else {"uri": uri})
        except MCPError:
            more.append({"uri": uri})  # reported later as an entry without content
    return more


def _no_skills(url: str) -> SourceFailure:
    reason = f"the server has no skills: it does not support the extension {EXTENSION}"
    return SourceFailure(url, reason, code="mcp-no-skills", remedy="remove it from the settings")


async def _read_file(client: Client, source: str, uri: str, size: int) -> bytes:
    """Return the bytes of a resource; more than its size are not decoded."""
    given = await client.session.read_resource(uri, allow_input_required=True)
    found = getattr(given, "contents", [])
    if len(found) != 1:
        reason = f"{uri} was answered with something other than one file"
        raise SourceFailure(source, reason, code="mcp-failed", remedy="fix the server")
    text, blob = getattr(found[0], "text", None), getattr(found[0], "blob", None)
    if isinstance(text, str):
        return text.encode("utf-8", "surrogatepass")
    if not isinstance(blob, str) or len(blob) > 2 * size + 16:
        return b""  # the caller's digest check refuses it
    try:
        return base64.b64decode(blob, validate=True)
    except ValueError:
        return b""  # the caller's digest check refuses it


# The connection


@asynccontextmanager
async def connect(
    server: McpServer, source: str, limits: Limits, most: int, allowed: SourceHosts
) -> AsyncIterator[Client]:
    """Connect to the server; raises SourceFailure.

    No response may have more than `most` bytes.
    """
    async with AsyncExitStack() as stack:
        if server.command:
            transport: Any = _command(server.command, source, most)
        else:
            http = await stack.enter_async_context(
                await _http(server, source, limits, most, allowed)
            )
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


def _explain_unauthorized(source: str, status: int, *, token: bool) -> SourceFailure:
    reason = f"the server refuses {'the' if token else 'requests without a'} token ({status})"
    remedy = "write its token before the host: mcp+https://TOKEN@host/mcp"
    return SourceFailure(source, reason, code="mcp-failed", remedy=remedy)


async def _http(
    server: McpServer, source: str, limits: Limits, most: int, allowed: SourceHosts
) -> httpx2.AsyncClient:
    async def bound(response: httpx2.Response) -> None:
        if response.status_code in _UNAUTHORIZED:
            raise _explain_unauthorized(source, response.status_code, token=bool(server.headers))
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        # A decompressed body can be a thousand times larger than the counted bytes.
        compressed = response.headers.get("content-encoding", "identity") != "identity"
        response.stream = _BoundedStream(response.stream, most, compressed=compressed)

    by_proxy = uses_proxy(server.url)
    if by_proxy:
        _, host, port = origin(server.url)
        await allowed.check_proxied(host, port)
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **dict(server.headers)},
        # The caller bounds the time of a response.
        timeout=httpx2.Timeout(
            limits.http_timeout_seconds, read=limits.http_timeout_seconds + _END_SECONDS
        ),
        follow_redirects=False,
        event_hooks={"response": [bound]},
        verify=tls_context(),
        transport=None if by_proxy else PinnedTransport(allowed, tls_context()),
    )


class _BoundedStream(httpx2.AsyncByteStream):
    """A response body that fails when it gets too long."""

    def __init__(self, inner: httpx2.AsyncByteStream, most: int, *, compressed: bool) -> None:
        self._inner, self._left, self._compressed = inner, most, compressed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._compressed:
            raise httpx2.ReadError("the response is compressed, which was not requested")
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.ReadError("the response is too long")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


# A command


@asynccontextmanager
async def _command(words: tuple[str, ...], source: str, most: int) -> AsyncIterator[Streams]:
    """Start a command and exchange messages with it; leaving the block kills its process group."""
    process = await _start(words, source)
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    tail, patience = bytearray(), 0.0
    try:
        async with anyio.create_task_group() as group, incoming, read, write, outgoing:
            group.start_soon(_read_messages, process, incoming, most)
            group.start_soon(_write_messages, process, outgoing)
            group.start_soon(_collect_stderr, process, tail)
            try:
                yield read, write
                patience = _END_SECONDS
            except Exception as error:
                with anyio.move_on_after(_STDERR_SECONDS):
                    await process.wait()
                    await anyio.sleep(_STDERR_SECONDS)
                raise _explain_exit(source, process, bytes(tail), error) from error
            finally:
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process, patience)


async def _start(words: tuple[str, ...], source: str) -> Process:
    environ = process_environment()
    try:
        return await anyio.open_process(
            words,
            env={
                **{name: environ[name] for name in _INHERITED if name in environ},
                **_NO_RECURSION,
            },
            start_new_session=True,
        )
    except (OSError, ValueError, IndexError) as error:
        reason = f"cannot be started: {error}"
        remedy = "check the command in mcp_commands"
        raise SourceFailure(source, reason, code="mcp-command-failed", remedy=remedy) from error


def _explain_exit(source: str, process: Process, tail: bytes, error: Exception) -> Exception:
    """Return the failure of a command that exited by itself; any other error unchanged."""
    if process.returncode is None:
        return error
    last = shorten(one_line(tail.decode("utf-8", "replace").strip()[-200:]), 200)
    reason = f"the command ended with {process.returncode}" + (f": {last}" if last else "")
    remedy = "check the command in mcp_commands"
    return SourceFailure(source, reason, code="mcp-command-failed", remedy=remedy)


async def _read_messages(
    process: Process, incoming: MemoryObjectSendStream[SessionMessage | Exception], most: int
) -> None:
    assert process.stdout is not None
    rest = bytearray()
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            *ends, last = (await process.stdout.receive(_CHUNK)).split(b"\n")
            for end in ends:
                await _deliver(bytes(rest + end), incoming)
                rest.clear()
            rest += last
            if len(rest) > most:
                break
    incoming.close()


async def _deliver(
    line: bytes, incoming: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    try:
        message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return  # a command may print other lines, which the protocol ignores
    await incoming.send(message)


async def _write_messages(
    process: Process, outgoing: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    assert process.stdin is not None
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for message in outgoing:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(f"{text}\n".encode())


async def _collect_stderr(process: Process, tail: bytearray) -> None:
    """Keep the last bytes of stderr, to explain why a command ended."""
    stream: ByteReceiveStream | None = process.stderr
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError):
        while stream is not None:
            tail += await stream.receive(_CHUNK)
            del tail[:-_TAIL_BYTES]


async def _end(process: Process, patience: float) -> None:
    """Wait this long for the process to exit; then kill its process group."""
    with suppress(OSError):
        if process.stdin is not None:
            await process.stdin.aclose()
        with anyio.move_on_after(patience):
            await process.wait()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    await process.aclose()
