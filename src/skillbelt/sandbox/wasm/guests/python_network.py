"""The Python host's network: `http.client` and `urllib.request` by way of the engine."""

import errno
import http.client
import io
import urllib.request
from http import HTTPStatus
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit

from wit_world.imports import http as door  # type: ignore[import-not-found]

# Said anew by whoever carries the message.
_HOP = frozenset(("connection", "content-length", "host", "keep-alive", "transfer-encoding"))


class _Wire:
    """What `http.client` takes for a socket: the request is made when the answer is wanted."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._sent = bytearray()

    def sendall(self, data: Any) -> None:
        self._sent += data

    def makefile(self, mode: str = "rb", *options: object) -> io.BytesIO:
        head, _, body = bytes(self._sent).partition(b"\r\n\r\n")
        self._sent.clear()
        line, _, rest = head.partition(b"\r\n")
        method, target, _ = line.decode("latin-1").split(" ", 2)
        headers = http.client.parse_headers(io.BytesIO(rest + b"\r\n\r\n"))
        if headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = _joined(body)
        url = target if urlsplit(target).scheme else self._base + target
        kept = [(name, value) for name, value in headers.items() if name.lower() not in _HOP]
        return io.BytesIO(_answer(method, url, kept, body))

    def settimeout(self, seconds: float | None) -> None:
        """The engine keeps the time of a run."""

    def setsockopt(self, *_: object) -> None:
        """There is no socket."""

    def shutdown(self, how: int) -> None:
        """There is no socket."""

    def close(self) -> None:
        """There is no socket."""


def _joined(chunks: bytes) -> bytes:
    body = bytearray()
    while chunks:
        size, _, chunks = chunks.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        body += chunks[:length]
        chunks = chunks[length + 2 :]
    return bytes(body)


def _answer(method: str, url: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
    try:
        given = door.fetch(door.Request(method, url, headers, body))
    except Exception as error:
        reason = getattr(error, "value", None)
        raise PermissionError(errno.EACCES, reason or str(error)) from None
    lines = [f"HTTP/1.1 {given.status} {_phrase(given.status)}"]
    lines += [f"{k}: {v}" for k, v in given.headers if k.lower() not in _HOP or method == "HEAD"]
    if method != "HEAD":
        lines.append(f"Content-Length: {len(given.body)}")
    head = "\r\n".join([*lines, "Connection: close", "", ""])
    return head.encode("latin-1", "replace") + bytes(given.body)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


class _Connection(http.client.HTTPConnection):
    _scheme = "http"

    def connect(self) -> None:
        """Every host is reached by the engine, or refused by it."""
        tunnel = getattr(self, "_tunnel_host", None)
        host = tunnel or self.host
        port = getattr(self, "_tunnel_port", None) if tunnel else self.port
        scheme = "https" if tunnel else self._scheme
        host = f"[{host}]" if ":" in host else host
        usual = (scheme, port) in (("http", 80), ("https", 443))
        self.sock = _Wire(f"{scheme}://{host}" if usual else f"{scheme}://{host}:{port}")


class _SecureConnection(_Connection):
    default_port = 443
    _scheme = "https"

    def __init__(self, host: str, port: int | None = None, **options: Any) -> None:
        for name in ("context", "key_file", "cert_file", "check_hostname"):
            options.pop(name, None)
        super().__init__(host, port, **options)


class _Handler(urllib.request.AbstractHTTPHandler):
    def __init__(self, debuglevel: int = 0, **_: object) -> None:
        super().__init__(debuglevel)

    def http_open(self, request: urllib.request.Request) -> Any:
        return self._opened(_Connection, request)

    def https_open(self, request: urllib.request.Request) -> Any:
        return self._opened(_SecureConnection, request)

    def _opened(self, kind: type[_Connection], request: urllib.request.Request) -> Any:
        try:
            return self.do_open(kind, request)
        except PermissionError as error:
            raise URLError(error) from None

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_


def install() -> None:
    """Let the standard library's clients use the engine's door."""
    library: Any = http.client
    library.HTTPConnection, library.HTTPSConnection = _Connection, _SecureConnection
    for kept, name in ((_Connection, "HTTPConnection"), (_SecureConnection, "HTTPSConnection")):
        kept.__name__ = kept.__qualname__ = name
        kept.__module__ = "http.client"
    requests: Any = urllib.request
    requests.HTTPHandler = requests.HTTPSHandler = _Handler
    # A proxy named in the environment is the way for programs with sockets.
    requests.getproxies = dict
