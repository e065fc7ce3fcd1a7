"""The beginning of a turn, and the notes that a model gets."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from skillbelt import Skill
from skillbelt.conversation.changes import (
    CHANGED,
    MAX_REMEMBERED,
    Mark,
    Note,
    changes_since,
    read_notes,
    remember,
    with_notes,
    write_notes,
)


def said(*texts: object) -> list[dict[str, Any]]:
    """Return a conversation with these messages of the user."""
    history: list[dict[str, Any]] = [{"role": "system", "content": "S"}]
    for text in texts:
        history += [{"role": "user", "content": text}, {"role": "assistant", "content": "yes"}]
    return history[:-1]


def skills(*names: str, about: str = "Does it.") -> dict[str, Skill]:
    return {name: Skill(name, name, about, f"/s/{name}/SKILL.md") for name in names}


# Turns


def test_a_new_user_message_follows_and_the_same_one_does_not() -> None:
    first = Mark.of(said("a"))
    assert first.follows(None)
    assert not Mark.of(said("a")).follows(first)
    assert Mark.of(said("a", "b")).follows(first)


def test_the_same_words_again_are_a_new_turn() -> None:
    assert Mark.of(said("go on", "go on")).follows(Mark.of(said("go on")))


def test_a_tool_result_is_no_new_turn() -> None:
    history = said("a")
    answered = [*history, {"role": "tool", "content": "x", "tool_call_id": "1"}]
    assert not Mark.of(answered).follows(Mark.of(history))


def test_answers_of_tools_in_a_user_message_are_no_new_turn() -> None:
    history = said("a")
    part = {"type": "tool_result", "tool_use_id": "1", "content": "x"}
    answered = [*history, {"role": "user", "content": [part]}]
    assert Mark.of(answered) == Mark.of(history)
    spoken = [*history, {"role": "user", "content": [part, {"type": "text", "text": "b"}]}]
    assert Mark.of(spoken).follows(Mark.of(history))


def test_a_history_that_was_cut_is_no_new_turn() -> None:
    assert not Mark.of(said("c")).follows(Mark.of(said("a", "b", "c")))


def test_a_message_in_parts_has_a_mark() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image", "data": b"\0"}]
    assert not Mark.of(said(parts)).follows(Mark.of(said(deepcopy(parts))))
    assert Mark.of(said(parts[:1])).follows(Mark.of(said(parts)))


def test_a_request_without_a_user_message_has_a_mark() -> None:
    assert not Mark.of([]).follows(Mark.of(said()))


def test_a_mark_is_read_back() -> None:
    mark = Mark.of(said("a"))
    assert Mark.read(str(mark)) == mark


@pytest.mark.parametrize("text", ["", ":", "x:y", "3", "3:", "-1:ab"])
def test_what_is_no_mark_is_none(text: str) -> None:
    assert Mark.read(text) is None


# Notes


def test_a_note_stays_with_the_message_it_came_with() -> None:
    notes = [Note(Mark.of(said("a", "b")), "news")]
    history = said("a", "b", "c")
    told = with_notes(history, notes)
    assert [one["content"] for one in told if one["role"] == "user"] == ["a", "news\n\nb", "c"]
    assert history == said("a", "b", "c")
    assert told[0] is history[0]


def test_of_two_messages_with_the_same_text_the_right_one_has_the_note() -> None:
    notes = [Note(Mark.of(said("go", "go")), "news")]
    told = with_notes(said("go", "go", "go"), notes)
    assert [one["content"] for one in told if one["role"] == "user"] == ["go", "news\n\ngo", "go"]


def test_a_note_is_still_there_after_the_history_was_cut_before_it() -> None:
    notes = [Note(Mark.of(said("a", "b")), "news")]
    assert with_notes(said("b"), notes)[1]["content"] == "news\n\nb"
    assert with_notes(said("x"), notes) == said("x")


def test_a_note_before_a_message_in_parts_is_a_part() -> None:
    parts = [{"type": "text", "text": "a"}]
    told = with_notes(said(parts), [Note(Mark.of(said(parts)), "news")])
    assert told[1]["content"] == [{"type": "text", "text": "news"}, *parts]
    assert len(parts) == 1


def test_notes_are_read_back() -> None:
    notes = [Note(Mark(1, "ab"), "one\n“two”"), Note(Mark(3, "cd"), "")]
    assert read_notes(write_notes(notes)) == notes


@pytest.mark.parametrize("text", ["", "{}", "[1]", '["ab"]', '[["x", "y"]]', "[" * 100_000])
def test_what_are_no_notes_are_none(text: str) -> None:
    assert read_notes(text) == []


# What changed


def test_nothing_is_told_when_nothing_changed() -> None:
    before = remember(skills("a", "b"))
    assert changes_since(before, skills("b", "a")) == ""
    assert changes_since("", skills("a")) == ""


def test_what_came_went_and_changed_is_told() -> None:
    before = remember(skills("gone", "same", "other"))
    note = changes_since(before, {**skills("same", "new"), **skills("other", about="Other now.")})
    assert "- removed gone" in note
    assert "- added new: Does it." in note
    assert "- changed other: Other now." in note
    assert "same" not in note


def test_of_very_many_skills_only_that_they_changed_is_known() -> None:
    many = skills(*(f"s{number}" for number in range(MAX_REMEMBERED + 1)))
    before = remember(many)
    assert len(before) < 100
    assert changes_since(before, many) == ""
    assert changes_since(before, skills("a")) == CHANGED
    assert changes_since(before, skills("a"), search="find") == f"{CHANGED} Call find to see them."


def test_what_something_else_wrote_there_is_taken_as_a_change() -> None:
    assert changes_since("nonsense", skills("a")) == CHANGED
