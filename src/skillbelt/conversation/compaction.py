"""Cut a history: whole pairs of calls and results, and loaded skills, survive.

Pure. Whether a text is still there is decided by digests that the session recorded when it gave the
text, never by the words of a message: a summary or a tool result may imitate our marks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from skillbelt.conversation.messages import (
    HEADER,
    LEFT_OUT,
    Material,
    Message,
    block,
    docs_block,
    join_context,
)
from skillbelt.conversation.state import RecordedText, Session
from skillbelt.text import tokens, tokens_of_bytes
from skillbelt.untrusted_json import read_json

# The start of a message that replaces what was cut.
SUMMARY = "Summary of the conversation so far:"
CHANGED = "(changed since it was loaded; load it again to read it as it is now)"
# The key for the calls that a message answers, if it may answer several.
RESULTS = "skillbelt:results"
_MAX_NAMES = 20  # of skills that are left out
_BODY = ""
_SYSTEM = ("system", "developer")


class Compacted(NamedTuple):
    """A history that was cut, and the state of the skills whose text was cut.

    `messages` is the new history of the host; `kept` are the indices of the messages that stay.
    `put_back` names the skills whose text the next request has again, `left_out` those that had no
    room, and `changed` those whose files changed since they were loaded. `context` is the text of
    the message that puts them back.
    """

    messages: list[Message]
    kept: tuple[int, ...] = ()
    put_back: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    context: str = ""


# Cutting


def find_start(messages: Sequence[Message], keep: int, keep_tokens: float | None = None) -> int:
    """Return the index of the first message to keep, of the last `keep` ones.

    A call is never separated from its results: more messages stay if necessary. With `keep_tokens`
    fewer stay, until they fit; possibly none.
    """
    first = max(len(messages) - max(keep, 0), count_system(messages))
    starts = _starts(messages)
    start = max((one for one in starts if one <= first), default=0)
    if keep_tokens is not None:
        room, fitting = keep_tokens, len(messages)
        for index in range(len(messages) - 1, start - 1, -1):
            room -= estimate_tokens(messages[index : index + 1])
            if room < 0:
                break
            fitting = index if index in starts else fitting
        start = fitting
    return start


def _starts(messages: Sequence[Message]) -> set[int]:
    """Return where the history can be cut without separating a call from its results."""
    made: dict[str, int] = {}
    reach = list(range(len(messages)))  # the first message that the one at this index belongs to
    for index, message in enumerate(messages):
        made.update(dict.fromkeys(calls_of(message), index))
        reach[index] = min([index, *(made.get(call, index) for call in results_of(message))])
    starts, first = {len(messages)}, len(messages)
    for index in range(len(messages) - 1, -1, -1):
        first = min(first, reach[index])
        if first >= index:
            starts.add(index)
    return starts


def keep_pairs(messages: Sequence[Message], kept: Iterable[int]) -> list[int]:
    """Return the indices that can stay: no call without result, no result without call.

    The calls of the last message with calls may be open, if only results follow it.
    """
    chosen = sorted(set(kept))
    while True:
        left = _drop_unpaired(messages, chosen)
        if left == chosen:
            return chosen
        chosen = left


def _pending(messages: Sequence[Message], chosen: Sequence[int]) -> set[int]:
    """Return the indices of the calls that the history ends with; results may still come."""
    left = list(chosen)
    while left and results_of(messages[left[-1]]):
        left.pop()
    return {left[-1]} if left else set()


def _drop_unpaired(messages: Sequence[Message], chosen: Sequence[int]) -> list[int]:
    """Return the indices without those of an unpaired call or result."""
    pending = _pending(messages, chosen)
    open_calls: dict[str, int] = {}
    alone: set[int] = set()
    for index in chosen:
        for call in results_of(messages[index]):
            if open_calls.pop(call, None) is None:
                alone.add(index)
        for call in calls_of(messages[index]):
            # An id may be reused.
            alone.update([open_calls[call]] if call in open_calls else [])
            open_calls[call] = index
    alone.update(index for index in open_calls.values() if index not in pending)
    return [index for index in chosen if index not in alone]


class HistoryCut(NamedTuple):
    """The indices of the messages that stay, and how many of them are the system's."""

    kept: tuple[int, ...]
    head: int


