"""Any history, cut anywhere: pairs stay together, nothing piles up, the budget holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.conversation.compaction import (
    CHANGED,
    Selection,
    as_loaded,
    calls_of,
    cut,
    digest,
    find_lacking,
    find_start,
    is_question,
    keep_pairs,
    make_context,
    record_given,
    results_of,
    select,
)
from skillbelt.conversation.messages import FOOTER, HEADER, Material, Message, block
from skillbelt.text import break_lines, tokens
from tests.examples import examples

IDS = st.sampled_from(["a", "b", "c", "d"])
TEXTS = st.text(alphabet="ab \n[]Loaded", max_size=12)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str, ids: list[str]) -> Message:
    calls = [{"id": id, "name": "x", "arguments": {}} for id in ids]
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def result(id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}


MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(user, TEXTS),
    st.builds(assistant, TEXTS, st.lists(IDS, max_size=3, unique=True)),
    st.builds(result, IDS, TEXTS),
    st.builds(lambda text: {"role": "system", "content": text}, TEXTS),
)
HISTORIES = st.lists(MESSAGES, max_size=14)


def open_calls(messages: list[Message]) -> list[tuple[int, str]]:
    """Calls without a result; a result without a call fails."""
    waiting: dict[str, int] = {}
    unanswered = []
    for index, one in enumerate(messages):
        for id in results_of(one):
            assert waiting.pop(id, None) is not None, "a result without its call"
        for id in calls_of(one):
            unanswered += [(waiting[id], id)] if id in waiting else []
            waiting[id] = index
    return [*unanswered, *((place, id) for id, place in waiting.items())]


@settings(max_examples=examples(300))
@given(HISTORIES, st.integers(0, 16), st.booleans())
def test_any_cut_keeps_pairs_and_cutting_again_changes_nothing(
    messages: list[Message], keep: int, summarized: bool
) -> None:
    made = cut(messages, keep, summarized=summarized)
    kept = [messages[index] for index in made.kept]
    assert list(made.kept) == sorted(set(made.kept))
    for place, _ in open_calls(kept):
        assert all(results_of(one) for one in kept[place + 1 :])
    again = cut(kept, keep, summarized=summarized)
    assert [kept[index] for index in again.kept] == kept


@given(HISTORIES, st.integers(0, 16))
def test_the_last_question_always_stays(messages: list[Message], keep: int) -> None:
    made = cut(messages, keep, summarized=True)
    questions = [index for index, one in enumerate(messages) if is_question(one)]
    assert questions[-1:] == [index for index in made.kept if index in questions][-1:]


@given(HISTORIES, st.integers(0, 16), st.integers(0, 20))
def test_what_is_kept_by_tokens_fits(messages: list[Message], keep: int, room: int) -> None:
    start = find_start(messages, keep, room)
    assert sum(tokens(str(one["content"])) for one in messages[start:]) <= max(room, 0)
    assert start >= find_start(messages, keep)


NAMES = st.sampled_from(["pdf", "csv", "mail", "notes", "log"])
LACKING = st.dictionaries(NAMES, st.integers(1, 400).map(lambda size: "word " * size), max_size=5)


def blocks(found: dict[str, str]) -> dict[str, str]:
    return {name: block(Material(name, text)) for name, text in found.items()}


@given(LACKING, st.integers(0, 1_500), st.permutations(["pdf", "csv", "mail", "notes", "log"]))
def test_what_is_put_back_fits_or_is_named(
    found: dict[str, str], room: int, order: list[str]
) -> None:
    lacking = blocks(found)
    made = select(lacking, Selection(), "m", order=order, room=room, loaded=lacking)
    text = make_context(lacking, made.put, made.named)
    assert {*made.put, *made.left} == {*lacking} and not {*made.put} & {*made.left}
    assert not made.put or tokens(text) <= room
    assert all(name in text for name in lacking)
    again = select(lacking, made, "m", order=order[::-1], room=room, loaded=lacking)
    assert again == made == Selection.read(str(made))


def test_the_order_decides_what_fits() -> None:
    lacking = blocks(dict.fromkeys(("csv", "mail", "pdf"), "word " * 200))
    made = select(lacking, Selection(), "m", order=["pdf", "mail", "csv"], room=700, loaded=lacking)
    assert (made.put, made.left) == (("csv", "mail"), ("pdf",))
    required = select(
        lacking,
        Selection(),
        "m",
        order=["pdf", "mail", "csv"],
        room=0,
        loaded=lacking,
        required={"pdf"},
    )
    assert (required.put, required.left) == (("pdf",), ("csv", "mail"))


@pytest.mark.parametrize("text", ["", "{}", "[1,2,3,4]", '["m",[],[]]', "["])
def test_a_selection_that_can_not_be_read_is_none(text: str) -> None:
    assert Selection.read(text) == Selection()


def test_a_text_counts_as_there_only_word_for_word() -> None:
    material = Material("pdf", "Do it.", (("a.md", "Of a."),))
    given_text = record_given(material, block(material))
    assert find_lacking(material, [given_text], {digest(block(material))}) is None
    for other in (block(material) + " ", f"> {block(material)}", material.body, ""):
        found = find_lacking(material, [given_text], {digest(other)})
        assert found is not None and found.text == block(material)


def test_a_changed_document_is_said_to_have_changed() -> None:
    material = Material("pdf", "Do it.", (("a.md", "Of a."), ("b.md", "Of b.")))
    known = record_given(material)
    found = as_loaded(material._replace(docs=(("a.md", "New."), ("b.md", "Of b."))), [known])
    assert found.changed
    assert f"[Doc] a.md\n\n{CHANGED}\n\n[Doc] b.md\n\nOf b." in found.text
    assert "New." not in found.text


@given(st.text(alphabet=f"{HEADER}{FOOTER}[] \n\r\u2028\x0bDocs", max_size=80))
def test_no_body_leaves_its_message(body: str) -> None:
    text = make_context({"pdf": block(Material("pdf", body))}, ["pdf"], [])
    lines = [line.strip().casefold() for line in text.splitlines()]
    assert lines.count(FOOTER.casefold()) == 1 and lines[-1] == FOOTER.casefold()
    assert sum(line.startswith("[loaded] ") for line in lines) == 1
    assert break_lines(body, "never") == body


def test_a_call_that_waits_for_its_result_stays_at_the_end() -> None:
    waiting: list[Any] = [user("a"), assistant("", ["x", "y"]), result("x", "1")]
    assert keep_pairs(waiting, range(3)) == [0, 1, 2]
    assert keep_pairs([*waiting, user("b")], range(4)) == [0, 3]
