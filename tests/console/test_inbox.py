"""The inbox: requests of every process that shares the store, and what answers do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import anyio
import pytest

from skillbelt import Runtime
from skillbelt.console.approved import remember_approved
from skillbelt.permission.rules import Request
from skillbelt.permission.waiting import EveryRequest, Settled, WaitingRequests
from skillbelt.store import SessionKey, open_store
from tests.console.desks import SKILLS, Browser, console, fill, ids_of
from tests.desks import asked, result, until
from tests.tree import Tree

pytestmark = pytest.mark.anyio

RUN = Request(
    "run", ("make all",), ("make all",), summary="run `make all` with the skill pdf",
    agent="builder", session="app/ada/1", skill="pdf", hash="h1", origin="local",
    metadata={"call": {"command": ["make", "all"], "sandbox": "bubblewrap"}},
)  # fmt: skip


@pytest.fixture
def belt(tree: Tree) -> Iterator[Runtime]:
    with Runtime(fill(tree).project) as belt:
        yield belt


def elsewhere(belt: Runtime, project: str = "/other/project") -> WaitingRequests:
    """The requests of another process, of any project, with a connection of its own."""
    return WaitingRequests(store=open_store(belt.settings), project=project)


async def wait_for(browser: Browser, number: int = 1) -> str:
    """The page once so many requests are on it."""
    with anyio.fail_after(150):
        while len(ids_of(page := await browser.read("/"))) != number:
            await anyio.sleep(0.02)
    return page


async def get(future: Future[Settled]) -> Settled:
    return await anyio.to_thread.run_sync(lambda: result(future))


async def test_a_request_of_another_project_shows_who_asks_what(belt: Runtime) -> None:
    async with console(belt) as browser:
        asking = asked(elsewhere(belt), RUN)
        page = await wait_for(browser)
        for text in ("make all", "builder", "app/ada/1", "/other/project", "bubblewrap"):
            assert text in page
        assert "(1) Inbox" in page
        await browser.send(f"/inbox/{ids_of(page)[0]}", {"answer": "reject"})
        await get(asking)


@pytest.mark.parametrize("kind", ["once", "conversation", "always", "reject"])
async def test_an_answer_reaches_the_process_that_waits(belt: Runtime, kind: str) -> None:
    async with console(belt) as browser:
        asking = asked(elsewhere(belt), RUN)
        [id] = ids_of(await wait_for(browser))
        answer = await browser.send(f"/inbox/{id}", {"answer": kind, "reason": "not\nnow"})
        assert answer.headers["location"] == f"/?notice={kind}"
        settled = await get(asking)
        assert settled.answer is not None
        assert settled.answer.kind == kind
        assert settled.answer.by == "console ada"
        assert settled.answer.message == ("not now" if kind == "reject" else "")
        await wait_for(browser, 0)


async def test_an_answer_is_news_and_not_looked_for(belt: Runtime) -> None:
    """A process that looks only every minute has it as soon as it is given."""
    async with console(belt) as browser:
        desk = WaitingRequests(
            store=open_store(belt.settings), project="/other/project", poll_seconds=600.0
        )
        asking = asked(desk, RUN)
        [id] = ids_of(await wait_for(browser))
        await browser.send(f"/inbox/{id}", {"answer": "once"})
        assert (await get(asking)).by == "once"


async def test_the_log_says_who_allowed_it(belt: Runtime) -> None:
    async with console(belt) as browser:
        other = Runtime(settings=belt.settings)
        found: list[bool] = []

        def check() -> None:
            found.append(other.gate.check(RUN).allowed)

        thread = threading.Thread(target=check)
        thread.start()
        [id] = ids_of(await wait_for(browser))
        await browser.send(f"/inbox/{id}", {"answer": "once"})
        await anyio.to_thread.run_sync(thread.join)
        assert found == [True]
        [event] = belt.gate.audit.read(type="decision")
        assert event.data["answered_by"] == "console ada"
        assert "once by console ada" in await browser.read("/log")
        other.close()


async def test_a_request_that_no_longer_waits_says_so(belt: Runtime) -> None:
    async with console(belt) as browser:
        answer = await browser.send("/inbox/none", {"answer": "once"})
        assert answer.headers["location"] == "/?notice=late"
        assert "no longer waits" in await browser.read("/?notice=late")


async def test_another_answer_is_refused(belt: Runtime) -> None:
    async with console(belt) as browser:
        assert (await browser.send("/inbox/x", {"answer": "maybe"})).status_code == 400


async def test_what_changed_since_the_last_approval_is_shown(belt: Runtime, tree: Tree) -> None:
    desk = WaitingRequests(
        store=open_store(belt.settings), project=belt.gate.project_key, timeout_seconds=60
    )
    async with console(belt) as browser:
        for text, shown in (("", False), ("A new line.\n", True)):
            tree.write(f"{SKILLS}/pdf/guide.md", f"The guide of pdf.\n{text}")
            belt.catalog.refresh()
            request = belt.gate.load_request(belt.look()["pdf"], "model")
            asking = asked(desk, request)
            page = await wait_for(browser)
            assert ("+A new line." in page) == shown
            assert ("changed since the last approval" in page) == shown
            await browser.send(f"/inbox/{ids_of(page)[0]}", {"answer": "once"})
            await get(asking)


async def test_hostile_text_of_a_request_stays_text(belt: Runtime) -> None:
    hostile = RUN._replace(
        summary='<img src=x onerror="alert(1)">\u202egnp', skill="<script>alert(1)</script>"
    )
    async with console(belt) as browser:
        asking = asked(elsewhere(belt), hostile)
        page = await wait_for(browser)
        assert "<img" not in page
        assert "<script>alert" not in page
        assert "\u202e" not in page
        assert "U+202E" in page
        await browser.send(f"/inbox/{ids_of(page)[0]}", {"answer": "reject"})
        await get(asking)


async def test_many_requests_at_once_are_all_there(belt: Runtime) -> None:
    async with console(belt) as browser:
        desk = elsewhere(belt)
        asking = [asked(desk, RUN._replace(patterns=(f"make {n}",))) for n in range(50)]
        page = await wait_for(browser, 50)
        assert "(50) Inbox" in page
        await browser.send(f"/inbox/{ids_of(page)[0]}", {"answer": "reject"})
        # A refusal settles all requests of its conversation.
        for one in asking:
            assert (await get(one)).by == "rejected"


def test_processes_ask_only_where_one_listens(belt: Runtime) -> None:
    assert elsewhere(belt).ask(RUN).by == "nobody"
    everyone = EveryRequest(open_store(belt.settings))
    everyone.listen()
    asking = asked(elsewhere(belt), RUN)
    until(everyone.waiting)
    [posted] = everyone.waiting().values()
    assert posted.pending.project == "/other/project"
    everyone.close()
    assert elsewhere(belt, "/third").ask(RUN).by == "nobody"
    assert result(asking).by == "nobody"


def test_a_listener_that_was_killed_counts_no_more(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(belt.settings)
    key = SessionKey("skillbelt:permission", "", "inbox")
    store.append(key, [], {"app:listener:gone": repr(store.now() - 60)})
    assert elsewhere(belt).ask(RUN).by == "nobody"
    everyone = EveryRequest(store)
    everyone.listen()
    assert "app:listener:gone" not in store.state(key)
    everyone.close()


async def test_a_change_that_cannot_be_shown_is_said(belt: Runtime) -> None:
    """The skill that asks is not the version that this project has."""
    remember_approved(belt, "/other/project", belt.look()["pdf"], "h0", "ada")
    async with console(belt) as browser:
        asking = asked(elsewhere(belt), RUN)
        page = await wait_for(browser)
        assert "changed since the last approval" in page
        assert "the difference cannot be shown here" in page
        await browser.send(f"/inbox/{ids_of(page)[0]}", {"answer": "reject"})
        await get(asking)
