"""What a client asks of the proxy, read so strictly that no reader could take it otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from skillbelt.hosts import host_name, split_port
from skillbelt.text import one_line, shorten


class Refused(Exception):
    """What was asked for is not done; the text is shown to whoever asked."""


class Request(NamedTuple):
    """The head of what a client asked. `forward` is what the host is sent first; none: a tunnel."""

    host: str
    port: int
    forward: bytes
    body_bytes: int

    @property
    def tunnel(self) -> bool:
        """Whether bytes are carried as they are, after a CONNECT."""
        return not self.forward


_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_MAX_HEADERS = 100
_HOP = ("connection", "keep-alive", "te", "trailer", "upgrade", "transfer-encoding")


def parse_request(head: bytes) -> Request:
    """What the head asks for, read strictly; Refused when two readers could differ about it."""
    first, *lines = head.split(b"\r\n")
    method, target = _request_line(first)
    headers = [_header(line) for line in lines]
    if len(headers) > _MAX_HEADERS:
        raise Refused(f"the request has more than {_MAX_HEADERS} headers")
    if method == "CONNECT":
        host, port = _authority(target, None)
        _check_host(headers, host, port, None)
        return Request(host, port, b"", 0)
    return _plain_request(method, target, headers)


def _request_line(line: bytes) -> tuple[str, str]:
    parts = line.split(b" ")
    if len(parts) != 3 or parts[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise Refused("the request is not HTTP/1.1")
    method, target = parts[:2]
    if not method or not _TOKEN.issuperset(method):
        raise Refused("the method is not a word")
    if not target or any(byte <= 32 or byte >= 127 for byte in target):
        raise Refused("the address holds a character that must be escaped")
    return method.decode(), target.decode()


def _header(line: bytes) -> tuple[str, str]:
    name, colon, value = line.partition(b":")
    if not colon or not name or not _TOKEN.issuperset(name):
        raise Refused("a header is not `Name: value`")
    if any((byte < 32 and byte != 9) or byte == 127 for byte in value):
        raise Refused("a header holds a control character")
    return name.decode().lower(), value.decode("latin-1").strip(" \t")


def _authority(text: str, default: int | None) -> tuple[str, int]:
    if "@" in text:
        raise Refused("an address with a user name in it is not accepted")
    if text.rpartition("]")[2].partition(":")[0].endswith("."):
        raise Refused("a host name is written without a dot at its end")
    try:
        host, port = split_port(text)
        if port is None and default is None:
            raise ValueError("there is no port")
        if ":" in host and not text.startswith("["):
            raise ValueError("an IPv6 address stands in brackets")
        return host_name(host), port or default or 0
    except ValueError as error:
        shown = shorten(one_line(text), 100)
        raise Refused(f"{shown!r} is not a host with a port: {error}") from error


def _check_host(
    headers: Iterable[tuple[str, str]], host: str, port: int, default: int | None
) -> None:
    """A Host header says the same as the address, or it is a way to be another host."""
    values = [value for name, value in headers if name == "host"]
    if len(values) > 1:
        raise Refused("there is more than one Host header")
    for value in values:
        said = _authority(value, default or port)
        if said != (host, port):
            raise Refused("the Host header names another host than the address")


def _plain_request(method: str, target: str, headers: list[tuple[str, str]]) -> Request:
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() != "http":
        raise Refused("a proxy is asked for http://host/path, or with CONNECT for all else")
    if "#" in target:
        raise Refused("the address holds a fragment")
    if method == "TRACE":
        raise Refused("TRACE is not carried")
    cut = min((at for mark in "/?" if (at := rest.find(mark)) >= 0), default=len(rest))
    host, port = _authority(rest[:cut], 80)
    _check_host(headers, host, port, 80)
    path = rest[cut:] if rest[cut : cut + 1] == "/" else f"/{rest[cut:]}"
    forward = _forwarded(method, path, host, port, headers)
    return Request(host, port, forward, _body_bytes(headers))


def _body_bytes(headers: Iterable[tuple[str, str]]) -> int:
    if any(name == "transfer-encoding" for name, _ in headers):
        raise Refused("a body must come with its Content-Length, not in chunks")
    lengths = [value for name, value in headers if name == "content-length"]
    if not lengths:
        return 0
    if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
        raise Refused("the Content-Length is not one number")
    if len(lengths[0]) > 15:
        raise Refused("the Content-Length is too large")
    return int(lengths[0])


def _forwarded(
    method: str, path: str, host: str, port: int, headers: list[tuple[str, str]]
) -> bytes:
    """The request as the host is to see it: one, and the last of its connection."""
    named = {
        word.strip().lower()
        for name, value in headers
        if name == "connection"
        for word in value.split(",")
    }
    # Whoever may choose what is left out could leave out what bounds the body.
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
