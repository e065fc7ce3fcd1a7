"""Signing in by OpenID Connect, at a real provider over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from skillbelt import Runtime
from skillbelt.console import oidc
from skillbelt.console.people import AccessRules, OidcProvider
from skillbelt.console.sign_in import COOKIE, OIDC_BEGIN, OIDC_END
from tests.console.desks import URL, Browser, console, fill
from tests.console.providers import CLIENT, SECRET, Provider, serve_provider, trusting
from tests.tree import Tree

pytestmark = pytest.mark.anyio


@pytest.fixture
def belt(tree: Tree) -> Iterator[Runtime]:
    with Runtime(fill(tree).project) as belt:
        yield belt


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    with serve_provider() as provider:
        yield provider


@pytest.fixture
def provider(running: Provider) -> Provider:
    running.claims = {"sub": "1", "email": "ada@example.com", "email_verified": True}
    running.changed, running.metadata, running.asked = {}, {}, []
    running.signing = running.key
    return running


@pytest.fixture
async def browser(belt: Runtime, provider: Provider) -> AsyncIterator[Browser]:
    async with console(belt, access=trusting(provider)) as browser:
        browser.client.cookies.clear()
        yield browser


async def begin(browser: Browser) -> str:
    """Go to the provider; the address that it sends the browser back to."""
    answer = await browser.get(OIDC_BEGIN)
    assert answer.status_code == 303, answer.text
    async with httpx2.AsyncClient() as client:
        back = await client.get(answer.headers["location"])
    assert back.status_code == 302, back.text
    address = back.headers["location"]
    assert address.startswith(f"{URL}{OIDC_END}?")
    return str(address)


async def role_in(browser: Browser) -> str:
    """The role after a sign-in; "" for none."""
    answer = await browser.get(await begin(browser))
    session = browser.signs.find(browser.client.cookies.get(COOKIE) or "")
    assert (answer.status_code == 200) == (session is not None), answer.text
    return session.person.role if session else ""


async def test_a_person_signs_in(browser: Browser) -> None:
    assert "Sign in with your organisation" in await browser.read("/sign-in")
    assert await role_in(browser) == "admin"
    page = await browser.read("/")
    assert "ada@example.com" in page


async def test_the_cookie_of_the_flow_is_for_this_browser(
    browser: Browser, provider: Provider
) -> None:
    answer = await browser.get(OIDC_BEGIN)
    cookie = answer.headers["set-cookie"].lower()
    for word in ("httponly", "samesite=lax", "path=/sign-in", "max-age=600"):
        assert word in cookie
    query = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    assert len(query["state"]) > 40
    assert len(query["nonce"]) > 40
    assert query["client_id"] == CLIENT
    assert query["redirect_uri"] == f"{URL}{OIDC_END}"
    assert "code_verifier" not in query


async def test_another_browser_cannot_end_a_sign_in(browser: Browser) -> None:
    address = await begin(browser)
    browser.client.cookies.clear()
    assert (await browser.get(address)).status_code == 403


async def test_a_sign_in_ends_once(browser: Browser) -> None:
    answer = await browser.get(OIDC_BEGIN)
    flow = browser.client.cookies.get(f"{COOKIE}_oidc")
    async with httpx2.AsyncClient() as client:
        address = (await client.get(answer.headers["location"])).headers["location"]
    assert (await browser.get(address)).status_code == 200
    browser.client.cookies.clear()
    browser.client.cookies.set(f"{COOKIE}_oidc", str(flow))
    answer = await browser.get(address)
    assert answer.status_code == 403
    assert "not begun in this browser" in answer.text


@pytest.mark.parametrize(
    ("name", "value"),
    [("state", "other"), ("state", ""), ("code", ""), ("code", "guessed"), ("iss", "https://x")],
)
async def test_a_changed_answer_is_refused(browser: Browser, name: str, value: str) -> None:
    parts = urlsplit(await begin(browser))
    query = {**dict(parse_qsl(parts.query)), name: value}
    assert (await browser.get(parts.path, params=query)).status_code == 403
    assert browser.client.cookies.get(COOKIE) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"aud": [CLIENT, "another"]},
        {"azp": "another"},
        {"nonce": "other"},
        {"nonce": None},
        {"exp": 1},
        {"exp": None},
        {"iat": 2**33},
        {"sub": None},
        {"at_hash": "wrong"},
        {"email_verified": False},
        {"email_verified": "true"},
        {"email": ""},
        {"email": ["ada@example.com"]},
        {"email": "ada@example.com\n"},
        {"email": "eve@example.com"},
    ],
)
async def test_no_other_token_signs_in(
    browser: Browser, provider: Provider, changed: dict[str, Any]
) -> None:
    provider.changed = changed
    assert await role_in(browser) == ""


async def test_another_key_signs_no_one_in(browser: Browser, provider: Provider) -> None:
    provider.signing = RSAKey.generate_key(2048, {"kid": str(provider.key.kid)})
    assert await role_in(browser) == ""


@pytest.mark.parametrize("alg", ["HS256", "none"])
async def test_an_algorithm_with_a_key_that_others_know_is_refused(
    browser: Browser, provider: Provider, monkeypatch: pytest.MonkeyPatch, alg: str
) -> None:
    def sign(nonce: str) -> str:
        claims = {"iss": provider.url, "aud": CLIENT, "nonce": nonce, "iat": 1, "exp": 2**33}
        key = OctKey.import_key(SECRET)
        header = {"alg": alg, "kid": provider.key.kid}
        return jwt.encode(header, {**claims, **provider.claims}, key, algorithms=[alg])

    monkeypatch.setattr(provider, "_sign", sign)
    assert await role_in(browser) == ""


async def test_a_new_key_is_asked_for(
    browser: Browser, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "KEYS_SECONDS", -1.0)
    assert await role_in(browser) == "admin"
    provider.rotate()
    before = provider.key_requests
    browser.client.cookies.clear()
    assert await role_in(browser) == "admin"
    assert provider.key_requests == before + 1


async def test_keys_are_not_asked_for_again_and_again(browser: Browser, provider: Provider) -> None:
    assert await role_in(browser) == "admin"
    before = provider.key_requests
    provider.signing = RSAKey.generate_key(2048, {"kid": "unknown"})
    for _ in range(3):
        browser.client.cookies.clear()
        assert await role_in(browser) == ""
    assert provider.key_requests == before


@pytest.mark.parametrize(
    ("groups", "role"),
    [(["ops", "all"], "approver"), (["all"], "viewer"), (["x"], ""), ("ops", ""), ([["ops"]], "")],
)
async def test_groups_give_roles(
    browser: Browser, provider: Provider, groups: object, role: str
) -> None:
    provider.claims |= {"email": "bob@example.com", "groups": groups}
    assert await role_in(browser) == role


async def test_a_role_by_name_counts_alone(browser: Browser, provider: Provider) -> None:
    provider.claims["groups"] = ["all"]
    assert await role_in(browser) == "admin"


async def test_another_claim_can_be_the_name(belt: Runtime, provider: Provider) -> None:
    provider.claims = {"sub": "ada-1", "roles": ["ops"]}
    known = trusting(provider, name_claim="sub", groups_claim="roles")
    async with console(belt, access=known) as browser:
        browser.client.cookies.clear()
        assert await role_in(browser) == "approver"


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://other.example"},
        {"authorization_endpoint": None},
        {"token_endpoint": "http://example.com/token"},
        {"jwks_uri": "file:///etc/passwd"},
    ],
)
async def test_a_provider_that_is_not_itself_is_not_used(
    browser: Browser, provider: Provider, metadata: dict[str, Any]
) -> None:
    provider.metadata = metadata
    answer = await browser.get(OIDC_BEGIN)
    assert answer.status_code == 503
    assert "the provider cannot be used now" in answer.text


async def test_a_provider_that_is_away_is_told(belt: Runtime, provider: Provider) -> None:
    known = AccessRules(oidc=OidcProvider("http://127.0.0.1:1", CLIENT, SECRET))
    async with console(belt, access=known) as browser:
        browser.client.cookies.clear()
        assert (await browser.get(OIDC_BEGIN)).status_code == 503
        assert (await browser.get("/sign-in")).status_code == 200


async def test_an_error_of_the_provider_is_shown_as_text(browser: Browser) -> None:
    answer = await browser.get(OIDC_BEGIN)
    state = dict(parse_qsl(urlsplit(answer.headers["location"]).query))["state"]
    query = {"state": state, "error": "access_denied", "error_description": "<b>no</b>"}
    answer = await browser.get(OIDC_END, params=query)
    assert answer.status_code == 403
    assert "&lt;b&gt;no&lt;/b&gt;" in answer.text


async def test_signing_out_leads_to_the_provider_too(browser: Browser, provider: Provider) -> None:
    assert await role_in(browser) == "admin"
    answer = await browser.send("/sign-out", {})
    assert (await browser.get("/")).status_code == 303
    page = await browser.read(answer.headers["location"])
    assert f"{provider.url}/leave?client_id={CLIENT}" in page.replace("&amp;", "&")
    assert (await browser.get("/")).status_code == 303


async def test_without_a_provider_there_is_no_such_page(belt: Runtime) -> None:
    async with console(belt) as browser:
        browser.client.cookies.clear()
        assert (await browser.get(OIDC_BEGIN)).status_code == 404
        assert (await browser.get(OIDC_END)).status_code == 404
