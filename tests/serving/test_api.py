"""The JSON API: each operation, its schema, its errors, and who may do what."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

import anyio
import httpx2
import jsonschema
import pytest

from skillbelt import Runtime
from skillbelt.permission.rules import Rule
from skillbelt.serving import api as api_module
from skillbelt.serving import uploads
from skillbelt.serving.answers import HttpRefusal
from skillbelt.serving.api import Seats
from skillbelt.serving.endpoints import ENDPOINTS
from skillbelt.serving.relay import SERVING
from skillbelt.serving.tokens import Holder, TokenBook, hash_token
from skillbelt.store import SessionKey
from skillbelt.store.memory import MemoryStore
from skillbelt.store.sqlite import SqliteStore
from tests.serving.clients import TOKEN, api, error_of, events, fill
from tests.tree import Tree

pytestmark = pytest.mark.anyio
S = "/v1/sessions/chat"
EVENTS = {"accept": "text/event-stream"}
# What a conversation has: what is loaded, what runs, and its files.
PLACES = ("", "/runs", "/artifacts", "/artifacts/secret", "/artifacts/user:secret")


@pytest.fixture
def belt(open_tree: Tree) -> Iterator[Runtime]:
    with Runtime(fill(open_tree).project) as belt:
        yield belt


def book(**fields: Any) -> TokenBook:
    return TokenBook({hash_token(TOKEN): Holder(**fields)})


class Described:
    """A client that compares each answer with what the OpenAPI document says of it."""

    def __init__(self, client: httpx2.AsyncClient, document: dict[str, Any]) -> None:
        self._client, self.paths = client, document["paths"]
        self.used = set[str]()

    async def __call__(
        self, method: str, path: str, template: str = "", **options: Any
    ) -> httpx2.Response:
        answer = await self._client.request(method, path, **options)
        described = self.paths[template or path][method.lower()]
        assert answer.status_code == 200, answer.text
        self.used.add(described["operationId"])
        content = described["responses"]["200"]["content"]
        if "application/json" in content:
            jsonschema.validate(answer.json(), content["application/json"]["schema"])
        return answer


async def test_every_operation_answers_as_its_schema_says(belt: Runtime) -> None:
    async with api(belt) as client:
        document = (await client.get("/v1/openapi.json")).json()
        ask, at = Described(client, document), "/v1/sessions/{session}"
        assert (await ask("GET", "/v1/skills")).json()["skills"][0]["name"] == "pdf"
        scanned = await ask("GET", "/v1/skills/pdf/scan", "/v1/skills/{name}/scan")
        assert scanned.json() == json.loads(json.dumps(belt.scan("pdf").to_json()))
        assert (await client.get("/v1/skills/none/scan")).status_code == 404
        assert "pdf" in (await ask("GET", "/v1/overview")).json()["text"]
        found = (await ask("GET", "/v1/search?q=PDF&limit=1", "/v1/search")).json()["results"]
        assert [one["name"] for one in found] == ["pdf"]
        history = {"messages": [{"role": "user", "content": "hello"}]}
        await ask("POST", f"{S}/request", f"{at}/request", json=history)
        await ask("GET", f"{S}/tools", f"{at}/tools")
        call = {"tool": "skill_load", "arguments": {"skill": "pdf"}}
        await ask("POST", f"{S}/call", f"{at}/call", json=call)
        reply = {"role": "assistant", "content": "done"}
        given = {"reply": reply, "format": "openai"}
        await ask("POST", f"{S}/answers", f"{at}/answers", json=given)
        loaded = await ask("POST", f"{S}/load", f"{at}/load", json={"skill": "pdf"})
        assert "The body of pdf." in loaded.json()["text"]
        assert (await ask("GET", S, at)).json()["loaded"] == ["pdf"]
        ran = await ask(
            "POST", f"{S}/runs", f"{at}/runs", json={"skill": "pdf", "command": "echo hi"}
        )
        assert ran.json()["stdout"] == "hi\n"
        begun = {"skill": "pdf", "command": "sleep 60", "background": True}
        run = (await ask("POST", f"{S}/runs", f"{at}/runs", json=begun)).json()["run_id"]
        assert (await ask("GET", f"{S}/runs", f"{at}/runs")).json()["runs"][0]["id"] == run
        one, template = f"{S}/runs/{run}", f"{at}/runs/{{run_id}}"
        assert (await ask("GET", one, template)).json()["running"]
        await ask("POST", one, template, json={"stdin": "x", "close_stdin": True})
        assert not (await ask("DELETE", one, template)).json()["running"]
        file, named = f"{S}/artifacts/a/b.txt", f"{at}/artifacts/{{name}}"
        await ask("PUT", file, named, content=b"bytes", headers={"content-type": "text/plain"})
        got = await ask("GET", f"{file}?version=0", named)
        assert (got.content, got.headers["content-type"]) == (b"bytes", "text/plain")
        kept = (await ask("GET", f"{S}/artifacts", f"{at}/artifacts")).json()["artifacts"]
        assert [one["name"] for one in kept] == ["a/b.txt"]
        await ask("DELETE", file, named)
        await ask("GET", "/v1/permissions")
        sessions = (await ask("GET", "/v1/sessions")).json()["sessions"]
        assert [one["session"] for one in sessions] == ["chat"]
        assert (await ask("DELETE", S, at)).json()["deleted"]
    known = {one.handle.__name__ for one in ENDPOINTS}
    assert known - ask.used == {"answer_pending", "execute_script"}


async def test_json_goes_through_a_script(belt: Runtime, open_tree: Tree) -> None:
    code = "import json, sys\nprint(json.dumps({'got': json.load(sys.stdin)}))\n"
    open_tree.write("project/.agents/skills/pdf/scripts/main.py", code)
    open_tree.write("home/.config/skillbelt/config.toml", '[permission]\nrun = { "*" = "allow" }\n')
    async with api(belt) as client:
        given = {"skill": "pdf", "input": {"a": 1}}
        done = (await client.post(f"{S}/execute", json=given)).json()
    assert done["output"] == {"got": {"a": 1}}, done


@pytest.mark.parametrize("format", ["openai", "responses", "anthropic", "gemini"])
async def test_a_turn_of_a_conversation_in_each_format(belt: Runtime, format: str) -> None:
    message: dict[str, Any] = {"role": "user", "content": "hello"}
    if format == "gemini":
        message = {"role": "user", "parts": [{"text": "hello"}]}
    async with api(belt) as client:
        tools = (await client.get(f"{S}/tools?format={format}")).json()["tools"]
        given = {"messages": [message], "format": format, "tools": tools}
        made = await client.post(f"{S}/request", json=given)
    assert made.status_code == 200, made.text
    assert "pdf" in json.dumps(made.json()["request"])


async def test_output_comes_as_events_and_the_result_last(belt: Runtime) -> None:
    command = {"skill": "pdf", "command": "echo one"}
    async with api(belt) as client:
        answer = await client.post(f"{S}/runs", json=command, headers=EVENTS)
    assert answer.headers["content-type"] == "text/event-stream"
    first, last = events(answer.text)
    assert first == ("output", {"stream": "stdout", "text": "one\n"})
    assert (last[0], last[1]["exit_code"]) == ("result", 0)


async def test_a_question_is_an_event_and_is_answered_by_another_request(belt: Runtime) -> None:
    got = list[httpx2.Response]()

    async def run(client: httpx2.AsyncClient) -> None:
        command = {"skill": "pdf", "command": "cat SKILL.md"}
        got.append(await client.post(f"{S}/runs", json=command, headers=EVENTS))

    async with api(belt) as client, anyio.create_task_group() as group:
        group.start_soon(run, client)
        with anyio.fail_after(150):
            while not (pending := (await client.get("/v1/permissions")).json()["pending"]):
                await anyio.sleep(0.02)
        assert pending[0]["summary"] == "run `cat SKILL.md` with the skill pdf"
        answered = await client.post(f"/v1/permissions/{pending[0]['id']}", json={"answer": "once"})
        assert answered.json() == {"answered": True}
    names = [name for name, _ in events(got[0].text)]
    assert names == ["permission", "output", "result"]


async def test_what_is_refused_has_a_kind(belt: Runtime) -> None:
    async with api(belt) as client:
        for path, status, kind in (
            ("/v1/nothing", 404, "not_found"),
            (f"{S}/tools?format=cobol", 400, "wrong_arguments"),
            (f"{S}/tools?other=1", 400, "wrong_arguments"),
            (f"{S}/runs/none", 422, "run_refused"),
            (f"{S}/artifacts/none", 404, "artifact"),
            ("/v1/sessions/a:b", 400, "config"),
        ):
            answer = await client.get(path)
            assert (answer.status_code, error_of(answer)["kind"]) == (status, kind), path
        for body, kind in (
            (b"{", "wrong_arguments"),
            (b"[]", "wrong_arguments"),
            (b'{"command": "x"}', "wrong_arguments"),
            (b'{"skill": "pdf", "command": 7}', "wrong_arguments"),
            (b'{"skill": "pdf", "command": "x", "output_dir": "/"}', "wrong_arguments"),
            (b'{"skill": "none", "command": "x"}', "skill_not_found"),
        ):
            answer = await client.post(f"{S}/runs", content=body)
            assert error_of(answer)["kind"] == kind, body
        assert (await client.patch(S)).status_code == 405
        long = await client.post(f"{S}/call", content=b" " * (4 * 2**20 + 1))
        assert (long.status_code, error_of(long)["kind"]) == (413, "too_large")


async def test_a_file_of_this_machine_is_asked_for(belt: Runtime, open_tree: Tree) -> None:
    """A client is no user at the keyboard: what it names on the machine needs permission."""
    secret = open_tree.write("outside/secret.txt", "secret")
    given = {"skill": "pdf", "command": "echo x", "inputs": [{"from": f"host://{secret}"}]}
    holders = {
        hash_token(TOKEN): Holder(user="ada", answers=True),
        hash_token("the-token-of-the-owner"): Holder(answers=True),
    }
    async with api(belt, TokenBook(holders)) as client, anyio.create_task_group() as group:
        group.start_soon(lambda: client.post(f"{S}/runs", json=given))
        with anyio.fail_after(150):
            while not (waiting := belt.gate.desk.pending()):
                await anyio.sleep(0.02)
        assert waiting[0].request.type == "host_file"
        # Nor is it the user's to give: it may be a file of another one.
        assert (await client.get("/v1/permissions")).json() == {"pending": []}
        at = f"/v1/permissions/{waiting[0].id}"
        owner = {"authorization": "Bearer the-token-of-the-owner"}
        assert (await client.post(at, json={"answer": "once"})).status_code == 404
        done = await client.post(at, json={"answer": "reject"}, headers=owner)
        assert done.status_code == 200


async def test_what_no_token_may_answer_does_not_wait(belt: Runtime, open_tree: Tree) -> None:
    secret = open_tree.write("outside/secret.txt", "secret")
    given = {"skill": "pdf", "command": "echo x", "inputs": [{"from": f"host://{secret}"}]}
    async with api(belt, book(user="ada", answers=True)) as client:
        with anyio.fail_after(150):
            answer = await client.post(f"{S}/runs", json=given)
    assert (answer.status_code, error_of(answer)["kind"]) == (403, "permission_denied")


async def test_where_no_client_may_answer_nothing_waits(belt: Runtime) -> None:
    async with api(belt, book(user="ada")) as client:
        answer = await client.post(f"{S}/runs", json={"skill": "pdf", "command": "cat SKILL.md"})
    assert (answer.status_code, error_of(answer)["kind"]) == (403, "permission_denied")


async def test_without_a_token_there_are_only_the_probes(belt: Runtime) -> None:
    async with api(belt) as client:
        client.headers.pop("authorization")
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/ready")).json() == {"status": "ok"}
        for path in ("/v1/skills", "/v1/openapi.json", "/metrics", "/health/../v1/skills"):
            answer = await client.get(path)
            assert (answer.status_code, error_of(answer)["kind"]) == (401, "unauthorized")


async def test_a_store_that_fails_is_not_ready(belt: Runtime, open_tree: Tree) -> None:
    async with api(belt) as client:
        belt.store.close()  # type: ignore[attr-defined]
        for path in open_tree.root.rglob("*.sqlite3*"):
            while not path.is_dir():  # a thread of the server may open it again meanwhile
                path.unlink(missing_ok=True)
                with suppress(FileExistsError):
                    path.mkdir()
        answers = [
            await client.get("/ready"),
            await client.get(S),
            await client.get("/v1/sessions"),
        ]
    for answer in answers:
        assert (answer.status_code, error_of(answer)["kind"]) == (503, "not_ready")
        assert str(open_tree.root) not in answer.text


async def test_each_user_has_conversations_of_their_own(belt: Runtime) -> None:
    async with api(belt) as client:
        for user in ("ada", "bob"):
            name = {"skillbelt-user": user}
            await client.put(f"{S}/artifacts/who", content=user.encode(), headers=name)
        for user in ("ada", "bob"):
            name = {"skillbelt-user": user}
            assert (await client.get(f"{S}/artifacts/who", headers=name)).text == user
        assert (await client.get(f"{S}/artifacts/who")).status_code == 404


async def test_a_bound_token_speaks_for_its_user_alone(belt: Runtime) -> None:
    async with api(belt, book(app="shop", user="ada")) as client:
        await client.put(f"{S}/artifacts/a", content=b"x")
        other = await client.get(S, headers={"skillbelt-user": "bob"})
        assert (other.status_code, error_of(other)["kind"]) == (403, "forbidden")
        assert (await client.get(S, headers={"skillbelt-user": "ada"})).status_code == 200
        for path in ("/v1/permissions", "/metrics"):
            assert (await client.get(path)).status_code == 403
    async with api(belt) as client:
        found = await client.get(f"{S}/artifacts/a", headers={"skillbelt-user": "ada"})
        assert found.status_code == 404  # of another app


@pytest.mark.parametrize("user", ["", "a:b", "x" * 201, "a/b"])
async def test_a_user_that_cannot_be_one(belt: Runtime, user: str) -> None:
    async with api(belt) as client:
        answer = await client.get(S, headers={"skillbelt-user": user})
    assert (answer.status_code, error_of(answer)["kind"]) == (403, "forbidden")


async def test_a_bound_token_answers_what_its_user_was_asked(belt: Runtime) -> None:
    """It answers no questions of other users, and gives no lasting permission."""
    command = {"skill": "pdf", "command": "cat SKILL.md"}
    holder = {
        hash_token(TOKEN): Holder(user="ada", answers=True),
        hash_token("the-token-of-bob"): Holder(user="bob", answers=True),
    }
    bob = {"authorization": "Bearer the-token-of-bob"}
    async with api(belt, TokenBook(holder)) as client, anyio.create_task_group() as group:
        group.start_soon(lambda: client.post(f"{S}/runs", json=command))
        with anyio.fail_after(150):
            while not (pending := (await client.get("/v1/permissions")).json()["pending"]):
                await anyio.sleep(0.02)
        assert (await client.get("/v1/permissions", headers=bob)).json() == {"pending": []}
        at = f"/v1/permissions/{pending[0]['id']}"
        theirs = await client.post(at, json={"answer": "once"}, headers=bob)
        assert theirs.status_code == 404
        assert (await client.post(at, json={"answer": "always"})).status_code == 403
        assert (await client.post(at, json={"answer": "reject"})).status_code == 200


async def test_a_token_of_an_app_reaches_nothing_of_another_app(belt: Runtime) -> None:
    command = {"skill": "pdf", "command": "cat SKILL.md"}
    holders = {
        hash_token(TOKEN): Holder("shop", "ada", answers=True),
        hash_token("the-token-of-shop"): Holder("shop", answers=True),
        hash_token("the-token-of-bank"): Holder("bank", answers=True),
    }
    shop, bank = ({"authorization": f"Bearer the-token-of-{one}"} for one in ("shop", "bank"))
    async with api(belt, TokenBook(holders)) as client, anyio.create_task_group() as group:
        group.start_soon(lambda: client.post(f"{S}/runs", json=command))
        with anyio.fail_after(150):
            while not (
                pending := (await client.get("/v1/permissions", headers=shop)).json()["pending"]
            ):
                await anyio.sleep(0.02)
        assert (await client.get("/v1/permissions", headers=bank)).json() == {"pending": []}
        at = f"/v1/permissions/{pending[0]['id']}"
        for headers, answer, status in (
            (bank, "once", 404), (shop, "always", 403), (shop, "reject", 200),
        ):  # fmt: skip
            told = await client.post(at, json={"answer": answer}, headers=headers)
            assert told.status_code == status
        assert (await client.get("/metrics", headers=shop)).status_code == 403


async def test_a_tenant_finds_and_harms_nothing_of_another_by_its_names(open_tree: Tree) -> None:
    holders = {
        hash_token(TOKEN): Holder("shop", "ada"),
        hash_token("the-token-of-bob"): Holder("shop", "bob"),
    }
    project, rules = fill(open_tree).project, [Rule("*", "*", "allow")]
    with Runtime(project, rules=rules) as belt:
        async with api(belt, TokenBook(holders)) as client:

            async def run(command: str, bob: bool = True, **more: Any) -> Any:
                headers = {"authorization": "Bearer the-token-of-bob"} if bob else {}
                body = {"skill": "pdf", "command": command, **more}
                return (await client.post(f"{S}/runs", json=body, headers=headers)).json()

            bob = {"authorization": "Bearer the-token-of-bob"}
            await client.post(f"{S}/load", json={"skill": "pdf"}, headers=bob)
            for name in ("secret", "user:secret"):
                await client.put(f"{S}/artifacts/{name}", content=b"of bob", headers=bob)
            await run("echo of bob > $WORK_DIR/secret")
            id = (await run("sleep 600", background=True))["run_id"]
            before = [(await client.get(f"{S}{at}", headers=bob)).text for at in PLACES]

            assert (await client.get("/v1/sessions")).json() == {"sessions": []}
            assert (await client.get(S)).json()["loaded"] == []
            assert (await client.get(f"{S}/runs")).json() == {"runs": []}
            assert (await client.get(f"{S}/artifacts")).json() == {"artifacts": []}
            for name in ("secret", "user:secret"):
                assert (await client.get(f"{S}/artifacts/{name}")).status_code == 404
                assert (await client.delete(f"{S}/artifacts/{name}")).status_code == 404
                given = [{"from": f"artifact://{name}"}]
                taken = await run("cat inputs/*", bob=False, inputs=given)
                assert taken["error"]["kind"] == "artifact", taken
            assert "secret" not in (await run("ls $WORK_DIR", bob=False))["stdout"]
            for method in ("GET", "POST", "DELETE"):
                told = await client.request(method, f"{S}/runs/{id}", json={})
                assert error_of(told)["kind"] == "run_refused"
            await client.delete(S)
            after = [(await client.get(f"{S}{at}", headers=bob)).text for at in PLACES]
            assert after == before
            assert "of bob" in (await run("cat $WORK_DIR/secret"))["stdout"]
            assert (await client.get(f"{S}/runs/{id}", headers=bob)).json()["running"]


@pytest.mark.parametrize("headers", [{}, EVENTS])
async def test_a_question_goes_with_the_client_that_waited(
    belt: Runtime, headers: dict[str, str]
) -> None:
    command = {"skill": "pdf", "command": "cat SKILL.md"}
    async with api(belt) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: client.post(f"{S}/runs", json=command, headers=headers))
            with anyio.fail_after(150):
                while not belt.gate.desk.pending():
                    await anyio.sleep(0.02)
            group.cancel_scope.cancel()
        with anyio.fail_after(150):
            while belt.gate.desk.pending():
                await anyio.sleep(0.02)


async def test_probes_at_the_same_time_ask_the_store_once(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer, state = list[SessionKey](), threading.Event(), belt.store.state

    def look(key: SessionKey) -> Mapping[str, str]:
        if key.app != SERVING:
            return state(key)
        asked.append(key)
        answer.wait(150)
        return {}

    monkeypatch.setattr(belt.store, "state", look)
    got = list[int]()

    async def probe(client: httpx2.AsyncClient) -> None:
        got.append((await client.get("/ready")).status_code)

    async with api(belt) as client, anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(probe, client)
        await anyio.wait_all_tasks_blocked()
        answer.set()
    assert (got, len(asked)) == ([200] * 5, 1)


def test_one_user_leaves_room_for_others() -> None:
    seats = Seats(4)
    first = [seats.take("ada") for _ in range(2)]
    with pytest.raises(HttpRefusal, match="too many"), seats.take("ada").use():
        seats.take("ada")
    assert seats.take("bob")
    first[0].leave()
    first[0].leave()
    assert seats.take("bob")


def test_a_seat_is_free_when_its_thread_has_ended() -> None:
    """A client that leaves while its call waits for permission does not make room for more."""
    seats = Seats(1)
    seat = seats.take("ada")
    with seat.use():
        seat.leave(unless_used=True)
        with pytest.raises(HttpRefusal):
            seats.take("ada")
    assert seats.take("ada")


async def test_during_shutdown_calls_are_refused(belt: Runtime) -> None:
    got = list[httpx2.Response]()

    async def run(client: httpx2.AsyncClient) -> None:
        command = {"skill": "pdf", "command": "sleep 600"}
        got.append(await client.post(f"{S}/runs", json=command))

    async with api(belt) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(run, client)
            with anyio.fail_after(150):
                while b"skillbelt_runs_running 1.0" not in (await client.get("/metrics")).content:
                    await anyio.sleep(0.02)
            # What the signal does.
            transport = client._transport
            assert isinstance(transport, httpx2.ASGITransport)
            served: Any = transport.app
            await anyio.to_thread.run_sync(served._app._app.close)
        assert error_of(got[0])["kind"] == "shutting_down"
        assert (await client.get("/v1/skills")).status_code == 503


# Pages


async def walk(client: httpx2.AsyncClient, path: str, list: str, limit: int) -> list[Any]:
    """All entries of a list, with one page at a time; each page is as long as it may be."""
    found, query = [], f"limit={limit}"
    while True:
        page = (await client.get(f"{path}?{query}")).json()
        found += page[list]
        if "next" not in page:
            return found
        assert len(page[list]) == limit
        query = str(httpx2.QueryParams(limit=limit, after=page["next"]))


async def test_ten_thousand_conversations_are_walked_by_page(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    monkeypatch.setattr(Runtime, "store", store)
    names = sorted({f"{number} & é{number % 7}" for number in range(10_000)})
    for name in names:
        store.append(SessionKey("skillbelt", "http", name), [])
    store.append(SessionKey("skillbelt", "http2", "theirs"), [])
    asked = list[int | None]()
    sessions = store.sessions

    def noted(*given: Any, limit: int | None = None, **more: Any) -> Any:
        if given[:1] == ("skillbelt",):
            asked.append(limit)
        return sessions(*given, limit=limit, **more)

    monkeypatch.setattr(store, "sessions", noted)
    async with api(belt) as client:
        found = await walk(client, "/v1/sessions", "sessions", 1000)
        assert [one["session"] for one in found] == names
        whole = (await client.get("/v1/sessions")).json()
        assert (len(whole["sessions"]), whole["next"]) == (1000, names[999])
        assert len((await client.get("/v1/sessions?limit=99999")).json()["sessions"]) == 1000
    assert asked == [1001] * len(asked), "never more than a page is read"


async def test_a_page_of_conversations_in_sqlite_costs_what_the_page_does(belt: Runtime) -> None:
    """Counted in steps of SQLite's machine: about 13 for each entry of the page, 10,000 or not."""
    store = belt.store
    assert isinstance(store, SqliteStore)
    store.append(SessionKey("skillbelt", "http2", "theirs"), [])
    rows = [("skillbelt", "http", f"c{n:05}", 1.0, 1.0, 0) for n in range(10_000)]
    with closing(sqlite3.connect(store.path)) as db, db:
        named = "INSERT INTO session (app, user, name, created, updated, last)"
        db.executemany(f"{named} VALUES (?, ?, ?, ?, ?, ?)", rows)
    steps, costs, query = [0], list[int](), "limit=500"
    store._open().set_progress_handler(lambda: steps.__setitem__(0, steps[0] + 1), 100)
    async with api(belt) as client:
        while query:
            steps[0] = 0
            page = (await client.get(f"/v1/sessions?{query}")).json()
            costs.append(steps[0])
            query = f"limit=500&after={page['next']}" if "next" in page else ""
    assert len(costs) == 20
    assert max(costs) * 100 <= 40 * 500


