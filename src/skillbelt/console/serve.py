"""The console and the JSON API behind one address."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from skillbelt.console.app import Console, SignInWays
from skillbelt.console.endpoints import ALL_ENDPOINTS as ALL_ENDPOINTS
from skillbelt.console.people import (
    OidcProvider,
    ReadAccess,
    admit_tokens_only,
    is_safe_address,
)
from skillbelt.console.sign_in import SignIns
from skillbelt.errors import ConfigError, MissingExtra
from skillbelt.events import NewEvent
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.api import serve_api
from skillbelt.serving.guard import ServedHosts, host_of, own_origins
from skillbelt.serving.tokens import TokenBook
from skillbelt.store import SessionKey, Store

if TYPE_CHECKING:
    from skillbelt.console.oidc import OidcSignIn

API = "/api"
# The paths of the probes.
_PROBES = ("/health", "/ready", "/metrics")
MOUNTED = "/console"
_ELSEWHERE = "The console is at the address that `skillbelt console` printed.\n"
_KEY = SessionKey("skillbelt:console", "", "key")


class Gateway:
    """Routes each request to the API or to the console, by its path."""

    def __init__(self, api: ASGIApp, console: Console, root: str = "") -> None:
        """`root` is the path of the console; all other paths belong to the API.

        With a private root, `/` does not reveal where the console is.
        """
        self._api, self._console, self._root = api, console, root

    def close(self) -> None:
        """End the streams and jobs of the console."""
        self._console.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope.get("path", "")
        if scope["type"] == "http" and path.startswith(f"{API}/"):
            inner = path.removeprefix(API)
            scope = {**scope, "path": inner, "raw_path": inner.encode()}
            return await self._api(scope, receive, send)
        if scope["type"] == "http" and self._is_page(path):
            return await self._console({**scope, "root_path": self._root}, receive, send)
        if scope["type"] == "http" and path == "/" and self._root != MOUNTED:
            return await PlainTextResponse(_ELSEWHERE, 404)(scope, receive, send)
        return await self._api(scope, receive, send)

    def _is_page(self, path: str) -> bool:
        if not self._root:
            return path not in _PROBES
        return path == self._root or path.startswith(f"{self._root}/")


class Served(NamedTuple):
    """The address of the console, and who may sign in."""

    host: str
    port: int
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    access: ReadAccess = admit_tokens_only
    root: str = ""
    listens: bool = True


def build_console(
    api: ASGIApp, *, belt: Runtime, tokens: TokenBook, sign_ins: SignIns, served: Served
) -> Gateway:
    """Return the application with the console and the API."""
    known = ServedHosts(
        served.host, served.port, [*map(host_of, served.origins), *_lower(served.hosts)]
    )
    # The host names of a proxy also count as its origins.
    named = [f"{scheme}://{one}" for one in _lower(served.hosts) for scheme in ("http", "https")]
    console = Console(
        belt,
        SignInWays(
            sign_ins=sign_ins,
            tokens=tokens,
            access=served.access,
            secure=any(one.startswith("https:") for one in served.origins),
            root=served.root,
            open_oidc=partial(_open_oidc, sign_ins, served),
        ),
        hosts=known,
        origins=[*own_origins(served.host, served.port), *served.origins, *named],
        listens=served.listens,
    )
    return Gateway(api, console, served.root)


def _open_oidc(sign_ins: SignIns, served: Served, provider: OidcProvider) -> OidcSignIn:
    try:
        from skillbelt.console.oidc import OidcSignIn  # extra: oidc
    except ModuleNotFoundError as error:
        raise MissingExtra("oidc", "sign-in by OpenID Connect") from error
    host = f"[{served.host}]" if ":" in served.host else served.host
    origin = served.origins[0] if served.origins else f"http://{host}:{served.port}"
    if not is_safe_address(origin):
        raise ConfigError(
            f"{origin}: a provider sends people back by https only; name the address of the "
            "proxy with --origin https://…"
        )
    return OidcSignIn(provider, sign_ins.signer, f"{origin.rstrip('/')}{served.root}")


def make_private_root() -> str:
    """Return a random path that no other program knows.

    Browsers send a cookie to every port of a machine. A cookie for this path is sent to no other
    server on this machine, and none can link to it.
    """
    return f"/{secrets.token_urlsafe(15)}"


async def serve_with_console(
    belt: Runtime,
    listening: socket.socket,
    tokens: TokenBook,
    served: Served,
    *,
    sign_ins: SignIns | None = None,
    ready: Callable[[], None],
) -> None:
    """Serve the console and the API until a signal arrives. Calls `ready` first.

    Without `sign_ins`, servers with the same store and tokens accept each other's.
    """
    sign_ins = sign_ins or _shared_sign_ins(belt.store, tokens)
    build = partial(build_console, belt=belt, tokens=tokens, sign_ins=sign_ins, served=served)
    await serve_api(
        belt,
        listening,
        served.host,
        tokens,
        origins=served.origins,
        hosts=served.hosts,
        ready=ready,
        endpoints=ALL_ENDPOINTS,
        beside=build,
    )


def _shared_sign_ins(store: Store, tokens: TokenBook) -> SignIns:
    """Return the sign-ins that servers with the same store and tokens share.

    The digests of tokens may be in a file that others can read, so they do not suffice as a key.
    """
    secret = hmac.new(_shared_key(store), b"console\0" + tokens.secret, hashlib.sha256)
    return SignIns(secret.digest())


def _shared_key(store: Store) -> bytes:
    """Return the random key of all servers that share the store: the first one that was written.

    Each start writes one, so that the entry is recent and does not expire.
    """
    store.append(_KEY, [NewEvent("key", data={"key": secrets.token_hex(32)})])
    return str(store.events(_KEY)[0].data["key"]).encode()


def _lower(names: Iterable[str]) -> list[str]:
    return [one.lower() for one in names]
