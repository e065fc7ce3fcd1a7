"""Check the token, Host and Origin of an HTTP request before anything else of it is read."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_WILDCARDS = ("0.0.0.0", "[::]")


class TokenGuard:
    """Lets requests through that have the token, an allowed Host and no foreign Origin."""

    def __init__(
        self, app: ASGIApp, token: str, hosts: ServedHosts, origins: Iterable[str]
    ) -> None:
        self._app, self._token, self._hosts = app, token.encode(), hosts
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request or pass it on."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return None
        refusal = self._refuse(Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send)

    def _refuse(self, headers: Headers) -> Response | None:
        if not self._hosts.allows(headers.getlist("host")):
            return Response("wrong Host header for this server", 421)
        if any(origin not in self._origins for origin in headers.getlist("origin")):
            return Response("this origin is not allowed; see --origin", 403)
        if not self._has_token(headers.getlist("authorization")):
            return Response("a bearer token is required", 401, {"WWW-Authenticate": "Bearer"})
        return None

    def _has_token(self, given: list[str]) -> bool:
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        same = hmac.compare_digest(token.strip().encode("utf-8", "surrogatepass"), self._token)
        return same and scheme.lower() == "bearer"


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
    app: ASGIApp, *, token: str, host: str, port: int, origins: Iterable[str] = ()
) -> ASGIApp:
    """Wrap the app in the guard; pages of the `origins` may call it from a browser."""
    others = [origin.rstrip("/") for origin in origins]
    hosts = ServedHosts(host, port, (host_of(origin) for origin in others))
    guard: ASGIApp = TokenGuard(app, token, hosts, [*own_origins(host, port), *others])
    if not others:
        return guard
    # The preflight request of a browser carries no token.
    return CORSMiddleware(
        guard,
        allow_origins=others,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["Mcp-Session-Id"],
    )