async def test_other_lists_come_by_page_too(belt: Runtime, open_tree: Tree) -> None:
    for name in ("one", "three", "two"):
        open_tree.skill(f"project/.agents/skills/{name}", "A skill.")
    async with api(belt) as client:
        names = [one["name"] for one in await walk(client, "/v1/skills", "skills", 1)]
        assert names == ["one", "pdf", "three", "two"]
        for name in ("b", "a", "user:c"):
            await client.put(f"{S}/artifacts/{name}", content=b"x")
        kept = await walk(client, f"{S}/artifacts", "artifacts", 2)
        assert [one["name"] for one in kept] == ["a", "b", "user:c"]


async def test_waiting_questions_come_by_page(belt: Runtime) -> None:
    async with (
        api(belt, book(app="skillbelt", answers=True)) as client,
        anyio.create_task_group() as calls,
    ):
        for number in range(3):
            body = {"skill": "pdf", "command": f"ls {number}"}
            calls.start_soon(lambda body: client.post(f"{S}/runs", json=body), body)
        while len(found := await walk(client, "/v1/permissions", "pending", 1)) < 3:
            await anyio.sleep(0.01)
        assert [one["time"] for one in found] == sorted(one["time"] for one in found)
        assert len({one["id"] for one in found}) == 3
        for one in found:
            await client.post(f"/v1/permissions/{one['id']}", json={"answer": "reject"})


