"""Messages of a session as pydantic-ai takes them, and answers as a session keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

from skillbelt.conversation.messages import Message
from skillbelt.tools.schema import Tool
from skillbelt.untrusted_json import read_json

KEPT = "response"  # where a message holds what its provider wants to see again
_SYSTEM = ("system", "developer")


class History(NamedTuple):
    """The messages, and the texts of the system apart from them."""

    messages: list[ModelMessage]
    instructions: tuple[InstructionPart, ...]


def history(messages: Sequence[Message]) -> History:
    """The first system message never changes; one behind it may, and so may not be cached."""
    made: list[ModelMessage] = []
    system: list[InstructionPart] = []
    names: dict[str, str] = {}
    for message in messages:
        role = message["role"]
        if role in _SYSTEM:
            system.append(InstructionPart(_text(message), dynamic=bool(system)))
        elif role == "assistant":
            made.append(_response(message, names))
        else:
            part = _returned(message, names) if role == "tool" else UserPromptPart(_text(message))
            if made and isinstance(made[-1], ModelRequest):
                made[-1] = ModelRequest([*made[-1].parts, part])
            else:
                made.append(ModelRequest([part]))
    return History(made, tuple(system))


def _response(message: Message, names: dict[str, str]) -> ModelResponse:
    calls = [(_whole(call["id"]), _whole(call["name"]), call) for call in _calls(message)]
    names.update((id, name) for id, name, _ in calls)
    if KEPT in message:
        # One that another version wrote may not be readable: then its text and calls are.
        with suppress(ValueError):
            [response] = ModelMessagesTypeAdapter.validate_python([_all_whole(message[KEPT])])
            if isinstance(response, ModelResponse):
                return response
    text = _text(message)
    parts: list[TextPart | ToolCallPart] = [TextPart(text)] if text else []
    parts += [ToolCallPart(name, _sendable(call["arguments"]), id) for id, name, call in calls]
    return ModelResponse(parts or [TextPart("")])


def _calls(message: Message) -> Sequence[dict[str, Any]]:
    return message.get("tool_calls") or ()


def _sendable(arguments: Any) -> Any:
    """Arguments that can be written as UTF-8; half a character would make every request fail."""
    if not isinstance(arguments, dict):
        return _whole(arguments) if isinstance(arguments, str) else None
    text = json.dumps(arguments, ensure_ascii=False, default=str)
    return arguments if (clean := _whole(text)) == text else read_json(clean, constants=True)


def _whole(text: str) -> str:
    """The text without halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _all_whole(value: Any) -> Any:
    """The same for all texts of a value that came as JSON."""
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, dict):
        return {_whole(key): _all_whole(one) for key, one in value.items()}
    return [_all_whole(one) for one in value] if isinstance(value, list) else value


def _returned(message: Message, names: Mapping[str, str]) -> ToolReturnPart:
    call = _whole(message["tool_call_id"])
    return ToolReturnPart(
        names.get(call, "tool"),
        _text(message),
        call,
        outcome="failed" if message.get("error") else "success",
    )


def _text(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return _whole(content)
    texts = (str(part.get("text", "")) for part in content if isinstance(part, dict))
    return _whole("\n".join(texts))


def kept(response: ModelResponse) -> dict[str, object] | None:
    """What must be kept of an answer beside its text and its calls; None when that is all."""
    if all(_plain(part) for part in response.parts):
        return None
    [dumped] = ModelMessagesTypeAdapter.dump_python([response], mode="json")
    assert isinstance(dumped, dict)
    return dumped


def _plain(part: object) -> bool:
    known = isinstance(part, TextPart | ToolCallPart)
    return known and not getattr(part, "id", None) and not getattr(part, "provider_details", None)


def definition(tool: Tool) -> ToolDefinition:
    """A tool as it is offered."""
    schema = {key: value for key, value in tool.schema.items() if key != "$schema"}
    # Strict mode would have a model fill in every argument there is.
    return ToolDefinition(
        name=tool.name,
        parameters_json_schema=schema,
        description=tool.description,
        strict=False,
    )
