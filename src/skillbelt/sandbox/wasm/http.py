"""The network of a guest: single requests, which the runtime makes for it through the proxy.

A worker has no sockets, so it can only ask. What it asks for goes through the proxy of the run, as
everything does in the other sandboxes; the proxy decides who may be reached.
"""

import http.client
import os
import re
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from skillbelt.sandbox.inside.bridge import open_port
from skillbelt.sandbox.protocol import Job

NOT_GRANTED = "network access is not granted"
_METHOD = re.compile(r"[A-Z]{1,20}")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_MAX_URL_CHARS = 8192
_MAX_HEADERS = 100
# What belongs to the connection is ours to say.
_OURS = frozenset(
    ("connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization",
     "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")
)  # fmt: skip
_PORTS = {"http": 80, "https": 443}


class _Refused(Exception):
    """The request can not be made; says why."""


class Answer(NamedTuple):
    """What the guest is given: the head as it is sent to the worker, and the body."""

    head: dict[str, object]
    body: bytes = b""


class _Request(NamedTuple):
    method: str
    scheme: str
    host: str
    port: int
    target: str
    headers: dict[str, str]
    body: bytes


class Fetcher:
    """Makes the requests of one run. `door` is where its proxy takes a port, on the host."""

    def __init__(self, door: str, max_bytes: int) -> None:
        self._door, self._max_bytes = door, max_bytes
        self._lock = threading.Lock()
        self._port = 0
        self._connection: http.client.HTTPConnection | None = None
        self._closed = False

    def fetch(self, asked: Any, body: bytes, deadline: float) -> Answer:
        """What came of a request; never raises for what a guest or a server does."""
        try:
            return self._made(_checked(asked, body), deadline)
        except _Refused as error:
            return Answer({"error": str(error)})
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Answer({"error": f"the request failed: {_words(error)}"})

    def close(self) -> None:
        """End what is going on; nothing is fetched any more."""
        with self._lock:
            self._closed = True
            connection = self._connection
        end = connection.sock if connection is not None else None
        if end is not None:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _made(self, request: _Request, deadline: float) -> Answer:
        connection = self._connect(request, max(0.1, deadline - time.monotonic()))
        try:
            connection.putrequest(request.method, request.target, skip_accept_encoding=True)
            for name, value in request.headers.items():
                connection.putheader(name, value)
            if request.body or request.method in ("POST", "PUT", "PATCH"):
                connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body or None)
            response = connection.getresponse()
            found = self._body(response, deadline)
            headers = [(name.lower(), value) for name, value in response.getheaders()]
            return Answer({"status": response.status, "headers": headers}, found)
        finally:
            connection.close()

    def _connect(self, request: _Request, seconds: float) -> http.client.HTTPConnection:
        with self._lock:
            if self._closed:
                raise _Refused("the run is over")
            self._port = self._port or open_port(self._door)
            connection: http.client.HTTPConnection
            if request.scheme == "https":
                import ssl

                connection = http.client.HTTPSConnection(
                    "127.0.0.1", self._port, timeout=seconds, context=ssl.create_default_context()
                )
                connection.set_tunnel(request.host, request.port)
            else:
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
            self._connection = connection
        return connection

    def _body(self, response: http.client.HTTPResponse, deadline: float) -> bytes:
        data = bytearray()
        while piece := response.read1(2**16):
            data += piece
            if len(data) > self._max_bytes:
                raise _Refused(f"the answer has more than {self._max_bytes:,} bytes")
            if time.monotonic() > deadline:
                raise _Refused("the time of the run is over")
        return bytes(data)


def door_of(job: Job) -> str:
    """Where the proxy of the job takes a port, as a path on the host; empty without one."""
    if not job.bridge:
        return ""
    inside = os.path.normpath(job.bridge[-1])
    for mount in sorted(job.mounts, key=lambda each: -len(each.target)):
        target = os.path.normpath(mount.target)
        if inside == target or inside.startswith(f"{target}/"):
            return mount.source + inside[len(target) :]
    return ""


def _checked(asked: Any, body: bytes) -> _Request:
    if not isinstance(asked, Mapping):
        raise _Refused("it is no request")
    method, url = str(asked.get("method", "")).upper(), str(asked.get("url", ""))
    if not _METHOD.fullmatch(method) or method in ("CONNECT", "TRACE"):
        raise _Refused("the method is not one that can be used")
    if len(url) > _MAX_URL_CHARS or not url.isascii() or any(char <= " " for char in url):
        raise _Refused("the address is too long, or holds blanks or what is no ASCII")
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        raise _Refused("the address is none of http or https, or names a user")
    port = parts.port or _PORTS[parts.scheme]
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port == _PORTS[parts.scheme] else f"{host}:{port}"
    # A proxy is told the whole address; through a tunnel the server is told its own part.
    target = path if parts.scheme == "https" else f"http://{place}{path}"
    return _Request(
        method=method,
        scheme=parts.scheme,
        host=parts.hostname,
        port=port,
        target=target,
        headers=_headers(asked.get("headers")),
        body=body,
    )


def _headers(given: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in (given if isinstance(given, list) else [])[:_MAX_HEADERS]:
        name, value = (str(each) for each in pair)
        if not _TOKEN.fullmatch(name) or any(char in value for char in "\r\n\0"):
            raise _Refused("a header is not one that can be sent")
        if name.lower() not in _OURS:
            found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _words(error: Exception) -> str:
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return "".join(char if char.isprintable() else "?" for char in said)[:300]
