"""The page of one request to a model: its messages, and what it shares with the request before."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from starlette.responses import Response

from skillbelt.console.conversations import address_of, read_address, read_text
from skillbelt.console.downloads import attach_text
from skillbelt.console.visit import ShownPage, Visit
from skillbelt.conversation.requests import RequestLog, SentRequest
from skillbelt.conversation.requests import read_text as read_kept
from skillbelt.conversation.transcript import read_call
from skillbelt.serving.answers import HttpRefusal
from skillbelt.store import SessionKey, Store
from skillbelt.text import tokens


class SentMessage(NamedTuple):
    """A message; `state` compares it with the request before: `same`, `begun` or `new`."""

    number: int
    role: str
    text: str
    calls: tuple[tuple[str, str], ...]
    raw: str
    state: str
    tokens: int


def show(visit: Visit) -> ShownPage | Response:
    """Show one request, or download it."""
    key = read_address(visit.path)
    found = find_request(visit.parts.belt.store, key, visit.path["number"])
    here = address_of(key)
    if "download" in visit.query:
        document = json.dumps(found.document(), indent=2, ensure_ascii=False)
        return attach_text(document, f"request-{found.summary.number}.json")
    tools = read_kept(found.tools)
    return ShownPage(
        "sent_request.html",
        {
            "key": key,
            "sent": found,
            "messages": list_messages(found),
            "tools": list(map(name_tool, tools)) if isinstance(tools, list) else [],
            "tools_text": _indent(found.tools),
            "talk": visit.url(here),
            "earlier": visit.url(f"{here}/requests/{found.before}") if found.before else "",
            "download": visit.url(f"{here}/requests/{found.summary.number}", download=1),
        },
    )


def name_tool(tool: object) -> str:
    """Return the name of a tool, from the format of any provider."""
    known: dict[str, Any] = tool if isinstance(tool, dict) else {}
    inner = known.get("function")
    named = known.get("name") or (inner.get("name") if isinstance(inner, dict) else "")
    return str(named or known.get("type") or "without a name")


def find_request(store: Store, key: SessionKey, number: str) -> SentRequest:
    """Return a request by its number; HttpRefusal if it is not kept."""
    known = number.isdecimal() and len(number) < 10
    found = RequestLog(store, key).find(int(number)) if known else None
    if found is None:
        raise HttpRefusal("not_found", "this request is not kept; the oldest ones go first")
    return found


def list_messages(sent: SentRequest) -> list[SentMessage]:
    """Return the messages of a request for the page."""
    return [_read(sent, at, text) for at, text in enumerate(sent.messages)]


def _read(sent: SentRequest, at: int, text: str) -> SentMessage:
    message: Any = read_kept(text)
    known = message if isinstance(message, dict) else {}
    calls = known.get("tool_calls")
    state = "same" if at < sent.shared else "new"
    if at == sent.shared and sent.shared_start:
        state = "begun"
    return SentMessage(
        number=at + 1,
        role=str(known.get("role", "")) or "other",
        text=read_text(known.get("content")) if known else text,
        calls=tuple(map(_call, calls)) if isinstance(calls, list) else (),
        raw=_indent(text),
        state=state,
        tokens=tokens(text),
    )


def _call(call: object) -> tuple[str, str]:
    name, given = read_call(call)
    return name, given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _indent(text: str) -> str:
    value = read_kept(text)
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
