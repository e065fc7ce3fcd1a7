"""A stored conversation as text: who said what, and which tools were called."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from skillbelt.events import Event
from skillbelt.running.following import visible
from skillbelt.text import one_line, shorten

_MAX_TITLE_CHARS = 60
_MAX_TOOL_CHARS = 120
_INDENT = " " * 4
_SPEAKERS = {"user": "you", "assistant": "assistant"}


def plain(text: str) -> str:
    """Escape what a terminal would act on in the text of a model or a skill."""
    return visible(text.replace("\r\n", "\n").replace("\r", "\n"))


def read_title(messages: Iterable[Mapping[str, object]]) -> str:
    """Return the beginning of what the user said first; "" if they said nothing."""
    said = (_said(one) for one in messages if one.get("role") == "user")
    return shorten(one_line(next(said, "")), _MAX_TITLE_CHARS)


def describe(events: Iterable[Event]) -> Iterator[str]:
    """Yield the conversation in lines, without the other events."""
    for event in events:
        if event.type == "compacted":
            yield "(the messages above were summarized for the model)"
        elif event.type == "message":
            yield from _describe_message(event.data, event.agent)


def to_markdown(events: Iterable[Event]) -> str:
    """Return the conversation as a Markdown document; "" when nothing was said."""
    parts = [part for event in events if event.type == "message" for part in _sections(event.data)]
    return "\n\n".join([*parts, ""]) if parts else ""


def _sections(message: Mapping[str, object]) -> Iterator[str]:
    role, text = str(message.get("role") or ""), plain(_said(message)).strip()
    if role == "tool":
        # Longer than any fence in it, so that the text cannot end the block.
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
        yield f"{fence}text\n{text}\n{fence}"
        return
    if text and role != "system":
        yield f"## {_SPEAKERS.get(role, one_line(role)).capitalize()}\n\n{text}"
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        yield f"Tool: `{_cut(_call(call)).replace('`', chr(39))}`"


def _describe_message(message: Mapping[str, object], agent: str) -> Iterator[str]:
    role = str(message.get("role") or "")
    if role == "tool":
        yield f"  result: {_cut(_said(message))}"
        return
    text = plain(_said(message)).strip()
    if text and role != "system":
        name = f" ({one_line(agent)})" if agent else ""
        # Indented, so that no line of a message looks like another speaker or a tool.
        text = text.replace("\n", f"\n{_INDENT}")
        yield f"{_SPEAKERS.get(role, one_line(role))}{name}: {text}"
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        yield f"  tool: {_cut(_call(call))}"


def _said(message: Mapping[str, object]) -> str:
    """Return the text: what the user typed, else the content or the texts of its parts."""
    content = message.get("said") or message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _call(call: object) -> str:
    """Return a call in the form of this library or of OpenAI."""
    if not isinstance(call, Mapping):
        return str(call)
    nested = call.get("function")
    about = nested if isinstance(nested, Mapping) else call
    given = about.get("arguments", "")
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
    return f"{about.get('name', '')} {text}"


def _cut(text: str) -> str:
    return shorten(one_line(text), _MAX_TOOL_CHARS)
