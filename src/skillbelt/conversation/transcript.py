"""A stored conversation as text: who said what, and which tools were called."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import NamedTuple

from skillbelt.events import Event
from skillbelt.running.following import visible
from skillbelt.text import break_lines, one_line, shorten

_MAX_TITLE_CHARS = 60
_MAX_TOOL_CHARS = 120
_INDENT = " " * 4
_SPEAKERS = {"user": "you", "assistant": "assistant"}
# The name of a speaker, with marks around it or not, and an underline that makes it a heading.
_UNDERLINED = re.compile(
    rf"^([^a-z\n]*(?:{'|'.join(_SPEAKERS.values())})[^a-z\n]*\n[^\S\n]*)([-=]+[^\S\n]*)$",
    re.IGNORECASE | re.MULTILINE,
)
NO_FACTS: Mapping[str, str] = {}
# A browser that opens the page sends, loads and runs nothing.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<dl>{about}</dl>
{said}
</body>
</html>
"""
_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: .9rem; margin: 0 0 .3rem; opacity: .7; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; font-size: .9rem; }
dd { margin: 0; overflow-wrap: anywhere; }
section { border-left: .25rem solid #8888; padding: .2rem 0 .2rem 1rem; margin: 1rem 0; }
section.you { border-color: #2a7ae2; }
section div, pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.tool, details { font-size: .9rem; margin: .3rem 0 .3rem 1.25rem; opacity: .85; }
"""


class Spoken(NamedTuple):
    """A message: its role, its text, and the tools it calls, as names with arguments."""

    role: str
    agent: str
    text: str
    calls: tuple[tuple[str, object], ...] = ()


def plain(text: str) -> str:
    """Escape terminal control characters in the text of a model or a skill."""
    return visible(text.replace("\r\n", "\n").replace("\r", "\n"))


def read_title(messages: Iterable[Mapping[str, object]]) -> str:
    """Return the beginning of the user's first message; "" if there is none."""
    texts = (_text_of(one) for one in messages if one.get("role") == "user")
    return shorten(one_line(next(texts, "")), _MAX_TITLE_CHARS)


def describe(events: Iterable[Event]) -> Iterator[str]:
    """Yield the conversation in lines, without the other events."""
    for event in events:
        if event.type == "compacted":
            yield "(the messages above were summarized for the model)"
        elif event.type == "message":
            yield from _describe_message(event.data, event.agent)


def to_markdown(
    events: Iterable[Event], title: str = "", facts: Mapping[str, str] = NO_FACTS
) -> str:
    """Return the conversation as a Markdown document; "" if it has no messages."""
    parts = [part for event in events if event.type == "message" for part in _sections(event.data)]
    head = [f"# {_escape_markdown(title)}"] if title else []
    head += ["\n".join(f"- {key}: {_escape_markdown(value)}" for key, value in facts.items())]
    return "\n\n".join([*filter(None, head), *parts, ""]) if parts else ""


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|!])", r"\\\1", one_line(text))


def _sections(message: Mapping[str, object]) -> Iterator[str]:
    role, text = str(message.get("role") or ""), plain(_text_of(message)).strip()
    if role == "tool":
        # Longer than any fence in the text, so that the text cannot end the block.
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
        yield f"{fence}text\n{text}\n{fence}"
        return
    if text and role != "system":
        # No heading in a message looks like one of ours.
        text = break_lines(text, *(f"## {name.capitalize()}" for name in _SPEAKERS.values()))
        text = _UNDERLINED.sub(r"\1\\\2", text)
        yield f"## {_SPEAKERS.get(role, one_line(role)).capitalize()}\n\n{text}"
    for call in _calls(message):
        yield f"Tool: `{_cut(_call(call)).replace('`', chr(39))}`"


def to_html(events: Iterable[Event], title: str, facts: Mapping[str, str]) -> str:
    """Return the conversation as one HTML page, with every text escaped.

    The page loads and runs nothing; a message is only text in it.
    """
    about = "".join(f"<dt>{escape(key)}<dd>{escape(value)}\n" for key, value in facts.items())
    parts = [part for event in events if event.type == "message" for part in _blocks(event.data)]
    said = "\n".join(parts) or "<p>No messages.</p>"
    name = escape(title or "Conversation")
    return _PAGE.format(title=name, style=_STYLE, about=about, said=said)


def _blocks(message: Mapping[str, object]) -> Iterator[str]:
    role, text = str(message.get("role") or ""), plain(_text_of(message)).strip()
    if role == "tool":
        yield f"<details><summary>Result</summary><pre>{escape(text)}</pre></details>"
        return
    if text and role != "system":
        speaker = _SPEAKERS.get(role, one_line(role))
        kind = "you" if role == "user" else "other"
        yield (
            f'<section class="{kind}"><h2>{escape(speaker.capitalize())}</h2>'
            f"<div>{escape(text)}</div></section>"
        )
    for call in _calls(message):
        yield f'<p class="tool">Tool: <code>{escape(_cut(_call(call)))}</code></p>'


def read_spoken(events: Iterable[Event]) -> Iterator[Spoken]:
    """Yield the messages of a conversation except the system's."""
    for event in events:
        role = str(event.data.get("role") or "") if event.type == "message" else ""
        if role and role != "system":
            calls = tuple(map(read_call, _calls(event.data)))
            yield Spoken(
                role=role, agent=event.agent, text=_text_of(event.data).strip(), calls=calls
            )


def _describe_message(message: Mapping[str, object], agent: str) -> Iterator[str]:
    role = str(message.get("role") or "")
    if role == "tool":
        yield f"  result: {_cut(_text_of(message))}"
        return
    text = plain(_text_of(message)).strip()
    if text and role != "system":
        name = f" ({one_line(agent)})" if agent else ""
        # Indented, so that no line of a message looks like another speaker or a tool.
        text = text.replace("\n", f"\n{_INDENT}")
        yield f"{_SPEAKERS.get(role, one_line(role))}{name}: {text}"
    for call in _calls(message):
        yield f"  tool: {_cut(_call(call))}"


def _calls(message: Mapping[str, object]) -> list[object]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _text_of(message: Mapping[str, object]) -> str:
    """Return the text: what the user typed, else the content or the texts of its parts."""
    content = message.get("said") or message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def read_call(call: object) -> tuple[str, object]:
    """Return name and arguments of a call in this library's form or OpenAI's."""
    if not isinstance(call, Mapping):
        return str(call), ""
    nested = call.get("function")
    about = nested if isinstance(nested, Mapping) else call
    return str(about.get("name", "")), about.get("arguments", "")


def _call(call: object) -> str:
    name, given = read_call(call)
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
    return f"{name} {text}" if isinstance(call, Mapping) else name


def _cut(text: str) -> str:
    return shorten(one_line(text), _MAX_TOOL_CHARS)
