"""Map a request to its conversation."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from anyio import to_thread
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp_types import Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from skillbelt.runtime.runtime import APP, Runtime, RuntimeSession
from skillbelt.store import SessionKey

USER = "mcp"
# In the scope of an HTTP request: the session as its client knows it; the SDK may have another id.
SESSION = "skillbelt.session"
# With this key of `_meta` a client without a connection names its conversation.
META_KEY = "skillbelt/session"
_HEADER = "mcp-session-id"


class ServedSessions:
    """The conversations of one server; each connection has one, kept in the store.

    A client of the newer protocol has no connection over HTTP. It names its conversation, or shares
    one with all clients of the same name and version.
    """

    def __init__(self, belt: Runtime, secret: bytes = b"") -> None:
        """Create it.

        Servers with the same `secret` have the same conversations, the default is new.
        """
        self._belt = belt
        self._server = hashlib.sha256(secret or os.urandom(16)).hexdigest()[:16]

    def of(self, ctx: ServerRequestContext[Any, Any]) -> RuntimeSession:
        """Return the conversation of a request; its runs end with the connection."""
        name = self.name(ctx)
        # No scan here, in the loop: the request's own work reports a fault.
        found = self._belt._open_session(SessionKey(APP, USER, name))
        # A client that only knows tools finds skills by search, even when there are few.
        found.searching = True
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            connection = _connection(ctx)
            if META_KEY not in connection.state:
                connection.state[META_KEY] = name
                end = partial(self._end_runs, found.session.key)
                connection.exit_stack.push_async_callback(to_thread.run_sync, end)
        return found

    def at_end(self, ctx: ServerRequestContext[Any, Any], do: Callable[[], object]) -> None:
        """Call `do` in the loop when the connection has ended."""
        _connection(ctx).exit_stack.callback(do)

    def _end_runs(self, key: SessionKey) -> None:
        """End the background runs, which no client could poll any more."""
        if self._belt._has_background:
            self._belt.background.end(key)

    def name(self, ctx: ServerRequestContext[Any, Any]) -> str:
        """Return the name of the conversation in the store."""
        if ctx.request is None:
            return f"stdio-{self._server}"
        own = (ctx.meta or {}).get(META_KEY)
        if isinstance(own, str) and own:
            return f"named-{_digest(own)}"
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            client = ctx.session.client_params
            return (
                f"http-{self._server}-{_digest(_describe(client.client_info if client else None))}"
            )
        known = getattr(ctx.request, "scope", {}).get(SESSION)
        return f"http-{_digest(known or ctx.request.headers.get(_HEADER, ''))}"


def _connection(ctx: ServerRequestContext[Any, Any]) -> Connection:
    # Private SDK interface: handlers need this object, and there is no public way to it yet.
    return ctx.session._connection


def _describe(client: Implementation | None) -> str:
    return f"{client.name}\0{client.version}" if client is not None else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
