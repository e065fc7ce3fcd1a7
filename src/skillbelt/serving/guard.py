"""Check the token, Host and Origin of an HTTP request before anything else of it is read."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from skillbelt.serving.answers import HttpAnswer, HttpRefusal
from skillbelt.serving.tokens import Holder, TokenBook

# The key in the scope of an accepted request: the holder of its token.
HOLDER = "skillbelt.holder"
# Paths for probes without a token. They only say whether the server works.
OPEN_PATHS = frozenset(("/health", "/ready"))
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_WILDCARDS = ("0.0.0.0", "[::]")


class TokenGuard:
    """Accepts requests that have a token, an allowed Host and no foreign Origin."""

    def __init__(
        self, app: ASGIApp, tokens: TokenBook, hosts: ServedHosts, origins: Iterable[str]
    ) -> None:
        self._app, self._tokens, self._hosts = app, tokens, hosts
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request or pass it on."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return None
        holder, headers = None, Headers(scope=scope)
        refusal = refuse_headers(headers, self._hosts, self._origins)
        if refusal is None:
            holder = self._find_holder(headers.getlist("authorization"))
            is_open = scope["method"] == "GET" and scope["path"] in OPEN_PATHS
            if holder is None and not is_open:
                refusal = HttpRefusal("unauthorized", "a bearer token is required")
        if refusal is not None:
            return await HttpAnswer(send).error(refusal)
        return await self._app({**scope, HOLDER: holder}, receive, send)

    def _find_holder(self, given: list[str]) -> Holder | None:
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        found = self._tokens.find(token.strip())
        return found if scheme.lower() == "bearer" else None


def refuse_headers(
    headers: Headers, hosts: ServedHosts, origins: Collection[str]
) -> HttpRefusal | None:
    """Return why a request is refused before anything of it is read; None if it is not."""
    if not hosts.allows(headers.getlist("host")):
        return HttpRefusal("wrong_host", "wrong Host header for this server; see --host-name")
    if any(origin not in origins for origin in headers.getlist("origin")):
        return HttpRefusal("forbidden", "this origin is not allowed; see --origin")
    if "content-length" in headers and "transfer-encoding" in headers:
        # A proxy in front of this server may disagree about where the body ends (request
        # smuggling).
        message = "give either Content-Length or Transfer-Encoding"
        return HttpRefusal("wrong_arguments", message, closes=True)
    return None


class ServedHosts:
    """The Host headers that this server accepts.

    A web page can make any name resolve to this machine (DNS rebinding), so unknown names are
    refused. On a wildcard address any IP address is accepted too: it cannot be rebound.
    """

    def __init__(self, host: str, port: int, more: Iterable[str] = ()) -> None:
        names = {host, *(LOOPBACK if host in (*LOOPBACK, *_WILDCARDS) else ())}
        self._names = {f"{name}:{port}" for name in names} | {*more}
        if port in (80, 443):
            self._names |= names
        self._port, self._any_address = port, host in _WILDCARDS

    def allows(self, given: list[str]) -> bool:
        """Whether these Host headers name this server."""
        name = given[0].lower() if len(given) == 1 else ""
        return name in self._names or (self._any_address and self._is_address(name))

    def _is_address(self, name: str) -> bool:
        host, _, port = name.rpartition(":")
        try:
            ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return port == str(self._port)


def own_origins(host: str, port: int) -> list[str]:
    """Return the origins of this server itself."""
    names = LOOPBACK if host in (*LOOPBACK, *_WILDCARDS) else (host,)
    return [f"http://{name}:{port}" for name in names]


def host_of(origin: str) -> str:
    """Return the host of an origin, with its port unless it is the default one."""
    return urlsplit(origin).netloc.lower()


def guarded(
    app: ASGIApp,
    *,
    tokens: TokenBook,
    host: str,
    port: int,
    origins: Iterable[str] = (),
    hosts: Iterable[str] = (),
) -> ASGIApp:
    """Wrap the app in the guard; pages of the `origins` may call it from a browser.

    `hosts` are further names of the server, such as that of a load balancer in front of it.
    """
    others = [origin.rstrip("/") for origin in origins]
    known = ServedHosts(host, port, [*map(host_of, others), *(one.lower() for one in hosts)])
    guard: ASGIApp = TokenGuard(app, tokens, known, [*own_origins(host, port), *others])
    if not others:
        return guard
    # The preflight request of a browser carries no token.
    return CORSMiddleware(
        guard,
        allow_origins=others,
        allow_methods=["GET", "POST", "PUT", "DELETE"],
        allow_headers=["*"],
        expose_headers=["Mcp-Session-Id"],
    )
