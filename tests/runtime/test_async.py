"""Sync and async by one rule: docs/reference/api.md states it."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from skillbelt import Answer, Pending, Runtime, RuntimeSession
from skillbelt.running.following import Follower, Watch
from skillbelt.sandbox.protocol import Stream
from tests.benches import SKILL, Bench, alive
from tests.desks import HANG_SECONDS
from tests.tree import Tree

CLASSES = (Runtime, RuntimeSession)


def calls(cls: type) -> list[str]:
    """The plain names of the public calls of a class."""
    names = [
        name
        for name, value in vars(cls).items()
        if not name.startswith("_") and inspect.isfunction(value)
    ]
    return sorted({name.removesuffix("_sync").removesuffix("_async") for name in names})


@pytest.mark.parametrize(("cls", "name"), [(cls, name) for cls in CLASSES for name in calls(cls)])
def test_every_call_is_there_for_both(cls: type, name: str) -> None:
    plain, coroutine = getattr(cls, name), getattr(cls, f"{name}_async")
    blocking = getattr(cls, f"{name}_sync", plain)
    assert inspect.iscoroutinefunction(coroutine)
    assert not inspect.iscoroutinefunction(blocking)
    assert plain in (coroutine, blocking)
    assert inspect.signature(coroutine) == inspect.signature(blocking)


def test_the_plain_names_that_are_coroutines_are_those_that_run_something() -> None:
    found = {
        name
        for cls in CLASSES
        for name in calls(cls)
        if inspect.iscoroutinefunction(getattr(cls, name))
    }
    assert found == {"run", "execute_skill", "try_skill", "call"}


def test_a_coroutine_gives_what_the_call_gives(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf", "Reads PDF files.", text="The body.\n")

    async def main() -> tuple[object, ...]:
        async with Runtime(tree.project) as belt:
            session = await belt.session_async("ada", "chat")
            return (
                (await belt.load_async("pdf")).text == belt.load("pdf").text,
                await session.tools_async("openai") == session.tools("openai"),
                (await session.call_async("skill_load", {"skill": "pdf"})).text,
                [one.name for one in await session.loaded_async()],
            )

    assert asyncio.run(main()) == (True, True, "loaded: pdf", ["pdf"])


def test_the_loop_goes_on_while_a_run_waits(bench: Bench) -> None:
    ticked = threading.Event()

    def ask(_pending: Pending) -> Answer:
        # Only the event loop sets it: a call that blocks the loop is never allowed.
        return Answer("once" if ticked.wait(HANG_SECONDS) else "reject")

    async def tick() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        ticked.set()

    async def main() -> str:
        with bench.open(rules=[], ask=ask) as belt:
            result, _ = await asyncio.gather(belt.run_async(SKILL, "echo ran"), tick())
            return str(result.stdout)

    assert asyncio.run(main()) == "ran\n"


def run_it(belt: Runtime, command: str, listener: Any) -> Any:
    return belt.run_async(SKILL, command, listener=listener)


def execute_it(belt: Runtime, command: str, listener: Any) -> Any:
    return belt.execute_skill_async(SKILL, {"command": command}, listener=listener)


@pytest.mark.parametrize("start", [run_it, execute_it])
def test_cancelling_ends_the_command(bench: Bench, start: Callable[..., Any]) -> None:
    bench.write(
        "scripts/main.py",
        "import json,subprocess,sys\nsubprocess.run(json.load(sys.stdin)['command'], shell=True)\n",
    )
    mark = f"86400.{time.time_ns()}"

    async def main() -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def listen(_stream: Stream, _data: bytes) -> None:
            loop.call_soon_threadsafe(begun.set)

        task = asyncio.create_task(start(bench.runtime, f"echo begun; sleep {mark}", listen))
        await asyncio.wait_for(begun.wait(), HANG_SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not alive(mark)

    asyncio.run(main())


def test_leaving_a_scope_ends_the_command_of_a_call(bench: Bench) -> None:
    mark = f"86400.{time.time_ns()}"
    session = bench.runtime.session("ada", "chat")

    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                begun = anyio.Event()
                loop = asyncio.get_running_loop()

                def listen(_stream: Stream, _data: bytes) -> None:
                    loop.call_soon_threadsafe(begun.set)

                async def call() -> None:
                    arguments = {"skill": SKILL, "command": f"echo begun; sleep {mark}"}
                    await session.call_async("skill_run", arguments, watch=Watch(listen))

                group.start_soon(call)
                with anyio.fail_after(HANG_SECONDS):
                    await begun.wait()
                scope.cancel()
        assert not alive(mark)

    asyncio.run(main())


def test_a_call_that_is_cancelled_before_its_command_starts_runs_nothing(bench: Bench) -> None:
    asked, answer = threading.Event(), threading.Event()

    def ask(_pending: Pending) -> Answer:
        asked.set()
        answer.wait(HANG_SECONDS)
        return Answer("once")

    with bench.open(rules=[], ask=ask) as belt:
        session = belt.session("ada", "chat")

        async def main() -> None:
            task = asyncio.create_task(
                belt.run_async(SKILL, "sleep 3600; echo ran > out/ran", session=session)
            )
            await asyncio.to_thread(asked.wait, HANG_SECONDS)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            answer.set()

        asyncio.run(main())
    assert bench.run("ls out").stdout == ""


def test_a_run_that_nobody_wants_any_more_does_not_start(bench: Bench) -> None:
    """If it were killed at its start, it could still have done something."""
    session = bench.runtime.session("ada", "chat")
    started: list[object] = []
    arguments = {"skill": SKILL, "command": "echo ran"}
    over = Watch(started=started.append, is_over=lambda: True)
    result = session.call_sync("skill_run", arguments, watch=over)
    assert "cancelled before the command started" in result.error
    follower = Follower()
    follower.kill()
    result = session.call_sync("skill_run", arguments, watch=follower.watch)
    assert result.error and not started
    wanted = Watch(started=started.append, is_over=lambda: False)
    assert not session.call_sync("skill_run", arguments, watch=wanted).error and started


def test_context_variables_are_those_of_the_caller(bench: Bench) -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")
    seen: list[str] = []

    def ask(_pending: Pending) -> Answer:
        seen.append(who.get())
        return Answer("once")

    async def main() -> None:
        who.set("ada")
        with bench.open(rules=[], ask=ask) as belt:
            await belt.run_async(SKILL, "true")

    asyncio.run(main())
    assert seen == ["ada"]


def test_a_program_with_one_user_names_neither_it_nor_the_conversation(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    belt = Runtime(tree.project)
    first, second = belt.session(), belt.session()
    assert first.session.key.user == second.session.key.user == "local"
    assert first.session.key.session != second.session.key.session
    first.call_sync("skill_load", {"skill": "pdf"})
    assert [one.name for one in first.loaded()] == ["pdf"]
    assert not second.loaded()
