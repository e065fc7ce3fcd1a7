"""Events as JSON has them."""

from __future__ import annotations

import json

import pytest

from skillbelt import Pending, Request
from skillbelt.agent import (
    AgentEvent,
    Compaction,
    Final,
    PermissionRequest,
    Retry,
    RunOutput,
    SkillCalled,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolResponse,
    Usage,
    document,
)

EVENTS: dict[str, AgentEvent] = {
    "text": TextDelta("Hi"),
    "thinking": ThinkingDelta("Hm"),
    "skill.called": SkillCalled("x", "now"),
    "tool.call": ToolCall("c1", "skill", {"name": "x"}),
    "tool.response": ToolResponse("c1", "skill", "text", data={"a": 1}, state_delta={"k": None}),
    "permission": PermissionRequest(Pending("p1", Request("run", ("ls",)), 1.0)),
    "run.output": RunOutput("c1", "stdout", b"\xff\n"),
    "usage": Usage(1, 2, 3, 4),
    "retry": Retry("broken"),
    "compaction": Compaction(3, "In short."),
    "final": Final("Bye"),
}


@pytest.mark.parametrize("type", EVENTS)
def test_every_event_has_its_type_and_is_json(type: str) -> None:
    made = document(EVENTS[type])
    assert made["type"] == type
    json.dumps(made)


def test_a_request_for_permission_says_what_is_asked() -> None:
    made = document(EVENTS["permission"])
    assert made["id"] == "p1"
    assert isinstance(request := made["request"], dict)
    assert (request["type"], request["patterns"]) == ("run", ("ls",))


def test_output_that_is_no_text_is_still_told() -> None:
    assert document(EVENTS["run.output"])["data"] == "\ufffd\n"


def test_usages_add_up() -> None:
    assert Usage(1, 2, 3, 4).plus(Usage(10, 20, 30, 40)) == Usage(
        input_tokens=11, output_tokens=22, cached_tokens=33, cache_write_tokens=44, requests=2
    )


def test_events_are_frozen() -> None:
    with pytest.raises(AttributeError):
        EVENTS["final"].text = "other"  # type: ignore[misc, union-attr]
