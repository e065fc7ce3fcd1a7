"""Requests beside the loop: questions in both protocols, cancellation, limits, the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitResult, InputRequiredResult

from mcp import Client
from skillbelt import Answer, Runtime
from skillbelt.mcp import requests
from skillbelt.mcp.requests import RequestRunner
from skillbelt.mcp.server import SkillServer
from tests.benches import alive
from tests.bounds import bounds
from tests.mcp.clients import Person, connected, text_of
from tests.tree import Tree

pytestmark = pytest.mark.anyio
every_era = pytest.mark.parametrize("mode", ["legacy", "auto"])
LOAD = {"skill": "pdf"}


@pytest.fixture
def belt(skills: Tree) -> Iterator[Runtime]:
    """A project that is not trusted, so that loading its skills needs permission."""
    with Runtime(skills.project, tool_profile="full", trust_project="ask") as belt:
        yield belt


async def load(belt: Runtime, mode: str, person: Person | None) -> CallToolResult:
    async with connected(belt, mode, elicitation_callback=person) as client:
        return await client.call_tool("skill_load", LOAD)


@every_era
async def test_once_lets_one_call_through(belt: Runtime, mode: str) -> None:
    person = Person(answer="once")
    async with connected(belt, mode, elicitation_callback=person) as client:
        for _ in range(2):
            assert "The body of pdf." in text_of(await client.call_tool("skill_load", LOAD))
    assert len(person.asked) == 2
    assert person.asked[0].startswith("A model asks to load the skill pdf from")


@every_era
async def test_always_is_remembered(belt: Runtime, mode: str) -> None:
    person = Person(answer="always")
    for _ in range(2):
        assert not (await load(belt, mode, person)).is_error
    assert len(person.asked) == 1
    assert [entry.by for entry in belt.gate.ledger.all()] == ["mcp"]


@every_era
async def test_a_refusal_reaches_the_model_with_its_reason(belt: Runtime, mode: str) -> None:
    given = await load(belt, mode, Person(answer="reject", message="not today"))
    assert given.is_error
    assert text_of(given).endswith("was refused: not today")


@every_era
async def test_without_a_form_nobody_is_there(belt: Runtime, mode: str) -> None:
    given = await load(belt, mode, None)
    assert given.is_error
    assert "no user or callback can grant it" in text_of(given)


@every_era
@pytest.mark.parametrize(
    ("person", "told"),
    [
        (Person(), "was refused: the form was closed without an answer"),
        (Person(answer="perhaps"), "was refused: the form came back without a valid answer"),
    ],
    ids=["closed", "nonsense"],
)
async def test_a_form_that_is_not_answered_is_a_refusal(
    belt: Runtime, mode: str, person: Person, told: str
) -> None:
    given = await load(belt, mode, person)
    assert given.is_error
    assert text_of(given).endswith(told)


@every_era
async def test_who_does_not_answer_in_time_has_refused(skills: Tree, mode: str) -> None:
    asked = anyio.Event()

    async def silent(_context: Any, _params: Any) -> ElicitResult:
        asked.set()
        if mode == "auto":
            while asking.gate.desk.pending():
                await anyio.sleep(0.01)
        else:
            await anyio.sleep_forever()
        return ElicitResult(action="accept", content={"answer": "always"})

    with Runtime(
        skills.project, tool_profile="full", trust_project="ask", permission_timeout_seconds=0.2
    ) as asking:
        given = await load(asking, mode, silent)  # type: ignore[arg-type]
    assert asked.is_set()
    assert given.is_error
    assert "was requested, but no answer came in time" in text_of(given)
    assert asking.gate.ledger.all() == []


@every_era
async def test_a_question_holds_up_no_other_request(belt: Runtime, mode: str) -> None:
    asked, answered = anyio.Event(), anyio.Event()

    async def slow(_context: Any, _params: Any) -> ElicitResult:
        asked.set()
        await answered.wait()
        return ElicitResult(action="accept", content={"answer": "once"})

    results: list[CallToolResult] = []

    async def first(client: Client) -> None:
        results.append(await client.call_tool("skill_load", LOAD))

    async with (
        connected(belt, mode, elicitation_callback=slow) as client,
        anyio.create_task_group() as group,
    ):
        group.start_soon(first, client)
        await asked.wait()
        listed = await client.call_tool("skill_list", {})
        assert "Reads PDF files." in text_of(listed)
        assert results == []
        answered.set()
    assert "The body of pdf." in text_of(results[0])


@every_era
async def test_each_call_is_asked_about_by_its_own_question(belt: Runtime, mode: str) -> None:
    """Two calls of one client wait at once; each is answered for itself."""
    waiting = 0
    both = anyio.Event()

    async def picky(_context: Any, params: Any) -> ElicitResult:
        nonlocal waiting
        waiting += 1
        if waiting == 2:
            both.set()
        await both.wait()
        if "notes" in params.message:
            # A rejection also settles pending requests of the same conversation.
            while len(results) < 1:
                await anyio.sleep(0.01)
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"answer": "once"})

    results = dict[str, CallToolResult]()
    async with connected(belt, mode, elicitation_callback=picky) as client:

        async def call(name: str) -> None:
            results[name] = await client.call_tool("skill_load", {"skill": name})

        async with anyio.create_task_group() as group:
            group.start_soon(call, "pdf")
            group.start_soon(call, "notes")
    assert not results["pdf"].is_error
    assert "was refused" in text_of(results["notes"])


@every_era
async def test_resources_and_prompts_are_asked_about_too(belt: Runtime, mode: str) -> None:
    person = Person(answer="once")
    async with connected(belt, mode, elicitation_callback=person) as client:
        await client.read_resource("skill://pdf/guide.md")
        await client.read_resource("skill://pdf/SKILL.md")
    assert len(person.asked) == 1, "who may read in a skill may read on in it"


async def waiting_state(client: Client) -> tuple[InputRequiredResult, dict[str, Any]]:
    first = await client.session.call_tool("skill_load", LOAD, allow_input_required=True)
    assert isinstance(first, InputRequiredResult)
    assert first.input_requests is not None
    yes = ElicitResult(action="accept", content={"answer": "once"})
    return first, dict.fromkeys(first.input_requests, yes)


async def test_a_state_is_good_once_and_for_its_own_request(belt: Runtime) -> None:
    async with connected(belt, elicitation_callback=Person()) as client:
        call = client.session.call_tool
        first, yes = await waiting_state(client)
        for name, arguments, state in (
            ("skill_load", LOAD, "made up"),
            ("skill_load", {"skill": "notes"}, first.request_state),
            ("skill_list_docs", {"skill": "pdf"}, first.request_state),
        ):
            with pytest.raises(MCPError, match="requestState"):
                await call(name, arguments, input_responses=yes, request_state=state)
        done = await call(
            "skill_load", LOAD, input_responses=yes, request_state=first.request_state
        )
        assert "The body of pdf." in text_of(done)
        with pytest.raises(MCPError, match="requestState"):
            await call("skill_load", LOAD, input_responses=yes, request_state=first.request_state)


async def test_who_comes_back_without_an_answer_has_none(belt: Runtime) -> None:
    async with connected(belt, elicitation_callback=Person()) as client:
        first, _ = await waiting_state(client)
        given = await client.session.call_tool(
            "skill_load", LOAD, request_state=first.request_state
        )
        assert isinstance(given, CallToolResult)
        assert given.is_error


async def test_who_never_comes_back_is_given_up(skills: Tree) -> None:
    bounds(max_parallel_calls=2)
    with Runtime(skills.project, tool_profile="full", trust_project="ask") as belt:
        async with connected(belt, elicitation_callback=Person()) as client:
            for _ in range(2):
                await waiting_state(client)
            with pytest.raises(MCPError, match="too many calls at once"):
                await waiting_state(client)


async def test_one_conversation_leaves_room_for_others(skills: Tree) -> None:
    """Each is in a name of its own, as over HTTP."""
    bounds(max_parallel_calls=8)
    with Runtime(skills.project, tool_profile="full", trust_project="ask") as belt:
        served = SkillServer(belt)
        person: Any = Person()

        async def fill() -> int:
            async with Client(served.server, elicitation_callback=person) as client:
                for count in range(20):
                    try:
                        await waiting_state(client)
                    except MCPError as error:
                        assert "too many calls at once" in str(error)
                        return count
            return 20

        taken = []
        for whose in ("first", "second", "third"):
            served.runner._owner_of = partial(str.format, whose)
            taken.append(await fill())
        served.close()
    assert taken == [5, 2, 1], "whoever comes finds a place, however much others want"


async def test_a_request_of_somebody_else_is_left_to_others(belt: Runtime) -> None:
    """The desk of a server also has requests of others."""
    runner = RequestRunner(belt.gate.desk, str, ask_seconds=5, most=10)
    belt.gate.desk.listen(
        lambda pending: belt.gate.desk.answer(pending.id, Answer("once")), elsewhere=False
    )
    session = belt.session("ada", "chat")
    assert not (await session.call("skill_load", LOAD)).error
    runner.close()


async def test_a_failure_inside_is_told_without_what_it_was(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **_more: object) -> None:
        raise ValueError("/secret/place")

    monkeypatch.setattr("skillbelt.runtime.runtime.RuntimeSession.call_sync", broken)
    async with connected(belt) as client:
        with pytest.raises(MCPError, match="internal error; see the log of the server") as caught:
            await client.call_tool("skill_list", {})
    assert "/secret/place" not in str(caught.value)
    assert "/secret/place" in caplog.text


async def test_cancelling_ends_the_command(skills: Tree) -> None:
    mark = f"{time.time_ns()}"
    with Runtime(skills.project, tool_profile="full") as belt:
        person = Person(answer="once")
        async with connected(belt, "legacy", elicitation_callback=person) as client:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:
                    command = {"skill": "pdf", "command": f"sleep {mark}"}
                    group.start_soon(client.call_tool, "skill_run", command)
                    while not alive(mark):
                        await anyio.sleep(0.02)
                    scope.cancel()
            with anyio.fail_after(150):
                while alive(mark):
                    await anyio.sleep(0.02)
            assert not (await client.call_tool("skill_list", {})).is_error


async def test_closing_ends_what_runs_and_what_waits(
    skills: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_SHUTDOWN_SECONDS", 1000.0)  # without this, it would hang
    with Runtime(skills.project, tool_profile="full", trust_project="ask") as belt:
        served = SkillServer(belt)
        async with Client(served.server, elicitation_callback=Person()) as client:  # type: ignore[arg-type]
            await waiting_state(client)
            assert len(belt.gate.desk.pending()) == 1
            served.close()
            with pytest.raises(MCPError, match="is shutting down"):
                await client.call_tool("skill_list", {})
    assert belt.gate.desk.pending() == []
