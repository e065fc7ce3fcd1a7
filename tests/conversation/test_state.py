from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.conversation.state import LoadedSkill, LoadRequest, SelectedDocs, Session
from skillbelt.errors import SkillNotFound
from skillbelt.store.memory import MemoryStore
from skillbelt.store.protocol import SessionKey, Store
from skillbelt.store.sqlite import SqliteStore

KEY = SessionKey("app", "user", "chat")


def kinds(session: Session) -> list[str]:
    return [event.type for event in session.events()]


def names(session: Session) -> list[str]:
    return [skill.name for skill in session.loaded()]


def test_a_load_writes_exactly_the_documented_keys(store: Store) -> None:
    session = Session(store, KEY)
    session.load("pdf", ["b.md", "a.md", "b.md"], call_id="c1")
    assert session.state() == {
        "temp:skill:loaded:pdf": "1",
        "temp:skill:docs:pdf": '["b.md","a.md"]',
        "temp:skill:order": '["pdf"]',
        "temp:skill:landed:pdf": '{"":"c1"}',
    }
    Session(store, KEY, agent="child").load("pdf", all_docs=True)
    assert session.state()["temp:skill:loaded:child/pdf"] == "1"
    assert session.state()["temp:skill:docs:child/pdf"] == "*"
    assert session.state()["temp:skill:order:child"] == '["pdf"]'


def test_loaded_skills_come_in_name_order(store: Store) -> None:
    session = Session(store, KEY)
    for name in ("pdf", "csv", "log"):
        session.load(name)
    session.load("csv", ["a.md"])
    session.load("log", all_docs=True)
    assert session.loaded() == [
        LoadedSkill("csv", ("a.md",)),
        LoadedSkill("log", (), True),
        LoadedSkill("pdf"),
    ]


def test_loading_what_is_loaded_is_no_event_unless_documents_change(store: Store) -> None:
    session = Session(store, KEY)
    session.load("pdf", ["a.md"], call_id="c1")
    before = session.state()
    session.load("pdf", call_id="c2")
    session.load("pdf", ["a.md"], call_id="c3")
    assert session.state() == before
    assert kinds(session) == ["skill_loaded"]
    session.load("pdf", ["b.md"], call_id="c4")
    assert kinds(session) == ["skill_loaded", "docs_selected"]
    assert session.loaded() == [LoadedSkill("pdf", ("b.md",))]
    assert session.landed() == {"pdf": "c1", "pdf#b.md": "c4"}


def test_events_say_what_happened_and_to_whom(store: Store) -> None:
    session = Session(store, KEY, agent="child", max_loaded=1)
    session.start_run("New: x.")
    session.load("a", all_docs=True, call_id="c1")
    session.select_docs("a", mode="clear", call_id="c2")
    session.load("b")
    session.unload("b")
    assert [(event.type, dict(event.data)) for event in session.events()] == [
        ("run_started", {}),
        ("note", {"text": "New: x."}),
        ("skill_loaded", {"name": "a", "docs": "*", "call_id": "c1"}),
        ("docs_selected", {"name": "a", "docs": [], "mode": "clear", "call_id": "c2"}),
        ("skill_loaded", {"name": "b", "docs": [], "call_id": ""}),
        ("skill_unloaded", {"name": "a", "reason": "cap"}),
        ("skill_unloaded", {"name": "b", "reason": "asked"}),
    ]
    assert {event.agent for event in session.events()} == {"child"}


def test_documents_that_stay_selected_stay_where_they_landed(store: Store) -> None:
    session = Session(store, KEY)
    session.load("pdf", ["a"], call_id="c1")
    session.select_docs("pdf", ["b"], mode="add", call_id="c2")
    assert session.landed() == {"pdf": "c1", "pdf#a": "c1", "pdf#b": "c2"}
    session.select_docs("pdf", ["b", "c"], mode="replace", call_id="c3")
    assert session.landed() == {"pdf": "c1", "pdf#b": "c2", "pdf#c": "c3"}
    session.select_docs("pdf", all_docs=True, mode="add", call_id="c4")
    assert session.landed() == {"pdf": "c1", "pdf#b": "c2", "pdf#c": "c3", "pdf#*": "c4"}
    session.load("pdf", ["z"], call_id="c5")
    assert session.landed() == {"pdf": "c1", "pdf#z": "c4"}
    session.select_docs("pdf", mode="clear", call_id="c6")
    assert session.landed() == {"pdf": "c1"}


