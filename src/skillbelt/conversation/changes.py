"""Detect where a turn of a conversation begins, and write notes about changes of the catalogue.

Pure. The state is short text that a session can store, so that another process can continue the
conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from skillbelt.conversation.messages import Message
from skillbelt.disclosure.overview import changes_note
from skillbelt.format.skill import Skill
from skillbelt.untrusted_json import read_json

MAX_REMEMBERED = 2_000  # of more skills, only the fact that something changed is recorded
CHANGED = (
    "Note from the skill catalogue, not from the user: the available skills changed since this "
    "conversation began."
)


class Mark(NamedTuple):
    """The last user message of a request: its number, and a hash of its text."""

    number: int
    digest: str

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Mark:
        """Return the mark of a request."""
        questions = [message for message in messages if is_by_user(message)]
        return cls(len(questions), _digest(_content_text(questions[-1]) if questions else ""))

    @classmethod
    def read(cls, text: str) -> Mark | None:
        """Parse a mark; None if the text is not one."""
        count, _, digest = text.partition(":")
        return cls(int(count), digest) if count.isdecimal() and digest else None

    def follows(self, before: Mark | None) -> bool:
        """Return whether a user message came since; cutting a history adds none."""
        return before is None or self.digest != before.digest or self.number > before.number


class Note(NamedTuple):
    """A note that is sent with a user message."""

    mark: Mark
    text: str


def read_notes(text: str) -> list[Note]:
    """Parse notes; none if the text is invalid."""
    found = _parse(text)
    if not isinstance(found, list):
        return []
    pairs = [one for one in found if isinstance(one, list) and len(one) == 2]
    marked = [(Mark.read(str(mark)), str(note)) for mark, note in pairs]
    return [Note(mark, note) for mark, note in marked if mark is not None]


def write_notes(notes: Sequence[Note]) -> str:
    """Return the notes as text."""
    return json.dumps([[str(note.mark), note.text] for note in notes], ensure_ascii=False)


def with_notes(messages: Sequence[Message], notes: Sequence[Note]) -> list[Message]:
    """Put each note before the text of its message, so that none ever moves.

    If the history was cut, the nearest message with that text gets it.
    """
    result = list(messages)
    questions = [index for index, one in enumerate(result) if is_by_user(one)]
    for note in notes:
        same = [
            (abs(place - note.mark.number), index)
            for place, index in enumerate(questions, 1)
            if _digest(_content_text(messages[index])) == note.mark.digest
        ]
        if same:
            index = min(same)[1]
            result[index] = {**result[index], "content": _prepend_note(result[index], note.text)}
    return result


def _prepend_note(message: Message, note: str) -> object:
    content = message.get("content") or ""
    if isinstance(content, str):
        return f"{note}\n\n{content}" if content else note
    return [{"type": "text", "text": note}, *content]


def remember(skills: Mapping[str, Skill]) -> str:
    """Return what a model was shown, as text that `changes_since` compares."""
    prints = {name: _fingerprint(skill) for name, skill in skills.items()}
    whole = _digest("\n".join(f"{name} {prints[name]}" for name in sorted(prints)))
    return json.dumps([whole, prints if len(prints) <= MAX_REMEMBERED else None])


def changes_since(
    before: str, after: Mapping[str, Skill], *, now: str = "", search: str = ""
) -> str:
    """Return the note on what changed since `before` was recorded; empty if nothing did."""
    now = now or remember(after)
    if not before or before == now:
        return ""
    found = _parse(before)
    prints = found[1] if isinstance(found, list) and len(found) == 2 else None
    if not isinstance(prints, dict):
        return f"{CHANGED} Call {search} to see them." if search else CHANGED
    old = {name: _previous(name, prints[name], after.get(name)) for name in prints}
    return changes_note(old, after, search=search)


def _previous(name: str, known: object, now: Skill | None) -> Skill:
    """Return the skill as shown before: the current one, or a placeholder that differs from it."""
    if now is not None and _fingerprint(now) == known:
        return now
    return Skill(
        name=name,
        title=name,
        description="as it was before",
        location=now.location if now else "",
    )


def _fingerprint(skill: Skill) -> str:
    return _digest("\0".join((skill.description, skill.when_to_use, skill.location)))


def is_by_user(message: Message) -> bool:
    """Return whether the message is the user's.

    Some histories use that role for tool results too.
    """
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    answers = [isinstance(one, dict) and one.get("type") == "tool_result" for one in parts]
    return message.get("role") == "user" and not (answers and all(answers))


def _content_text(message: Message) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else json.dumps(content, sort_keys=True, default=str)


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _parse(text: str) -> object:
    try:
        return read_json(text)
    except ValueError:
        return None
