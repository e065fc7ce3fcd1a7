"""Turns of one session in several processes, as on several servers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast

import pytest

from skillbelt import Runtime
from skillbelt.agent import Agent, Final, HostTool, Runner, leases
from skillbelt.store import SessionKey
from skillbelt.store.protocol import Lease, OpenedStore
from tests import warm
from tests.agent.scripted import Scripted, called, final, play, said
from tests.tree import Tree

KEY = SessionKey("skillbelt", "ada", "chat")
_OTHER = """
import json, os, sys
from skillbelt import Runtime
from skillbelt.agent import Agent, Final, HostTool, Runner, leases, loop
from skillbelt.permission import waiting
from tests.agent.scripted import Scripted, called, said

leases.LEASE_SECONDS, leases.RENEW_SECONDS = map(float, sys.argv[2:4])
loop.CANCEL_TIMEOUT_SECONDS = 0.0
if sys.argv[4]:
    waiting._machine = lambda: sys.argv[4]

def wait(_):
    print("waiting", flush=True)
    return sys.stdin.readline()

model = Scripted(called(("wait", {})), said("first is done"))
tool = HostTool("wait", "Waits.", wait)
agent = Agent(Runtime(sys.argv[1], tool_profile="full"), model, tools=(tool,))
with Runner(agent) as runner:
    for event in runner.run_sync("ada", "chat", "First."):
        if isinstance(event, Final):
            print(json.dumps([event.text, event.error]), flush=True)
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(params=["sqlite", "postgres"])
def belt(
    tree: Tree, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Runtime]:
    if request.param == "postgres":
        monkeypatch.setenv("SKILLBELT_STORE", request.getfixturevalue("postgres_url"))
    monkeypatch.setattr(leases, "_LOOK_SECONDS", 0.05)
    with Runtime(tree.project, tool_profile="full") as runtime:
        yield runtime
        cast(OpenedStore, runtime.store).close()


@pytest.fixture
def start(belt: Runtime) -> Iterator[Start]:
    """Start a turn in another process, up to the point where its tool waits for a line."""
    with ExitStack() as stack:

        def begin(
            lease: float = 60.0, renew: float = 30.0, machine: str = ""
        ) -> subprocess.Popen[str]:
            given = (belt.settings.project, str(lease), str(renew), machine)
            process = warm.Popen[str](
                [sys.executable, "-c", _OTHER, *given],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            assert process.stdout
            assert process.stdout.readline() == "waiting\n"
            return process

        yield begin


def go_on(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Let the tool of the other process end; return the text and the error of its turn."""
    assert process.stdin
    assert process.stdout
    process.stdin.write("go\n")
    process.stdin.flush()
    text, error = json.loads(process.stdout.readline())
    return text, error


def second(belt: Runtime) -> Final:
    return final(play(Agent(belt, Scripted(said("second is done"))), "Second."))


def history(belt: Runtime) -> list[object]:
    said = belt.session("ada", "chat").session.messages()
    return [one["content"] for one in said if one["role"] != "tool"]


def test_a_turn_that_goes_on_elsewhere_is_told(belt: Runtime, start: Start) -> None:
    other = start(renew=0.05)
    told = second(belt)
    assert f"another run is active in this session (process {other.pid} on " in told.error
    assert "|" not in told.error
    assert go_on(other) == ("first is done", "")
    assert second(belt).text == "second is done"
    assert history(belt) == ["First.", "", "first is done", "Second.", "second is done"]


def test_a_turn_that_ends_soon_is_waited_for(
    belt: Runtime, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, take, seen = start(), belt.store.take_lease, list[Lease]()

    def took(*given: Any) -> Lease:
        seen.append(take(*given))
        if len(seen) == 1:
            go_on(other)
        return seen[-1]

    monkeypatch.setattr(belt.store, "take_lease", took)
    assert second(belt).text == "second is done"
    assert len({lease.number for lease in seen}) == 2
    assert history(belt) == ["First.", "", "first is done", "Second.", "second is done"]


def test_a_turn_that_is_cancelled_while_it_takes_the_session_gives_it_back(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on, take = threading.Event(), threading.Event(), belt.store.take_lease

    def slow(*given: Any) -> Lease:
        inside.set()
        assert go_on.wait(150)
        return take(*given)

    async def main() -> None:
        async def follow() -> None:
            async for _ in Runner(Agent(belt, Scripted(said("never")))).run(
                "ada", "chat", "First."
            ):
                pass

        task = asyncio.create_task(follow())
        await asyncio.to_thread(inside.wait, 150)
        task.cancel()
        await asyncio.sleep(0)  # its wait is cancelled, and its thread still runs
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    with monkeypatch.context() as patch:
        patch.setattr(belt.store, "take_lease", slow)
        asyncio.run(main())
    assert belt.store.take_lease(KEY, "another", "a process", 60.0).number == "another"


def test_a_process_of_this_machine_that_was_killed_is_not_waited_for(
    belt: Runtime, start: Start
) -> None:
    other = start(lease=10_000.0)
    os.kill(other.pid, signal.SIGKILL)
    assert second(belt).text == "second is done"


def test_the_lease_of_another_machine_that_died_runs_out(belt: Runtime, start: Start) -> None:
    other = start(lease=0.3, machine="another")
    os.kill(other.pid, signal.SIGKILL)
    assert second(belt).text == "second is done"


def test_a_turn_that_stood_still_writes_nothing_after_another_took_over(
    belt: Runtime, start: Start
) -> None:
    other = start(lease=0.3, machine="another")
    os.kill(other.pid, signal.SIGSTOP)
    assert second(belt).text == "second is done"
    os.kill(other.pid, signal.SIGCONT)
    text, error = go_on(other)
    assert text == ""
    assert "another server took over the session" in error
    assert history(belt) == ["First.", "", "Second.", "second is done"]


def test_a_turn_ends_by_itself_when_another_took_over(belt: Runtime, start: Start) -> None:
    """Even if it appends nothing: what it runs must not continue."""
    other = start(lease=0.3, renew=0.5, machine="another")
    assert second(belt).text == "second is done"
    assert other.stdout
    assert "another server took over the session" in json.loads(other.stdout.readline())[1]


def test_a_deleted_session_does_not_come_back_with_its_turn(belt: Runtime) -> None:
    tool = HostTool("delete", "Deletes it.", lambda _: str(belt.store.delete(KEY)))
    model = Scripted(called(("delete", {})), said("done"))
    assert "or it was deleted" in final(play(Agent(belt, model, tools=(tool,)))).error
    assert belt.store.events(KEY) == []


def test_a_session_is_free_after_each_turn(belt: Runtime) -> None:
    second(belt)
    lease = belt.store.take_lease(KEY, "1", "", 60)
    assert lease.number == "1"
    with closing(belt.store.watch("topic")):
        belt.store.release_lease(KEY, "1")
