"""MCP requests whose state another server has."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import anyio
import httpx2
import pytest
from anyio import to_thread
from starlette.types import Receive, Scope, Send

from skillbelt.mcp.routing import SessionRouting
from skillbelt.serving.answers import HttpAnswer
from skillbelt.serving.relay import Relay
from skillbelt.store.memory import MemoryStore

pytestmark = pytest.mark.anyio
MANY = 50  # more than the threads that short work of the server shares


class SlowRelay(Relay):
    """The other server does not answer until it is released."""

    def __init__(self) -> None:
        store = MemoryStore()
        super().__init__(lambda: store)
        self.asked, self.answer = threading.Semaphore(0), threading.Event()

    def call(self, *_arguments: Any, **_options: Any) -> Mapping[str, Any]:
        self.asked.release()
        self.answer.wait(150)
        return {"status": 200, "headers": [], "body": ""}


async def nothing(_scope: Scope, _receive: Receive, send: Send) -> None:
    await HttpAnswer(send).document({})


async def test_calls_that_wait_for_another_server_hold_up_nothing_here() -> None:
    relay = SlowRelay()
    app = SessionRouting(nothing, lambda: MemoryStore(), relay)
    held = {"requestState": f"{'a' * 12}-x"}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": held})
    transport = httpx2.ASGITransport(app)
    async with (
        httpx2.AsyncClient(transport=transport, base_url="http://here") as client,
        anyio.create_task_group() as group,
    ):
        for _ in range(MANY):
            group.start_soon(lambda: client.post("/mcp", content=body))
        try:
            with anyio.fail_after(150):
                for _ in range(MANY):
                    while not relay.asked.acquire(blocking=False):
                        await anyio.sleep(0.01)
                # The store is read in a thread for it, and the SDK answers.
                other = await client.post(
                    "/mcp", content=b"{}", headers={"mcp-session-id": "unknown"}
                )
                assert other.status_code == 200
                assert await to_thread.run_sync(lambda: 7) == 7
        finally:
            relay.answer.set()
