"""What a run of an agent tells whoever follows it, as values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from skillbelt.permission.waiting import Pending
from skillbelt.running.facts import facts
from skillbelt.sandbox.protocol import Stream

# Why a run ended: with an answer, because it was bounded, or because the model could not be used.
# One that is cancelled tells nobody any more.
Reason = Literal["answer", "max_steps", "loop", "error"]
_NOTHING: Mapping[str, object] = MappingProxyType({})
_NO_CHANGE: Mapping[str, str | None] = MappingProxyType({})


class TextDelta(NamedTuple):
    """More of the answer."""

    text: str


class ThinkingDelta(NamedTuple):
    """More of what the model thinks on its way, where it tells."""

    text: str


class ToolCall(NamedTuple):
    """A call that is whole and about to be carried out. `arguments` are as the model wrote them."""

    id: str
    name: str
    arguments: object


class ToolResponse(NamedTuple):
    """What a call gave, and what it changed in the state of the session; None is a deleted key.

    It was kept before it is told.
    """

    id: str
    name: str
    text: str
    error: str = ""
    data: Mapping[str, object] = _NOTHING
    state_delta: Mapping[str, str | None] = _NO_CHANGE


class PermissionRequest(NamedTuple):
    """Somebody is asked. `Runner.answer` with the id of `pending` answers it."""

    pending: Pending


class RunOutput(NamedTuple):
    """What the command of a call prints, while it prints it."""

    call_id: str
    stream: Stream
    data: bytes


class Usage(NamedTuple):
    """The tokens of one request, as the model's provider counts them.

    `cached_tokens` of the input were served from its cache, `cache_write_tokens` were put there.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    requests: int = 1

    def plus(self, other: Usage) -> Usage:
        """Both together."""
        return Usage(*(one + two for one, two in zip(self, other, strict=True)))


class Retry(NamedTuple):
    """The request is made again, for that reason; the text of this step so far does not count."""

    reason: str


class Compaction(NamedTuple):
    """The history grew too long: so many messages are told in short from now on."""

    messages: int
    summary: str


class Final(NamedTuple):
    """The end. `text` is the whole last answer, `usage` what all requests took together.

    `error` says what went wrong where `reason` is not `answer`; of an answer, why it is not whole.
    """

    text: str
    reason: Reason = "answer"
    error: str = ""
    usage: Usage = Usage(requests=0)


AgentEvent = (
    TextDelta
    | ThinkingDelta
    | ToolCall
    | ToolResponse
    | PermissionRequest
    | RunOutput
    | Usage
    | Retry
    | Compaction
    | Final
)
_TYPES: Mapping[type, str] = {
    TextDelta: "text",
    ThinkingDelta: "thinking",
    ToolCall: "tool.call",
    ToolResponse: "tool.response",
    PermissionRequest: "permission",
    RunOutput: "run.output",
    Usage: "usage",
    Retry: "retry",
    Compaction: "compaction",
    Final: "final",
}


def document(event: AgentEvent) -> dict[str, object]:
    """The event as JSON has it, with its `type`."""
    fields: dict[str, object] = event._asdict()
    match event:
        case RunOutput():
            fields["data"] = event.data.decode("utf-8", "replace")
        case PermissionRequest():
            request: dict[str, object] = event.pending.request._asdict()
            request["metadata"] = dict(event.pending.request.metadata)
            told = [fact._asdict() for fact in facts(event.pending.request)]
            fields = {"id": event.pending.id, "request": request, "facts": told}
        case ToolResponse():
            fields |= {"data": dict(event.data), "state_delta": dict(event.state_delta)}
        case Final():
            fields["usage"] = event.usage._asdict()
    return {"type": _TYPES[type(event)], **fields}
