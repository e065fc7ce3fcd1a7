"""Messages may be objects of vendors' packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import TextBlock, ToolUseBlock
from anthropic.types import Usage as AnthropicUsage
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.chat.chat_completion_message_function_tool_call import (
    ChatCompletionMessageFunctionToolCall,
    Function,
)

from skillbelt import ConfigError, Runtime
from skillbelt.conversation.plain import plain_messages
from skillbelt.store.memory import MemoryStore
from tests.tree import Tree

USER = {"role": "user", "content": "hi"}
CALL = ChatCompletionMessageFunctionToolCall(
    id="1", type="function", function=Function(name="skill_load", arguments='{"skill": "pdf"}')
)
ANSWER = ChatCompletionMessage(role="assistant", tool_calls=[CALL])
TEXT = TextBlock(type="text", text="I load it.")
USE = ToolUseBlock(type="tool_use", id="1", name="skill_load", input={"skill": "pdf"})


@dataclass
class Said:
    role: str
    content: str
    name: str | None = None


def test_dicts_stay_as_they_are() -> None:
    message = {"role": "assistant", "content": [{"type": "text", "text": "x"}, "y"], "more": None}
    [found] = plain_messages([message])
    assert found is message


def test_an_openai_message_as_it_came(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf", text="Read it.\n")
    session = Runtime(tree.project, store=MemoryStore()).session("u", "c")
    session.request([USER])
    result = session.call_sync("skill_load", CALL.function.arguments, CALL.id)
    told = {"role": "tool", "tool_call_id": "1", "content": result.text}
    sent = session.request([USER, ANSWER, told])
    assert all(type(one) is dict for one in sent)
    assert sent[-2]["tool_calls"][0]["function"]["name"] == "skill_load"
    assert "Read it." in sent[-1]["content"]


def test_tool_calls_of_an_openai_message_in_a_dict() -> None:
    [found] = plain_messages([{"role": "assistant", "content": None, "tool_calls": [CALL]}])
    assert found["tool_calls"] == [CALL.model_dump(exclude_none=True)]


def test_an_anthropic_message_as_it_came() -> None:
    answer = AnthropicMessage(
        id="m", type="message", role="assistant", model="claude-x", content=[TEXT, USE],
        usage=AnthropicUsage(input_tokens=1, output_tokens=1),
    )  # fmt: skip
    [found] = plain_messages([answer])
    assert found.keys() == {"role", "content"}
    assert [block["type"] for block in found["content"]] == ["text", "tool_use"]


def test_anthropic_blocks_in_a_dict() -> None:
    [found] = plain_messages([{"role": "assistant", "content": [TEXT, USE]}])
    assert found["content"] == [one.model_dump(exclude_none=True) for one in (TEXT, USE)]


def test_a_dataclass() -> None:
    assert plain_messages([Said("user", "hi")]) == [USER]


WHOLE = ChatCompletion.model_construct(choices=[], id="x")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: [USER, "hello"], r"messages\[1\]: str is not a message"),
        (lambda: [USER, object()], r"messages\[1\]: object is not a message"),
        (lambda: [WHOLE], r"give response\.choices\[0\]\.message"),
        (lambda: "hello", "expected a list of messages, not str"),
        (lambda: USER, "expected a list of messages, not dict"),
        (lambda: [Said], r"messages\[0\]: type is not a message"),
    ],
)
def test_what_is_no_message_is_named(tree: Tree, make: Callable[[], Any], says: str) -> None:
    session = Runtime(tree.project, store=MemoryStore()).session("u", "c")
    with pytest.raises(ConfigError, match=says):
        session.request(make())
