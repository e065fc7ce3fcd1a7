"""One conversation as each vendor's package has it: two calls at once, and their results."""

from __future__ import annotations

from typing import Any

from anthropic.types import Message as AnthropicMessage
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock
from anthropic.types import Usage as AnthropicUsage
from google.genai import types as gemini
from openai.types.chat import ChatCompletionMessage
from openai.types.chat.chat_completion_message_function_tool_call import (
    ChatCompletionMessageFunctionToolCall,
    Function,
)
from openai.types.responses import (
    Response,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)

from skillbelt.conversation.vendors.shapes import MessageFormat

ASKED = "What is in it?"
FIRST, SECOND = {"skill": "pdf"}, {"skill": "csv"}
PLAIN_FIRST, PLAIN_SECOND = '{"skill": "pdf"}', '{"skill": "csv"}'


def chat_reply() -> ChatCompletionMessage:
    calls = [
        ChatCompletionMessageFunctionToolCall(
            id=id, type="function", function=Function(name="skill_load", arguments=arguments)
        )
        for id, arguments in (("c1", PLAIN_FIRST), ("c2", PLAIN_SECOND))
    ]
    return ChatCompletionMessage(role="assistant", content="I load.", tool_calls=[*calls])


def anthropic_reply() -> AnthropicMessage:
    return AnthropicMessage(
        id="m", type="message", role="assistant", model="claude-x", stop_reason="tool_use",
        content=[
            ThinkingBlock(type="thinking", thinking="Two.", signature="sig=="),
            TextBlock(type="text", text="I load."),
            ToolUseBlock(type="tool_use", id="c1", name="skill_load", input={**FIRST}),
            ToolUseBlock(type="tool_use", id="c2", name="skill_load", input={**SECOND}),
        ],
        usage=AnthropicUsage(input_tokens=1, output_tokens=1),
    )  # fmt: skip


def response_reply() -> Response:
    text = ResponseOutputText(type="output_text", text="I load.", annotations=[])
    calls = [
        ResponseFunctionToolCall(
            id=f"fc_{id}", type="function_call", call_id=id, name="skill_load", arguments=arguments
        )
        for id, arguments in (("c1", PLAIN_FIRST), ("c2", PLAIN_SECOND))
    ]
    reasoning = ResponseReasoningItem(
        id="rs", type="reasoning", summary=[], encrypted_content="gAAA"
    )
    said = ResponseOutputMessage(
        id="msg", type="message", role="assistant", status="completed", content=[text]
    )
    return Response(
        id="resp", object="response", created_at=1, model="m", parallel_tool_calls=True,
        tool_choice="auto", tools=[], output=[reasoning, said, *calls],
    )  # fmt: skip


def gemini_reply(first: str | None = "c1", second: str | None = "c2") -> gemini.Content:
    return gemini.Content(
        role="model",
        parts=[
            gemini.Part(text="I load."),
            gemini.Part(
                function_call=gemini.FunctionCall(id=first, name="skill_load", args={**FIRST}),
                thought_signature=b"\xff\xfesig",
            ),
            gemini.Part(
                function_call=gemini.FunctionCall(id=second, name="skill_load", args={**SECOND})
            ),
        ],
    )


def asked(format: MessageFormat, text: str = ASKED) -> dict[str, Any]:
    if format == "gemini":
        return {"role": "user", "parts": [{"text": text}]}
    return {"role": "user", "content": text}


REPLIES: dict[MessageFormat, Any] = {
    "openai": chat_reply,
    "responses": response_reply,
    "anthropic": anthropic_reply,
    "gemini": gemini_reply,
}


def results(format: MessageFormat, first: str, second: str) -> list[Any]:
    """The results of both calls, as a host writes them."""
    if format == "openai":
        return [
            {"role": "tool", "tool_call_id": "c1", "content": first},
            {"role": "tool", "tool_call_id": "c2", "content": second},
        ]
    if format == "responses":
        return [
            {"type": "function_call_output", "call_id": "c1", "output": first},
            {"type": "function_call_output", "call_id": "c2", "output": second},
        ]
    if format == "anthropic":
        blocks = [
            {"type": "tool_result", "tool_use_id": "c1", "content": first},
            {"type": "tool_result", "tool_use_id": "c2", "content": second},
        ]
        return [{"role": "user", "content": blocks}]
    parts = [
        gemini.Part(
            function_response=gemini.FunctionResponse(
                id=id, name="skill_load", response={"result": text}
            )
        )
        for id, text in (("c1", first), ("c2", second))
    ]
    return [gemini.Content(role="user", parts=parts)]
