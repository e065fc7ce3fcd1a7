"""The network of a guest: single HTTP requests, which the runtime makes for it through the proxy.

A worker has no sockets, so it sends its requests to the runtime. They go through the proxy of the
run, as in the other sandboxes; the proxy decides which hosts may be reached.
"""

import http.client
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from skillbelt.sandbox.inside.bridge import open_port
from skillbelt.sandbox.protocol import Job

_METHOD = re.compile(r"[A-Z]{1,20}")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_MAX_URL_CHARS = 8192
_MAX_HEADERS = 100
# Headers of the connection, which a guest may not set.
_RESERVED = frozenset(
    ("connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization",
     "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade")
)  # fmt: skip
_PORTS = {"http": 80, "https": 443}


class _RequestRefused(Exception):
    """The request cannot be made; the text says why."""


class FetchResult(NamedTuple):
    """The response for the guest: the head as it is sent to the worker, and the body."""

    head: dict[str, object]
    body: bytes = b""


class _GuestRequest(NamedTuple):
    method: str
    scheme: str
    host: str
    port: int
    target: str
    headers: dict[str, str]
    body: bytes


class GuestFetcher:
    """Makes the requests of one run. `socket_path` is the proxy's Unix socket on the host."""

    def __init__(self, socket_path: str, max_bytes: int) -> None:
        self._socket_path, self._max_bytes = socket_path, max_bytes
        self._lock = threading.Lock()
        self._port = 0
        self._connection: http.client.HTTPConnection | None = None
        self._closed = False

    def fetch(self, asked: Any, body: bytes, deadline: float) -> FetchResult:
        """Make a request; a failure of the guest or the server is returned, not raised."""
        try:
            return self._send(_check_request(asked, body), deadline)
        except _RequestRefused as error:
            return FetchResult({"error": str(error)})
        except (OSError, http.client.HTTPException, ValueError) as error:
            return FetchResult({"error": f"the request failed: {_describe(error)}"})

    def close(self) -> None:
        """Abort the current request and refuse further ones."""
        with self._lock:
            self._closed = True
            connection = self._connection
        end = connection.sock if connection is not None else None
        if end is not None:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _send(self, request: _GuestRequest, deadline: float) -> FetchResult:
        connection = self._connect(request, max(0.1, deadline - time.monotonic()))
        try:
            connection.putrequest(request.method, request.target, skip_accept_encoding=True)
            for name, value in request.headers.items():
                connection.putheader(name, value)
            if request.body or request.method in ("POST", "PUT", "PATCH"):
                connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body or None)
            response = connection.getresponse()
            found = self._read_body(response, deadline)
            headers = [(name.lower(), value) for name, value in response.getheaders()]
            return FetchResult({"status": response.status, "headers": headers}, found)
        finally:
            connection.close()

    def _connect(self, request: _GuestRequest, seconds: float) -> http.client.HTTPConnection:
        with self._lock:
            if self._closed:
                raise _RequestRefused("the run is over")
            self._port = self._port or open_port(self._socket_path)
            connection: http.client.HTTPConnection
            if request.scheme == "https":
                connection = http.client.HTTPSConnection(
                    "127.0.0.1", self._port, timeout=seconds, context=ssl.create_default_context()
                )
                connection.set_tunnel(request.host, request.port)
            else:
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
            self._connection = connection
        return connection

    def _read_body(self, response: http.client.HTTPResponse, deadline: float) -> bytes:
        data = bytearray()
        while piece := response.read1(2**16):
            data += piece
            if len(data) > self._max_bytes:
                raise _RequestRefused(f"the response has more than {self._max_bytes:,} bytes")
            if time.monotonic() > deadline:
                raise _RequestRefused("the run has timed out")
        return bytes(data)


def proxy_socket(job: Job) -> str:
    """Return the host path of the job's proxy socket; empty without network."""
    if not job.bridge:
        return ""
    inside = os.path.normpath(job.bridge[-1])
    for mount in sorted(job.mounts, key=lambda each: -len(each.target)):
        target = os.path.normpath(mount.target)
        if inside == target or inside.startswith(f"{target}/"):
            return mount.source + inside[len(target) :]
    return ""


def _check_request(asked: Any, body: bytes) -> _GuestRequest:
    if not isinstance(asked, Mapping):
        raise _RequestRefused("it is not a request")
    method, url = str(asked.get("method", "")).upper(), str(asked.get("url", ""))
    if not _METHOD.fullmatch(method) or method in ("CONNECT", "TRACE"):
        raise _RequestRefused("the method is not allowed")
    if len(url) > _MAX_URL_CHARS or not url.isascii() or any(char <= " " for char in url):
        raise _RequestRefused("the URL is too long, or contains blanks or non-ASCII characters")
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        raise _RequestRefused("the URL is not http or https, or contains a user name")
    port = parts.port or _PORTS[parts.scheme]
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port == _PORTS[parts.scheme] else f"{host}:{port}"
    # A proxy gets the whole URL; through a tunnel the server gets the path.
    target = path if parts.scheme == "https" else f"http://{place}{path}"
    return _GuestRequest(
        method=method,
        scheme=parts.scheme,
        host=parts.hostname,
        port=port,
        target=target,
        headers=_check_headers(asked.get("headers")),
        body=body,
    )


def _check_headers(given: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in (given if isinstance(given, list) else [])[:_MAX_HEADERS]:
        name, value = (str(each) for each in pair)
        if not _TOKEN.fullmatch(name) or any(char in value for char in "\r\n\0"):
            raise _RequestRefused("a header is invalid")
        if name.lower() not in _RESERVED:
            found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _describe(error: Exception) -> str:
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return "".join(char if char.isprintable() else "?" for char in said)[:300]
