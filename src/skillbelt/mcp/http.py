"""MCP over streamable HTTP: many clients with a token, on the loopback address by default."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from functools import partial

from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp

from skillbelt.integrations.common import MAX_SERVED_SESSIONS
from skillbelt.mcp.routing import SessionRouting
from skillbelt.mcp.server import SkillServer
from skillbelt.mcp.stdio import MAX_REQUEST_BYTES
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.guard import guarded
from skillbelt.serving.listening import CompleteRequests, serve_app
from skillbelt.serving.probes import Probes
from skillbelt.serving.relay import Relay
from skillbelt.serving.relayed_runs import RelayedRuns
from skillbelt.serving.tokens import TokenBook

# A silent client is dropped after this time.
SERVED_IDLE_SECONDS = 1_800.0

PATH = "/mcp"


async def serve_http(
    belt: Runtime,
    listening: socket.socket,
    host: str,
    tokens: TokenBook,
    *,
    origins: Sequence[str] = (),
    hosts: Sequence[str] = (),
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal arrives, then end everything that runs. Calls `ready` first."""
    relay = Relay(lambda: belt.store)
    RelayedRuns(belt, relay)
    served = SkillServer(belt, secret=tokens.secret, mark=partial(_mark_id, relay))
    port = listening.getsockname()[1]
    app = guarded(
        Probes(make_app(served, relay), belt, "mcp"),
        tokens=tokens,
        host=host,
        port=port,
        origins=origins,
        hosts=hosts,
    )

    def begin() -> None:
        served.start()
        ready()

    def close() -> None:
        served.close()
        relay.close()

    await serve_app(app, listening, close=close, ready=begin)


def _mark_id(relay: Relay, text: str) -> str:
    relay.listen()
    return relay.mark(text)


def make_app(served: SkillServer, relay: Relay | None = None) -> ASGIApp:
    """Return the application behind the guard; with a relay, sessions continue at other servers."""
    app = served.server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=MAX_REQUEST_BYTES,
        session_idle_timeout=SERVED_IDLE_SECONDS or None,
        max_sessions=MAX_SERVED_SESSIONS,
        # `guarded` checks Host and Origin before this app sees a request.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    routed = app if relay is None else SessionRouting(app, lambda: served.belt.store, relay)
    return CompleteRequests(routed, MAX_REQUEST_BYTES)
