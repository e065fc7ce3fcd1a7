"""A model that follows a script, and short ways to run an agent with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from skillbelt import Runtime
from skillbelt.agent import (
    Agent,
    AgentEvent,
    Called,
    Final,
    Prompt,
    Reply,
    Runner,
    TextDelta,
    ToolResponse,
    Usage,
)
from skillbelt.agent.models import Piece

USAGE = Usage(100, 10, 80, 0)
T = TypeVar("T")
Step = Reply | Exception | Callable[[Prompt], Reply]


def said(text: str) -> Reply:
    return Reply(text, usage=USAGE)


def called(*calls: tuple[str, object], text: str = "") -> Reply:
    """Calls by name and arguments; their ids are c1, c2 and so on."""
    made = (Called(f"c{n}", name, arguments) for n, (name, arguments) in enumerate(calls, 1))
    return Reply(text, tuple(made), USAGE)


class Scripted:
    """Gives the answers in order, the last one again and again; records the requests."""

    name = "scripted"

    def __init__(self, *steps: Step, window_tokens: int = 0) -> None:
        self.steps, self.window_tokens = list(steps), window_tokens
        self.prompts: list[Prompt] = []

    async def ask(self, prompt: Prompt) -> AsyncIterator[Piece]:
        self.prompts.append(prompt)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        reply = step if isinstance(step, Reply) else step(prompt)
        if reply.text:
            half = len(reply.text) // 2
            yield TextDelta(reply.text[:half])
            yield TextDelta(reply.text[half:])
        yield reply

    def sent(self, number: int = -1) -> Sequence[dict[str, Any]]:
        """The messages of a request."""
        return self.prompts[number].messages


def play(
    agent: Agent, message: str = "Go on.", session: str = "chat", **more: Any
) -> list[AgentEvent]:
    """Return all events of one message, with its own runner."""
    with Runner(agent, **more) as runner:
        return list(runner.run_sync("ada", session, message))


def of(events: Sequence[AgentEvent], kind: type[T]) -> list[T]:
    return [event for event in events if isinstance(event, kind)]


def final(events: Sequence[AgentEvent]) -> Final:
    [found] = of(events, Final)
    assert events[-1] is found
    return found


def results(events: Sequence[AgentEvent]) -> list[str]:
    """Return the results of the calls, in the order of their events."""
    return [event.text for event in of(events, ToolResponse)]


def messages(belt: Runtime, session: str = "chat") -> list[dict[str, object]]:
    """Return the stored history."""
    return belt.session("ada", session).session.messages()


def roles(belt: Runtime, session: str = "chat") -> list[object]:
    return [message["role"] for message in messages(belt, session)]
