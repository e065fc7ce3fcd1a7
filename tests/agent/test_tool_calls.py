"""Calls at the same time: their events, and how they end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import anyio
import pytest

from skillbelt import Request, Runtime
from skillbelt.agent import AgentEvent, Called, PermissionRequest, RunOutput
from skillbelt.agent.tool_calls import CallArguments, CallGroup, find_faults
from skillbelt.permission.waiting import WaitingRequests
from skillbelt.sandbox.protocol import Outcome


class Told:
    """A receiver of events that is a list."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []

    async def send(self, event: AgentEvent) -> None:
        self.events.append(event)

    def send_threadsafe(self, event: AgentEvent) -> None:
        self.events.append(event)


class Command:
    """A command that runs until it is killed."""

    killed = False

    def write(self, data: bytes) -> None: ...
    def close_stdin(self) -> None: ...
    def wait(self, timeout_seconds: float | None = None) -> Outcome | None: ...

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def desk(belt: Runtime) -> Iterator[WaitingRequests]:
    yield belt.gate.desk


def group(
    desk: WaitingRequests, told: Told, *, answered: bool = False, end_seconds: float = 10.0
) -> CallGroup:
    return CallGroup(
        sink=told,
        desk=lambda: desk,
        session="app/ada/chat",
        answered=answered,
        end_seconds=end_seconds,
    )


def ask(desk: WaitingRequests, session: str = "app/ada/chat") -> str:
    return desk.ask(Request("run", ("ls",), session=session), 30).by


async def in_thread(function: object, *arguments: object) -> object:
    return await asyncio.to_thread(function, *arguments)  # type: ignore[arg-type]


def test_output_is_told_with_the_call_it_is_of(desk: WaitingRequests) -> None:
    told = Told()
    watch = group(desk, told).watch("c1")
    assert watch.listener is not None
    watch.listener("stderr", b"oops")
    assert told.events == [RunOutput("c1", "stderr", b"oops")]


def test_a_secret_among_the_variables_is_not_told(desk: WaitingRequests) -> None:
    told = Told()
    watch = group(desk, told).watch("c1", {"MY_TOKEN": "abcdefgh", "N": 5})
    assert watch.listener is not None
    watch.listener("stdout", b"it is abcdefgh")
    assert told.events == [RunOutput("c1", "stdout", b"it is [MY_TOKEN]")]


def test_stopping_kills_what_runs_and_what_starts_later(desk: WaitingRequests) -> None:
    made = group(desk, Told())
    early, late = Command(), Command()
    started = made.watch("c1").started
    assert started is not None
    started(early)
    made.stop()
    started(late)
    assert early.killed
    assert late.killed


def test_a_request_of_the_session_is_told_and_refused_for_want_of_somebody(
    desk: WaitingRequests,
) -> None:
    told = Told()
    by: list[object] = []

    async def work() -> None:
        by.append(await in_thread(ask, desk))

    asyncio.run(run_all(group(desk, told), work))
    assert by == ["nobody"]
    assert [type(event) for event in told.events] == [PermissionRequest]


def test_a_request_of_another_session_is_not_told(desk: WaitingRequests) -> None:
    told = Told()

    async def work() -> None:
        await in_thread(ask, desk, "app/ada/other")

    asyncio.run(run_all(group(desk, told), work))
    assert told.events == []


async def run_all(made: CallGroup, work: object) -> None:
    await made.run_all([work()])  # type: ignore[operator]


def test_cancelling_refuses_what_waits_for_an_answer(desk: WaitingRequests) -> None:
    told = Told()
    by: list[object] = []

    async def work() -> None:
        by.append(await in_thread(ask, desk))

    async def main() -> None:
        task = asyncio.ensure_future(group(desk, told, answered=True).run_all([work()]))
        while not told.events:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert by == ["rejected"]
    assert desk.pending() == []


def test_an_error_of_the_work_is_raised_when_all_is_done(desk: WaitingRequests) -> None:
    done = threading.Event()

    async def fail() -> None:
        raise ValueError("broken")

    async def slow() -> None:
        await asyncio.sleep(0.02)
        done.set()

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(all_of(group(desk, Told()), fail, slow))
    assert done.is_set()


async def all_of(made: CallGroup, *works: object) -> None:
    await made.run_all([work() for work in works])  # type: ignore[operator]


def test_what_does_not_end_is_left_after_a_while(desk: WaitingRequests) -> None:
    begun = asyncio.Event()

    async def endless() -> None:
        begun.set()
        await anyio.sleep_forever()

    async def main() -> None:
        task = asyncio.ensure_future(all_of(group(desk, Told(), end_seconds=0.05), endless))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def arguments(given: object, *, finished: bool = True) -> CallArguments:
    return CallArguments(Called("c1", "x", given), finished)


@pytest.mark.parametrize("given", [None, "", "  ", {}, "{}"])
def test_no_arguments_are_an_empty_object(given: object) -> None:
    made = arguments(given)
    assert (made.given, made.fault) == ({}, "")


def test_text_is_read() -> None:
    assert arguments('{"a": 1}').given == {"a": 1}


def test_nothing_at_all_is_a_fault_where_the_answer_broke_off() -> None:
    assert "broke off" in arguments("", finished=False).fault


def test_the_same_arguments_have_the_same_key() -> None:
    assert arguments('{"b": 1, "a": 2}').key == arguments({"a": 2, "b": 1}).key


SCHEMA = {
    "type": "object",
    "properties": {
        "of": {"type": "array"},
        "times": {"type": "integer"},
        "share": {"type": ["number", "null"]},
        "how": {"type": "string", "enum": ["fast", "slow"]},
        "odd": {"anyOf": [{"type": "string"}]},
    },
    "required": ["of"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"of": []}, ""),
        ({"of": [], "times": 3.0, "share": None, "how": "fast", "odd": 1}, ""),
        ({}, "argument 'of' is missing"),
        ({"of": "x"}, "argument 'of' must be array"),
        ({"of": [], "times": True}, "argument 'times' must be integer"),
        ({"of": [], "times": 1.5}, "argument 'times' must be integer"),
        ({"of": [], "share": "x"}, "argument 'share' must be number or null"),
        ({"of": [], "how": "x"}, "argument 'how' must be one of fast, slow"),
        ({"of": [], "more": 1}, "unknown argument 'more'"),
    ],
)
def test_arguments_are_held_against_the_schema_of_the_host(
    given: dict[str, object], fault: str
) -> None:
    assert find_faults(given, SCHEMA) == fault


@pytest.mark.parametrize(
    "schema", [{}, {"properties": 3, "required": "of"}, {"properties": {"of": True}}]
)
def test_an_odd_schema_takes_everything(schema: dict[str, object]) -> None:
    assert find_faults({"of": 1}, schema) == ""