# Uploads


@pytest.fixture
def small(open_tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    monkeypatch.setattr(uploads, "MAX_UPLOADS", 3)
    with Runtime(fill(open_tree).project, max_upload_bytes=10) as belt:
        yield belt


async def test_what_a_user_may_upload_is_bounded(small: Runtime) -> None:
    async with api(small) as client:

        async def put(path: str, size: int, user: str = "ada") -> httpx2.Response:
            return await client.put(path, content=b"x" * size, headers={"skillbelt-user": user})

        assert (await put(f"{S}/artifacts/a", 6)).status_code == 200
        refused = await put("/v1/sessions/other/artifacts/b", 5)
        assert (refused.status_code, error_of(refused)["kind"]) == (403, "over_quota")
        assert "6 of 10 are used (max_upload_bytes)" in error_of(refused)["message"]
        assert (await put(f"{S}/artifacts/a", 5, "bob")).status_code == 200, "another user"
        assert (await put(f"{S}/artifacts/a", 4)).status_code == 200, "each version counts"
        assert (await put(f"{S}/artifacts/user:c", 0)).status_code == 200
        refused = await put(f"{S}/artifacts/d", 0)
        assert "all 3 uploads that a user may have are used" in error_of(refused)["message"]


@pytest.mark.parametrize("way", ["artifact", "session", "elsewhere"])
async def test_what_was_deleted_is_not_counted(small: Runtime, way: str) -> None:
    async with api(small) as client:
        await client.put(f"{S}/artifacts/a", content=b"x" * 9)
        await client.put(f"{S}/artifacts/user:mine", content=b"x")
        assert (await client.put(f"{S}/artifacts/b", content=b"x" * 9)).status_code == 403
        if way == "artifact":
            await client.delete(f"{S}/artifacts/a")
        elif way == "session":
            await client.delete(S)
        else:
            assert small.delete_session("http", "chat")
        assert (await client.put(f"{S}/artifacts/b", content=b"x" * 9)).status_code == 200
        assert (await client.put(f"{S}/artifacts/b", content=b"x")).status_code == 403


async def test_uploads_at_once_do_not_pass_together(small: Runtime) -> None:
    done = list[int]()
    async with api(small) as client, anyio.create_task_group() as calls:

        async def put(name: str) -> None:
            done.append((await client.put(f"{S}/artifacts/{name}", content=b"x" * 6)).status_code)

        for name in "abcd":
            calls.start_soon(put, name)
    assert sorted(done) == [200, 403, 403, 403]


@pytest.mark.parametrize(("declared", "read"), [("12", 0), (None, 3)])
async def test_an_upload_without_room_is_refused_early(
    small: Runtime, declared: str | None, read: int
) -> None:
    """By what the client declares before any of it is read, else as soon as it is too much."""
    pieces = list[bytes]()

    async def send() -> AsyncIterator[bytes]:
        for _ in range(100):
            pieces.append(b"x" * 4)
            yield pieces[-1]

    async with api(small) as client:
        headers = {"content-length": declared} if declared else {}
        refused = await client.put(f"{S}/artifacts/a", content=send(), headers=headers)
        assert error_of(refused)["kind"] == "over_quota"
        assert "12 bytes do not fit: 0 of 10 are used" in error_of(refused)["message"]
        assert len(pieces) == read


async def test_large_uploads_at_once_are_few(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait on the disk of the server; small ones are not bounded."""
    monkeypatch.setattr(api_module, "MAX_LARGE_UPLOADS", 1)
    monkeypatch.setattr(api_module, "_IN_MEMORY_BYTES", 4)
    sent, refused, done = anyio.Event(), anyio.Event(), list[int]()

    async def send() -> AsyncIterator[bytes]:
        yield b"x" * 5
        sent.set()
        await refused.wait()

    async with api(belt) as client:

        async def put(content: Any) -> None:
            done.append((await client.put(f"{S}/artifacts/a", content=content)).status_code)

        async with anyio.create_task_group() as calls:
            calls.start_soon(put, send())
            await sent.wait()
            await put(b"y" * 5)
            await put(b"y" * 4)
            assert done == [429, 200]
            refused.set()
        await put(b"y" * 5)
    assert done == [429, 200, 200, 200]


async def test_an_upload_that_is_not_kept_is_not_counted(small: Runtime) -> None:
    async with api(small) as client:
        for _ in range(4):
            assert (await client.put(f"{S}/artifacts/%00", content=b"x" * 9)).status_code >= 400
        assert (await client.put(f"{S}/artifacts/a", content=b"x" * 9)).status_code == 200
