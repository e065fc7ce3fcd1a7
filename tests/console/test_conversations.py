"""The pages about conversations and what was sent to the model in them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from skillbelt import Runtime
from skillbelt.agent import Agent
from skillbelt.console.conversations import address_of
from skillbelt.conversation.requests import RequestLog
from skillbelt.events import NewEvent
from skillbelt.store import SessionKey
from tests.agent.scripted import Scripted, called, play, said
from tests.console.desks import console, fill
from tests.tree import Tree

pytestmark = pytest.mark.anyio

KEY = SessionKey("skillbelt", "ada", "chat")
PLACE = "/conversations/skillbelt/ada/chat"


@pytest.fixture
def belt(tree: Tree) -> Iterator[Runtime]:
    with Runtime(fill(tree).project) as belt:
        yield belt


async def test_each_request_is_shown_with_what_it_shares(belt: Runtime) -> None:
    model = Scripted(called(("skill_load", {"skill": "pdf"})), said("done"))
    play(Agent(belt, model=model), "Read <b>it</b>")
    async with console(belt) as browser:
        page = await browser.read(PLACE)
        assert f'href="{PLACE}/requests/2"' in page
        page = await browser.read(f"{PLACE}/requests/2")
        assert page.count("as before") == len(model.sent(0))
        assert "The body of pdf." in page
        assert "Read &lt;b&gt;it&lt;/b&gt;" in page
        assert "skill_load" in page
        assert "it is the first" in await browser.read(f"{PLACE}/requests/1")
        answer = await browser.get(f"{PLACE}/requests/2?download=1")
        assert answer.headers["content-disposition"].startswith("attachment;")
        assert answer.json()["messages"] == list(model.sent(1))


@pytest.mark.parametrize("number", ["3", "0", "x", "99999999999"])
async def test_a_request_that_is_not_kept_is_not_found(belt: Runtime, number: str) -> None:
    play(Agent(belt, model=Scripted(said("done"))))
    async with console(belt) as browser:
        assert (await browser.get(f"{PLACE}/requests/{number}")).status_code == 404


async def test_a_conversation_without_requests_says_so(belt: Runtime) -> None:
    belt.store.append(KEY, [NewEvent("message", data={"role": "user", "content": "hi"})])
    async with console(belt) as browser:
        assert "is not known here" in await browser.read(PLACE)


async def test_other_tools_are_told(belt: Runtime) -> None:
    session = belt.session("ada", "chat")
    for name in ("one", "two"):
        sent = session.request([{"role": "user", "content": "hi"}])
        session.record_request({"messages": sent, "tools": [{"name": name}]})
    async with console(belt) as browser:
        assert "The tools changed since request 1" in await browser.read(f"{PLACE}/requests/2")


async def test_the_list_goes_on_where_it_ended(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillbelt.console.conversations.PAGE", 2)
    names = ["a/b", "", "c", "d"]
    for name in names:
        belt.store.append(SessionKey("app", "ada", name), [NewEvent("message")])
    async with console(belt) as browser:
        page, seen = await browser.read("/conversations"), list[str]()
        while True:
            seen += [name for name in names if quote(address_of(SessionKey("app", "ada", name)))
                     in page]  # fmt: skip
            if 'rel="next"' not in page:
                break
            address = page.split('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
            page = await browser.read(address.replace("&amp;", "&"))
        assert sorted(seen) == sorted(names)
        assert (await browser.get("/conversations?after=nonsense")).status_code == 200


async def test_tools_of_every_form_have_a_name(belt: Runtime) -> None:
    tools: list[object] = [
        {"name": "one"},
        {"type": "function", "function": {"name": "two"}},
        {"type": "web_search"},
        {"function": "x"},
        "odd",
    ]
    RequestLog(belt.store, KEY).add([{"role": "user", "content": "hi"}], tools=tools)
    async with console(belt) as browser:
        page = await browser.read(f"{PLACE}/requests/1")
        assert "one, two, web_search, without a name, without a name" in page