def cut(messages: Sequence[Message], keep: int, *, summarized: bool) -> HistoryCut:
    """Return what stays of a history cut to its last `keep` messages.

    Calls and results that were unpaired before are ignored.
    """
    whole = keep_pairs(messages, range(len(messages)))
    left = [messages[index] for index in whole]
    made = cut_at(left, find_start(left, keep), summarized=summarized)
    return made._replace(kept=tuple(whole[index] for index in made.kept))


def cut_at(messages: Sequence[Message], start: int, *, summarized: bool) -> HistoryCut:
    """Return what stays of a history from `start` on, after its system messages.

    The user's last question stays unchanged. Unless a summary comes first, the rest begins with a
    question: some vendors require that.
    """
    head = count_system(messages)
    tail = keep_pairs(messages, range(max(start, head), len(messages)))
    asks = [is_question(messages[index]) for index in tail]
    if not any(asks) or not (summarized or asks[0]):
        before = [index for index in range(head, max(start, head)) if is_question(messages[index])]
        tail = [*before[-1:], *tail]
    return HistoryCut((*range(head), *tail), head)


def tell_summary(summary: str) -> str:
    """Return the text of the message that replaces what was cut."""
    return f"{SUMMARY}\n\n{summary}"


def is_question(message: Message) -> bool:
    """Return whether the user wrote it: not a summary, a result or an added message."""
    if message.get("role") != "user" or message.get("summary") or message.get("goes_on"):
        return False
    content = message.get("content")
    return not results_of(message) and not (
        isinstance(content, str) and content.startswith(f"{SUMMARY}\n\n")
    )


def calls_of(message: Message) -> list[str]:
    """Return the ids of the calls that a message makes."""
    return [str(call.get("id")) for call in message.get("tool_calls") or ()]


def results_of(message: Message) -> list[str]:
    """Return the ids of the calls whose results a message holds."""
    if RESULTS in message:
        return list(message[RESULTS])
    return [str(message["tool_call_id"])] if message.get("tool_call_id") else []


def result_texts(messages: Iterable[Message]) -> list[str]:
    """Return the results of tools in a history."""
    return [content_text(one) for one in messages if one.get("role") == "tool"]


def content_text(message: Message) -> str:
    """Return the text of a message; that of its parts, joined, if it has parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    texts = (one.get("text") if isinstance(one, Mapping) else one for one in content)
    return "".join(text for text in texts if isinstance(text, str))


def count_system(messages: Sequence[Message]) -> int:
    """Return how many system messages the history begins with."""
    there = (i for i, one in enumerate(messages) if one.get("role") not in _SYSTEM)
    return next(there, len(messages))


def estimate_tokens(messages: Sequence[Message]) -> int:
    """Estimate the tokens of the messages."""
    return tokens_of_bytes(sum(map(_message_bytes, messages)))


def _message_bytes(message: Message) -> int:
    calls = message.get("tool_calls")
    return count_bytes(str(message.get("content") or "")) + (
        count_bytes(str(calls)) if calls else 0
    )


def count_bytes(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


# Skills


def digest(text: str) -> str:
    """Return a digest that is equal only for exactly the same text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def record_given(material: Material, answer: str = "") -> RecordedText:
    """Return the record of a text that a model gets: in an answer, or by its requests."""
    given = record_docs(material.docs, answer)
    return given._replace(parts={_BODY: digest(material.body), **given.parts})


def record_docs(docs: Sequence[tuple[str, str]], answer: str = "") -> RecordedText:
    """Return the record of documents that a model gets separately from the body."""
    parts = {path: digest(text) for path, text in docs}
    return RecordedText(parts, digest(answer) if answer else "")


class Lacking(NamedTuple):
    """A skill that a history lacks: the text to put back, and whether its files changed."""

    text: str
    changed: bool = False


def find_lacking(
    material: Material, given: Sequence[RecordedText], results: Collection[str]
) -> Lacking | None:
    """Return what to put back of a skill whose text was in answers; None if all is there.

    `results` are the digests of the results in the history.
    """
    newest = {part: one for text in given for part, one in text.parts.items()}
    there = {
        part
        for text in given
        if text.answer in results
        for part, one in text.parts.items()
        if newest[part] == one
    }
    docs = [(path, text) for path, text in material.docs if path not in there]
    if _BODY in there and not docs:
        return None
    if _BODY in there:
        known = [(path, _as_loaded(path, text, newest)) for path, text in docs]
        return Lacking(docs_block(material.name, known), known != docs)
    return as_loaded(material._replace(docs=tuple(docs)), given)


