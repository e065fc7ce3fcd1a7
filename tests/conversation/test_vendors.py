"""Reading the history of any vendor: calls, results, and their positions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from google.genai import types as gemini
from openai.types.chat import ChatCompletionMessage

from skillbelt import ConfigError
from skillbelt.conversation.vendors.read import read_history
from skillbelt.conversation.vendors.shapes import MESSAGE_FORMATS, MessageFormat
from tests.conversation.vendor_histories import (
    ASKED,
    FIRST,
    PLAIN_FIRST,
    PLAIN_SECOND,
    REPLIES,
    SECOND,
    asked,
    gemini_reply,
    results,
)

every = pytest.mark.parametrize("format", MESSAGE_FORMATS)


def whole(format: MessageFormat) -> list[Any]:
    return [asked(format), REPLIES[format](), *results(format, "one", "two")]


@every
def test_objects_of_the_package_are_read(format: MessageFormat) -> None:
    history = read_history(whole(format), format)
    roles = [message["role"] for message in history.messages]
    assert roles == ["user", "assistant", "tool", "tool"]
    assert history.messages[0]["content"] == ASKED
    assert all(type(item) is dict for item in history.items)
    calls = history.calls()
    assert [(call.id, call.name) for call in calls] == [("c1", "skill_load"), ("c2", "skill_load")]
    plain = format in ("openai", "responses")
    wanted = [PLAIN_FIRST, PLAIN_SECOND] if plain else [FIRST, SECOND]
    assert [call.arguments for call in calls] == wanted
    assert [(one.id, one.text) for one in history.results()] == [("c1", "one"), ("c2", "two")]


@every
def test_an_item_knows_where_it_was_given(format: MessageFormat) -> None:
    history = read_history(whole(format), format)
    assert {history.sources[call.item] for call in history.calls()} == {1}
    given = [history.sources[one.item] for one in history.results()]
    assert given == ([2, 2] if format in ("anthropic", "gemini") else [2, 3])


@every
def test_a_plain_history_is_read_like_the_objects(format: MessageFormat) -> None:
    history = read_history(whole(format), format)
    again = read_history(history.items, format)
    assert again.items == history.items
    assert again.messages == history.messages


@every
def test_a_reply_that_was_stored_with_empty_fields_is_the_same(format: MessageFormat) -> None:
    stored = json.loads(REPLIES[format]().model_dump_json())
    assert None in stored.values() or "null" in json.dumps(stored)
    found, fresh = read_history([stored], format), read_history([REPLIES[format]()], format)
    assert found.messages == fresh.messages
    assert "null" not in json.dumps(found.items)
    if format != "gemini":  # the package takes both spellings of a name
        assert found.items == fresh.items


def test_calls_of_gemini_without_ids_get_those_of_their_responses() -> None:
    parts = [
        {"functionResponse": {"id": id, "name": "skill_load", "response": {"output": "x"}}}
        for id in ("skillbelt-1", "skillbelt-2")
    ]
    history = read_history(
        [asked("gemini"), gemini_reply(None, None), {"role": "user", "parts": parts}], "gemini"
    )
    assert [call.id for call in history.calls()] == ["skillbelt-1", "skillbelt-2"]
    assert [one.id for one in history.results()] == ["skillbelt-1", "skillbelt-2"]


SILENT: list[tuple[MessageFormat, Any]] = [
    ("anthropic", {"role": "assistant", "content": []}),
    ("gemini", gemini.Content(role="model")),
    ("gemini", {"candidates": [{"finishReason": "MAX_TOKENS"}]}),
]


@pytest.mark.parametrize(("format", "reply"), SILENT)
def test_a_reply_that_says_nothing_is_left_out(format: MessageFormat, reply: Any) -> None:
    history = read_history([asked(format), reply, asked(format)], format)
    assert history.items == [asked(format), asked(format)]
    assert history.sources == [0, 2]


def test_a_message_of_chat_completions_has_a_content_that_the_vendor_takes() -> None:
    silent = ChatCompletionMessage(role="assistant")
    called, nothing = read_history([REPLIES["openai"](), silent], "openai").items
    assert called["content"] == "I load." and nothing["content"] == ""
    bare = {**called, "content": None}
    assert read_history([bare], "openai").items == [bare]


USER = {"role": "user", "content": "hi"}
USE = {"type": "tool_use", "id": "1", "name": "x", "input": {}}


@pytest.mark.parametrize(
    ("format", "make", "says"),
    [
        ("openai", lambda: "hello", r"history: expected a list, found the text 'hello'"),
        (
            "openai",
            lambda: [USER, 7],
            r"history\[1\]: expected a message of chat completions .*int",
        ),
        ("openai", lambda: [{"role": "user", "content": 7}], r"\[0\]\.content: expected text, or"),
        (
            "openai",
            lambda: [{"role": "assistant", "content": [USE]}],
            r"history\[0\]\.content: .*; it looks like format='anthropic'",
        ),
        ("openai", lambda: [gemini.Content(parts=[])], r"\[0\]: .*looks like format='gemini'"),
        (
            "openai",
            lambda: [{"role": "tool", "content": "x"}],
            r"\[0\]\.tool_call_id: expected the id of a call, found nothing",
        ),
        (
            "openai",
            lambda: [{"role": "assistant", "tool_calls": [{"id": "1", "function": {}}]}],
            r"\[0\]\.tool_calls\[0\]\.function\.name: expected the name of a tool, found nothing",
        ),
        ("responses", lambda: [{"role": "tool"}], r"expected an item of the Responses API .*role"),
        (
            "responses",
            lambda: [{"type": "function_call", "name": "x"}],
            r"history\[0\]\.call_id: expected the id of a call",
        ),
        (
            "responses",
            lambda: [{"role": "assistant", "content": [USE]}],
            r"looks like format='anthropic'",
        ),
        ("anthropic", lambda: [{"role": "tool", "content": "x"}], r"looks like format='openai'"),
        (
            "anthropic",
            lambda: [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": 1}]}],
            r"history\[1\]\.content\[0\]\.id: expected the id of a call, found a value of type int",
        ),
        (
            "anthropic",
            lambda: [{"role": "user", "content": ["hi"]}],
            r"history\[0\]\.content\[0\]: expected a part: .* found the text 'hi'",
        ),
        ("gemini", lambda: [USER], r"history\[0\]: expected a content of Gemini"),
        ("gemini", lambda: [{"role": "user", "parts": [7]}], r"\[0\]\.parts\[0\]: expected a part"),
        (
            "gemini",
            lambda: [{"role": "model", "parts": [{"functionCall": {"args": {}}}]}],
            r"\[0\]\.parts\[0\]\.functionCall\.name: expected the name of a tool, found nothing",
        ),
        (
            "gemini",
            lambda: [{"candidates": []}],
            r"\.candidates: expected one candidate, found a list of 0",
        ),
        (
            "mistral",
            lambda: [USER],
            r"format: expected one of openai, responses, anthropic, gemini",
        ),
    ],
)
def test_an_unknown_shape_is_one_error(
    format: MessageFormat, make: Callable[[], Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        read_history(make(), format)


def test_an_error_holds_no_line_break_of_a_history() -> None:
    with pytest.raises(ConfigError) as raised:
        read_history([{"role": "x\nSystem: \x1b[31m"}], "openai")
    assert "\n" not in str(raised.value)
    assert "\x1b" not in str(raised.value)
