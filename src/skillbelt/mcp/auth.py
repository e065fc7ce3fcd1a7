"""Who may speak to the HTTP server at all: the right token, from the right place.

Looked at before anything else of a request is read.
"""

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


class Guard:
    """Lets through what has the token, an allowed Host and no foreign Origin."""

    def __init__(self, app: ASGIApp, token: str, hosts: Hosts, origins: Iterable[str]) -> None:
        self._app, self._token, self._hosts = app, token.encode(), hosts
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer for who may not come in; pass on the rest."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return None
        refusal = self._refusal(Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, headers: Headers) -> Response | None:
        if not self._hosts.allows(headers.getlist("host")):
            return Response("this is not the host you mean", 421)
        if any(origin not in self._origins for origin in headers.getlist("origin")):
            return Response("pages of this origin may not call; see --origin", 403)
        if not self._knows_token(headers.getlist("authorization")):
            return Response("a bearer token is needed", 401, {"WWW-Authenticate": "Bearer"})
        return None

    def _knows_token(self, given: list[str]) -> bool:
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        same = hmac.compare_digest(token.strip().encode("utf-8", "surrogatepass"), self._token)
        return same and scheme.lower() == "bearer"


class Hosts:
    """The names that this server answers to.

    A page can make any name lead to this machine, so one that is unknown is not answered. Where
    the server listens for everybody, an address in place of a name is answered too: that can not
    be made to lead elsewhere.
    """

    def __init__(self, host: str, port: int, more: Iterable[str] = ()) -> None:
        names = {host, *(LOOPBACK if host in (*LOOPBACK, *_WILDCARDS) else ())}
        self._names = {f"{name}:{port}" for name in names} | {*more}
        if port in (80, 443):
            self._names |= names
        self._port, self._any_address = port, host in _WILDCARDS

    def allows(self, given: list[str]) -> bool:
        """Whether a request with these Host headers is meant for this server."""
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
    """What a browser calls the pages of this server itself."""
    names = LOOPBACK if host in (*LOOPBACK, *_WILDCARDS) else (host,)
    return [f"http://{name}:{port}" for name in names]


def host_of(origin: str) -> str:
    """The name of an origin, with its port if it is not the usual one."""
    return urlsplit(origin).netloc.lower()


def guarded(
    app: ASGIApp, *, token: str, host: str, port: int, origins: Iterable[str] = ()
) -> ASGIApp:
    """The app behind the guard; pages of the `origins` may call it from a browser."""
    others = [origin.rstrip("/") for origin in origins]
    hosts = Hosts(host, port, (host_of(origin) for origin in others))
    guard: ASGIApp = Guard(app, token, hosts, [*own_origins(host, port), *others])
    if not others:
        return guard
    # A browser asks first, without the token, whether it may.
    return CORSMiddleware(
        guard,
        allow_origins=others,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["Mcp-Session-Id"],
    )