def test_documents_selected_before_the_load_land_with_it(store: Store) -> None:
    session = Session(store, KEY)
    session.select_docs("pdf", ["a.md"], call_id="c1")
    assert session.loaded() == []
    assert session.state() == {"temp:skill:docs:pdf": '["a.md"]'}
    session.load("pdf", call_id="c2")
    assert session.loaded() == [LoadedSkill("pdf", ("a.md",))]
    assert session.landed() == {"pdf": "c2"}


def test_an_empty_selection_is_stored_as_an_empty_list(store: Store) -> None:
    session = Session(store, KEY)
    session.load("pdf")
    assert "temp:skill:docs:pdf" not in session.state()
    result = session.select_docs("pdf", mode="clear")
    assert result == SelectedDocs("pdf", (), False, "clear")
    assert session.state()["temp:skill:docs:pdf"] == "[]"


def test_unload_forgets_everything_of_the_skill(store: Store) -> None:
    session = Session(store, KEY)
    session.load("pdf", ["a.md"], call_id="c1")
    session.load("csv")
    assert session.unload("pdf")
    assert not session.unload("pdf")
    assert not any("pdf" in key + value for key, value in session.state().items())
    session.clear()
    assert session.state() == {}
    assert kinds(session).count("skill_unloaded") == 2


def test_a_turn_clears_only_its_own_agent_and_also_bare_selections(store: Store) -> None:
    parent, child = Session(store, KEY), Session(store, KEY, agent="child")
    child.load("pdf", ["a.md"])
    parent.load("csv")
    parent.select_docs("log", ["b.md"])
    parent.start_run()
    assert names(child) == ["pdf"]
    assert all("child" in key for key in parent.state())


def test_agents_whose_names_have_slashes_stay_apart(store: Store) -> None:
    Session(store, KEY, agent="a/b").load("pdf")
    assert names(Session(store, KEY, agent="a")) == []
    assert names(Session(store, KEY)) == []
    assert names(Session(store, KEY, agent="a/b")) == ["pdf"]


@pytest.mark.parametrize("name", ["", "child/pdf", "../x"])
def test_a_name_can_not_reach_into_another_agents_state(store: Store, name: str) -> None:
    session = Session(store, KEY)
    with pytest.raises(SkillNotFound):
        session.load(name)
    with pytest.raises(SkillNotFound):
        session.load_all([LoadRequest(name)])
    with pytest.raises(SkillNotFound):
        session.select_docs(name, ["a.md"])
    assert session.state() == {}


def test_misses_count_until_a_load_works_or_a_run_starts(store: Store) -> None:
    session, other = Session(store, KEY), Session(store, KEY, agent="child")
    assert session.misses() == 0
    assert [session.missed("x"), session.missed("y")] == [1, 2]
    with pytest.raises(SkillNotFound) as caught:
        session.load("pfd", known=["pdf", "csv"])
    assert caught.value.closest == ("pdf",)
    assert (session.misses(), other.misses()) == (3, 0)
    other.load("pdf")
    assert session.misses() == 3
    session.load("pdf", known=["pdf"])
    assert session.misses() == 0
    session.missed("x")
    session.start_run()
    assert session.misses() == 0


def test_the_note_lasts_for_one_run(store: Store) -> None:
    session = Session(store, KEY)
    session.start_run("New: x.")
    assert session.note() == Session(store, KEY).note() == "New: x."
    assert Session(store, KEY, agent="child").note() == ""
    session.start_run()
    assert session.note() == ""


def test_messages_are_kept_for_each_agent(store: Store) -> None:
    session = Session(store, KEY)
    message = {"role": "tool", "content": "loaded: pdf", "tool_call_id": "c1"}
    session.record(message)
    Session(store, KEY, agent="child").record({"role": "user", "content": "go"})
    assert session.messages() == [message]


def test_a_batch_pushes_out_what_is_over_the_cap_in_one_write(store: Store) -> None:
    session = Session(store, KEY, max_loaded=2)
    session.load("a")
    before = len(session.events())
    evicted = session.load_all([LoadRequest("b"), LoadRequest("c", ["d.md"])], {"b", "c"})
    assert evicted == ("a",)
    assert session.loaded() == [LoadedSkill("b"), LoadedSkill("c", ("d.md",))]
    assert [event.type for event in session.events(before)] == [
        "skill_loaded",
        "skill_loaded",
        "skill_unloaded",
    ]


