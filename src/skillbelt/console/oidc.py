"""Sign-in by OpenID Connect: the authorization code flow with PKCE.

Needs the `oidc` extra. The state of a flow is in a signed cookie, so that a sign-in can only be
finished in the browser that began it.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import anyio
import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from skillbelt.console.people import OidcProvider, is_safe_address
from skillbelt.console.sign_in import FLOW_SECONDS, OIDC_END, ProviderWord, Signer
from skillbelt.serving.answers import HttpRefusal
from skillbelt.untrusted_json import BadJson, read_json

logger = logging.getLogger(__name__)
# How long the metadata of a provider is cached. Keys are fetched again when one is unknown, but
# not more often than the second figure.
METADATA_SECONDS = 3600.0
KEYS_SECONDS = 30.0
TIMEOUT_SECONDS = 10.0
_MAX_BYTES = 2**20
_LEEWAY_SECONDS = 60
# Only asymmetric signatures: with a shared secret we could have signed the token ourselves.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")


class BegunFlow(NamedTuple):
    """The start of a sign-in: the URL to redirect to, and the cookie for the flow."""

    address: str
    cookie: str


class _Fetched(NamedTuple):
    """A document of the provider, and when it was read."""

    document: Mapping[str, Any]
    time: float


class OidcSignIn:
    """Signs people in at one provider. Used in one event loop."""

    def __init__(self, provider: OidcProvider, signer: Signer, address: str) -> None:
        """`address` is the public URL of the console."""
        self.provider, self._signer, self._address = provider, signer, address
        self._metadata: _Fetched | None = None
        self._keys: _Fetched | None = None
        self._used: dict[str, float] = {}
        self._lock: anyio.Lock | None = None

    async def begin(self) -> BegunFlow:
        """Begin a sign-in; HttpRefusal if the provider cannot be reached."""
        metadata = await self._read_metadata()
        state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
        async with self._client(metadata) as client:
            address, _ = client.create_authorization_url(
                metadata["authorization_endpoint"],
                state=state,
                nonce=nonce,
                code_verifier=verifier,
            )
        until = time.time() + FLOW_SECONDS
        document = [state, nonce, verifier, until, self.provider.issuer]
        return BegunFlow(address, self._signer.sign("oidc", document))

    async def finish(self, query: Mapping[str, str], cookie: str) -> ProviderWord:
        """Return what the provider says about the person who signed in.

        HttpRefusal for a callback that does not belong to a flow of this browser.
        """
        nonce, verifier = self._check_flow(query, cookie)
        if "error" in query:
            message = query.get("error_description") or query["error"]
            raise HttpRefusal("forbidden", f"the provider says: {message[:300]}")
        if query.get("iss", self.provider.issuer) != self.provider.issuer:
            raise HttpRefusal("forbidden", "the answer comes from another provider")
        if not query.get("code"):
            raise HttpRefusal("forbidden", "the provider sent no code")
        try:
            claims = await self._redeem(query["code"], verifier, nonce)
        except (AuthlibBaseError, JoseError, httpx2.HTTPError, KeyError, ValueError) as error:
            logger.warning("a sign-in by OpenID Connect failed: %r", error)
            raise HttpRefusal("forbidden", "the provider's answer cannot be trusted") from error
        return self._read_claims(claims)

    async def find_sign_out(self) -> str:
        """Return the URL to sign out at the provider; "" if it has none."""
        try:
            place = (await self._read_metadata()).get("end_session_endpoint")
        except HttpRefusal:
            return ""
        if not is_safe_address(place):
            return ""
        back = f"{self._address}/sign-in"
        query = {"client_id": self.provider.client_id, "post_logout_redirect_uri": back}
        return f"{place}{'&' if '?' in str(place) else '?'}{urlencode(query)}"

    def _check_flow(self, query: Mapping[str, str], cookie: str) -> tuple[str, str]:
        """Return the nonce and the verifier of a flow that this browser began; works once."""
        found = self._signer.read("oidc", cookie)
        again = "this sign-in was not begun in this browser, or took too long; begin again"
        if not isinstance(found, list) or len(found) != 5 or found[4] != self.provider.issuer:
            raise HttpRefusal("forbidden", again)
        state, nonce, verifier, until, _ = found
        now = time.time()
        same = hmac.compare_digest(query.get("state", "").encode(), str(state).encode())
        if not same or until < now or state in self._used:
            raise HttpRefusal("forbidden", again)
        self._used = {one: then for one, then in self._used.items() if then > now}
        self._used[state] = until
        return str(nonce), str(verifier)

    async def _redeem(self, code: str, verifier: str, nonce: str) -> Mapping[str, Any]:
        """Exchange the code; return the verified claims about the person."""
        metadata = await self._read_metadata()
        async with self._client(metadata) as client:
            token = await client.fetch_token(
                metadata["token_endpoint"],
                grant_type="authorization_code",
                code=code,
                code_verifier=verifier,
            )
        decoded = await self._decode(str(token["id_token"]), metadata)
        claims = CodeIDToken(
            decoded.claims,
            decoded.header,
            {
                "iss": {"essential": True, "value": self.provider.issuer},
                "aud": {"essential": True, "value": self.provider.client_id},
            },
            {
                "nonce": nonce,
                "client_id": self.provider.client_id,
                "access_token": token.get("access_token"),
            },
        )
        claims.validate(leeway=_LEEWAY_SECONDS)
        return dict(claims)

    async def _decode(self, text: str, metadata: Mapping[str, Any]) -> jwt.Token:
        said = metadata.get("id_token_signing_alg_values_supported")
        known = [one for one in said if one in ALGORITHMS] if isinstance(said, list) else []
        registry = JWSRegistry(algorithms=known or ["RS256"], strict_check_header=False)
        try:
            return jwt.decode(text, await self._read_keys(metadata), registry=registry)
        except (JoseError, ValueError):
            # The provider may have rotated its keys.
            keys = await self._read_keys(metadata, again=True)
            return jwt.decode(text, keys, registry=registry)

    def _read_claims(self, claims: Mapping[str, Any]) -> ProviderWord:
        provider = self.provider
        name = claims.get(provider.name_claim)
        if not isinstance(name, str) or not name:
            raise HttpRefusal("forbidden", f"the provider did not send {provider.name_claim}")
        if provider.name_claim == "email" and claims.get("email_verified") is not True:
            raise HttpRefusal(
                "forbidden",
                "the provider has not verified your address; name another claim in name_claim",
            )
        groups = claims.get(provider.groups_claim)
        listed = [one for one in groups if isinstance(one, str)] if isinstance(groups, list) else []
        return ProviderWord(provider.issuer, name, tuple(listed))

    # Metadata of the provider

    def _client(self, metadata: Mapping[str, Any]) -> AsyncOAuth2Client:
        said = metadata.get("token_endpoint_auth_methods_supported")
        methods = said if isinstance(said, list) else ["client_secret_basic"]
        secret, method = self.provider.client_secret, "none"
        if secret:
            basic = "client_secret_basic" in methods or "client_secret_post" not in methods
            method = "client_secret_basic" if basic else "client_secret_post"
        return AsyncOAuth2Client(
            self.provider.client_id,
            secret or None,
            token_endpoint_auth_method=method,
            scope=" ".join(dict.fromkeys(("openid", *self.provider.scopes))),
            redirect_uri=f"{self._address}{OIDC_END}",
            code_challenge_method="S256",
            timeout=TIMEOUT_SECONDS,
        )

    async def _read_metadata(self) -> Mapping[str, Any]:
        async with self._get_lock():
            found = self._metadata
            if found is None or time.monotonic() - found.time > METADATA_SECONDS:
                issuer = self.provider.issuer
                place = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
                document = await self._fetch(place)
                self._check_metadata(document)
                found = self._metadata = _Fetched(document, time.monotonic())
            return found.document

    def _check_metadata(self, document: Mapping[str, Any]) -> None:
        if document.get("issuer") != self.provider.issuer:
            raise self._refuse(f"it calls itself {str(document.get('issuer'))[:200]!r}")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not is_safe_address(document.get(name)):
                raise self._refuse(f"its {name} is missing or not https")

    async def _read_keys(self, metadata: Mapping[str, Any], *, again: bool = False) -> KeySet:
        async with self._get_lock():
            found, now = self._keys, time.monotonic()
            age = now - found.time if found is not None else 0.0
            if found is None or age > (KEYS_SECONDS if again else METADATA_SECONDS):
                document = await self._fetch(metadata["jwks_uri"])
                found = self._keys = _Fetched(document, now)
            return KeySet.import_key_set(dict(found.document))  # type: ignore[arg-type]

    async def _fetch(self, address: str) -> Mapping[str, Any]:
        """Fetch a JSON document of the provider, with a size limit; HttpRefusal on failure."""
        data = b""
        try:
            async with (
                httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as client,
                client.stream("GET", address, headers={"accept": "application/json"}) as answer,
            ):
                if answer.status_code != 200:
                    raise self._refuse(f"it answers {answer.status_code} for {address}")
                async for piece in answer.aiter_bytes():
                    data += piece
                    if len(data) > _MAX_BYTES:
                        raise self._refuse(f"{address} is too long")
            found = read_json(data)
        except (httpx2.HTTPError, BadJson, ValueError) as error:
            raise self._refuse(f"{address}: {type(error).__name__}") from error
        if not isinstance(found, dict):
            raise self._refuse(f"{address} is not a JSON object")
        return found

    def _refuse(self, reason: str) -> HttpRefusal:
        logger.warning("the OpenID provider %s cannot be used: %s", self.provider.issuer, reason)
        return HttpRefusal("not_ready", f"the provider cannot be used now: {reason}")

    def _get_lock(self) -> anyio.Lock:
        if self._lock is None:
            self._lock = anyio.Lock()
        return self._lock
