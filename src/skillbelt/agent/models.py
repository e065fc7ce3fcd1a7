"""The interface of a model, independent of any provider; `provider` finds models by name."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

from skillbelt.agent.events import TextDelta, ThinkingDelta, Usage
from skillbelt.conversation.messages import Message
from skillbelt.errors import SkillbeltError
from skillbelt.tools.schema import Tool

OFFLINE = "offline"
EXTRA = "agent"
NONE = Usage(requests=0)  # for an answer without a request
_MAX_DEPTH = 100  # levels of arguments; JSON readers and writers fail at some hundreds
_TOO_DEEP = "(arguments that were nested too deeply)"


class Prompt(NamedTuple):
    """One request: all messages, the available tools, and a key for the session."""

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    session: str = ""


class Called(NamedTuple):
    """A call as the model wrote it; `arguments` are an object or its JSON text."""

    id: str
    name: str
    arguments: object


class Reply(NamedTuple):
    """A complete answer. `kept` is what the provider wants back with the next request, or None.

    Without `finished` the provider did not mark the end; `fault` says why the answer is cut.
    """

    text: str = ""
    calls: tuple[Called, ...] = ()
    usage: Usage = Usage()
    kept: Mapping[str, object] | None = None
    finished: bool = True
    fault: str = ""


Piece = TextDelta | ThinkingDelta | Reply


class ModelFailure(SkillbeltError):
    """The model gave no complete answer. `again` tells whether a retry may help.

    `too_long` means that the request exceeds the context window.
    """

    kind = "model_failed"
    remedy = "check the model's name, its key and the network, then try again"

    def __init__(self, reason: str, *, again: bool = False, too_long: bool = False) -> None:
        self.again, self.too_long = again, too_long
        super().__init__(reason)


class Model(Protocol):
    """Something that answers prompts. The last piece is a Reply; else ModelFailure is raised.

    `window_tokens` is the size of the context window, 0 when unknown. A model that is also an
    asynchronous context manager is entered for each run.
    """

    name: str
    window_tokens: int

    def ask(self, prompt: Prompt) -> AsyncIterator[Piece]:
        """Stream the pieces of the answer."""


@asynccontextmanager
async def ask_model(model: Model, prompt: Prompt) -> AsyncGenerator[AsyncIterator[Piece], None]:
    """Stream the pieces of an answer; leaving the block early closes the connection."""
    pieces = model.ask(prompt)
    try:
        yield pieces
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


def make_storable(reply: Reply) -> Reply:
    """Return the answer in a form that can be stored: no deep arguments, unique call ids."""
    calls = tuple(
        call._replace(arguments=_TOO_DEEP) if is_deep(call.arguments) else call
        for call in reply.calls
    )
    return with_unique_ids(
        reply if calls == reply.calls else reply._replace(calls=calls, kept=None)
    )


def is_deep(value: object) -> bool:
    """Whether arguments are nested too deeply for JSON readers and writers."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [inner for one in level for inner in _children_of(one)]
        if not level:
            return False
    return True


def _children_of(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def with_unique_ids(reply: Reply) -> Reply:
    """Return the answer with a unique id for each call; some servers repeat ids."""
    if len({call.id for call in reply.calls if call.id}) == len(reply.calls):
        return reply
    calls = tuple(
        call._replace(id=f"{call.id or 'call'}-{number}")
        for number, call in enumerate(reply.calls, 1)
    )
    return reply._replace(calls=calls, kept=None)
