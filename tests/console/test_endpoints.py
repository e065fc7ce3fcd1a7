"""What the pages do, for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from skillbelt import Runtime
from skillbelt.console.serve import ALL_ENDPOINTS
from skillbelt.permission.waiting import WaitingRequests
from skillbelt.running.history import PastRun, RunRecorder
from skillbelt.serving.openapi import describe_api
from skillbelt.serving.tokens import Holder, TokenBook, hash_token
from skillbelt.store import open_store
from tests.console.desks import TOKEN, Browser, console, fill
from tests.console.test_inbox import RUN, get, wait_for
from tests.desks import asked
from tests.tree import Tree

pytestmark = pytest.mark.anyio

BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def belt(tree: Tree) -> Iterator[Runtime]:
    with Runtime(fill(tree).project) as belt:
        yield belt


async def ask(browser: Browser, path: str, **query: str) -> Any:
    answer = await browser.get(f"/api/v1/{path}", headers=BEARER, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_skills_are_as_on_the_command_line(belt: Runtime, tree: Tree) -> None:
    async with console(belt) as browser:
        listed = (await ask(browser, "catalog"))["skills"]
        [printed] = tree.run("list", "--json").document["skills"]
        assert listed == [{key: value for key, value in printed.items() if key != "denied"}]
        shown = await ask(browser, "catalog/pdf")
        assert shown == tree.run("show", "pdf", "--json").document


async def test_a_skill_is_switched(belt: Runtime) -> None:
    async with console(belt) as browser:
        answer = await browser.client.post(
            "/api/v1/catalog/pdf", json={"enabled": False}, headers=BEARER
        )
        assert answer.json() == {"name": "pdf", "enabled": False}
        assert "pdf" not in belt.look()


async def test_runs_the_log_and_use_are_listed(belt: Runtime) -> None:
    recorder = RunRecorder(
        belt.store, PastRun(id="", time=1.0, state="running", skill="pdf", command="echo x")
    )
    recorder.listen("stdout", b"x\n")
    recorder.end({"exit_code": 0, "duration_ms": 5, "sandbox": "none"}, ())
    belt.load("pdf")
    async with console(belt) as browser:
        [run] = (await ask(browser, "history"))["runs"]
        assert run["outcome"] == "exit 0"
        found = await ask(browser, f"history/{run['id']}")
        assert found["output"] == [{"stream": "stdout", "text": "x\n"}]
        [event] = (await ask(browser, "log", type="load"))["events"]
        assert event["skill"] == "pdf"
        [used] = (await ask(browser, "usage"))["skills"]
        assert used["loads"] == 1


async def test_a_question_of_any_project_is_answered(belt: Runtime) -> None:
    async with console(belt) as browser:
        desk = WaitingRequests(store=open_store(belt.settings), project="/other")
        asking = asked(desk, RUN)
        await wait_for(browser)
        [pending] = (await ask(browser, "inbox"))["pending"]
        assert pending["project"] == "/other"
        answer = await browser.client.post(
            f"/api/v1/inbox/{pending['id']}", json={"answer": "conversation"}, headers=BEARER
        )
        assert answer.json() == {"answered": True}
        assert (await get(asking)).by == "conversation"


@pytest.mark.parametrize(
    "path", ["catalog", "catalog/pdf", "history", "history/x", "log", "usage", "inbox"]
)
async def test_a_token_of_a_user_sees_nothing_of_others(belt: Runtime, path: str) -> None:
    book = TokenBook({hash_token(TOKEN): Holder(user="bob", answers=True)})
    async with console(belt, tokens=book) as browser:
        answer = await browser.get(f"/api/v1/{path}", headers=BEARER)
        assert answer.status_code == 403


async def test_the_document_names_every_operation(belt: Runtime) -> None:
    async with console(belt) as browser:
        document = await ask(browser, "openapi.json")
        assert document == describe_api(ALL_ENDPOINTS)
        named = [one["operationId"] for path in document["paths"].values() for one in path.values()]
        assert len(named) == len(set(named)) == len(ALL_ENDPOINTS)
