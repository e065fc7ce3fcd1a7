"""Write a vendor's request: its package's arguments, the texts of skills, marks for its cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from skillbelt.conversation.messages import Message, is_context
from skillbelt.conversation.vendors.gemini_contents import drop_own_ids
from skillbelt.conversation.vendors.read import find_vendor, read_history
from skillbelt.conversation.vendors.shapes import (
    AT,
    SYSTEM_ROLES,
    Content,
    History,
    HistoryPlace,
    Item,
    MessageFormat,
    need_parts,
    text_of,
)

# How many cache marks Anthropic accepts in one request.
MAX_CACHE_MARKS = 4
_MARK = {"type": "ephemeral"}
_TEXTS = ("text", "input_text")


class Outgoing(NamedTuple):
    """A history to be sent to a vendor: its messages have the system text first."""

    format: MessageFormat
    history: History
    messages: list[Message]


class _Placed(NamedTuple):
    """The texts in place: the system text, the skills without another place, the items."""

    system: Content
    context: str
    items: list[Item]


def read_outgoing(history: Sequence[object], format: MessageFormat, system: object) -> Outgoing:
    """Return the messages of a history, after the `system` text of the host.

    System messages at the beginning join that text where the vendor takes it separately.
    """
    found = read_history(history, format)
    given = need_parts(system, "system", format)
    if format == "openai":
        head = [{"role": "system", "content": given}] if given else []
        return Outgoing(format, found, [*head, *found.messages])
    lead = _count_system(found.messages)
    contents = [one["content"] for one in found.messages[:lead] if not is_context(one)]
    whole = _join([one for one in (given, *contents) if one])
    head = [{"role": "system", "content": whole}] if whole else []
    return Outgoing(format, found, [*head, *found.messages[lead:]])


def _count_system(messages: Sequence[Message]) -> int:
    for index, one in enumerate(messages):
        parts = one["content"] if isinstance(one["content"], list) else ()
        plain = all(part.get("type") in _TEXTS for part in parts)
        if one["role"] not in SYSTEM_ROLES or not plain:
            return index
    return len(messages)


def _join(contents: Sequence[Content]) -> Content:
    if all(isinstance(one, str) for one in contents):
        return "\n\n".join(contents)  # type: ignore[arg-type]
    return [part for one in contents for part in _to_parts(one)]


def _to_parts(content: Content) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def write_request(
    outgoing: Outgoing,
    made: Sequence[Message],
    *,
    tools: Sequence[object] | None = None,
    previous_response_id: str | None = None,
) -> dict[str, Any]:
    """Return the keyword arguments for the call of the vendor's package."""
    placed = _merge_into_items(outgoing, made)
    given = {} if tools is None else {"tools": list(tools)}
    match outgoing.format:
        case "openai":
            return {"messages": placed.items, **given}
        case "responses":
            before = {"previous_response_id": previous_response_id} if previous_response_id else {}
            return {**_write_responses(placed), **before, **given}
        case "anthropic":
            return {**_write_anthropic(placed, given.get("tools", ())), **given}
        case "gemini":
            system = "\n\n".join(filter(None, (text_of(placed.system), placed.context)))
            config = {"system_instruction": system} if system else {}
            return {"contents": drop_own_ids(placed.items), "config": {**config, **given}}


def _merge_into_items(outgoing: Outgoing, made: Sequence[Message]) -> _Placed:
    """Put the changed messages into the items; drop the items whose message is gone."""
    vendor = find_vendor(outgoing.format)
    before = {one[AT]: one.get("content") for one in outgoing.messages if AT in one}
    items: dict[int, Item] = dict(enumerate(outgoing.history.items))
    system: Content = ""
    context = ""
    for message in made:
        at: HistoryPlace | None = message.get(AT)
        if at is None and is_context(message):
            context = message["content"]
        elif at is None:
            system = message["content"]
        elif before[at] is not message.get("content"):
            items[at.item] = vendor.write(items[at.item], at.part, message["content"])
    kept = {one[AT] for one in made if AT in one}
    for one in outgoing.history.messages:
        if one["role"] in SYSTEM_ROLES and one[AT] not in kept:
            del items[one[AT].item]
    if outgoing.format == "openai":
        # Here a message is an item, and added messages have their place among them.
        return _Placed("", "", [items[one[AT].item] if AT in one else one for one in made])
    return _Placed(system, context, [*items.values()])


def _write_responses(placed: _Placed) -> dict[str, Any]:
    head = [{"role": "developer", "content": placed.context}] if placed.context else []
    found: dict[str, Any] = {"input": [*head, *placed.items]}
    if system := text_of(placed.system):
        found["instructions"] = system
    return found


def _write_anthropic(placed: _Placed, tools: Sequence[object]) -> dict[str, Any]:
    """Mark the end of the system text, and let the vendor mark the end of the request.

    Tools come before the system text in the vendor's cache, so its mark covers them. A mark at the
    end of the messages would have to move with every request; the argument for the whole request
    leaves earlier messages unchanged. A host that marks messages itself has its own plan: the
    vendor would refuse our mark before one with a longer lifetime.
    """
    blocks = _to_parts(placed.system) if placed.system else []
    own = _count_marks(blocks) + _count_marks(tools)
    room = 0 if any(map(_is_marked, placed.items)) else MAX_CACHE_MARKS - own
    if blocks and "cache_control" not in blocks[-1] and room:
        blocks = [*blocks[:-1], {**blocks[-1], "cache_control": {**_MARK}}]
        room -= 1
    if placed.context:
        blocks = [*blocks, {"type": "text", "text": placed.context}]
    found: dict[str, Any] = {"system": blocks} if blocks else {}
    found["messages"] = placed.items
    return {**found, "cache_control": {**_MARK}} if room > 0 else found


def _count_marks(blocks: Sequence[object]) -> int:
    return sum(isinstance(one, dict) and bool(one.get("cache_control")) for one in blocks)


def _is_marked(item: Item) -> bool:
    blocks = item["content"] if isinstance(item["content"], list) else []
    inner = [one["content"] for one in blocks if isinstance(one.get("content"), list)]
    return any(map(_count_marks, [blocks, *inner]))
