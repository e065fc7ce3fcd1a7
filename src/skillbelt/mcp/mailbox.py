"""What one client is told, without anybody waiting for it to listen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from mcp.server.session import ServerSession
from mcp_types import ServerNotification

MOST = 1_000  # notifications that wait for a client which does not read


class Mailbox:
    """Sends in a task of its own, one after another; what waits already does not wait twice.

    So a client that stopped reading holds up nobody, and gets no more than it can be told.
    """

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._waiting: dict[str, ServerNotification] = {}
        self._task: asyncio.Task[None] | None = None

    def post(self, told: Iterable[ServerNotification]) -> None:
        """Have the client told, in the loop that runs."""
        for one in told:
            if len(self._waiting) < MOST:
                self._waiting.setdefault(one.model_dump_json(), one)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._send())

    def close(self) -> None:
        """Tell it nothing more."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _send(self) -> None:
        while self._waiting:
            one = self._waiting.pop(next(iter(self._waiting)))
            with suppress(Exception):  # a client that has gone is none to be told
                await self._session.send_notification(one)
