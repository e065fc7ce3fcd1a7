"""The history of any vendor as turns that are kept or cut as a whole, each as one message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from skillbelt.conversation.compaction import RESULTS
from skillbelt.conversation.messages import Message
from skillbelt.conversation.plain import plain_messages
from skillbelt.conversation.vendors.read import read_history
from skillbelt.conversation.vendors.shapes import AT, Item, MessageFormat

_OUTPUT = "function_call_output"


class Turns(NamedTuple):
    """A history: its items, its turns, and the items of each turn.

    A turn is a message with all calls and results of its items. `sources` has the index of each
    item in the given history.
    """

    items: list[Item]
    turns: list[Message]
    groups: list[tuple[int, ...]]
    sources: list[int]

    def items_of(self, turns: Iterable[int]) -> list[int]:
        """Return the indices of the items of these turns."""
        return [item for turn in turns for item in self.groups[turn]]

    def sources_of(self, items: Iterable[int]) -> tuple[int, ...]:
        """Return the indices of the items in the given history."""
        return tuple(dict.fromkeys(self.sources[item] for item in items))


def read_turns(messages: Sequence[object], format: MessageFormat | None) -> Turns:
    """Return the turns of a history; without a format each message is one.

    Consecutive items of a model are one turn: OpenAI rejects a call without the reasoning before
    it.
    """
    if format is None:
        plain = plain_messages(messages)
        places = list(range(len(plain)))
        return Turns(plain, plain, [(place,) for place in places], places)
    history = read_history(messages, format)
    groups = _group(history.items, format)
    found: dict[int, list[Message]] = {}
    for message in history.messages:
        found.setdefault(message[AT].item, []).append(message)
    turns = [_merge([one for item in group for one in found.get(item, ())]) for group in groups]
    return Turns(history.items, turns, groups, history.sources)


def read_messages(items: Sequence[Item], format: MessageFormat | None) -> list[Message]:
    """Return the items as messages of one shape."""
    return list(items) if format is None else read_history(items, format).messages


def _group(items: Sequence[Item], format: MessageFormat) -> list[tuple[int, ...]]:
    groups: list[list[int]] = []
    before = False
    for index, item in enumerate(items):
        by_model = format == "responses" and _is_by_model(item)
        if by_model and before:
            groups[-1].append(index)
        else:
            groups.append([index])
        before = by_model
    return [tuple(group) for group in groups]


def _is_by_model(item: Item) -> bool:
    kind = item.get("type", "message")
    return kind != _OUTPUT and (kind != "message" or item.get("role") == "assistant")


def _merge(messages: Sequence[Message]) -> Message:
    """Return one message with the calls and results of all."""
    if not messages:
        return {"role": "assistant", "content": ""}
    results = [str(one["tool_call_id"]) for one in messages if one.get("tool_call_id")]
    return {
        "role": "tool" if results else messages[0]["role"],
        "content": messages[0].get("content"),
        "tool_calls": [call for one in messages for call in one.get("tool_calls") or ()],
        RESULTS: results,
    }


def user_item(text: str, format: MessageFormat | None) -> Item:
    """Return a message in the user's role, in the vendor's shape."""
    if format == "gemini":
        return {"role": "user", "parts": [{"text": text}]}
    return {"role": "user", "content": text}
