"""Messages on their way to pydantic-ai and back."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from skillbelt import Runtime
from skillbelt.agent.history import KEPT
from skillbelt.agent.provider import convert_messages, convert_tool, data_to_keep

CALL = {"id": "c1", "name": "skill_load", "arguments": {"skill": "greet"}}


def sent(*messages: dict[str, Any]) -> list[Any]:
    return convert_messages(messages).messages


def test_the_first_system_text_is_static_and_the_next_is_not() -> None:
    """So that the first can be cached even if the second changes."""
    system = [{"role": "system", "content": text} for text in ("one", "two")]
    parts = convert_messages([*system, {"role": "user", "content": "Hi"}]).instructions
    assert [(part.content, part.dynamic) for part in parts] == [("one", False), ("two", True)]


def test_a_question_and_its_answer() -> None:
    request, response = sent(
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
    )
    assert isinstance(request, ModelRequest)
    assert isinstance(request.parts[0], UserPromptPart)
    assert response.parts == [TextPart("Hello")]


def test_a_call_and_its_result() -> None:
    response, request = sent(
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "loaded: greet"},
    )
    assert response.parts == [ToolCallPart("skill_load", {"skill": "greet"}, "c1")]
    [part] = request.parts
    assert isinstance(part, ToolReturnPart)
    assert (part.tool_name, part.content, part.outcome) == (
        "skill_load",
        "loaded: greet",
        "success",
    )


def test_a_result_that_failed_says_so() -> None:
    _, request = sent(
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "no", "error": True},
    )
    assert request.parts[0].outcome == "failed"


def test_results_and_what_the_user_says_next_are_one_request() -> None:
    messages = sent(
        {"role": "assistant", "content": "", "tool_calls": [CALL, {**CALL, "id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "user", "content": "And?"},
    )
    assert [type(part) for part in messages[1].parts] == [
        ToolReturnPart,
        ToolReturnPart,
        UserPromptPart,
    ]


def test_content_in_parts_is_its_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    [request] = sent({"role": "user", "content": parts})
    assert request.parts[0].content == "one\ntwo"


def test_an_answer_without_anything_is_still_one() -> None:
    [response] = sent({"role": "assistant", "content": ""})
    assert response.parts == [TextPart("")]


def test_a_plain_answer_needs_nothing_kept() -> None:
    assert data_to_keep(ModelResponse([TextPart("Hi"), ToolCallPart("x", {}, "c1")])) is None


def test_what_a_provider_wants_back_goes_there_and_back() -> None:
    thinking = ThinkingPart("Hm", signature="signed", provider_name="anthropic")
    response = ModelResponse([thinking, TextPart("Hi")], provider_name="anthropic")
    dumped = data_to_keep(response)
    assert dumped is not None
    [again] = sent({"role": "assistant", "content": "Hi", KEPT: dumped})
    assert again.parts == response.parts


def test_tools_are_offered_without_strict_mode(belt: Runtime) -> None:
    tool = convert_tool(belt.tools()[0])
    assert (tool.name, tool.strict) == ("skill_load", False)
    assert "$schema" not in tool.parameters_json_schema
    assert tool.parameters_json_schema["properties"]["skill"]["enum"] == ["count", "greet"]


def test_what_another_version_kept_does_not_stop_the_conversation() -> None:
    [response] = sent({"role": "assistant", "content": "Hi", KEPT: {"parts": "unknown"}})
    assert response.parts == [TextPart("Hi")]


def test_half_a_character_does_not_stop_the_conversation() -> None:
    call = {**CALL, "arguments": {"skill": "\ud800"}}
    _, response = sent(
        {"role": "user", "content": "\ud800"},
        {"role": "assistant", "content": "\udfff", "tool_calls": [call]},
    )
    assert response.parts[0].content == "?"
    assert response.parts[1].args_as_json_str() == '{"skill":"?"}'


def test_arguments_that_were_not_whole_can_be_sent_again() -> None:
    call = {**CALL, "arguments": '{"skill": "gre'}
    [response] = sent({"role": "assistant", "content": "", "tool_calls": [call]})
    assert response.parts[0].args_as_json_str() == '{"INVALID_JSON":"{\\"skill\\": \\"gre"}'
