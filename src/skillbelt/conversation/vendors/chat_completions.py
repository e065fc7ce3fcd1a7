"""The messages of OpenAI's chat completions, which many other servers accept too."""

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
    need_text,
    refuse,
)

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
# Fields that an answer may have instead of a content.
_INSTEAD = ("tool_calls", "function_call", "audio", "refusal")
_MESSAGE = "a message of chat completions (response.choices[0].message, or a dict with a role)"


class ChatCompletions:
    """`messages` of `client.chat.completions.create`."""

    def expand(self, value: object, where: str) -> list[Item]:
        """Return the message; for a whole response, that of its one choice."""
        found = need_fields(value, where, _MESSAGE)
        if "choices" in found and "role" not in found:
            choices = need_list(found["choices"], f"{where}.choices", "a list of choices")
            if len(choices) != 1:
                refuse(f"{where}.choices", "one choice", choices)
            where = f"{where}.choices[0].message"
            found = need_fields(choices[0], where, _MESSAGE)
            found = need_fields(found.get("message"), where, _MESSAGE)
        if found.get("role") not in _ROLES:
            refuse(where, _MESSAGE, found, hint_at_format(found, "openai"))
        # The package adds values that it parsed from the content.
        message = {key: one for key, one in found.items() if key != "parsed"}
        if not isinstance(message.get("content"), str | None):
            message["content"] = need_content(message, where, "openai")
        if message.get("tool_calls") is not None:
            calls = need_list(message["tool_calls"], f"{where}.tool_calls", "a list of calls")
            message["tool_calls"] = [
                _read_call(one, f"{where}.tool_calls[{number}]") for number, one in enumerate(calls)
            ]
        if message["role"] == "tool":
            need_text(message, "tool_call_id", where, "the id of a call")
        if message["role"] == "assistant" and message.get("content") is None:
            # Null as the vendor sent it, if another field is there; else the vendor rejects null.
            message["content"] = None if any(map(message.get, _INSTEAD)) else ""
        return [message]

    def read(self, items: Sequence[Item], where: Sequence[str]) -> list[Message]:
        """Return the messages: the items themselves."""
        return [{**item, AT: HistoryPlace(index)} for index, item in enumerate(items)]

    def write(self, item: Item, part: int | None, content: Content) -> Item:
        """Return the message with another content."""
        return {**item, "content": content}

    def answer(self, answers: Sequence[CallAnswer]) -> list[Item]:
        """Return a message for each call."""
        return [
            {"role": "tool", "tool_call_id": one.call.id, "content": one.text} for one in answers
        ]


def _read_call(value: object, where: str) -> Item:
    call = need_fields(value, where, "a call with an id and a function")
    if "function" in call:
        inner = f"{where}.function"
        function = need_fields(call["function"], inner, "a function with a name and arguments")
        need_text(function, "name", inner, "the name of a tool")
        kept = {key: one for key, one in function.items() if key != "parsed_arguments"}
        call = {**call, "function": kept}
    elif "name" in call:
        need_text(call, "name", where, "the name of a tool")
    return call
