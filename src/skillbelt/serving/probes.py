"""Probes on every HTTP server: `/health` and `/ready` for a load balancer, `/metrics`."""

from __future__ import annotations

import asyncio
import logging

import anyio
from anyio import to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skillbelt.metrics import CONTENT_TYPE, count, render, timed
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.answers import HttpAnswer, HttpRefusal
from skillbelt.serving.guard import HOLDER
from skillbelt.serving.relay import SERVING
from skillbelt.serving.tokens import Holder
from skillbelt.store import SessionKey

logger = logging.getLogger(__name__)
_READY_SECONDS = 5.0


class Probes:
    """Answers the probes; counts everything else and passes it on."""

    def __init__(self, app: ASGIApp, belt: Runtime, server: str) -> None:
        """Wrap the app; `server` is its name in the metrics."""
        self._app, self._belt, self._server = app, belt, server
        self._looking: asyncio.Task[bool] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope.get("path", "") if scope["type"] == "http" else ""
        if path not in ("/health", "/ready", "/metrics"):
            return await self._count(scope, receive, send)
        answer = HttpAnswer(send)
        try:
            if scope["method"] != "GET":
                raise HttpRefusal("method_not_allowed", f"{scope['method']} is not possible here")
            if path == "/metrics":
                return await _send_metrics(scope[HOLDER], answer)
            if path == "/ready":
                await self._check_store()
        except Exception as error:
            return await answer.error(error)
        return await answer.document({"status": "ok"})

    async def _count(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        with timed("http_request_seconds") as measured:
            await self._app(scope, receive, note)
            if status:
                measured(server=self._server)
                count("http_requests", server=self._server, status=f"{status}")

    async def _check_store(self) -> None:
        """Raise HttpRefusal unless the store answers in time.

        Anyone may ask, so concurrent probes share one check and one line in the log.
        """
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._ask_store())
        if not await asyncio.shield(self._looking):
            raise HttpRefusal("not_ready", "the store does not answer")

    async def _ask_store(self) -> bool:
        probe = SessionKey(SERVING, "", "probe")
        try:
            with anyio.fail_after(_READY_SECONDS):
                await to_thread.run_sync(
                    lambda: self._belt.store.state(probe), abandon_on_cancel=True
                )
        except Exception as error:
            # The message may name hosts and paths, so it is only for the log.
            logger.warning("not ready: %s", error)
            return False
        return True


async def _send_metrics(holder: Holder, answer: HttpAnswer) -> None:
    if holder.is_bound:
        raise HttpRefusal("forbidden", "a token that is bound to a user or app reads no metrics")
    data = await to_thread.run_sync(render)
    await answer.start(200, CONTENT_TYPE, {"content-length": str(len(data))})
    await answer.piece(data, last=True)
