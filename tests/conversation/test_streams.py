"""A streamed reply is joined from the events of the vendor's package."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from skillbelt import ConfigError, join_stream
from skillbelt.conversation.vendors.read import read_history


def chunk(delta: dict[str, Any], finish: str | None = None) -> ChatCompletionChunk:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return ChatCompletionChunk.model_validate({**head, "choices": [choice]})


def call(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": "skill_load"} if more else {})}
    return {"tool_calls": [{"index": index, "function": function, **more}]}


def test_chunks_of_chat_completions() -> None:
    reply = join_stream(
        [
            chunk({"role": "assistant", "content": "I "}),
            chunk({"content": "load."}),
            chunk(call(0, '{"skill":', id="a", type="function")),
            chunk(call(1, "{}", id="b", type="function")),
            chunk(call(0, ' "pdf"}')),
            chunk({}, "tool_calls"),
            ChatCompletionChunk.model_validate({**chunk({}).model_dump(), "choices": []}),
        ],
        "openai",
    )
    assert (reply["role"], reply["content"]) == ("assistant", "I load.")
    calls = read_history([reply], "openai").calls()
    assert [(one.id, one.arguments) for one in calls] == [("a", '{"skill": "pdf"}'), ("b", "{}")]


def test_what_other_servers_have_beside_the_content_is_kept() -> None:
    events = [
        {"choices": [{"delta": {"reasoning_content": "Hm", "details": [1]}}]},
        {"choices": [{"delta": {"reasoning_content": "m.", "content": "Yes.", "details": [2]}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    ]
    assert join_stream(events, "openai") == {
        "role": "assistant",
        "content": "Yes.",
        "reasoning_content": "Hmm.",
        "details": [1, 2],
    }


def test_calls_that_a_server_does_not_number() -> None:
    deltas = [
        {"id": "a", "function": {"name": "x", "arguments": "{}"}},
        {"id": "b", "function": {"name": "y", "arguments": "{"}},
        {"function": {"arguments": "}"}},
    ]
    events: list[Any] = [{"choices": [{"delta": {"tool_calls": [one]}}]} for one in deltas]
    events.append({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    before = deepcopy(events)
    calls = read_history([join_stream(events, "openai")], "openai").calls()
    assert events == before
    assert [(one.id, one.name, one.arguments) for one in calls] == [
        ("a", "x", "{}"),
        ("b", "y", "{}"),
    ]


def test_the_last_event_of_the_responses_api_has_it() -> None:
    response = {"object": "response", "output": [{"type": "reasoning", "id": "r"}]}
    events = [{"type": "response.created"}, {"type": "response.completed", "response": response}]
    assert join_stream(events, "responses") == response


def block(index: int, **start: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": start}


def delta(index: int, kind: str, **piece: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **piece}}


STOP = {"type": "message_stop"}


def test_blocks_of_anthropic() -> None:
    reply = join_stream(
        [
            {"type": "message_start", "message": {}},
            block(0, type="thinking", thinking="", signature=""),
            delta(0, "thinking_delta", thinking="Hmm."),
            delta(0, "signature_delta", signature="sig=="),
            block(1, type="text", text=""),
            delta(1, "text_delta", text="I "),
            delta(1, "text_delta", text="load."),
            block(2, type="tool_use", id="a", name="skill_load", input={}),
            delta(2, "input_json_delta", partial_json='{"skill": '),
            delta(2, "input_json_delta", partial_json='"pdf"}'),
            STOP,
        ],
        "anthropic",
    )
    assert reply == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hmm.", "signature": "sig=="},
            {"type": "text", "text": "I load."},
            {"type": "tool_use", "id": "a", "name": "skill_load", "input": {"skill": "pdf"}},
        ],
    }


@pytest.mark.parametrize("written", ['{"skill"', "[1]", "NaN", "[" * 100_000])
def test_a_call_of_anthropic_whose_arguments_are_none_has_none(written: str) -> None:
    use = block(0, type="tool_use", id="a", name="skill_load", input={})
    pieces = [use, delta(0, "input_json_delta", partial_json=written), STOP]
    [found] = join_stream(pieces, "anthropic")["content"]
    assert found["input"] == {}


def test_contents_of_gemini_keep_their_signatures_where_they_came() -> None:
    def content(*parts: dict[str, Any]) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": list(parts)}}]}

    called = {"functionCall": {"name": "skill_load", "args": {}}, "thoughtSignature": "c2ln"}
    reply = join_stream(
        [
            content({"text": "Hm", "thought": True}),
            content({"text": "m.", "thought": True}),
            content({"text": "I "}),
            content({"text": "load."}, called),
            content({"text": ""}),
            content({"text": "", "thoughtSignature": "ZW5k"}),
            {"candidates": [{"finishReason": "STOP"}], "usageMetadata": {}},
        ],
        "gemini",
    )
    assert reply["parts"] == [
        {"text": "Hmm.", "thought": True},
        {"text": "I load."},
        called,
        {"text": "", "thoughtSignature": "ZW5k"},
    ]


@pytest.mark.parametrize(
    ("format", "events", "says"),
    [
        ("openai", [{"choices": []}], "events: expected a last chunk with a finish_reason"),
        ("responses", [{"type": "response.created"}], "expected one of response.completed"),
        ("anthropic", [{"type": "message_start"}], "events: expected message_stop"),
        ("gemini", [{"candidates": []}], "events: expected a last chunk with a finish_reason"),
        ("gemini", [7], r"events\[0\]: expected an event of a stream, found a value of type int"),
        ("x", [], "format: expected one of openai, responses, anthropic, gemini"),
    ],
)
def test_a_stream_that_is_not_whole_is_one_error(format: Any, events: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        join_stream(events, format)


def test_a_stream_of_coroutines_is_collected_first() -> None:
    async def stream() -> AsyncIterator[object]:
        yield {}

    with pytest.raises(ConfigError, match=r"events: expected a list, .*async for"):
        join_stream(stream(), "openai")  # type: ignore[arg-type]
