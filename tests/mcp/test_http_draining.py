"""Streams are brought to their end when the server ends."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from skillbelt.mcp.http import DrainingApp

pytestmark = pytest.mark.anyio
HTTP = {"type": "http", "method": "GET", "path": "/", "headers": []}


async def silent() -> Any:
    """A client that says nothing more."""
    await asyncio.Event().wait()


class Sent(list[dict[str, Any]]):
    async def __call__(self, message: Any) -> None:
        self.append(message)

    @property
    def whole(self) -> bool:
        return bool(self) and not self[-1].get("more_body", False)


async def stream(_scope: Any, receive: Any, send: Any) -> None:
    """Something that goes on until its client has gone."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


async def test_an_open_stream_is_finished() -> None:
    drain, sent = DrainingApp(stream), Sent()
    request = asyncio.ensure_future(drain(HTTP, silent, sent))
    while len(sent) < 2:
        await asyncio.sleep(0)
    assert not sent.whole
    drain.end()
    await asyncio.wait_for(request, 10)
    assert sent.whole


async def test_that_a_client_has_gone_is_known_at_once() -> None:
    told = list[str]()

    async def asks(_scope: Any, receive: Any, _send: Any) -> None:
        told.append((await receive())["type"])
        with anyio.CancelScope() as scope:
            scope.cancel()  # whoever asks so has no time at all
            told.append((await receive())["type"])

    async def gone() -> Any:
        return {"type": "http.disconnect"}

    await DrainingApp(asks)(HTTP, gone, Sent())
    assert told == ["http.disconnect"] * 2


async def test_what_has_not_begun_to_answer_says_that_it_ends() -> None:
    async def waits(_scope: Any, receive: Any, _send: Any) -> None:
        await receive()

    drain, sent = DrainingApp(waits), Sent()
    request = asyncio.ensure_future(drain(HTTP, silent, sent))
    await asyncio.sleep(0)
    drain.end()
    await asyncio.wait_for(request, 10)
    assert (sent[0]["status"], sent.whole) == (503, True)


async def test_nothing_new_is_begun() -> None:
    drain, sent = DrainingApp(stream), Sent()
    drain.end()
    await drain(HTTP, silent, sent)
    assert sent[0]["status"] == 503


async def test_before_the_end_everything_is_as_it_was() -> None:
    messages = [{"type": "http.request", "body": b"x"}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    sent = Sent()
    await DrainingApp(stream)(HTTP, receive, sent)
    assert messages == []
    assert [message.get("body") for message in sent] == [None, b"begun"]
