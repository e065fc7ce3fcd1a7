"""Which conversation a request belongs to."""

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

from skillbelt.runtime.runtime import Runtime, RuntimeSession
from skillbelt.store import SessionKey

USER = "mcp"
# By this key of `_meta` a client that keeps no connection names its conversation.
META_KEY = "skillbelt/session"
_HEADER = "mcp-session-id"


class Sessions:
    """The conversations of one server: each connection has one, and all of it is in the store.

    A client of the newer protocol has no connection over HTTP. It names its conversation, or has
    the one of all clients that call themselves as it does and know the same token.
    """

    def __init__(self, belt: Runtime) -> None:
        self._belt = belt
        self._server = os.urandom(8).hex()

    def of(self, ctx: ServerRequestContext[Any, Any]) -> RuntimeSession:
        """The conversation of a request; what it runs ends with its connection."""
        name = self.name(ctx)
        found = self._belt.session(USER, name)
        # A client that knows tools alone finds skills by search, however few there are.
        found.searching = True
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            connection = _connection(ctx)
            if META_KEY not in connection.state:
                connection.state[META_KEY] = name
                end = partial(self._end_runs, found.session.key)
                connection.exit_stack.push_async_callback(to_thread.run_sync, end)
        return found

    def at_end(self, ctx: ServerRequestContext[Any, Any], do: Callable[[], object]) -> None:
        """Have something done in the loop when the connection has ended."""
        _connection(ctx).exit_stack.callback(do)

    def _end_runs(self, key: SessionKey) -> None:
        """Nobody could ask for them any more."""
        if "background" in self._belt.__dict__:
            self._belt.background.end(key)

    def name(self, ctx: ServerRequestContext[Any, Any]) -> str:
        """What the conversation is called in the store."""
        if ctx.request is None:
            return f"stdio-{self._server}"
        own = (ctx.meta or {}).get(META_KEY)
        if isinstance(own, str) and own:
            return f"named-{_digest(own)}"
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            client = ctx.session.client_params
            return f"http-{self._server}-{_digest(_called(client.client_info if client else None))}"
        return f"http-{_digest(ctx.request.headers.get(_HEADER, ''))}"


def _connection(ctx: ServerRequestContext[Any, Any]) -> Connection:
    # The one place where a handler gets to what lasts as long as its connection; the SDK means its
    # stack for handlers, but has no public way to it yet.
    return ctx.session._connection


def _called(client: Implementation | None) -> str:
    return f"{client.name}\0{client.version}" if client is not None else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
