"""Runs that are cancelled, and runs whose process is killed: the state they leave."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillbelt import Runtime
from skillbelt.agent import (
    Agent,
    AgentEvent,
    HostTool,
    PermissionRequest,
    Runner,
    RunOutput,
    TextDelta,
    ToolCall,
)
from skillbelt.agent.history import repair_history
from skillbelt.agent.tool_calls import PendingCall, ToolRunner
from tests import warm
from tests.agent.scripted import Scripted, called, final, messages, of, play, results, roles, said
from tests.benches import alive
from tests.examples import MANY
from tests.tree import Tree

CUTS = 60 if MANY else 20
# Cancelled


def test_whoever_stops_listening_ends_the_command(running: Runtime) -> None:
    mark = f"7{os.getpid()}.25"
    arguments = {"skill": "kit", "command": f"echo begun; exec sleep {mark}"}
    model = Scripted(called(("skill_run", arguments)), said("done"))
    with Runner(Agent(running, model)) as runner:
        for event in runner.run_sync("ada", "chat", "Run it."):
            if isinstance(event, RunOutput):
                break
    assert alive(mark) == []
    assert roles(running) == ["user", "assistant", "tool"]
    assert json.loads(str(messages(running)[-1]["content"]))["cancelled"] is True


def test_a_cancelled_task_ends_the_command(running: Runtime) -> None:
    mark = f"7{os.getpid()}.35"
    arguments = {"skill": "kit", "command": f"echo begun; exec sleep {mark}"}
    model = Scripted(called(("skill_run", arguments)), said("done"))

    async def main() -> None:
        begun = asyncio.Event()

        async def follow() -> None:
            async for event in Runner(Agent(running, model)).run("ada", "chat", "Run it."):
                if isinstance(event, RunOutput):
                    begun.set()

        task = asyncio.create_task(follow())
        await asyncio.wait_for(begun.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert alive(mark) == []
    assert roles(running) == ["user", "assistant", "tool"]


def test_what_was_done_before_the_cancellation_is_kept(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, loaded, never = threading.Event(), threading.Event(), threading.Event()
    run = ToolRunner.run

    async def note(self: ToolRunner, job: PendingCall, *given: Any) -> None:
        await run(self, job, *given)
        if job.call.name == "skill_load":
            loaded.set()

    monkeypatch.setattr(ToolRunner, "run", note)

    def hang(_: object) -> str:
        begun.set()
        never.wait(150)
        return "too late"

    tool = HostTool("hang", "Hangs.", hang)
    model = Scripted(called(("skill_load", {"skill": "greet"}), ("hang", {})), said("done"))

    async def main() -> None:
        async with aclosing(
            Runner(Agent(belt, model, tools=(tool,))).run("ada", "chat", "x")
        ) as it:
            async for event in it:
                if isinstance(event, ToolCall) and event.name == "hang":
                    while not (begun.is_set() and loaded.is_set()):
                        await asyncio.sleep(0.01)
                    never.set()
                    break

    asyncio.run(main())
    told = [message["content"] for message in messages(belt) if message["role"] == "tool"]
    assert told[0] == "loaded: greet"
    assert [one.name for one in belt.session("ada", "chat").loaded()] == ["greet"]


@pytest.mark.property
@pytest.mark.parametrize("native", [True, False], ids=["task", "scope"])
def test_cancelled_at_any_moment_a_session_is_whole(belt: Runtime, native: bool) -> None:
    """Every loaded skill was reported, every reported one is loaded, and the next run continues."""
    loads = [("skill_load", {"skill": name}) for name in ("greet", "count")]

    async def cut(number: int, seconds: float) -> None:
        model = Scripted(called(*loads, text="Let me see."), said("done"))
        runner, session = Runner(Agent(belt, model)), f"chat-{number}"

        async def follow() -> None:
            async for _ in runner.run("ada", session, "Go on."):
                pass

        if native:
            task = asyncio.create_task(follow())
            await asyncio.sleep(seconds)
            task.cancel()
            await asyncio.wait([task])
        else:
            with anyio.move_on_after(seconds):
                await follow()

    async def main() -> None:
        for number in range(CUTS):
            await cut(number, number * 0.03 / CUTS)

    asyncio.run(main())
    for number in range(CUTS):
        name = f"chat-{number}"
        kept, loaded = messages(belt, name), belt.session("ada", name).loaded()
        assert repair_history(kept) == kept
        told = {message["content"] for message in kept if message["role"] == "tool"}
        assert {f"loaded: {one.name}" for one in loaded} == told & {
            "loaded: greet",
            "loaded: count",
        }
        assert final(play(Agent(belt, Scripted(said("fine"))), session=name)).text == "fine"


def test_a_request_that_waits_for_permission_is_refused_when_cancelled(open_tree: Tree) -> None:
    open_tree.skill("project/.agents/skills/kit")
    model = Scripted(called(("skill_run", {"skill": "kit", "command": "echo ran"})), said("done"))
    with (
        Runtime(open_tree.project) as belt,
        Runner(Agent(belt, model), interactive=True) as runner,
    ):
        for event in runner.run_sync("ada", "chat", "Run it."):
            if isinstance(event, PermissionRequest):
                break
        assert belt.gate.desk.pending() == []
        assert roles(belt) == ["user", "assistant", "tool"]


def test_the_next_message_after_a_cancellation_is_answered(running: Runtime) -> None:
    arguments = {"skill": "kit", "command": "echo begun; sleep 60"}
    model = Scripted(called(("skill_run", arguments)), said("done"))
    with Runner(Agent(running, model)) as runner:
        for event in runner.run_sync("ada", "chat", "Run it."):
            if isinstance(event, RunOutput):
                break
        assert final(list(runner.run_sync("ada", "chat", "And now?"))).text == "done"


# Crashes

_CRASH = """
import os, signal, sys
from skillbelt import Runtime
from skillbelt.agent import Agent, HostTool, Runner
from tests.agent.scripted import Scripted, called, said

