"""The items of OpenAI's Responses API: messages, calls, their outputs, reasoning and others."""

from __future__ import annotations

from collections.abc import Sequence

from skillbelt.conversation.messages import Message
from skillbelt.conversation.vendors.shapes import (
    AT,
    CallAnswer,
    Content,
    HistoryPlace,
    Item,
    hint_at_format,
    need_content,
    need_fields,
    need_list,
    need_parts,
    need_text,
    refuse,
    text_of,
)

_ROLES = ("user", "assistant", "system", "developer")
_ITEM = "an item of the Responses API (one of response.output, or a dict with a role or a type)"
_CALL, _OUTPUT = "function_call", "function_call_output"
# Fields that the package adds to an item; the vendor rejects them in a request.
_MADE = ("parsed_arguments", "parsed")


class ResponsesItems:
    """`input` of `client.responses.create`."""

    def expand(self, value: object, where: str) -> list[Item]:
        """Return the item; for a whole response, those of `output`."""
        found = need_fields(value, where, _ITEM)
        if found.get("object") == "response":
            output = need_list(found.get("output"), f"{where}.output", "a list of items")
            return [_read_item(one, f"{where}.output[{n}]") for n, one in enumerate(output)]
        return [_read_item(found, where)]

    def read(self, items: Sequence[Item], where: Sequence[str]) -> list[Message]:
        """Return the messages; consecutive texts and calls of a model become one message.

        Items of other kinds, such as reasoning, are sent unchanged and do not become messages.
        """
        found: list[Message] = []
        for index, (item, at) in enumerate(zip(items, where, strict=True)):
            if item.get("type", "message") == "message":
                _read_message(found, item, index)
            elif item["type"] == _CALL:
                id = need_text(item, "call_id", at, "the id of a call")
                name = need_text(item, "name", at, "the name of a tool")
                calls = _assistant(found, index).setdefault("tool_calls", [])
                calls.append({"id": id, "name": name, "arguments": item.get("arguments")})
            elif item["type"] == _OUTPUT:
                id = need_text(item, "call_id", at, "the id of a call")
                content = _to_neutral(need_parts(item.get("output"), f"{at}.output", "responses"))
                result = {"role": "tool", "tool_call_id": id, "content": content}
                found.append({**result, AT: HistoryPlace(index)})
        return found

    def write(self, item: Item, part: int | None, content: Content) -> Item:
        """Return the message or the output with another content."""
        key = "output" if item.get("type") == _OUTPUT else "content"
        return {**item, key: _from_neutral(content)}

    def answer(self, answers: Sequence[CallAnswer]) -> list[Item]:
        """Return an output for each call."""
        return [{"type": _OUTPUT, "call_id": one.call.id, "output": one.text} for one in answers]


def _read_item(value: object, where: str) -> Item:
    found = need_fields(value, where, _ITEM)
    item = {key: one for key, one in found.items() if key not in _MADE}
    kind = item.get("type", "message")
    if not isinstance(kind, str) or (kind == "message" and item.get("role") not in _ROLES):
        refuse(where, _ITEM, found, hint_at_format(found, "responses"))
    if kind == "message" and not isinstance(item.get("content"), str):
        parts = need_content(item, where, "responses")
        item["content"] = [{k: v for k, v in part.items() if k != "parsed"} for part in parts]  # type: ignore[union-attr]
    if kind == "message" and ("tool_calls" in item or "tool_call_id" in item):
        refuse(where, _ITEM, item, hint_at_format(item, "responses"))
    return item


def _read_message(found: list[Message], item: Item, index: int) -> None:
    content = item["content"]
    if item["role"] == "assistant":
        message = _assistant(found, index)
        message["content"] = "\n".join(filter(None, (message["content"], text_of(content))))
    else:
        found.append(
            {"role": item["role"], "content": _to_neutral(content), AT: HistoryPlace(index)}
        )


def _assistant(found: list[Message], index: int) -> Message:
    """Return the model's message to continue, or a new one."""
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": "", AT: HistoryPlace(index)})
    return found[-1]


def _to_neutral(content: Content) -> Content:
    if isinstance(content, str):
        return content
    return [
        {"type": "text", "text": one["text"]}
        if one["type"] == "input_text" and one.keys() == {"type", "text"}
        else one
        for one in content
    ]


def _from_neutral(content: Content) -> Content:
    if isinstance(content, str):
        return content
    return [{**one, "type": "input_text"} if one["type"] == "text" else one for one in content]
