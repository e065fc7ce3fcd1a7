"""Connections that take their time, on real sockets."""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvicorn

from skillbelt.serving.listening import PROGRESS_BYTES, limit_connections, timed_protocol
from tests import warm

HEAD = b"POST / HTTP/1.1\r\nHost: here\r\n"
WHOLE = HEAD + b"Content-Length: 0\r\nConnection: close\r\n\r\n"


class Served:
    """A server whose answers wait for `answer`."""

    def __init__(self, seconds: float, most: int) -> None:
        self.begun, self.answer = threading.Event(), threading.Event()
        self.protocol = timed_protocol(seconds, most)
        self._listening = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            self._app,
            log_config=None,
            lifespan="off",
            interface="asgi3",
            http=self.protocol,
        )
        self._server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self._server.run, args=([self._listening],))

    async def _app(self, _scope: Any, _receive: Any, send: Any) -> None:
        self.begun.set()
        await asyncio.to_thread(self.answer.wait)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answered"})

    def connect(self, data: bytes) -> socket.socket:
        made = socket.create_connection(self._listening.getsockname(), timeout=500)
        made.sendall(data)
        return made

    def ask(self) -> socket.socket:
        """A connection on which a request is being answered."""
        self.begun.clear()
        made = self.connect(WHOLE)
        assert self.begun.wait(150)
        return made

    def close(self) -> None:
        self.answer.set()
        self._server.should_exit = self._server.force_exit = True
        self.thread.join()


@contextmanager
def serving(seconds: float, most: int = 100) -> Iterator[Served]:
    served = Served(seconds, most)
    served.thread.start()
    try:
        yield served
    finally:
        served.close()


def rest(connection: socket.socket) -> bytes:
    """All that comes until the server ends the connection."""
    found = b""
    with suppress(ConnectionResetError, BrokenPipeError):
        while data := connection.recv(65_536):
            found += data
    return found


@pytest.mark.parametrize("begun", [b"", HEAD, WHOLE.replace(b"0", b"9") + b"half"])
def test_half_a_request_is_not_waited_for_without_end(begun: bytes) -> None:
    with serving(0.2) as served, served.connect(begun) as slow:
        assert rest(slow) == b""


def test_bytes_that_drip_gain_no_time() -> None:
    """Also of a request that was answered before it was there."""
    with serving(0.2) as served, served.connect(WHOLE.replace(b"0", b"99999")) as slow:
        served.answer.set()
        until = time.monotonic() + 150
        with suppress(ConnectionResetError, BrokenPipeError):
            while time.monotonic() < until:
                slow.sendall(b"x")
                time.sleep(0.02)
        assert time.monotonic() < until


def test_an_upload_that_goes_on_is_waited_for() -> None:
    """The end of its time is called in the loop, so that no clock decides."""
    begun = HEAD + b"Content-Length: 9\r\n\r\n"
    with serving(600) as served, served.connect(begun) as slow:
        assert served.begun.wait(150)
        [connection] = served.protocol.waiting
        assert connection.came == len(begun)

        async def end_time(came: int) -> list[Any]:
            connection.came += came
            connection._check_progress()
            return [*served.protocol.waiting]

        def after(came: int) -> list[Any]:
            return asyncio.run_coroutine_threadsafe(end_time(came), connection.loop).result(150)

        assert after(PROGRESS_BYTES) == [connection]
        assert after(PROGRESS_BYTES - 1) == [], "it began anew"
        assert rest(slow) == b""


def test_who_has_asked_may_wait_for_the_answer() -> None:
    with serving(600) as served, served.ask() as asked:
        assert served.protocol.waiting == {}, "no time counts any more"
        served.answer.set()
        assert b"answered" in rest(asked)


def test_who_has_not_asked_makes_room_for_who_comes() -> None:
    with serving(600, most=2) as served, served.ask() as asked, served.connect(HEAD) as idle:
        with served.ask() as late:
            assert rest(idle) == b""
            served.answer.set()
            assert b"answered" in rest(late)
        assert b"answered" in rest(asked)


def test_who_comes_when_all_have_asked_has_no_place() -> None:
    with serving(600, most=1) as served, served.ask() as asked, served.connect(b"") as late:
        assert rest(late) == b""
        served.answer.set()
        assert b"answered" in rest(asked)


def test_half_of_the_files_that_may_be_open_is_left_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = 1_024
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (files, files))
    assert [limit_connections(100), limit_connections(2_000)] == [100, 500]
    files = resource.RLIM_INFINITY
    assert limit_connections(2_000) == 2_000


def test_a_connection_waits_for_a_handle_and_the_log_stays_short() -> None:
    code = """
import logging, resource, socket
from skillbelt.serving.sockets import ListenAddress, open_socket
logging.basicConfig(format="%(message)s")
with open_socket(ListenAddress("127.0.0.1", 0)) as listening, socket.socket() as client:
    listening.setblocking(False)
    client.connect(listening.getsockname())
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, before[1]))
    for _ in range(3):
        try:
            listening.accept()
        except BlockingIOError:
            print("later")
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    listening.accept()[0].close()
    print("accepted")
"""
    done = warm.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["later"] * 3 + ["accepted"]
    assert done.stderr == "a connection waits: Too many open files (see ulimit -n)\n"