def test_nothing_is_pushed_out_below_the_cap(store: Store) -> None:
    session = Session(store, KEY, max_loaded=4)
    assert [session.load(name) for name in "abcde"] == [(), (), (), (), ("a",)]
    assert [loaded.name for loaded in session.loaded()] == ["b", "c", "d", "e"]


def test_touching_saves_a_skill_from_the_cap_and_is_no_event(store: Store) -> None:
    session = Session(store, KEY, max_loaded=2)
    session.load("a")
    session.load("b")
    session.touch("a")
    session.touch("never-loaded")
    assert kinds(session) == ["skill_loaded", "skill_loaded"]
    assert session.load("c") == ("b",)


def test_a_skill_that_is_missing_in_the_order_goes_first(store: Store) -> None:
    session = Session(store, KEY, max_loaded=2)
    session.load("b")
    store.append(KEY, [], {"temp:skill:loaded:z": "1"})
    assert session.load("c") == ("z",)


@pytest.mark.parametrize("value", ["{", "null", "7", '{"a":1}', "[1,[2]]", "[" * 20_000])
def test_a_state_that_something_else_wrote_is_read_as_empty(store: Store, value: str) -> None:
    keys = ["loaded:pdf", "docs:pdf", "order", "landed:pdf"]
    store.append(KEY, [], {f"temp:skill:{key}": value for key in keys})
    session = Session(store, KEY)
    assert session.loaded() == [LoadedSkill("pdf")]
    session.landed()
    session.load("pdf", ["a.md"], call_id="c1")
    assert session.loaded() == [LoadedSkill("pdf", ("a.md",))]


def test_another_process_sees_and_changes_the_same_session(tmp_path: Path) -> None:
    path = str(tmp_path / "state.sqlite3")
    session = Session(SqliteStore(path), KEY, mode="session")
    session.load("pdf", ["a.md"], call_id="c1")
    code = f"""
from skillbelt.conversation.state import Session
from skillbelt.store.protocol import SessionKey
from skillbelt.store.sqlite import SqliteStore
session = Session(SqliteStore({path!r}), SessionKey(*{tuple(KEY)!r}), mode="session")
print([tuple(skill) for skill in session.loaded()], session.landed())
session.select_docs("pdf", ["b.md"], mode="add", call_id="c2")
session.load("csv")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=True
    )
    assert done.stdout.strip() == "[('pdf', ('a.md',), False)] {'pdf': 'c1'}"
    assert session.loaded() == [LoadedSkill("csv"), LoadedSkill("pdf", ("a.md", "b.md"))]
    assert session.landed()["pdf#b.md"] == "c2"


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["load", "add", "replace", "clear", "unload", "touch", "run"]),
        st.sampled_from("abcd"),
        st.lists(st.sampled_from("xyz"), max_size=2),
        st.booleans(),
    ),
    max_size=20,
)


@given(OPERATIONS, st.integers(0, 3))
def test_state_and_landings_hold_together_whatever_is_done(
    operations: Sequence[tuple[str, str, list[str], bool]], cap: int
) -> None:
    session = Session(MemoryStore(), KEY, mode="session", max_loaded=cap)
    for number, (what, name, docs, every) in enumerate(operations):
        if what == "load":
            session.load(name, docs or None, every, f"c{number}")
        elif what == "unload":
            session.unload(name)
        elif what == "touch":
            session.touch(name)
        elif what == "run":
            session.start_run()
        else:
            session.select_docs(name, docs, every, what, f"c{number}")
    loaded = session.loaded()
    assert not cap or len(loaded) <= cap
    expected = {part for skill in loaded for part in (skill.name, *_parts(skill))}
    assert {skill.name for skill in loaded} <= session.landed().keys() <= expected
    order = json.loads(session.state().get("temp:skill:order", "[]"))
    assert sorted(order) == [skill.name for skill in loaded]


def _parts(skill: LoadedSkill) -> list[str]:
    docs = "xyz" if skill.all_docs else skill.docs
    return [f"{skill.name}#{doc}" for doc in [*docs, *("*" if skill.all_docs else "")]]