def crash(_):
    os.kill(os.getpid(), signal.SIGKILL)

class Dying(Scripted):
    async def ask(self, prompt):
        async for piece in super().ask(prompt):
            yield piece
            if len(self.prompts) == int(sys.argv[3]):
                crash(piece)

model = Dying(*eval(sys.argv[2]))
agent = Agent(Runtime(sys.argv[1]), model, tools=(HostTool("crash", "Crashes.", crash),))
list(Runner(agent).run_sync("ada", "chat", "Do it."))
"""


def crashed(belt: Runtime, steps: str, at: int = 0) -> None:
    """Run in a process that is killed, with `kill -9`, at latest in that answer of the model."""
    done = warm.run(
        [sys.executable, "-c", _CRASH, belt.settings.project, steps, str(at)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def resumed(agent: Agent) -> list[AgentEvent]:
    with Runner(agent) as runner:
        return list(runner.resume_sync("ada", "chat"))


def test_a_crash_while_the_model_answers_resumes_with_the_question(belt: Runtime) -> None:
    crashed(belt, "[said('half an answer')]", 1)
    assert roles(belt) == ["user"]
    model = Scripted(said("whole"))
    assert final(resumed(Agent(belt, model))).text == "whole"
    assert model.sent()[-1]["content"] == "Do it."
    assert roles(belt) == ["user", "assistant"]


def test_a_crash_in_a_call_resumes_with_the_call(belt: Runtime) -> None:
    steps = "[called(('skill_load', {'skill': 'greet'}), ('crash', {})), said('done')]"
    crashed(belt, steps)
    assert roles(belt) == ["user", "assistant"]
    assert belt.session("ada", "chat").loaded() == []
    tool = HostTool("crash", "Does not crash.", lambda _: "fine")
    model = Scripted(said("done"))
    events = resumed(Agent(belt, model, tools=(tool,)))
    assert results(events) == ["loaded: greet", "fine"]
    assert model.sent()[-2]["content"].startswith("[Loaded] greet")
    assert final(events).text == "done"


def test_a_crash_after_the_results_does_not_make_the_calls_again(belt: Runtime) -> None:
    crashed(belt, "[called(('skill_load', {'skill': 'greet'})), said('done')]", 2)
    assert roles(belt) == ["user", "assistant", "tool"]
    events = resumed(Agent(belt, Scripted(said("done"))))
    assert of(events, ToolCall) == []
    assert final(events).text == "done"


def test_a_command_is_not_run_twice(running: Runtime) -> None:
    run = "('skill_run', {'skill': 'kit', 'command': 'echo ran >> out/log'})"
    crashed(running, f"[called({run}, ('crash', {{}})), said('done')]")
    tool = HostTool("crash", "Does not crash.", lambda _: "fine")
    events = resumed(Agent(running, Scripted(said("done")), tools=(tool,)))
    assert "may have run in part" in results(events)[0]


def test_a_new_message_after_a_crash_closes_what_was_open(belt: Runtime) -> None:
    crashed(belt, "[called(('crash', {})), said('done')]")
    model = Scripted(said("Hello"))
    play(Agent(belt, model), "Forget it. Hello?")
    assert roles(belt) == ["user", "assistant", "tool", "user", "assistant"]
    assert "interrupted" in model.sent()[-2]["content"]


def test_there_is_nothing_to_resume_in_a_new_session(belt: Runtime) -> None:
    assert "nothing to resume" in final(resumed(Agent(belt, Scripted(said("x"))))).error


def test_resuming_what_was_answered_gives_the_answer_again(belt: Runtime) -> None:
    model = Scripted(said("Hello"))
    play(Agent(belt, model))
    events = resumed(Agent(belt, model))
    assert (of(events, TextDelta), final(events).text) == ([TextDelta("Hello")], "Hello")
    assert len(model.prompts) == 1


def test_nothing_is_left_behind_by_a_closed_runner(belt: Runtime) -> None:
    before = threading.active_count()
    play(Agent(belt, Scripted(called(("skill_list", {})), said("x"))))
    until = time.monotonic() + 150
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_a_program_ends_though_its_runner_was_not_closed(belt: Runtime) -> None:
    code = (
        "import sys\n"
        "from skillbelt import Runtime\n"
        "from skillbelt.agent import Agent, Runner\n"
        "import skillbelt.agent.runner as module\n"
        "module._END_SECONDS = 1_000_000.0\n"
        "runner = Runner(Agent(Runtime(sys.argv[1])))\n"
        "print(len(list(runner.run_sync('ada', 'chat', 'Greet people'))) > 1)\n"
        "left = runner.run_sync('ada', 'chat', 'Greet people')\n"
        "next(left)\n"
    )
    done = warm.run(
        [sys.executable, "-c", code, belt.settings.project],
        capture_output=True,
        timeout=500,  # less than a runner waits for an end
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"True\n", b"")


def test_a_runner_that_nobody_has_any_more_leaves_no_thread(belt: Runtime) -> None:
    before = threading.active_count()
    list(Runner(Agent(belt, Scripted(said("x")))).run_sync("ada", "chat", "Hi"))
    until = time.monotonic() + 150
    while threading.active_count() > before and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert threading.active_count() <= before
