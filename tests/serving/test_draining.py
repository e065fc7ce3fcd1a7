"""Streams are brought to their end when the server ends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import anyio
import pytest

from skillbelt.serving.listening import DrainingApp, shut_down

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
            scope.cancel()  # a caller with a zero timeout
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


class Ending:
    """Stands for the server of the skills: what runs is over once it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.closed = asyncio.Event()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self.closed.set)


class Listening:
    should_exit = force_exit = False


POST = {**HTTP, "method": "POST"}


async def whole() -> Any:
    return {"type": "http.request", "body": b"{}"}


def calling(ending: Ending, receive: Any) -> Any:
    """A call whose result takes many turns of the loop on its way to the client."""
    read = list[Any]()

    async def receive_once() -> Any:
        return await (silent() if read else receive())

    async def answer(send: Any, scope: anyio.CancelScope) -> None:
        await ending.closed.wait()
        for _ in range(500):
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"answer", "more_body": False})
        scope.cancel()

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        read.append(await receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async with anyio.create_task_group() as group:
            group.start_soon(answer, send, group.cancel_scope)
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

    return app, receive_once


async def test_the_connections_end_after_every_call_was_answered() -> None:
    ending, listening, sent = Ending(), Listening(), Sent()
    app, receive = calling(ending, whole)
    drain = DrainingApp(app)
    request = asyncio.ensure_future(drain(POST, receive, sent))
    while not sent:
        await asyncio.sleep(0)
    await shut_down(cast(Any, listening), ending.close, drain)
    assert sent[-1]["body"] == b"answer"
    assert listening.should_exit
    await asyncio.wait_for(request, 10)


async def test_half_a_call_and_a_stream_are_not_waited_for() -> None:
    async def half() -> Any:
        return {"type": "http.request", "body": b"{", "more_body": True}

    for scope, receive in ((POST, half), (HTTP, whole)):
        ending, listening, sent = Ending(), Listening(), Sent()
        reads, receive_once = calling(ending, receive)
        drain = DrainingApp(reads)
        request = asyncio.ensure_future(drain(scope, receive_once, sent))
        while not sent:
            await asyncio.sleep(0)
        await drain.wait_until_answered()
        await shut_down(cast(Any, listening), ending.close, drain)
        await asyncio.wait_for(request, 10)
        assert sent.whole


async def test_nothing_new_is_begun_while_calls_are_answered() -> None:
    drain, sent = DrainingApp(stream), Sent()
    drain.refuse()
    await drain(POST, whole, sent)
    assert sent[0]["status"] == 503
