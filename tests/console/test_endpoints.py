"""What the pages do, for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from skillbelt import Runtime
from skillbelt.console.approved import remember_approved
from skillbelt.console.endpoints import CONSOLE_ENDPOINTS
from skillbelt.console.serve import ALL_ENDPOINTS
from skillbelt.conversation.requests import RequestLog
from skillbelt.evals.cases import EvalSet
from skillbelt.evals.last_results import keep_results
from skillbelt.evals.outcome import CaseOutcome, EvalReport, MeasuredSkill
from skillbelt.evals.statistics import rate_of
from skillbelt.events import NewEvent
from skillbelt.permission.waiting import WaitingRequests
from skillbelt.running.history import PastRun, RunRecorder
from skillbelt.serving.openapi import describe_api
from skillbelt.serving.tokens import Holder, TokenBook, hash_token
from skillbelt.store import SessionKey, open_store
from tests.console.desks import SKILLS, TOKEN, Browser, console, fill
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
        assert listed == [printed]
        shown = await ask(browser, "catalog/pdf")
        assert shown == tree.run("show", "pdf", "--json").document


async def test_a_denied_skill_says_so(belt: Runtime, tree: Tree) -> None:
    tree.write("home/.config/skillbelt/config.toml", '[permission]\nskill = { "pdf" = "deny" }\n')
    async with console(belt) as browser:
        [listed] = (await ask(browser, "catalog"))["skills"]
        assert listed["denied"]
        shown = await ask(browser, "catalog/pdf")
        assert shown == tree.run("show", "pdf", "--json").document
        assert shown["denied"]
        assert "denied" in await browser.read("/skills/pdf")


async def test_what_a_skill_can_do_is_as_on_the_command_line(belt: Runtime, tree: Tree) -> None:
    tree.write(f"{SKILLS}/pdf/run.sh", "curl https://example.com\n")
    async with console(belt) as browser:
        found = await ask(browser, "catalog/pdf/scan")
        assert found == tree.run("show", "pdf", "--capabilities", "--json").document
        assert "example.com" in str(found["capabilities"]["hosts"])


async def test_files_versions_and_evals_of_a_skill(belt: Runtime, tree: Tree) -> None:
    queries = '[{"query": "read a pdf file", "should_trigger": true}]'
    tree.write(f"{SKILLS}/pdf/evals/triggers.json", queries)
    remember_approved(belt, belt.gate.project_key, belt.look()["pdf"], "older", "ada")
    async with console(belt) as browser:
        file = await browser.get("/api/v1/catalog/pdf/files/guide.md", headers=BEARER)
        assert file.content == b"The guide of pdf.\n"
        assert file.headers["content-disposition"] == "attachment"
        gone = await browser.get("/api/v1/catalog/pdf/files/../../x", headers=BEARER)
        assert gone.status_code == 404
        versions = await ask(browser, "catalog/pdf/versions")
        assert [one["hash"] for one in versions["approved"]] == ["older"]
        assert versions["locked"] is None
        evals = await ask(browser, "catalog/pdf/evals", measure="true")
        assert evals["requests"] == 1
        assert evals["route"]["cases"][0]["outcome"] == "passed"


async def test_approvals_of_a_skill_are_forgotten(belt: Runtime) -> None:
    belt.gate.ledger.remember(belt.gate.load_request(belt.look()["pdf"], "model"), "ada")
    async with console(belt) as browser:
        await browser.client.post("/api/v1/catalog/pdf", json={"forget": True}, headers=BEARER)
        assert belt.gate.ledger.all() == []


async def test_conversations_and_their_requests_are_listed(belt: Runtime) -> None:
    key, said = SessionKey("app", "ada", "a/b"), {"role": "user", "content": "hello"}
    belt.store.append(key, [NewEvent("message", data=said)])
    log = RequestLog(belt.store, key)
    log.add([said], model="mine")
    log.add([said, {"role": "assistant", "content": "x"}])
    async with console(belt) as browser:
        [talk] = (await ask(browser, "conversations"))["conversations"]
        assert (talk["app"], talk["user"], talk["session"]) == ("app", "ada", "a/b")
        path = quote(talk["path"].removeprefix("/"))
        assert (await ask(browser, path))["session"] == "a/b"
        listed = (await ask(browser, f"{path}/requests"))["requests"]
        assert [one["number"] for one in listed] == [1, 2]
        assert 0 < listed[1]["shared_percent"] < 100
        one = await ask(browser, f"{path}/requests/2")
        assert one["messages"][-1] == {"role": "assistant", "content": "x"}
        assert one["before"] == 1
        missing = await browser.get(f"/api/v1/{path}/requests/9", headers=BEARER)
        assert missing.status_code == 404


async def test_pages_of_conversations_go_on(belt: Runtime) -> None:
    for number in range(5):
        belt.store.append(SessionKey("app", "ada", str(number)), [NewEvent("message")])
    async with console(belt) as browser:
        found, after = [], ""
        while True:
            page = await ask(browser, "conversations", limit="2", after=after)
            found += [one["session"] for one in page["conversations"]]
            after = page.get("next", "")
            if not after:
                break
        assert found == ["4", "3", "2", "1", "0"]


async def test_health_is_as_on_the_command_line(belt: Runtime, tree: Tree) -> None:
    async with console(belt) as browser:
        found = await ask(browser, "doctor")
        printed = tree.run("doctor", "--json").document
        for name in ("sandboxes", "files", "disabled"):
            assert found[name] == printed[name]
        assert [one["path"] for one in found["roots"]] == [one["path"] for one in printed["roots"]]
        assert not found["attacking"]


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
    "path",
    [one.path.removeprefix("/v1/") for one in CONSOLE_ENDPOINTS if one.method == "GET"],
)
async def test_a_token_of_a_user_sees_nothing_of_others(belt: Runtime, path: str) -> None:
    book = TokenBook({hash_token(TOKEN): Holder(user="bob", answers=True)})
    async with console(belt, tokens=book) as browser:
        answer = await browser.get(f"/api/v1/{path}", headers=BEARER)
        assert answer.status_code == 403


BODIES: dict[str, dict[str, object]] = {
    "/v1/catalog/{name}": {"enabled": False},
    "/v1/installs": {"source": "/nowhere"},
    "/v1/installs/{id}": {"answer": "go"},
    "/v1/inbox/{id}": {"answer": "once"},
}


@pytest.mark.parametrize(
    "holder",
    [Holder(), Holder(user="bob", answers=True), Holder(app="other", answers=True)],
    ids=["viewer", "user", "app"],
)
async def test_only_who_answers_for_all_changes_anything(belt: Runtime, holder: Holder) -> None:
    book = TokenBook({hash_token(TOKEN): holder})
    changing = [one for one in CONSOLE_ENDPOINTS if one.method != "GET"]
    async with console(belt, tokens=book) as browser:
        for one in changing:
            path = f"/api{one.path.format(name='pdf', id='x')}"
            body = BODIES.get(one.path, {}) if one.body is not None else None
            answer = await browser.client.request(one.method, path, json=body, headers=BEARER)
            assert answer.status_code == 403, f"{one.method} {path}: {answer.text}"
    assert belt.settings.for_skill("pdf").enabled


async def test_the_last_results_with_a_model_are_there(belt: Runtime) -> None:
    skill = belt.look()["pdf"]
    measured = MeasuredSkill("pdf", {"recall": rate_of(3, 4)}, "<b>tiny</b>")
    case = CaseOutcome("1", "pdf", "positive", "read <i>it</i>", "failed", "no", "<b>tiny</b>")
    report = EvalReport("trigger", skills=(measured,), cases=(case,))
    keep_results(belt.settings, report, {"pdf": skill}, [EvalSet("pdf")])
    async with console(belt) as browser:
        [found] = (await ask(browser, "catalog/pdf/evals"))["results"]
        assert (found["model"], found["measures"]["recall"]["hits"]) == ("<b>tiny</b>", 3)
        assert (await ask(browser, "catalog/pdf"))["evaluations"] == [found]
        page = await browser.read("/skills/pdf")
        assert "&lt;b&gt;tiny&lt;/b&gt;" in page
        assert "0.75" in page
        assert "read &lt;i&gt;it&lt;/i&gt;" in page


async def test_the_document_names_every_operation(belt: Runtime) -> None:
    async with console(belt) as browser:
        document = await ask(browser, "openapi.json")
        assert document == describe_api(ALL_ENDPOINTS)
        named = [one["operationId"] for path in document["paths"].values() for one in path.values()]
        assert len(named) == len(set(named)) == len(ALL_ENDPOINTS)
