"""A run that is cancelled at each point where it waits: the session is intact, and continues."""

from __future__ import annotations

import asyncio
import gc
import itertools
import warnings
from collections.abc import Coroutine, Generator, Sequence
from typing import Any

import pytest

from skillbelt import Runtime
from skillbelt.agent import Agent, HostTool, Reply, Runner
from skillbelt.agent.history import repair_history
from skillbelt.agent.provider import model_by_name
from skillbelt.store.memory import MemoryStore
from tests.agent.scripted import Scripted, final
from tests.bounds import bounds
from tests.examples import MANY
from tests.openai_server import Answer, Broken, Calls, Server, called, said, serving
from tests.tree import Tree

LOADS = Calls(
    (
        ("a", "skill_load", '{"skill": "greet"}'),
        ("b", "skill_load", '{"skill": "count"}'),
        ("c", "clock", "{}"),
    ),
    "Let me see.",
)
FORK = called("skill_load", {"skill": "research"})
# Every step of the first; of the others, which go the same ways again, every third. `make test`
# takes fewer.
STRIDES = {"calls": 1, "retry": 3, "fork": 3} if MANY else {"calls": 5, "retry": 11, "fork": 11}
SCRIPTS: dict[str, list[Answer]] = {
    "calls": [LOADS, called("skill_list", {}, "d"), said("It is", " done.")],
    "retry": [Broken(LOADS, 2), LOADS, said("It is done.")],
    "fork": [FORK, LOADS, said("Found."), said("It is done.")],
}


class Steps:
    """Counts the steps of every task, and cancels one of them at a step."""

    def __init__(self, at: int) -> None:
        self.at, self.taken = at, 0
        self.target: asyncio.Task[None] | None = None

    def factory(self, loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
        return asyncio.Task(_Counted(coro, self), loop=loop, **more)

    def step(self) -> None:
        self.taken += 1
        if self.taken == self.at and self.target is not None:
            self.target.cancel()


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine whose steps are counted."""

    def __init__(self, inner: Any, steps: Steps) -> None:
        self._inner, self._steps = inner, steps

    def send(self, value: Any) -> Any:
        self._steps.step()
        return self._inner.send(value)

    def throw(self, *given: Any) -> Any:
        self._steps.step()
        return self._inner.throw(*given)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, None, Any]:
        return (yield from self._inner.__await__())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def cut(agent: Agent, store: MemoryStore, at: int) -> tuple[bool, int]:
    """Cancel a run at a step; return whether it was done before, and how many tasks are left."""
    steps = Steps(at)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(steps.factory)

    async def follow() -> None:
        async for _ in Runner(agent, store).run("ada", "chat", "Go on."):
            pass

    steps.target = loop.create_task(follow())
    await asyncio.wait([steps.target])
    loop.set_task_factory(None)
    return not steps.target.cancelled(), await left()


async def left() -> int:
    """Return how many tasks do not end by themselves.

    The client of the protocol has some of its own.
    """
    for _ in range(200):
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if not tasks:
            break
        await asyncio.sleep(0.005)
    return len(tasks)


@pytest.fixture(autouse=True)
def no_waiting(tree: Tree) -> None:
    bounds(retry_wait_seconds=0)


# The client of the protocol leaves a generator that is cut in a step of its own to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.property
@pytest.mark.parametrize("script", SCRIPTS)
def test_cancelled_wherever_it_waits_a_session_is_whole(
    belt: Runtime, tree: Tree, script: str
) -> None:
    tree.skill("project/.agents/skills/research", text="Look twice.\n", context="fork")
    with serving(*SCRIPTS[script]) as server, warnings.catch_warnings():
        # A connection that is made in the very step of the end is closed by the collector alone:
        # anyio has no name for it yet.
        warnings.simplefilter("ignore", ResourceWarning)
        steps = asyncio.run(cut_everywhere(belt, server, script))
        gc.collect()
    assert steps > 20


async def cut_everywhere(belt: Runtime, server: Server, script: str) -> int:
    """Cancel a run at its first step, another at its second, until one is done before that."""
    clock = HostTool("clock", "Tells the time.", lambda _: "noon")
    agent = Agent(belt, model_by_name(f"tiny@{server.url}"), tools=(clock,))
    for at in itertools.count(1, STRIDES[script]):
        store = MemoryStore()
        server.answers = list(SCRIPTS[script])
        done, tasks = await cut(agent, store, at)
        assert tasks == 0, at
        await check(agent, store, at)
        if done:
            return at
    raise AssertionError


async def check(agent: Agent, store: MemoryStore, at: int) -> None:
    """Every session is intact, reported skills are loaded, and the next message is answered."""
    for info in store.sessions():
        log = [dict(one.data) for one in store.events(info.key) if one.type == "message"]
        assert repair_history(log) == log, at
        session = agent.runtime.session("ada", info.key.session, store=store)
        told = {one["content"] for one in log if one["role"] == "tool"}
        loaded = {f"loaded: {one.name}" for one in session.loaded()}
        assert loaded - {"loaded: research"} == told & {"loaded: greet", "loaded: count"}, at
    model = Scripted(Reply("Fine."))
    again = Runner(agent._replace(model=model), store)
    events = [event async for event in again.run("ada", "chat", "And now?")]
    assert final(events).text == "Fine.", at
    assert paired(model.sent()), at


def paired(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether each call of a request has its answer in the place that every provider requires."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return False
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return False
        waiting += [call["id"] for call in message.get("tool_calls") or ()]
    return not waiting