def as_loaded(material: Material, given: Sequence[RecordedText]) -> Lacking:
    """Return the block of a skill; parts that changed since the session loaded it are marked so."""
    newest = {part: one for text in given for part, one in text.parts.items()}
    body = _as_loaded(_BODY, material.body, newest)
    docs = tuple((path, _as_loaded(path, text, newest)) for path, text in material.docs)
    if body == CHANGED != material.body:
        docs = ()
    made = Material(material.name, body, docs)
    return Lacking(block(made), made != material)


def _as_loaded(part: str, text: str, newest: Mapping[str, str]) -> str:
    return text if newest.get(part) in (None, digest(text)) else CHANGED


class Selection(NamedTuple):
    """The skills that were put back at a cut, and those that were not.

    It holds until the next cut, so that requests between two cuts have the same beginning. `named`
    are those that the message names as left out, also once they are loaded again.
    """

    mark: str = ""
    put: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    named: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> Selection:
        """Parse a selection; an empty one if the text is invalid."""
        try:
            found = read_json(text) if text else None
        except ValueError:
            return cls()
        if not isinstance(found, list) or len(found) != 4:
            return cls()
        mark, *lists = found
        if not all(isinstance(names, list) for names in lists):
            return cls()
        return cls(str(mark), *(tuple(map(str, names)) for names in lists))

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False, separators=(",", ":"))


def state_key(kind: str, agent: str) -> str:
    """Return the key of a session's state for a selection (`restored`)."""
    return f"temp:skill:{kind}:{agent}" if agent else f"temp:skill:{kind}"


def lands_anew(name: str, given: RecordedText, session: Session, state: Mapping[str, str]) -> bool:
    """Return whether a second load must give the text again: it had no room, or it changed."""
    if name in Selection.read(state.get(state_key("restored", session.agent), "")).left:
        return True
    before = [one.parts[_BODY] for one in session.given_of(name, state) if _BODY in one.parts]
    return bool(before) and before[-1] != given.parts[_BODY]


def mark_of(messages: Sequence[Message]) -> str:
    """Return a mark that identifies a cut: the first message that is not the system's."""
    first = messages[count_system(messages) : count_system(messages) + 1]
    return digest(content_text(first[0])) if first else ""


def select(
    lacking: Mapping[str, str],
    before: Selection,
    mark: str,
    *,
    order: Sequence[str],
    room: float,
    loaded: Collection[str],
    required: Collection[str] = (),
) -> Selection:
    """Return which of the lacking texts to put back: the most recently used, as far as they fit.

    `order` has the least recently used first, `room` is in tokens, and the `required` come first. A
    selection `before` for the same cut stays.
    """
    if before.mark == mark and {*lacking} <= {*before.put, *before.left}:
        return before._replace(
            put=tuple(name for name in before.put if name in lacking),
            left=tuple(name for name in before.left if name in lacking),
            named=tuple(name for name in before.named if name in loaded),
        )
    places = {name: place for place, name in enumerate(order)}
    newest = sorted(lacking, key=lambda name: (name in required, places.get(name, -1), name))
    put, left = list[str](), list[str]()
    room -= tokens(make_context(lacking, (), sorted(lacking)))
    for name in reversed(newest):
        size = tokens(join_context({name: lacking[name]}))
        if size <= room or name in required:
            put.append(name)
            room -= size
        else:
            left.append(name)
    return Selection(mark, tuple(sorted(put)), tuple(sorted(left)), tuple(sorted(left)))


def is_context(message: Message, known: Collection[str]) -> bool:
    """Return whether the message put texts back, by the digests of those that did."""
    content = message.get("content")
    ours = isinstance(content, str) and content.startswith(f"{HEADER}\n")
    return ours and digest(str(content)) in known


def make_context(lacking: Mapping[str, str], put: Iterable[str], named: Sequence[str]) -> str:
    """Return the message that puts texts back and names those without room; "" for neither."""
    blocks = {name: lacking[name] for name in sorted(put)}
    if named:
        more = [f"and {len(named) - _MAX_NAMES} more"] if len(named) > _MAX_NAMES else []
        listed = ", ".join([*named[:_MAX_NAMES], *more])
        blocks[""] = f"{LEFT_OUT}loaded earlier; load again what you need: {listed}"
    return join_context(blocks)
