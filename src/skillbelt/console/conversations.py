"""The pages about conversations: messages, loaded skills, and tokens over time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from skillbelt.console.plots import Point, draw_curve
from skillbelt.console.visit import ShownPage, Visit
from skillbelt.conversation.requests import RequestLog
from skillbelt.conversation.state import LoadedSkill
from skillbelt.conversation.transcript import read_call, read_title
from skillbelt.errors import ConfigError
from skillbelt.events import Event
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.answers import HttpRefusal
from skillbelt.store import SessionInfo, SessionKey, Store
from skillbelt.store.protocol import list_latest
from skillbelt.text import tokens
from skillbelt.untrusted_json import BadJson, read_json

PAGE = 50
MAX_TURNS = 500
MAX_SAID_CHARS = 20_000
_OWN = "skillbelt:"  # internal entries in the store
_TITLE_EVENTS = 20


class ListedTalk(NamedTuple):
    """A conversation in the list."""

    info: SessionInfo
    title: str
    address: str


class Moment(NamedTuple):
    """Something that happened in a conversation; `tokens` are those of all texts so far."""

    seq: int
    time: float
    kind: str
    speaker: str
    text: str
    calls: tuple[tuple[str, str], ...]
    tokens: int
    total: int


def show_all(visit: Visit) -> ShownPage:
    """List the conversations of the store, most recently used first."""
    talks, after = list_talks(visit.parts.belt.store, visit.query.get("after", ""), PAGE)
    return ShownPage(
        "conversations.html",
        {
            "talks": [one._replace(address=visit.url(one.address)) for one in talks],
            "older": visit.url("/conversations", after=after) if after else "",
        },
    )


def list_talks(store: Store, after: str, limit: int) -> tuple[list[ListedTalk], str]:
    """Return a page of conversations, last used first, and the next cursor; "" at the end."""
    found = list_latest(store, limit + 1, before=_read_cursor(after), without=_OWN)
    page = found[:limit]
    talks = [ListedTalk(one, find_title(store, one.key), address_of(one.key)) for one in page]
    more = len(found) > limit
    return talks, json.dumps([page[-1].updated, *page[-1].key]) if more else ""


def _read_cursor(text: str) -> SessionInfo | None:
    """Return the last conversation of the page before; None for the first page."""
    if not text:
        return None
    try:
        updated, app, user, session = read_json(text)
        key = SessionKey(str(app), str(user), str(session))
        return SessionInfo(key, 0.0, float(updated), 0)
    except (BadJson, TypeError, ValueError):
        return None


def address_of(key: SessionKey) -> str:
    """Return the path of the page of a conversation."""
    return "/conversations/" + "/".join(part.replace("/", "\x1f") or "\x1e" for part in key)


def read_address(path: Mapping[str, str]) -> SessionKey:
    """Return the conversation that an address names."""
    parts = (path[name].replace("\x1f", "/").replace("\x1e", "") for name in SessionKey._fields)
    return SessionKey(*parts)


def find_title(store: Store, key: SessionKey) -> str:
    """Return the first message of the user, shortened."""
    first = getattr(store, "first_events", None)
    events = first(key, _TITLE_EVENTS) if first else store.events(key)[:_TITLE_EVENTS]
    return read_title(event.data for event in events if event.type == "message")


class ReadTalk(NamedTuple):
    """A conversation that was read; `left_out` moments are older than those here."""

    title: str
    moments: tuple[Moment, ...]
    left_out: int
    points: tuple[Point, ...]
    total: int
    loaded: tuple[LoadedSkill, ...]


def read_talk(belt: Runtime, key: SessionKey) -> ReadTalk:
    """Read a conversation; HttpRefusal if there is none."""
    if key.app.startswith(_OWN):
        raise HttpRefusal("not_found", "this is not a conversation")
    events = belt.store.events(key)
    if not events:
        raise HttpRefusal("not_found", "there is no such conversation")
    moments = list(tell_moments(events))
    return ReadTalk(
        title=find_title(belt.store, key),
        moments=tuple(moments[-MAX_TURNS:]),
        left_out=max(0, len(moments) - MAX_TURNS),
        points=tuple(list_points(events, moments)),
        total=moments[-1].total if moments else 0,
        loaded=_find_loaded(belt, key),
    )


def _find_loaded(belt: Runtime, key: SessionKey) -> tuple[LoadedSkill, ...]:
    try:
        return tuple(belt.session(key.user, key.session, app=key.app).loaded())
    except ConfigError:  # a name that other programs gave it
        return ()


def talk_document(belt: Runtime, key: SessionKey) -> dict[str, object]:
    """Return a conversation as a JSON document."""
    talk = read_talk(belt, key)
    return {
        **key._asdict(),
        "title": talk.title,
        "tokens": talk.total,
        "turns": [one.value for one in talk.points],
        "loaded": [one.name for one in talk.loaded],
        "left_out": talk.left_out,
        "moments": [one._asdict() for one in talk.moments],
    }


def show_one(visit: Visit) -> ShownPage:
    """Show one conversation."""
    belt, key = visit.parts.belt, read_address(visit.path)
    talk = read_talk(belt, key)
    return ShownPage(
        "conversation.html",
        {
            "key": key,
            **talk._asdict(),
            "plot": draw_curve(talk.points, "Tokens over the turns"),
            "session": "/".join(key),
            "requests": RequestLog(belt.store, key).summaries(limit=MAX_TURNS),
            "here_url": visit.url(address_of(key)),
        },
    )


def list_points(events: Sequence[Event], moments: Sequence[Moment]) -> list[Point]:
    """Return the tokens of each turn, as the model counted them, else estimated."""
    counted = [one.data.get("input_tokens") for one in events if one.type == "usage"]
    figures = [one for one in counted if isinstance(one, int) and one > 0]
    if figures:
        return [
            Point(str(at), one, f"request {at}: {one:,} tokens")
            for at, one in enumerate(figures, 1)
        ]
    turns = [one for one in moments if one.kind == "user"]
    ends = [*(one.seq for one in turns[1:]), float("inf")]
    return [
        Point(str(at), last.total, f"turn {at}: about {last.total:,} tokens")
        for at, end in enumerate(ends if turns else [], 1)
        for last in [max((one for one in moments if one.seq < end), key=lambda one: one.seq)]
    ]


def tell_moments(events: Sequence[Event]) -> Iterator[Moment]:
    """Yield the events of a conversation, each with the tokens of all texts so far."""
    total = 0
    for event in events:
        described = _describe_event(event)
        if described is None:
            continue
        kind, speaker, text, calls = described
        size = tokens(text) + sum(tokens(one[1]) for one in calls)
        total += size if event.type == "message" else 0
        yield Moment(
            seq=event.seq,
            time=event.time,
            kind=kind,
            speaker=speaker,
            text=text[:MAX_SAID_CHARS],
            calls=calls,
            tokens=size,
            total=total,
        )


def _describe_event(event: Event) -> tuple[str, str, str, tuple[tuple[str, str], ...]] | None:
    data = event.data
    if event.type == "message":
        role = str(data.get("role") or "other")
        listed = data.get("tool_calls")
        calls = tuple(_call(one) for one in listed) if isinstance(listed, list) else ()
        return role, f"{role} {event.agent}".strip(), read_text(data.get("content")), calls
    if event.type.startswith("skill_") or event.type in ("compacted", "docs_selected"):
        name = str(data.get("name") or data.get("skill") or "")
        word = event.type.replace("_", " ")
        rest = {key: value for key, value in data.items() if key not in ("name", "skill") and value}
        more = json.dumps(rest, ensure_ascii=False, default=str) if rest else ""
        return "load", f"{word} {name}".strip(), more[:2000], ()
    return None


def _call(call: object) -> tuple[str, str]:
    name, given = read_call(call)
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
    return name, text[:MAX_SAID_CHARS]


def read_text(content: object) -> str:
    """Return the text of a message: a string, or the texts of its parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
