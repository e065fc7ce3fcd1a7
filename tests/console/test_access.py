"""Who may come in is what the access file says now, and who calls is what the connection says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillbelt import Runtime
from skillbelt.console.limits import SIGN_IN, name_caller
from skillbelt.console.people import AccessFile, AccessRules, Person, TrustedProxy
from skillbelt.console.sign_in import COOKIE, ProviderWord, SignIns
from skillbelt.errors import ConfigError
from skillbelt.serving.answers import HttpRefusal
from tests.console.desks import Browser, console, fill
from tests.tree import Tree

pytestmark = pytest.mark.anyio

ISSUER = "https://id.example"
OIDC = f'[oidc]\nissuer = "{ISSUER}"\nclient_id = "skillbelt"\n'
PROXY = TrustedProxy("", ("10.0.0.1", "10.0.0.2"), "x-forwarded-for")


@pytest.fixture
def belt(tree: Tree) -> Iterator[Runtime]:
    with Runtime(fill(tree).project) as belt:
        yield belt


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    write(path, ada="admin")
    return path


def write(path: Path, more: str = "", **roles: str) -> None:
    """An access file with a provider and the roles of people."""
    lines = [f'{name} = "{role}"' for name, role in roles.items()]
    path.write_text("\n".join(["[roles]", *lines, OIDC + more]), "utf-8")


def sign_in(browser: Browser, name: str = "ada", *groups: str, issuer: str = ISSUER) -> None:
    """Have the cookie of who signed in at a provider as an admin."""
    word = ProviderWord(issuer, name, groups)
    browser.client.cookies.set(COOKIE, browser.signs.begin(Person(name, "admin"), word))


async def test_a_role_that_is_taken_away_is_gone_with_the_next_request(
    belt: Runtime, file: Path
) -> None:
    async with console(belt, access=AccessFile(str(file))) as browser:
        sign_in(browser)
        assert (await browser.send("/skills/pdf", {"change": "disable"})).status_code == 303
        write(file, ada="viewer")
        answer = await browser.send("/skills/pdf", {"change": "enable"})
        assert answer.status_code == 403
        assert "you are viewer" in answer.text
        assert "Add skills" not in await browser.read("/skills")
        write(file, bob="viewer")
        answer = await browser.get("/")
        assert answer.status_code == 403
        assert "you have no role here" in answer.text
        assert "Sign out" not in answer.text


async def test_a_role_that_is_given_counts_with_the_next_request(belt: Runtime, file: Path) -> None:
    write(file, ada="viewer")
    async with console(belt, access=AccessFile(str(file))) as browser:
        sign_in(browser)
        assert (await browser.send("/skills/pdf", {"change": "disable"})).status_code == 403
        write(file, ada="admin")
        assert (await browser.send("/skills/pdf", {"change": "disable"})).status_code == 303


async def test_a_group_that_lost_its_role_opens_nothing(belt: Runtime, file: Path) -> None:
    write(file, more='[groups]\nops = "viewer"\n')
    async with console(belt, access=AccessFile(str(file))) as browser:
        sign_in(browser, "bob", "ops")
        assert (await browser.get("/")).status_code == 200
        write(file, more='[groups]\nothers = "viewer"\n')
        assert (await browser.get("/")).status_code == 403


async def test_a_cookie_of_another_provider_opens_nothing(belt: Runtime, file: Path) -> None:
    async with console(belt, access=AccessFile(str(file))) as browser:
        sign_in(browser, issuer="https://other.example")
        assert (await browser.get("/")).status_code == 303


async def test_the_cookie_of_a_provider_opens_nothing_without_one(belt: Runtime) -> None:
    async with console(belt) as browser:
        sign_in(browser)
        assert (await browser.get("/")).status_code == 303


async def test_a_file_that_is_wrong_lets_no_one_in_until_it_is_mended(
    belt: Runtime, file: Path
) -> None:
    async with console(belt, access=AccessFile(str(file))) as browser:
        sign_in(browser)
        file.write_text("[", "utf-8")
        answer = await browser.get("/")
        assert answer.status_code == 503
        assert str(file) not in answer.text
        file.unlink()
        assert (await browser.get("/")).status_code == 503
        write(file, ada="viewer")
        assert (await browser.get("/")).status_code == 200


def test_a_file_that_is_wrong_at_the_start_is_an_error(file: Path) -> None:
    file.write_text("[", "utf-8")
    with pytest.raises(ConfigError):
        AccessFile(str(file))


def test_a_new_secret_of_the_client_is_read(file: Path) -> None:
    secret = file.parent / "secret.txt"
    secret.write_text("old", "utf-8")
    write(file, more='client_secret_file = "secret.txt"\n')
    access = AccessFile(str(file))
    secret.write_text("new", "utf-8")
    found = access().oidc
    assert found is not None
    assert found.client_secret == "new"
    secret.unlink()
    with pytest.raises(HttpRefusal):
        access()


async def read_events(browser: Browser, after_first: Callable[[], None]) -> bytes:
    """What a stream of news says until it ends by itself; news come after its first words."""
    app, told = browser.app._console, list[dict[str, Any]]()

    async def send(message: Any) -> None:
        told.append(message)
        if len(told) == 2:  # the head, and the first words
            after_first()
            app.parts.live.tell("log", {"time": 1.0})

    cookie = f"{COOKIE}={browser.client.cookies.get(COOKIE)}".encode()
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": "/events", "root_path": "", "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:8766"), (b"cookie", cookie)],
        "client": ("127.0.0.1", 1), "http_version": "1.1",
    }  # fmt: skip
    await app(scope, anyio.sleep_forever, send)  # type: ignore[arg-type]
    return b"".join(one.get("body", b"") for one in told)


async def test_a_stream_ends_with_the_role(belt: Runtime, file: Path) -> None:
    async with console(belt, access=AccessFile(str(file))) as browser:
        sign_in(browser)
        assert b"log" not in await read_events(browser, lambda: write(file, bob="viewer"))


async def test_a_stream_ends_with_the_session(belt: Runtime) -> None:
    async with console(belt) as browser:
        session = browser.signs.find(browser.client.cookies.get(COOKIE) or "")
        assert session is not None
        assert b"log" not in await read_events(browser, lambda: browser.signs.end(session))


def test_a_cookie_holds_as_many_groups_as_it_can() -> None:
    many = tuple(f"group-{number}" for number in range(5_000))
    word = ProviderWord(ISSUER, "ada", (*many, "ops")).fit_cookie({"ops"})
    assert word.groups[0] == "ops"
    signs = SignIns()
    session = signs.find(signs.begin(Person("ada", "viewer"), word))
    assert session is not None
    assert session.word == word


# Who calls


async def guess(browser: Browser, **headers: str) -> int:
    """Try a wrong token."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await browser.client.post("/sign-in", data={"token": "wrong"}, headers=named)
    return answer.status_code


