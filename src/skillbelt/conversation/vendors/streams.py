"""Join the events of a stream to one reply, for packages that leave that to the host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from skillbelt.conversation.vendors.read import find_vendor
from skillbelt.conversation.vendors.shapes import (
    Item,
    MessageFormat,
    need_fields,
    refuse,
    to_fields,
    to_list,
)
from skillbelt.untrusted_json import BadJson, read_json

_ENDS = ("response.completed", "response.incomplete", "response.failed")


def join_stream(events: Iterable[object], format: MessageFormat) -> Item:
    """Return the reply of a stream's events, for the history and for its calls.

    The events are those of the vendor's package, all of them. A stream that ended too early is a
    ConfigError if the vendor marks the end.
    """
    find_vendor(format)
    if not isinstance(events, Iterable):
        refuse("events", "a list", events, "of a stream of coroutines: [e async for e in stream]")
    found = [
        need_fields(one, f"events[{number}]", "an event of a stream")
        for number, one in enumerate(events)
    ]
    match format:
        case "openai":
            return _join_chunks(found)
        case "responses":
            return _find_response(found)
        case "anthropic":
            return _join_blocks(found)
        case "gemini":
            return _join_contents(found)


# OpenAI


def _join_chunks(chunks: list[Item]) -> Item:
    message: Item = {"role": "assistant", "content": None}
    calls: dict[object, Item] = {}
    ended = False
    for chunk in chunks:
        choice = to_fields(next(iter(to_list(chunk.get("choices")) or []), None)) or {}
        ended = ended or bool(choice.get("finish_reason"))
        delta = dict(to_fields(choice.get("delta")) or {})
        for one in to_list(delta.pop("tool_calls", None) or []) or []:
            _add_call(calls, dict(to_fields(one) or {}))
        _add_texts(message, delta)
    if not ended:
        refuse("events", "a last chunk with a finish_reason", chunks[-1:])
    return {**message, "tool_calls": [*calls.values()]} if calls else message


def _add_call(calls: dict[object, Item], delta: Item) -> None:
    # Some servers number no calls; then each delta with an id begins one.
    key = delta.pop("index", None)
    if key is None:
        key = delta.get("id") or next(reversed(calls), 0)
    call = calls.setdefault(key, {"type": "function", "function": {"name": "", "arguments": ""}})
    function = to_fields(delta.pop("function", None)) or {}
    call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""
    call.update({name: one for name, one in delta.items() if one is not None and one != ""})


def _add_texts(message: Item, delta: Item) -> None:
    """Add the pieces of a delta: the content, and other servers' additional fields."""
    for key, piece in delta.items():
        if key != "role" and piece is not None:
            known = message.get(key)
            goes_on = type(known) is type(piece) and isinstance(piece, str | list)
            message[key] = known + piece if goes_on else piece


def _find_response(events: list[Item]) -> Item:
    for event in reversed(events):
        if event.get("type") in _ENDS:
            return need_fields(event.get("response"), "events[-1].response", "a response")
    return refuse("events", f"one of {', '.join(_ENDS)}", events[-1:])


# Anthropic

_PIECES = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def _join_blocks(events: list[Item]) -> Item:
    blocks: dict[object, Item] = {}
    inputs: dict[object, str] = {}
    for event in events:
        kind, index = event.get("type"), event.get("index")
        if kind == "message_stop":
            break
        if kind == "content_block_start":
            blocks[index] = dict(need_fields(event.get("content_block"), "events", "a block"))
        elif kind == "content_block_delta" and index in blocks:
            delta = to_fields(event.get("delta")) or {}
            if delta.get("type") == "input_json_delta":
                inputs[index] = inputs.get(index, "") + str(delta.get("partial_json") or "")
            else:
                _add_delta(blocks[index], delta)
    else:
        refuse("events", "message_stop", events[-1:])
    for index, text in inputs.items():
        blocks[index]["input"] = _read_input(text)
    return {"role": "assistant", "content": [*blocks.values()]}


def _add_delta(block: Item, delta: Item) -> None:
    kind = str(delta.get("type"))
    if key := _PIECES.get(kind):
        block[key] = str(block.get(key) or "") + str(delta.get(key) or "")
    elif kind == "citations_delta":
        block["citations"] = [*(block.get("citations") or []), delta.get("citation")]


def _read_input(text: str) -> dict[str, Any]:
    """Return the arguments of a call; none if the model wrote invalid JSON."""
    try:
        found = read_json(text or "{}")
    except BadJson:
        return {}
    return found if isinstance(found, dict) else {}


# Gemini


def _join_contents(chunks: list[Item]) -> Item:
    parts: list[Item] = []
    ended = False
    for chunk in chunks:
        candidate = to_fields(next(iter(to_list(chunk.get("candidates")) or []), None)) or {}
        ended = ended or bool(candidate.get("finishReason") or candidate.get("finish_reason"))
        content = to_fields(candidate.get("content")) or {}
        for one in to_list(content.get("parts")) or []:
            _add_part(parts, to_fields(one) or {})
    if not ended:
        refuse("events", "a last chunk with a finish_reason", chunks[-1:])
    return {"role": "model", "parts": parts}


def _add_part(parts: list[Item], part: Item) -> None:
    """Add a part; plain text continues the part before. A signature stays where it came."""
    text = part.get("text")
    if not part.keys() <= {"text", "thought"} or not isinstance(text, str):
        parts.append(dict(part))
    elif parts and parts[-1].keys() == part.keys() and isinstance(parts[-1].get("text"), str):
        parts[-1]["text"] += text
    elif text:
        parts.append(dict(part))
