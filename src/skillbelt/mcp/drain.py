"""An HTTP server that ends: streams that would go on for ever are brought to their end first."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Drain:
    """Once `end` was called, every request looks as if its client had gone, and is finished."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Finish what is open, and answer nothing new."""
        self._ending.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, as long as there is time."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if self._ending.is_set():
            return await Response("the server is being ended", 503)(scope, receive, send)
        state = {"begun": False, "done": False, "gone": False}

        async def noted(message: Message) -> None:
            state["begun"] = True
            state["done"] = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        try:
            await self._app(scope, lambda: self._receive(receive, state), noted)
        finally:
            if self._ending.is_set() and state["begun"] and not state["done"]:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        if self._ending.is_set() and not state["begun"]:
            await Response("the server is being ended", 503)(scope, receive, send)
        return None

    async def _receive(self, receive: Receive, state: dict[str, bool]) -> Message:
        """What comes next; that the client has gone, once it ends here.

        Of one that has gone it is said at once: some ask without time to wait.
        """
        if state["gone"]:
            return {"type": "http.disconnect"}
        coming = asyncio.ensure_future(receive())
        ending = asyncio.ensure_future(self._ending.wait())
        waiting: tuple[asyncio.Future[Any], ...] = (coming, ending)
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            found = coming.result() if coming.done() else {"type": "http.disconnect"}
            state["gone"] = found["type"] == "http.disconnect"
            return found
        finally:
            for each in waiting:
                each.cancel()
