"""MCP over streamable HTTP: many clients, each with the token, on this machine unless told so."""

from __future__ import annotations

import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import anyio
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from skillbelt.errors import ConfigError
from skillbelt.integrations.common import MAX_SERVED_SESSIONS
from skillbelt.mcp.auth import guarded
from skillbelt.mcp.connections import BURST, patient, room
from skillbelt.mcp.drain import Drain
from skillbelt.mcp.server import SkillServer
from skillbelt.mcp.stdio import MAX_REQUEST_BYTES
from skillbelt.mcp.whole_requests import Whole
from skillbelt.runtime.runtime import Runtime
from skillbelt.runtime.threads import MAX_PARALLEL_CALLS

# For sending one request, so that slow clients do not occupy connections.
REQUEST_TIMEOUT_SECONDS = 30.0
# A silent client is forgotten after this.
SERVED_IDLE_SECONDS = 1_800.0

PATH = "/mcp"
DEFAULT = "127.0.0.1:8765"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_GRACE_SECONDS = 2
_MIN_TOKEN_CHARS = 16


class Address(NamedTuple):
    """Where to listen; a host of numbers with colons stands in brackets."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Where clients find the server."""
        return f"http://{self.host}:{self.port}{PATH}"


def address_of(text: str) -> Address:
    """The address that `HOST:PORT`, `HOST` or `:PORT` means; ConfigError for anything else."""
    default, _, port_text = DEFAULT.rpartition(":")
    host, mark, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not mark:
        host, port = (text, port_text) if not text.isdecimal() else (default, text)
    if not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ConfigError(f"--http takes HOST:PORT, not {text!r}; for instance {DEFAULT}")
    return Address((host or default).lower(), int(port))


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(32)


def check_token(token: str) -> str:
    """The token, if it can be sent and is long enough; ConfigError if not."""
    if len(token) < _MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"a token has at least {_MIN_TOKEN_CHARS} plain characters; "
            "leave it out to have one made"
        )
    if " " in token:
        raise ConfigError("a token holds no blanks")
    return token


def open_socket(address: Address) -> socket.socket:
    """The address, listened on; ConfigError when that can not be."""
    host = address.host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, address.port), family=family, backlog=512)
        # Those that are accepted inherit it. Without it each answer waits for 40 ms to be sent.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except OSError as error:
        raise ConfigError(
            f"can not listen on {address.host}:{address.port}: {error.strerror or error}; "
            "give another address with --http HOST:PORT"
        ) from error


class _Listening(uvicorn.Server):
    """Leaves signals to whoever serves."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_http(
    belt: Runtime,
    listening: socket.socket,
    host: str,
    token: str,
    *,
    origins: Sequence[str] = (),
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal comes; everything that runs is ended then. `ready` is called first."""
    served = SkillServer(belt)
    app = served.server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=MAX_REQUEST_BYTES,
        session_idle_timeout=SERVED_IDLE_SECONDS or None,
        max_sessions=MAX_SERVED_SESSIONS,
        # The guard stands before all of it.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    port = listening.getsockname()[1]
    most = room(MAX_SERVED_SESSIONS + MAX_PARALLEL_CALLS)
    whole = Whole(app, MAX_REQUEST_BYTES)
    drain = Drain(guarded(whole, token=token, host=host, port=port, origins=origins))
    config = uvicorn.Config(
        drain,
        log_config=None,
        # Nobody without the token can have anything written to stderr.
        log_level="error",
        access_log=False,
        server_header=False,
        http=patient(REQUEST_TIMEOUT_SECONDS, most),
        backlog=BURST,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ws="none",
    )
    server = _Listening(config)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_until_signal, server, served, drain)
            served.start()
            ready()
            await server.serve([listening])
            group.cancel_scope.cancel()
    finally:
        served.close()


async def _until_signal(server: uvicorn.Server, served: SkillServer, drain: Drain) -> None:
    with anyio.open_signal_receiver(*_SIGNALS) as signals:
        async for _ in signals:
            # A second one does not wait for anybody.
            server.force_exit = server.should_exit
            server.should_exit = True
            await anyio.to_thread.run_sync(served.close)
            drain.end()
