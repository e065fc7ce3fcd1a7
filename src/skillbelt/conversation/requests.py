"""The requests as they were sent to a model, stored with their conversation.

A request mostly repeats the one before it. So each text is stored once, by its digest, and a
request is the number of texts that it shares with an earlier one, and the digests of the others.
Each conversation is bounded: beyond the bound, the oldest requests are deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from skillbelt.errors import log_warning
from skillbelt.events import Event, NewEvent
from skillbelt.running.secrets import redacted, secrets_of
from skillbelt.settings import process_environment
from skillbelt.store.protocol import SessionKey, Store
from skillbelt.text import tokens
from skillbelt.untrusted_json import BadJson, read_json

APP = "skillbelt:requests"
# Bounds of one conversation, and of one text; a longer one is cut and marked as cut.
MAX_REQUESTS = 1_000
MAX_BYTES = 4 * 2**20
MAX_TEXT_CHARS = 256 * 2**10
_TEXT, _REQUEST = "text", "request"
_MESSAGES = ("messages", "input", "contents")
_COUNT, _SIZE, _LAST = "count", "size", "last:"


class SentSummary(NamedTuple):
    """A request in the list of a conversation.

    `shared_chars` counts the characters of tools and messages that are the same at the beginning of
    the agent's previous request.
    """

    number: int
    time: float
    agent: str
    model: str
    messages: int
    chars: int
    shared_chars: int
    tokens: int

    @property
    def shared_percent(self) -> int:
        """The percentage of the request that the previous one begins with."""
        return self.shared_chars * 100 // self.chars if self.chars else 0


class SentRequest(NamedTuple):
    """One request: its tools and its messages, each as the stored JSON text.

    `shared` counts the messages that the previous request begins with; of the next message,
    `shared_start` characters are the same. `before` is the number of the previous request, 0 for
    none. Tools come before all messages in what a model reads, so nothing is shared when
    `same_tools` is False.
    """

    summary: SentSummary
    tools: str
    messages: tuple[str, ...]
    before: int = 0
    same_tools: bool = True
    shared: int = 0
    shared_start: int = 0

    def document(self) -> dict[str, object]:
        """Return it as a JSON document."""
        return {
            **self.summary._asdict(),
            "shared_percent": self.summary.shared_percent,
            "before": self.before or None,
            "same_tools": self.same_tools,
            "shared_messages": self.shared,
            "shared_start": self.shared_start,
            "tools": read_text(self.tools),
            "messages": [read_text(one) for one in self.messages],
        }


class RequestLog:
    """The requests of one conversation, in a store."""

    def __init__(self, store: Store, key: SessionKey) -> None:
        self._store, self._key = store, place_of(key)

    def add(
        self, messages: Sequence[object], *, tools: object = (), agent: str = "", model: str = ""
    ) -> None:
        """Store a request. A failure of the store is logged, and stops no conversation."""
        try:
            self._add(messages, tools, agent, model)
        except Exception:
            log_warning("the requests of a conversation cannot be kept", trace=True)

    def _add(self, messages: Sequence[object], tools: object, agent: str, model: str) -> None:
        secrets = {**_find_secrets(messages), **secrets_of(process_environment())}
        texts = [_keep(one, secrets) for one in (tools, *messages)]
        ids = [f"{_digest(text)}:{len(text)}" for text in texts]
        state = self._store.state(self._key)
        count = int(state.get(_COUNT, "0")) + 1
        base, last = _read_last(state.get(f"{_LAST}{agent}", ""))
        if self._is_full(state, texts):
            self._store.delete(self._key)
            state, base, last = {}, 0, []
        kept = _count_same(ids, last)
        known = set(last)
        new = {id: text for id, text in zip(ids, texts, strict=True) if id not in known}
        record = {
            "number": count,
            "model": model,
            "base": base,
            "kept": kept,
            "added": ids[kept:],
            "chars": sum(map(_size_of, ids)),
            "shared": sum(map(_size_of, ids[:kept])),
            "messages": len(messages),
            "tokens": sum(map(tokens, texts)),
        }
        events = [NewEvent(_TEXT, data={"id": id, "text": text}) for id, text in new.items()]
        size = int(state.get(_SIZE, "0")) + sum(map(len, new.values())) + len(ids) * 24
        self._store.append(
            self._key,
            [*events, NewEvent(_REQUEST, agent, record)],
            {
                _COUNT: str(count),
                _SIZE: str(size),
                f"{_LAST}{agent}": json.dumps([count, ids]),
            },
        )

    def _is_full(self, state: Mapping[str, str], texts: Sequence[str]) -> bool:
        more = sum(map(len, texts))
        return int(state.get(_SIZE, "0")) + more > MAX_BYTES or (
            int(state.get(_COUNT, "0")) % MAX_REQUESTS == MAX_REQUESTS - 1
        )

    def summaries(self, after: int = 0, limit: int = 200) -> list[SentSummary]:
        """Return the requests with a higher number, in order."""
        found = (one for one in self._store.events(self._key) if one.type == _REQUEST)
        listed = (summary for one in found if (summary := _summarize(one)) is not None)
        return [one for one in listed if one.number > after][:limit]

    def find(self, number: int) -> SentRequest | None:
        """Return the request of that number; None if it is not stored."""
        texts: dict[str, str] = {}
        requests: dict[int, list[str]] = {}
        latest: dict[str, int] = {}  # the last request of each agent
        for event in self._store.events(self._key):
            data = event.data
            if event.type == _TEXT:
                texts[str(data.get("id"))] = str(data.get("text"))
                continue
            summary = _summarize(event)
            added, kept = data.get("added"), data.get("kept")
            if summary is None or not isinstance(added, list) or not isinstance(kept, int):
                continue
            base = data.get("base")
            start = requests.get(base, []) if isinstance(base, int) else []
            requests[summary.number] = [*start[:kept], *map(str, added)]
            if summary.number == number:
                before = latest.get(event.agent, 0)
                return _compare(summary, requests[number], requests.get(before, []), before, texts)
            latest[event.agent] = summary.number
        return None


def forget_requests(store: Store, key: SessionKey) -> bool:
    """Delete the requests of a conversation; return whether there were any."""
    return store.delete(place_of(key))


def split_sent(
    sent: Sequence[object] | Mapping[str, object],
) -> tuple[list[object], Sequence[object]]:
    """Split a request, as vendors' packages take it, into messages and tools.

    Other parts, such as a system text, come first among the messages.
    """
    if not isinstance(sent, Mapping):
        return list(sent), ()
    rest, messages = dict(sent), list[object]()
    for name in _MESSAGES:
        found = rest.pop(name, None)
        if found is not None:
            messages += found if isinstance(found, list | tuple) else [found]
    tools = rest.pop("tools", ())
    first: list[object] = [{"role": "system", **rest}] if rest else []
    return [*first, *messages], tools if isinstance(tools, list | tuple) else [tools]


def place_of(key: SessionKey) -> SessionKey:
    """Return the store key for the requests of a conversation."""
    return SessionKey(APP, json.dumps([key.app, key.user]), key.session)


def read_text(text: str) -> Any:
    """Parse a stored text; one that was cut stays a text."""
    try:
        return read_json(text)
    except BadJson:
        return text


def _compare(
    summary: SentSummary,
    ids: Sequence[str],
    before: Sequence[str],
    number: int,
    texts: Mapping[str, str],
) -> SentRequest:
    found = [texts.get(id, "") for id in ids]
    earlier = [texts.get(id, "") for id in before]
    same = _count_same(ids, before)
    start = 0
    if same < min(len(found), len(earlier)):
        start = _count_same(found[same], earlier[same])
    return SentRequest(
        summary=summary,
        tools=found[0] if found else "",
        messages=tuple(found[1:]),
        before=number,
        same_tools=same > 0 or not before,
        shared=max(same - 1, 0),
        shared_start=start if same else 0,
    )


def _summarize(event: Event) -> SentSummary | None:
    """Return the request of an event; None for another event or a damaged one."""
    data = event.data
    numbers = [data.get(name) for name in ("number", "messages", "chars", "shared", "tokens")]
    whole = [one for one in numbers if isinstance(one, int)]
    if event.type != _REQUEST or len(whole) != len(numbers):
        return None
    number, messages, chars, shared, size = whole
    return SentSummary(
        number=number,
        time=event.time,
        agent=event.agent,
        model=str(data.get("model", "")),
        messages=messages,
        chars=chars,
        shared_chars=shared,
        tokens=size,
    )


def _keep(value: object, secrets: Mapping[str, str]) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = redacted(text, secrets)
    if len(text) > MAX_TEXT_CHARS:
        return f"{text[:MAX_TEXT_CHARS]} … {len(text) - MAX_TEXT_CHARS} more characters, not kept"
    return text


def _find_secrets(messages: Sequence[object]) -> dict[str, str]:
    """Return the secrets that calls give to commands in their `env`, in any vendor's form."""
    found: dict[str, str] = {}
    waiting: list[object] = list(messages)
    seen: dict[int, object] = {}  # kept alive, so that no other value gets the same id
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, Mapping):
            env, written = value.get("env"), value.get("arguments")
            if isinstance(env, Mapping):
                found.update(secrets_of({str(name): str(one) for name, one in env.items()}))
            if isinstance(written, str):  # most vendors send JSON here
                waiting.append(read_text(written))
            waiting += value.values()
    return found


def _read_last(text: str) -> tuple[int, list[str]]:
    try:
        number, ids = read_json(text) if text else (0, [])
        return int(number), [str(one) for one in ids]
    except (BadJson, TypeError, ValueError):
        return 0, []


def _count_same(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the common prefix."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _size_of(id: str) -> int:
    return int(id.rpartition(":")[2])
