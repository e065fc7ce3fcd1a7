"""Read the history of any vendor: its items as dicts, and as messages of one shape."""

from __future__ import annotations

from collections.abc import Sequence

from skillbelt.conversation.vendors.anthropic_messages import AnthropicMessages
from skillbelt.conversation.vendors.chat_completions import ChatCompletions
from skillbelt.conversation.vendors.gemini_contents import GeminiContents
from skillbelt.conversation.vendors.responses_items import ResponsesItems
from skillbelt.conversation.vendors.shapes import (
    MESSAGE_FORMATS,
    History,
    Item,
    MessageFormat,
    Vendor,
    need_list,
    refuse,
    to_fields,
    to_list,
)

# Fields of a message, a content or a response that a part of one does not have.
_MESSAGE_KEYS = {"role", "parts", "candidates", "choices", "object"}
VENDORS: dict[MessageFormat, Vendor] = {
    "openai": ChatCompletions(),
    "responses": ResponsesItems(),
    "anthropic": AnthropicMessages(),
    "gemini": GeminiContents(),
}


def find_vendor(format: MessageFormat) -> Vendor:
    """Return the shapes of a format; ConfigError lists the formats."""
    if format not in VENDORS:
        refuse("format", f"one of {', '.join(MESSAGE_FORMATS)}", format)
    return VENDORS[format]


def read_history(
    history: Sequence[object], format: MessageFormat, *, name: str = "history"
) -> History:
    """Return a history as values, from the objects or dicts of the vendor's package.

    ConfigError names the first item that has another shape, and what was expected there; `name` is
    the history's name in it.
    """
    vendor = find_vendor(format)
    items: list[Item] = []
    where: list[str] = []
    sources: list[int] = []
    for index, one in enumerate(need_list(history, name, "a list")):
        made = vendor.expand(one, f"{name}[{index}]")
        items += made
        where += [f"{name}[{index}]"] * len(made)
        sources += [index] * len(made)
    return History(items, vendor.read(items, where), sources)


def read_reply(reply: object, format: MessageFormat) -> History:
    """Return a reply as a history: a response, a message, or the parts or calls of one."""
    listed = to_list(reply)
    if listed is None:
        return read_history([reply], format, name="reply")
    parts = [to_fields(one) or {} for one in listed]
    bare = bool(parts) and not any(one.keys() & _MESSAGE_KEYS for one in parts)
    if bare and format == "openai" and all("function" in one for one in parts):
        listed = [{"role": "assistant", "tool_calls": parts}]
    elif bare and format == "anthropic" and all("type" in one for one in parts):
        listed = [{"role": "assistant", "content": parts}]
    elif bare and format == "gemini":
        calls = [{"function_call": one} if "name" in one else one for one in parts]
        listed = [{"role": "model", "parts": calls}]
    return read_history(listed, format, name="reply")
