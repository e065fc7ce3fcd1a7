"""The requests that the HTTP server accepts at all."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from skillbelt.serving.guard import ServedHosts, guarded
from skillbelt.serving.tokens import TokenBook

TOKEN = "a-token-that-nobody-knows"
GOOD = {"host": "127.0.0.1:8765", "authorization": f"Bearer {TOKEN}"}


async def _app(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"in"})


def status(
    headers: list[tuple[str, str]] | dict[str, str],
    method: str = "POST",
    host: str = "127.0.0.1",
    kind: str = "http",
    **options: Any,
) -> tuple[int, dict[str, str]]:
    """The response to a request: the status and headers; 0 when there was none."""
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    scope = {
        "type": kind,
        "method": method,
        "path": "/mcp",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs],
    }
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read of who may not come in")

    app = guarded(_app, tokens=TokenBook.of(TOKEN), host=host, port=8765, **options)
    anyio.run(app, scope, receive, send)
    if not sent:
        return 0, {}
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found


def test_a_body_with_two_lengths_ends_the_connection() -> None:
    """A proxy might take the rest of it for the next request, of another client."""
    given = {**GOOD, "content-length": "5", "transfer-encoding": "chunked"}
    code, headers = status(given)
    assert (code, headers["connection"]) == (400, "close")


def test_who_has_the_token_comes_in() -> None:
    assert status(GOOD)[0] == 200
    assert status({**GOOD, "authorization": f"bearer  {TOKEN} "})[0] == 200


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        TOKEN,
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        f"Basic {TOKEN}",
        "Bearer \xff",
    ],
)
def test_who_has_not_does_not(given: str | None) -> None:
    headers = {"host": GOOD["host"]} | ({} if given is None else {"authorization": given})
    code, told = status(headers)
    assert (code, told["www-authenticate"]) == (401, "Bearer")


def test_two_tokens_are_none() -> None:
    twice = [*GOOD.items(), ("authorization", "Bearer other")]
    assert status(twice)[0] == 401


@pytest.mark.parametrize(
    "host", ["localhost:8765", "127.0.0.1:8765", "[::1]:8765", "LOCALHOST:8765"]
)
def test_this_machine_has_several_names(host: str) -> None:
    assert status({**GOOD, "host": host})[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8765",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1.evil.example:8765",
        "localhost:8765@evil.example",
        "",
    ],
)
def test_a_name_that_was_made_to_lead_here_is_not_answered(host: str) -> None:
    assert status({**GOOD, "host": host})[0] == 421


def test_no_name_and_two_names_are_not_answered() -> None:
    token = ("authorization", GOOD["authorization"])
    assert status([token])[0] == 421
    assert status([token, ("host", GOOD["host"]), ("host", "evil.example")])[0] == 421


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://localhost:3000",
        "https://127.0.0.1:8765",
        "http://127.0.0.1:8765.evil.example",
        "",
    ],
)
def test_pages_of_others_may_not_call(origin: str) -> None:
    assert status({**GOOD, "origin": origin})[0] == 403


def test_its_own_pages_and_those_it_was_told_of_may() -> None:
    assert status({**GOOD, "origin": "http://127.0.0.1:8765"})[0] == 200
    code, told = status({**GOOD, "origin": "https://app.example"}, origins=["https://app.example"])
    assert (code, told["access-control-allow-origin"]) == (200, "https://app.example")


def test_a_browser_may_ask_first_without_the_token() -> None:
    asks = {
        "host": GOOD["host"],
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    code, told = status(asks, "OPTIONS", origins=["https://app.example"])
    assert (code, told["access-control-allow-origin"]) == (200, "https://app.example")
    foreign = {**asks, "origin": "https://evil.example"}
    code, told = status(foreign, "OPTIONS", origins=["https://app.example"])
    assert code == 400
    assert "access-control-allow-origin" not in told


def test_a_server_for_everybody_answers_to_addresses_and_names_it_knows() -> None:
    hosts = ServedHosts("0.0.0.0", 8765, ["skills.example"])
    for name in ("192.168.0.7:8765", "[fe80::1]:8765", "localhost:8765", "skills.example"):
        assert hosts.allows([name]), name
    for name in ("evil.example:8765", "192.168.0.7:80", "192.168.0.7", "a.192.168.0.7:8765"):
        assert not hosts.allows([name]), name


def test_a_named_host_answers_to_that_name() -> None:
    hosts = ServedHosts("skills.internal", 80)
    assert hosts.allows(["skills.internal:80"])
    assert hosts.allows(["skills.internal"])
    assert not hosts.allows(["localhost:80"])


def test_nothing_but_http_is_spoken() -> None:
    assert status(GOOD, kind="websocket") == (0, {})
