"""Three server processes on one store: any request may go to any of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from tests.benches import alive
from tests.examples import first_one
from tests.mcp.clients import Person, text_of
from tests.serving.clients import error_of, fill
from tests.serving.many import Balancer, api_client, mcp_client, servers
from tests.tree import Tree

pytestmark = [pytest.mark.anyio]
every_era = pytest.mark.parametrize("mode", first_one("auto", "legacy"))
S = "/v1/sessions/chat"
META: Any = {"skillbelt/session": "chat"}
STEPS = 2  # of each of a thousand conversations


@pytest.fixture(params=["postgres", pytest.param("sqlite", marks=pytest.mark.long)])
def shared(open_tree: Tree, request: pytest.FixtureRequest) -> Tree:
    """A project whose servers share a store: one file, or one database."""
    fill(open_tree)
    text = 'tool_profile = "full"\n[permission]\nrun = { "*" = "ask", "sleep *" = "allow" }\n'
    if request.param == "postgres":
        text = f'store = "{request.getfixturevalue("postgres_url")}"\n{text}'
    open_tree.write("home/.config/skillbelt/config.toml", text)
    return open_tree


@pytest.fixture
def three(shared: Tree) -> Iterator[Balancer]:
    with servers(shared, 3) as found:
        yield Balancer(found)


@pytest.fixture
def two(shared: Tree) -> Iterator[Balancer]:
    with servers(shared, 2, "http") as found:
        yield Balancer(found)


@every_era
async def test_a_client_uses_three_servers_as_one(three: Balancer, mode: str) -> None:
    """It loads here, is asked there, and polls and kills what a third one runs."""
    person = Person(answer="once")
    async with mcp_client(three, mode, elicitation_callback=person) as client:
        assert "The body" in text_of(
            await client.call_tool("skill_load", {"skill": "pdf"}, meta=META)
        )
        run = {"skill": "pdf", "command": "cat SKILL.md"}
        for _ in range(3):
            ran = await client.call_tool("skill_run", run, meta=META)
            assert ran.structured_content is not None, text_of(ran)
            assert "The body" in ran.structured_content["stdout"]
        begun = {"skill": "pdf", "command": "sleep 600", "background": True}
        started = await client.call_tool("skill_run", begun, meta=META)
        assert started.structured_content is not None, text_of(started)
        poll = {"run_id": started.structured_content["run_id"]}
        for _ in range(3):
            polled = await client.call_tool("skill_poll", poll, meta=META)
            assert polled.structured_content is not None, text_of(polled)
            assert polled.structured_content["running"]
        ended = await client.call_tool("skill_poll", {**poll, "kill": True}, meta=META)
        assert ended.structured_content is not None
        assert ended.structured_content["result"]["cancelled"]
    assert len(person.asked) == 3
    assert {*three.chosen} == {0, 1, 2}


async def test_a_session_outlives_the_server_where_it_began(three: Balancer) -> None:
    async with mcp_client(three, "legacy") as client:
        await client.call_tool("skill_load", {"skill": "pdf"})
        first = three.servers.pop(three.chosen[0])
        first.end(signal.SIGKILL)
        for _ in range(4):
            again = await client.call_tool("skill_load", {"skill": "pdf"})
            assert not again.is_error, text_of(again)


@pytest.mark.long
@every_era
async def test_what_a_killed_server_ran_is_over(three: Balancer, mode: str) -> None:
    async with mcp_client(three, mode) as client:
        first, *others = three.servers
        three.servers = [first]
        begun = {"skill": "pdf", "command": "sleep 600", "background": True}
        started = await client.call_tool("skill_run", begun, meta=META)
        assert started.structured_content is not None, text_of(started)
        three.servers = others
        first.end(signal.SIGKILL)
        poll = {"run_id": started.structured_content["run_id"]}
        answer = await client.call_tool("skill_poll", poll, meta=META)
        assert answer.is_error
        assert "has ended" in text_of(answer)


@pytest.mark.long
async def test_a_server_that_ends_while_its_question_is_open(three: Balancer) -> None:
    """The client of the newer protocol answers at another one, and learns what became of it."""
    first, *others = three.servers

    class Killer(Person):
        async def __call__(self, context: Any, params: Any) -> Any:
            first.end(signal.SIGKILL)
            three.servers = others
            return await super().__call__(context, params)

    async with mcp_client(three, "auto", elicitation_callback=Killer(answer="once")) as client:
        three.servers = [first]
        run = {"skill": "pdf", "command": "cat SKILL.md"}
        with pytest.raises(MCPError, match="has ended"):
            await client.call_tool("skill_run", run, meta=META)
        three.servers = others
        assert not (await client.call_tool("skill_load", {"skill": "pdf"}, meta=META)).is_error


@pytest.mark.long
async def test_an_ended_session_is_known_nowhere(three: Balancer) -> None:
    async with mcp_client(three, "legacy") as client:
        for _ in range(3):
            await client.list_tools()
    session = await _begin(three)
    async with api_client(three) as http:
        named = {"mcp-session-id": session, "mcp-protocol-version": "2025-06-18"}
        accept = {"accept": "application/json, text/event-stream", **named}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for _ in range(3):
            assert (await http.post("/mcp", json=ping, headers=accept)).status_code == 200
        assert (await http.delete("/mcp", headers=accept)).status_code == 200
        with anyio.fail_after(150):
            states = list[int]()
            while states[-3:] != [404] * 3:
                states.append((await http.post("/mcp", json=ping, headers=accept)).status_code)
                await anyio.sleep(0.05)


async def _begin(balancer: Balancer) -> str:
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    accept = {"accept": "application/json, text/event-stream"}
    async with api_client(balancer) as http:
        return (await http.post("/mcp", json=hello, headers=accept)).headers["mcp-session-id"]


@pytest.mark.long
async def test_a_session_that_no_server_gave_is_refused(three: Balancer) -> None:
    async with api_client(three) as http:
        headers = {"mcp-session-id": "a" * 32, "accept": "application/json, text/event-stream"}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await http.post("/mcp", json=ping, headers=headers)).status_code == 404


@pytest.mark.long
async def test_a_cancelled_call_ends_on_the_server_that_runs_it(three: Balancer) -> None:
    async with mcp_client(three, "legacy") as client:
        run = {"skill": "pdf", "command": "sleep 6017"}
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "skill_run", run)
                while not alive("6017"):
                    await anyio.sleep(0.02)
                scope.cancel()
        with anyio.fail_after(150):
            while alive("6017"):
                await anyio.sleep(0.02)


async def test_permission_asked_at_one_server_is_answered_through_another(two: Balancer) -> None:
    got = list[httpx2.Response]()
    asking, answering = Balancer([two.servers[0]]), Balancer([two.servers[1]])

    async def run() -> None:
        async with api_client(asking) as client:
            command = {"skill": "pdf", "command": "cat SKILL.md"}
            got.append(await client.post(f"{S}/runs", json=command))

    async with anyio.create_task_group() as group, api_client(answering) as client:
        group.start_soon(run)
        with anyio.fail_after(150):
            while not (pending := (await client.get("/v1/permissions")).json()["pending"]):
                await anyio.sleep(0.02)
        done = await client.post(f"/v1/permissions/{pending[0]['id']}", json={"answer": "once"})
        assert done.json() == {"answered": True}
    assert "The body of pdf." in got[0].json()["stdout"]


async def test_the_json_api_goes_on_at_another_server(two: Balancer) -> None:
    async with api_client(two) as client:
        await client.post(f"{S}/load", json={"skill": "pdf"})
        for _ in range(2):
            assert (await client.get(S)).json()["loaded"] == ["pdf"]
        begun = {"skill": "pdf", "command": "sleep 600", "background": True}
        run = (await client.post(f"{S}/runs", json=begun)).json()["run_id"]
        for _ in range(2):
            assert (await client.get(f"{S}/runs/{run}")).json()["running"]
        other = await client.get(f"/v1/sessions/other/runs/{run}")
        other2 = await client.get(f"/v1/sessions/other/runs/{run}")
        assert [error_of(one)["kind"] for one in (other, other2)] == ["run_refused"] * 2
        ended = [(await client.delete(f"{S}/runs/{run}")).json() for _ in range(2)]
        assert ended[0]["result"] == ended[1]["result"]
        assert ended[0]["result"]["cancelled"]
        await client.put(f"{S}/artifacts/a", content=b"bytes")
        assert (await client.get(f"{S}/artifacts/a")).content == b"bytes"


async def test_a_conversation_is_deleted_with_what_another_server_runs(two: Balancer) -> None:
    async with api_client(two) as client:
        seconds = f"{6_000_000 + os.getpid()}"  # no other test's
        begun = {"skill": "pdf", "command": f"sleep {seconds}", "background": True}
        run = (await client.post(f"{S}/runs", json=begun)).json()["run_id"]
        with anyio.fail_after(150):
            while not alive(seconds):
                await anyio.sleep(0.02)
        assert (await client.delete(S)).json() == {"deleted": True}
        assert two.chosen == [0, 1]
        assert not alive(seconds)
        assert error_of(await client.get(f"{S}/runs/{run}"))["kind"] == "run_refused"


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_thousand_conversations_over_three_servers(shared: Tree) -> None:
    """Interleaved: each keeps its order, and nothing of another.

    Beside them, one in ten has two clients at once, at two servers: nothing of either is lost, and
    what each did is there in its order. tests/agent/test_leases.py has turns of an agent. Servers
    that share a SQLite file are on one machine, and get 200.
    """
    several_machines = shared.settings().store
    fast = [f"{number}" for number in range(1_000 if several_machines else 200)]
    with servers(shared, 3, "http") as found:
        async with (
            api_client(Balancer(found)) as client,
            api_client(Balancer(found[:1])) as first,
            api_client(Balancer(found[1:2])) as second,
        ):
            limit = anyio.Semaphore(16)

            async def add(who: httpx2.AsyncClient, name: str, text: str) -> None:
                async with limit:
                    at = f"/v1/sessions/both{name}"
                    loaded = await who.post(f"{at}/load", json={"skill": "pdf"})
                    assert loaded.status_code == 200, loaded.text
                    put = await who.put(f"{at}/artifacts/both", content=text.encode())
                    assert put.status_code == 200, put.text

            async def step(name: str, number: int) -> None:
                async with limit:
                    messages: list[dict[str, str]] = []
                    for turn in range(number + 1):
                        messages += [{"role": "user", "content": f"{name} {turn}"}]
                    made = await client.post(
                        f"/v1/sessions/c{name}/request", json={"messages": messages}
                    )
                    sent = [one["content"] for one in made.json()["messages"][1:]]
                    assert sent == [one["content"] for one in messages]
                    body = f"{name} {number}".encode()
                    await client.put(f"/v1/sessions/c{name}/artifacts/note", content=body)

            for number in range(STEPS):
                async with anyio.create_task_group() as group:
                    for name in fast:
                        group.start_soon(step, name, number)
                        if name.endswith("0"):
                            group.start_soon(add, first, name, f"first {number}")
                            group.start_soon(add, second, name, f"second {number}")
            for name in fast:
                at = f"/v1/sessions/c{name}/artifacts/note?version="
                kept = [(await client.get(f"{at}{number}")).text for number in range(STEPS)]
                assert kept == [f"{name} {number}" for number in range(STEPS)]
            for name in fast[::10]:
                at = f"/v1/sessions/both{name}"
                assert (await client.get(at)).json()["loaded"] == ["pdf"]
                both = [
                    (await client.get(f"{at}/artifacts/both?version={number}")).text
                    for number in range(2 * STEPS)
                ]
                for who in ("first", "second"):
                    own = [one for one in both if one.startswith(who)]
                    assert own == [f"{who} {number}" for number in range(STEPS)]
