"""The doors of the console: who comes in, and what no request can do."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest

from skillbelt import Runtime
from skillbelt.console.app import MAX_FORM_BYTES, PAGES
from skillbelt.console.live import MAX_STREAMS_OF_ONE, Live
from skillbelt.console.parts import ConsoleParts
from skillbelt.console.people import AccessRules, Person, TrustedProxy
from skillbelt.console.sign_in import COOKIE
from skillbelt.permission.waiting import EveryRequest
from skillbelt.serving.tokens import Holder, TokenBook, hash_token
from tests.console.desks import TOKEN, console, fill
from tests.tree import Tree

pytestmark = pytest.mark.anyio

PROXY = AccessRules(
    roles={"ada": "admin", "vic": "viewer"}, proxy=TrustedProxy("x-user", ("127.0.0.1",))
)


@pytest.fixture
def belt(tree: Tree) -> Iterator[Runtime]:
    with Runtime(fill(tree).project) as belt:
        yield belt


PLAIN = [page.path for page in PAGES if page.method == "GET" and "{" not in page.path]


async def test_every_page_is_there_for_a_viewer(belt: Runtime) -> None:
    async with console(belt) as browser:
        browser.sign_in("vic", "viewer")
        for path in PLAIN:
            answer = await browser.get(path)
            assert answer.status_code == 200, path


@pytest.mark.parametrize("page", [one for one in PAGES if one.method == "GET"])
async def test_no_page_is_there_for_a_stranger(belt: Runtime, page: object) -> None:
    async with console(belt) as browser:
        browser.client.cookies.clear()
        answer = await browser.get(page.path)  # type: ignore[attr-defined]
        assert answer.status_code == 303
        assert answer.headers["location"] == "/sign-in"


async def test_a_link_signs_in_and_leads_to_the_inbox(belt: Runtime) -> None:
    async with console(belt) as browser:
        browser.client.cookies.clear()
        token = browser.signs.make_link_token(Person("ada", "admin"))
        answer = await browser.get(f"/sign-in?token={token}")
        assert answer.status_code == 200
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "Inbox" in await browser.read("/")
        again = await browser.get(f"/sign-in?token={token}")
        assert again.status_code == 403


async def test_a_token_signs_in_by_a_form_and_not_by_an_address(belt: Runtime) -> None:
    async with console(belt) as browser:
        browser.client.cookies.clear()
        assert (await browser.get(f"/sign-in?token={TOKEN}")).status_code == 403
        answer = await browser.client.post("/sign-in", data={"token": TOKEN})
        assert COOKIE in answer.headers["set-cookie"]


async def test_a_token_that_is_bound_to_a_user_does_not_sign_in(belt: Runtime) -> None:
    book = TokenBook({hash_token(TOKEN): Holder(user="bob", answers=True)})
    async with console(belt, tokens=book) as browser:
        answer = await browser.client.post("/sign-in", data={"token": TOKEN})
        assert answer.status_code == 403


async def test_guessing_is_slowed_down(belt: Runtime) -> None:
    async with console(belt) as browser:
        found = [
            (await browser.client.post("/sign-in", data={"token": f"wrong-{n}"})).status_code
            for n in range(15)
        ]
        assert found[0] == 403
        assert found[-1] == 429


async def test_signing_out_ends_the_session_everywhere(belt: Runtime) -> None:
    async with console(belt) as browser:
        kept = browser.client.cookies.get(COOKIE)
        assert (await browser.send("/sign-out", {})).status_code == 303
        browser.client.cookies.set(COOKIE, kept or "")
        assert (await browser.get("/")).status_code == 303


async def test_a_form_without_its_token_changes_nothing(belt: Runtime) -> None:
    async with console(belt) as browser:
        answer = await browser.client.post("/skills/pdf", data={"change": "disable"})
        assert answer.status_code == 403
        assert belt.settings.for_skill("pdf").enabled


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1:9999"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_other_hosts_and_origins_are_refused(
    belt: Runtime, headers: dict[str, str], status: int
) -> None:
    async with console(belt) as browser:
        assert (await browser.get("/", headers=headers)).status_code == status
        answer = await browser.send("/skills/pdf", {"change": "disable"}, headers=headers)
        assert answer.status_code == status
        assert (await browser.get("/api/v1/skills", headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("path", "form", "role"),
    [
        ("/inbox/x", {"answer": "once"}, "viewer"),
        ("/runs/x/stop", {}, "viewer"),
        ("/skills/pdf", {"change": "disable"}, "approver"),
        ("/runs/x/again", {}, "approver"),
        ("/doctor/attack", {}, "approver"),
    ],
)
async def test_a_role_that_is_too_low_changes_nothing(
    belt: Runtime, path: str, form: dict[str, str], role: str
) -> None:
    async with console(belt) as browser:
        browser.sign_in("vic", role)  # type: ignore[arg-type]
        answer = await browser.send(path, form)
        assert answer.status_code == 403
        assert "this needs the role" in answer.text


async def test_a_trusted_proxy_says_who_it_is(belt: Runtime) -> None:
    async with console(belt, access=PROXY) as browser:
        browser.client.cookies.clear()
        assert (await browser.get("/")).status_code == 303
        page = await browser.get("/", headers={"x-user": "ada"})
        assert "ada" in page.text
        assert (await browser.get("/", headers={"x-user": "eve"})).status_code == 403
        twice = [("x-user", "vic"), ("x-user", "ada")]
        assert (await browser.get("/", headers=twice)).status_code == 303


async def test_a_header_from_elsewhere_says_nothing(belt: Runtime) -> None:
    rules = PROXY._replace(proxy=TrustedProxy("x-user", ("10.0.0.1",)))
    async with console(belt, access=rules) as browser:
        browser.client.cookies.clear()
        assert (await browser.get("/", headers={"x-user": "ada"})).status_code == 303


async def test_every_answer_forbids_scripts_frames_and_other_origins(belt: Runtime) -> None:
    async with console(belt) as browser:
        for path in ("/", "/nothing", "/sign-in", "/static/console.css", "/log/export"):
            policy = (await browser.get(path)).headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy


async def test_no_page_has_a_script_or_a_style_of_its_own(belt: Runtime) -> None:
    async with console(belt) as browser:
        for path in (*PLAIN, "/skills/pdf"):
            page = await browser.read(path)
            assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page), path
            assert not re.search(r'(src|href)="(https?:)?//', page), path


async def test_a_page_that_is_not_there_says_so(belt: Runtime) -> None:
    async with console(belt) as browser:
        assert (await browser.get("/nothing")).status_code == 404
        assert (await browser.get("/static/../app.py")).status_code == 404
        assert (await browser.get("/static/%2e%2e/app.py")).status_code == 404
        assert (await browser.get("/skills/nothing")).status_code == 404
        assert (await browser.client.put("/")).status_code == 405


async def test_a_form_that_is_too_large_is_refused(belt: Runtime) -> None:
    async with console(belt) as browser:
        answer = await browser.send("/inbox/x", {"reason": "x" * MAX_FORM_BYTES})
        assert answer.status_code == 413


async def test_too_many_requests_wait(belt: Runtime) -> None:
    async with console(belt) as browser:
        for _ in range(600):
            answer = await browser.get("/nothing")
            if answer.status_code == 429:
                break
        assert answer.status_code == 429
        assert answer.headers["retry-after"]


async def test_the_api_below_takes_a_bearer_token_and_no_cookie(belt: Runtime) -> None:
    async with console(belt) as browser:
        assert (await browser.get("/api/v1/skills")).status_code == 401
        bearer = {"authorization": f"Bearer {TOKEN}"}
        answer = await browser.get("/api/v1/skills", headers=bearer)
        assert [one["name"] for one in answer.json()["skills"]] == ["pdf"]
        assert (await browser.get("/health")).json()["status"]


async def test_a_mounted_console_has_its_own_paths(belt: Runtime) -> None:
    async with console(belt, root="/console", listens=False) as browser:
        page = await browser.read("/console/skills")
        assert 'href="/console/skills/pdf"' in page
        assert 'href="/console/static/console.css' in page
        assert (await browser.get("/skills")).status_code == 401
        answer = await browser.get("/console/sign-in")
        assert answer.status_code == 200


async def test_a_link_works_while_others_guess(belt: Runtime) -> None:
    async with console(belt) as browser:
        browser.client.cookies.clear()
        token = browser.signs.make_link_token(Person("ada", "admin"))
        for n in range(15):
            await browser.client.post("/sign-in", data={"token": f"wrong-{n}"})
        answer = await browser.get(f"/sign-in?token={token}")
        assert COOKIE in answer.headers["set-cookie"]


async def test_wrong_links_do_not_use_up_the_tries_of_the_form(belt: Runtime) -> None:
    async with console(belt) as browser:
        for n in range(15):
            assert (await browser.get(f"/sign-in?token=wrong-{n}")).status_code == 403
        answer = await browser.client.post("/sign-in", data={"token": TOKEN})
        assert COOKIE in answer.headers["set-cookie"]


async def test_a_preview_does_not_use_a_link_up(belt: Runtime) -> None:
    async with console(belt) as browser:
        browser.client.cookies.clear()
        token = browser.signs.make_link_token(Person("ada", "admin"))
        answer = await browser.client.head(f"/sign-in?token={token}")
        assert "set-cookie" not in answer.headers
        assert COOKIE in (await browser.get(f"/sign-in?token={token}")).headers["set-cookie"]


async def test_nothing_looks_at_the_store_once_the_streams_are_closed(belt: Runtime) -> None:
    before = set(threading.enumerate())
    live = Live(belt, EveryRequest(belt.store))
    assert live.open("ada") is not None
    live.close()
    left = set(threading.enumerate()) - before
    assert not [one for one in left if one.name == "skillbelt-live"]


async def test_one_person_has_so_many_streams(belt: Runtime) -> None:
    parts = ConsoleParts(belt, listens=False)
    try:
        streams = [parts.live.open("ada") for _ in range(MAX_STREAMS_OF_ONE)]
        assert None not in streams
        assert parts.live.open("ada") is None
        assert parts.live.open("bob") is not None
        assert streams[0] is not None
        parts.live.leave(streams[0])
        assert parts.live.open("ada") is not None
    finally:
        parts.close()
