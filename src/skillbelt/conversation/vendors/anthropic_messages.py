"""The messages of Anthropic: content blocks, with the results of calls in messages of the user.

`write` adds the marks for the prompt cache.
"""

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
    need_text,
    refuse,
    text_of,
)

_ROLES = ("user", "assistant", "system")
_MESSAGE = "a message of Anthropic (the response itself, or a dict with a role and content)"
_RESULT = "tool_result"


class AnthropicMessages:
    """`messages` of `client.messages.create`."""

    def expand(self, value: object, where: str) -> list[Item]:
        """Return the message, without the metadata of a response."""
        found = need_fields(value, where, _MESSAGE)
        if found.get("role") not in _ROLES or "content" not in found:
            refuse(where, _MESSAGE, found, hint_at_format(found, "anthropic"))
        content = need_content(found, where, "anthropic")
        if not content and found["role"] == "assistant":
            return []  # a model may return no content, but no request may contain that
        if found.get("type") == "message":
            return [{"role": found["role"], "content": content}]
        return [{**found, "content": content}]

    def read(self, items: Sequence[Item], where: Sequence[str]) -> list[Message]:
        """Return the messages; each result becomes a separate one."""
        found: list[Message] = []
        for index, (item, at) in enumerate(zip(items, where, strict=True)):
            if item["role"] == "assistant":
                found.append(_read_assistant(item, index, at))
            else:
                found += _read_user(item, index, at)
        return found

    def write(self, item: Item, part: int | None, content: Content) -> Item:
        """Return the message with another content, or another content of one of its results."""
        blocks = item["content"]
        if part is not None:
            changed = {**blocks[part], "content": content}
            return {**item, "content": [*blocks[:part], changed, *blocks[part + 1 :]]}
        if isinstance(content, str):
            return {**item, "content": content}
        # Results come first: the vendor refuses a message with text before them.
        return {**item, "content": [*filter(_is_result, blocks), *content]}

    def answer(self, answers: Sequence[CallAnswer]) -> list[Item]:
        """Return one message with all results: the vendor requires them together."""
        blocks = []
        for one in answers:
            block = {"type": _RESULT, "tool_use_id": one.call.id, "content": one.text}
            blocks.append({**block, "is_error": True} if one.failed else block)
        return [{"role": "user", "content": blocks}] if blocks else []


def _is_result(block: Item) -> bool:
    return block.get("type") == _RESULT


def _read_assistant(item: Item, index: int, where: str) -> Message:
    blocks = item["content"] if isinstance(item["content"], list) else []
    calls = []
    for number, block in enumerate(blocks):
        if block["type"] == "tool_use":
            at = f"{where}.content[{number}]"
            id = need_text(block, "id", at, "the id of a call")
            name = need_text(block, "name", at, "the name of a tool")
            calls.append({"id": id, "name": name, "arguments": block.get("input")})
    message = {"role": "assistant", "content": text_of(item["content"]), AT: HistoryPlace(index)}
    return {**message, "tool_calls": calls} if calls else message


def _read_user(item: Item, index: int, where: str) -> list[Message]:
    content = item["content"]
    if isinstance(content, str):
        return [{"role": item["role"], "content": content, AT: HistoryPlace(index)}]
    found: list[Message] = []
    for number, block in enumerate(content):
        if _is_result(block):
            at = f"{where}.content[{number}]"
            id = need_text(block, "tool_use_id", at, "the id of a call")
            inner = need_content(block, at, "anthropic")
            place = HistoryPlace(index, number)
            found.append({"role": "tool", "tool_call_id": id, "content": inner, AT: place})
    rest = [block for block in content if not _is_result(block)]
    if rest or not found:
        found.append({"role": item["role"], "content": rest, AT: HistoryPlace(index)})
    return found
