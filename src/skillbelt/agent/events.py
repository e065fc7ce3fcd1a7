"""The events of an agent run, as values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from skillbelt.permission.waiting import Pending
from skillbelt.running.question_facts import facts
from skillbelt.sandbox.protocol import Stream

# Why a run ended: an answer, a limit, or a model that failed. A cancelled run has no last event.
Reason = Literal["answer", "max_steps", "loop", "error"]
_NOTHING: Mapping[str, object] = MappingProxyType({})
_NO_CHANGE: Mapping[str, str | None] = MappingProxyType({})


class TextDelta(NamedTuple):
    """More of the answer."""

    text: str


class ThinkingDelta(NamedTuple):
    """More of the model's reasoning, where the provider shows it."""

    text: str


class SkillCalled(NamedTuple):
    """The user called this skill by name; its text is in their message."""

    skill: str
    arguments: str = ""


class ToolCall(NamedTuple):
    """A complete call, about to run. `arguments` are as the model wrote them."""

    id: str
    name: str
    arguments: object


class ToolResponse(NamedTuple):
    """The result of a call, and its changes to the state of the session; None deletes a key.

    It is stored before this event is sent.
    """

    id: str
    name: str
    text: str
    error: str = ""
    data: Mapping[str, object] = _NOTHING
    state_delta: Mapping[str, str | None] = _NO_CHANGE


class PermissionRequest(NamedTuple):
    """A permission request. `Runner.answer` with the id of `pending` answers it."""

    pending: Pending


class RunOutput(NamedTuple):
    """Output of a command while it runs."""

    call_id: str
    stream: Stream
    data: bytes


class Usage(NamedTuple):
    """The tokens of one request, as the provider counts them.

    `cached_tokens` of the input were read from its cache, `cache_write_tokens` written to it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    requests: int = 1

    def plus(self, other: Usage) -> Usage:
        """Return the sum."""
        return Usage(*(one + two for one, two in zip(self, other, strict=True)))


class Retry(NamedTuple):
    """The request is repeated for this reason; discard the text of this step so far."""

    reason: str


class Compaction(NamedTuple):
    """The history was too long: this many messages were replaced by the summary."""

    messages: int
    summary: str


class Final(NamedTuple):
    """The end of a run. `text` is the whole last answer, `usage` the sum of all requests.

    `error` is the failure when `reason` is not `answer`, else why the answer is incomplete.
    """

    text: str
    reason: Reason = "answer"
    error: str = ""
    usage: Usage = Usage(requests=0)


AgentEvent = (
    TextDelta
    | ThinkingDelta
    | SkillCalled
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
    SkillCalled: "skill.called",
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
    """Return the event as a JSON document with its `type`."""
    fields: dict[str, object] = event._asdict()
    match event:
        case RunOutput():
            fields["data"] = event.data.decode("utf-8", "replace")
        case PermissionRequest():
            request: dict[str, object] = event.pending.request._asdict()
            request["metadata"] = dict(event.pending.request.metadata)
            details = [fact._asdict() for fact in facts(event.pending.request)]
            fields = {"id": event.pending.id, "request": request, "facts": details}
        case ToolResponse():
            fields |= {"data": dict(event.data), "state_delta": dict(event.state_delta)}
        case Final():
            fields["usage"] = event.usage._asdict()
    return {"type": _TYPES[type(event)], **fields}
