"""A real HTTP server on this machine that misbehaves on request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Reply(NamedTuple):
    """How to answer one path."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}
    etag: str = ""
    length: int | None = None  # the value of Content-Length; None for the true one
    chunk: int = 0  # bytes sent at a time ...
    pause: float = 0.0  # ... with this many seconds between
    stall: float = 0.0  # seconds before the first byte of the answer


class Server:
    """Answers from `pages`; everything else is 404. `requests` lists the paths asked for."""

    def __init__(self) -> None:
        self.pages: dict[str, Reply | bytes] = {}
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()
        self.busy = self.most_busy = 0
        self._lock = threading.Lock()
        handler = type("OwnHandler", (Handler,), {"desk": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def serve(self) -> None:
        self._http.serve_forever(poll_interval=0.01)

    def close(self) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()

    def reply(self, path: str, headers: dict[str, str]) -> Reply:
        with self._lock:
            self.requests.append(path)
            self.headers.append(headers)
            self.busy += 1
            self.most_busy = max(self.busy, self.most_busy)
        page = self.pages.get(path, Reply(b"nothing here", status=404))
        return Reply(page) if isinstance(page, bytes) else page

    def wait(self, seconds: float) -> None:
        """Pause, but not beyond the end of the test."""
        self.released.wait(seconds)

    def done(self) -> None:
        with self._lock:
            self.busy -= 1


class Handler(BaseHTTPRequestHandler):
    """Sends what the server's page says, faults included."""

    desk: Server

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.desk.reply(self.path, headers)
        try:
            self._answer(reply)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self.desk.done()

    def _answer(self, reply: Reply) -> None:
        self.desk.wait(reply.stall)
        if reply.etag and self.headers.get("If-None-Match") == reply.etag:
            self.send_response(304)
            self.end_headers()
            return
        self.send_response(reply.status)
        length = len(reply.body) if reply.length is None else reply.length
        self.send_header("Content-Length", str(length))
        if reply.etag:
            self.send_header("ETag", reply.etag)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self._send(reply)

    def _send(self, reply: Reply) -> None:
        size = reply.chunk or max(len(reply.body), 1)
        for start in range(0, len(reply.body), size):
            self.wfile.write(reply.body[start : start + size])
            self.wfile.flush()
            if reply.pause:
                self.desk.wait(reply.pause)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def running() -> Iterator[Server]:
    """A server for as long as the block lasts."""
    server = Server()
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


def eventually(what: Callable[[], bool], seconds: float = 500) -> None:
    """Wait until the condition holds; fail if it never does."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)
