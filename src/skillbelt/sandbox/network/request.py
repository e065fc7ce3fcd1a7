"""Parse a request to the proxy, so strictly that no server can read it differently."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from skillbelt.hosts import host_name, split_port
from skillbelt.text import one_line, shorten


class ProxyRefused(Exception):
    """A request is refused; the client sees the text."""


class ProxyRequest(NamedTuple):
    """The head of a request. `forward` is sent to the host first; empty for a tunnel."""

    host: str
    port: int
    forward: bytes
    body_bytes: int

    @property
    def tunnel(self) -> bool:
        """Whether bytes are relayed unchanged, after a CONNECT."""
        return not self.forward


_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_MAX_HEADERS = 100
_HOP = ("connection", "keep-alive", "te", "trailer", "upgrade", "transfer-encoding")


def parse_request(head: bytes) -> ProxyRequest:
    """Parse the head; raises ProxyRefused for anything ambiguous."""
    first, *lines = head.split(b"\r\n")
    method, target = _parse_request_line(first)
    headers = [_parse_header(line) for line in lines]
    if len(headers) > _MAX_HEADERS:
        raise ProxyRefused(f"the request has more than {_MAX_HEADERS} headers")
    if method == "CONNECT":
        host, port = _parse_authority(target, None)
        _check_host(headers, host, port, None)
        return ProxyRequest(host, port, b"", 0)
    return _parse_plain(method, target, headers)


def _parse_request_line(line: bytes) -> tuple[str, str]:
    parts = line.split(b" ")
    if len(parts) != 3 or parts[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise ProxyRefused("the request is not HTTP/1.1")
    method, target = parts[:2]
    if not method or not _TOKEN.issuperset(method):
        raise ProxyRefused("the method is not a token")
    if not target or any(byte <= 32 or byte >= 127 for byte in target):
        raise ProxyRefused("the URL contains a character that must be escaped")
    return method.decode(), target.decode()


def _parse_header(line: bytes) -> tuple[str, str]:
    name, colon, value = line.partition(b":")
    if not colon or not name or not _TOKEN.issuperset(name):
        raise ProxyRefused("a header is not `Name: value`")
    if any((byte < 32 and byte != 9) or byte == 127 for byte in value):
        raise ProxyRefused("a header contains a control character")
    return name.decode().lower(), value.decode("latin-1").strip(" \t")


def _parse_authority(text: str, default: int | None) -> tuple[str, int]:
    if "@" in text:
        raise ProxyRefused("an address with a user name in it is not accepted")
    if text.rpartition("]")[2].partition(":")[0].endswith("."):
        raise ProxyRefused("a host name must not end with a dot")
    try:
        host, port = split_port(text)
        if port is None and default is None:
            raise ValueError("the port is missing")
        if ":" in host and not text.startswith("["):
            raise ValueError("an IPv6 address needs brackets")
        return host_name(host), port or default or 0
    except ValueError as error:
        shown = shorten(one_line(text), 100)
        raise ProxyRefused(f"{shown!r} is not a host with a port: {error}") from error


def _check_host(
    headers: Iterable[tuple[str, str]], host: str, port: int, default: int | None
) -> None:
    """Refuse a Host header that differs from the URL: it would select another host."""
    values = [value for name, value in headers if name == "host"]
    if len(values) > 1:
        raise ProxyRefused("there is more than one Host header")
    for value in values:
        said = _parse_authority(value, default or port)
        if said != (host, port):
            raise ProxyRefused("the Host header names another host than the URL")


def _parse_plain(method: str, target: str, headers: list[tuple[str, str]]) -> ProxyRequest:
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() != "http":
        raise ProxyRefused("a proxy request must be for http://host/path, or a CONNECT")
    if "#" in target:
        raise ProxyRefused("the URL contains a fragment")
    if method == "TRACE":
        raise ProxyRefused("TRACE is not supported")
    cut = min((at for mark in "/?" if (at := rest.find(mark)) >= 0), default=len(rest))
    host, port = _parse_authority(rest[:cut], 80)
    _check_host(headers, host, port, 80)
    path = rest[cut:] if rest[cut : cut + 1] == "/" else f"/{rest[cut:]}"
    forward = _rewrite(method, path, host, port, headers)
    return ProxyRequest(host, port, forward, _body_length(headers))


def _body_length(headers: Iterable[tuple[str, str]]) -> int:
    if any(name == "transfer-encoding" for name, _ in headers):
        raise ProxyRefused("a body must come with its Content-Length, not in chunks")
    lengths = [value for name, value in headers if name == "content-length"]
    if not lengths:
        return 0
    if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
        raise ProxyRefused("the Content-Length is not one number")
    if len(lengths[0]) > 15:
        raise ProxyRefused("the Content-Length is too large")
    return int(lengths[0])


def _rewrite(method: str, path: str, host: str, port: int, headers: list[tuple[str, str]]) -> bytes:
    """Return the request for the host: one request, the last of its connection."""
    named = {
        word.strip().lower()
        for name, value in headers
        if name == "connection"
        for word in value.split(",")
    }
    # The client must not drop the header that bounds the body.
    dropped = (named | set(_HOP)) - {"content-length", "host"}
    kept = [
        (name, value)
        for name, value in headers
        if name not in dropped and name != "host" and not name.startswith("proxy-")
    ]
    shown = f"[{host}]" if ":" in host else host
    lines = [f"{method} {path} HTTP/1.1", f"host: {shown}{'' if port == 80 else f':{port}'}"]
    lines += [f"{name}: {value}" for name, value in kept]
    return "\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1")