async def test_clients_of_a_trusted_proxy_have_tries_of_their_own(belt: Runtime) -> None:
    rules = AccessRules(proxy=PROXY)
    async with console(belt, access=rules, caller="10.0.0.1") as browser:
        for _ in range(SIGN_IN.burst):
            await guess(browser, x_forwarded_for="192.0.2.1")
        assert await guess(browser, x_forwarded_for="192.0.2.1") == 429
        assert await guess(browser, x_forwarded_for="192.0.2.2") == 403


async def test_what_a_client_writes_before_its_address_gives_no_tries(belt: Runtime) -> None:
    rules = AccessRules(proxy=PROXY)
    async with console(belt, access=rules, caller="10.0.0.1") as browser:
        found = [
            await guess(browser, x_forwarded_for=f"198.51.100.{n}, 192.0.2.1, 10.0.0.2")
            for n in range(SIGN_IN.burst + 1)
        ]
        assert found[-1] == 429


@pytest.mark.parametrize(
    ("caller", "proxy"),
    [
        ("10.0.0.9", PROXY),  # not the proxy
        ("10.0.0.1", PROXY._replace(client_header="")),  # the header is not named
    ],
)
async def test_an_untrusted_header_gives_no_tries(
    belt: Runtime, caller: str, proxy: TrustedProxy
) -> None:
    async with console(belt, access=AccessRules(proxy=proxy), caller=caller) as browser:
        found = [
            await guess(browser, x_forwarded_for=f"192.0.2.{n}") for n in range(SIGN_IN.burst + 1)
        ]
        assert found[-1] == 429


@pytest.mark.parametrize(
    ("given", "client"),
    [
        ([], "10.0.0.1"),
        (["192.0.2.1"], "192.0.2.1"),
        (["203.0.113.9, 192.0.2.1"], "192.0.2.1"),
        (["203.0.113.9", "192.0.2.1, 10.0.0.2"], "192.0.2.1"),
        (["10.0.0.2"], "10.0.0.2"),
        (["unknown"], "10.0.0.1"),
        (["192.0.2.1, <b>"], "10.0.0.1"),
        (["2001:db8::1"], "2001:db8::1"),
    ],
)
def test_the_last_address_that_no_proxy_has_is_the_client(given: list[str], client: str) -> None:
    assert PROXY.find_client("10.0.0.1", given) == client


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("2001:db8:0:1:ffff::9", "2001:db8:0:1::/64"),
        ("x", "x"),
    ],
)
def test_a_network_of_its_own_gives_no_more_tries(address: str, name: str) -> None:
    assert name_caller(address) == name


def test_a_proxy_that_names_no_one_needs_another_way_to_sign_in(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    table = '[proxy]\nclient_header = "X-Forwarded-For"\nfrom = ["10.0.0.1"]\n'
    path.write_text(table, "utf-8")
    with pytest.raises(ConfigError, match="names no way to sign in"):
        AccessFile(str(path))
    path.write_text(table + OIDC, "utf-8")
    assert AccessFile(str(path))().proxy == TrustedProxy("", ("10.0.0.1",), "x-forwarded-for")


async def test_a_proxy_that_names_no_one_signs_no_one_in(belt: Runtime) -> None:
    rules = AccessRules(default_role="admin", proxy=PROXY)
    async with console(belt, access=rules, caller="10.0.0.1") as browser:
        browser.client.cookies.clear()
        assert (await browser.get("/", headers={"": "ada"})).status_code == 303


# Cookies


@pytest.mark.parametrize(
    ("origin", "root", "name"),
    [
        ("https://skills.example", "", f"__Host-{COOKIE}"),
        ("https://skills.example", "/console", f"__Secure-{COOKIE}"),
        ("http://127.0.0.1:8766", "/console", COOKIE),
    ],
)
async def test_no_neighbour_can_set_the_cookie(
    belt: Runtime, origin: str, root: str, name: str
) -> None:
    async with console(belt, root=root, origins=(origin,)) as browser:
        token = browser.signs.make_link_token(Person("ada", "admin"))
        headers = {"host": origin.partition("//")[2]}
        answer = await browser.get(f"{root}/sign-in?token={token}", headers=headers)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{name}=")
        assert ("secure" in cookie.lower().split("; ")) == origin.startswith("https")
        assert f"path={root or '/'}" in cookie.lower().split("; ")
        assert "domain=" not in cookie.lower()
