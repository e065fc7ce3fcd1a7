"""A small OpenID provider over HTTP, with faults that a test can ask for."""

from __future__ import annotations

import base64
import hashlib
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from skillbelt.console.people import AccessRules, OidcProvider
from tests.desks import until

CLIENT, SECRET = "skillbelt", "the secret of the client"


@cache
def _make_key(number: int) -> RSAKey:
    """Return a key; to make one takes long, so all providers have the same."""
    return RSAKey.generate_key(2048, {"kid": f"key {number}"})


class Provider:
    """Signs `claims` in at once, without asking; a test changes what it says before that."""

    def __init__(self) -> None:
        self.url = ""
        self.claims: dict[str, Any] = {
            "sub": "1",
            "email": "ada@example.com",
            "email_verified": True,
        }
        self.changed: dict[str, Any] = {}  # claims of the ID token that are not as they should be
        self.metadata: dict[str, Any] = {}  # the same of what it says of itself
        self._numbers = itertools.count(1)
        self.key = self.signing = _make_key(0)
        self.key_requests = 0
        self.asked: list[dict[str, str]] = []  # the queries of authorization requests
        self._codes: dict[str, dict[str, str]] = {}

    def rotate(self) -> None:
        """Sign with a new key from now on."""
        self.key = self.signing = _make_key(next(self._numbers))

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._describe),
                Route("/keys", self._keys),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    async def _describe(self, _: Request) -> Response:
        said = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "end_session_endpoint": f"{self.url}/leave",
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
            **self.metadata,
        }
        return JSONResponse(said)

    async def _keys(self, _: Request) -> Response:
        self.key_requests += 1
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    async def _authorize(self, request: Request) -> Response:
        query = dict(request.query_params)
        self.asked.append(query)
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        code = f"code-{len(self._codes)}"
        self._codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.url}
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode(back)}", 302)

    async def _token(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        query = self._codes.pop(form.get("code", ""), None)
        made = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(made).decode().rstrip("=")
        if (
            query is None
            or request.headers.get("authorization") != f"Basic {basic}"
            or challenge != query["code_challenge"]
            or form.get("redirect_uri") != query["redirect_uri"]
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        return JSONResponse(
            {
                "access_token": "access",
                "token_type": "Bearer",
                "id_token": self._sign(query["nonce"]),
            }
        )

    def _sign(self, nonce: str) -> str:
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce}
        claims |= {**self.claims, **self.changed}
        said = {name: value for name, value in claims.items() if value is not None}
        header = {"alg": "RS256", "kid": self.signing.kid}
        return jwt.encode(header, said, self.signing)


def trusting(provider: Provider, **more: Any) -> AccessRules:
    """Rules that let the people of a provider in."""
    return AccessRules(
        roles={"ada@example.com": "admin"},
        oidc=OidcProvider(provider.url, CLIENT, SECRET, **more),
        groups={"ops": "approver", "all": "viewer"},
    )


@contextmanager
def serve_provider(host: str = "127.0.0.1") -> Iterator[Provider]:
    """A provider on a free port of this machine; by another name it is another site."""
    provider = Provider()
    config = uvicorn.Config(provider.app(), port=0, log_level="error", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    provider.url = f"http://{host}:{port}"
    try:
        yield provider
    finally:
        server.should_exit = True
        thread.join()
