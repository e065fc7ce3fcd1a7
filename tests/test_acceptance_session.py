"""Cases 39-52 and 54: state and messages over whole conversations, in both kinds of store."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from skillbelt.conversation.messages import HEADER, Material, Message, Placement, materialize
from skillbelt.conversation.state import LoadedSkill, LoadRequest, Session
from skillbelt.errors import SkillNotFound
from skillbelt.store.protocol import SessionKey, Store
from skillbelt.store.sqlite import SqliteStore

KEY = SessionKey("app", "user", "chat")
KNOWN = ("a", "b", "c", "pdf")


class Chat:
    """A host's loop: its own history, and one agent's session beside it."""

    def __init__(
        self, store: Store, *, placement: Placement = "tool", agent: str = "", **options: str
    ) -> None:
        self.session = Session(store, KEY, agent=agent, mode=options.get("mode", "turn"))
        self.placement: Placement = placement
        self.history: list[Message] = [{"role": "system", "content": "You help."}]
        self.calls = 0

    def user(self, text: str) -> None:
        self.session.start_run()
        self.history.append({"role": "user", "content": text})

    def load(self, skill: str, docs: Sequence[str] | None = None) -> None:
        call = self._call("skill_load", skill)
        try:
            self.session.load(skill, docs, call_id=call, known=KNOWN)
        except SkillNotFound:
            self._answer(call, f"unknown skill: {skill}")
        else:
            self._answer(call, f"loaded: {skill}")

    def select(self, skill: str, docs: Sequence[str]) -> None:
        call = self._call("skill_select_docs", skill)
        done = self.session.select_docs(skill, docs, mode="add", call_id=call)
        self._answer(call, json.dumps(done._asdict()))

    def request(self) -> list[Message]:
        materials = [
            Material(
                skill.name,
                f"Body of {skill.name}.",
                tuple((doc, f"Text of {doc}.") for doc in skill.docs),
            )
            for skill in self.session.loaded()
        ]
        sent = materialize(
            self.history,
            materials,
            placement=self.placement,
            overview="Skills: a, b, c, pdf",
            landed=self.session.landed(),
        )
        self.session.after_request()
        return sent

    def _call(self, tool: str, skill: str) -> str:
        self.calls += 1
        call = {"id": f"c{self.calls}", "name": tool, "arguments": {"skill": skill}}
        self.history.append({"role": "assistant", "content": "", "tool_calls": [call]})
        return f"c{self.calls}"

    def _answer(self, call: str, text: str) -> None:
        self.history.append({"role": "tool", "tool_call_id": call, "content": text})


def shown(messages: Sequence[Message], text: str) -> int:
    return sum(message["content"].count(text) for message in messages)


def test_a_load_answers_with_a_stub_and_leaves_the_documents_alone(store: Store) -> None:
    """Case 39."""
    chat = Chat(store)
    chat.user("Go.")
    chat.load("pdf")
    assert chat.history[-1]["content"] == "loaded: pdf"
    state = chat.session.state()
    assert state["temp:skill:loaded:pdf"] == "1"
    assert "temp:skill:docs:pdf" not in state
    chat.session.select_docs("pdf", ["x.md"])
    chat.load("pdf")
    assert chat.session.state()["temp:skill:docs:pdf"] == '["x.md"]'


def test_documents_given_with_a_load_are_the_selection(store: Store) -> None:
    """Case 40."""
    session = Session(store, KEY)
    session.load("pdf", ["a.md", "b.md"])
    assert session.state()["temp:skill:docs:pdf"] == '["a.md","b.md"]'
    session.load("pdf", all_docs=True)
    assert session.state()["temp:skill:docs:pdf"] == "*"


def test_an_unknown_skill_changes_no_state(store: Store) -> None:
    """Case 41."""
    chat = Chat(store)
    chat.user("Go.")
    chat.load("pdf")
    before = chat.session.state()
    chat.load("pfd")
    assert chat.history[-1]["content"] == "unknown skill: pfd"
    assert chat.session.state() == before
    assert chat.session.misses() == 1
    assert chat.request()[-1]["content"] == "unknown skill: pfd"


def test_system_placement_shows_marker_body_and_documents(store: Store) -> None:
    """Case 42."""
    chat = Chat(store, placement="system")
    chat.user("Go.")
    chat.load("pdf", ["a", "b"])
    assert chat.request()[0]["content"] == (
        "You help.\n\nSkills: a, b, c, pdf\n\n"
        "[Loaded] pdf\n\nBody of pdf.\n\nDocs loaded: a, b\n\n"
        "[Doc] a\n\nText of a.\n\n[Doc] b\n\nText of b."
    )
    chat.session.select_docs("pdf", mode="clear")
    assert chat.request()[0]["content"].endswith("Body of pdf.\n\nDocs loaded: none")


def test_tool_placement_leaves_the_system_message_and_the_stored_history(store: Store) -> None:
    """Case 43."""
    chat = Chat(store)
    chat.user("Go.")
    before = chat.request()
    chat.load("pdf")
    kept = copy.deepcopy(chat.history)
    after = chat.request()
    assert after[0] == before[0]
    assert after[-1]["content"].startswith("[Loaded] pdf\n\nBody of pdf.")
    assert chat.history == kept
    assert chat.history[-1]["content"] == "loaded: pdf"
    assert chat.request() == after


def test_every_request_of_a_turn_begins_with_the_one_before(store: Store) -> None:
    """Case 43: what is loaded and selected later never moves what was sent already."""
    chat = Chat(store)
    chat.user("Go.")
    requests = [chat.request()]
    for step in (("load", "a"), ("select", "a"), ("load", "b"), ("load", "a"), ("select", "b")):
        if step[0] == "load":
            chat.load(step[1])
        else:
            chat.select(step[1], [f"{step[1]}.md"])
        requests.append(chat.request())
        assert requests[-1][: len(requests[-2])] == requests[-2]
    assert shown(requests[-1], "Body of a.") == shown(requests[-1], "Text of b.md.") == 1


def test_a_cut_history_gets_one_message_and_loses_it_with_the_last_skill(store: Store) -> None:
    """Case 44."""
    chat = Chat(store, mode="session")
    chat.user("Go.")
    chat.load("a")
    chat.load("b")
    chat.history[1:] = [{"role": "user", "content": "As summarised: go on."}]
    sent = chat.request()
    [fallback] = [m for m in sent if m["role"] == "system" and m["content"].startswith(HEADER)]
    assert shown([fallback], "Body of a.") == shown([fallback], "Body of b.") == 1
    chat.history = sent
    chat.session.unload("a")
    assert shown(chat.request(), "Body of") == 1
    chat.session.unload("b")
    assert shown(chat.request(), HEADER) == 0


def test_a_turn_ends_with_the_next_user_message(store: Store) -> None:
    """Case 45."""
    chat = Chat(store)
    chat.user("Go.")
    chat.load("pdf")
    assert shown(chat.request(), "Body of pdf.") == shown(chat.request(), "Body of pdf.") == 1
    chat.user("And now?")
    assert chat.session.loaded() == []
    assert shown(chat.request(), "Body of pdf.") == 0


def test_a_mode_that_is_not_known_is_turn(store: Store) -> None:
    """Case 45."""
    chat = Chat(store, mode="forever")
    assert chat.session.mode == "turn"
    chat.load("pdf")
    chat.user("And now?")
    assert chat.session.loaded() == []


@pytest.mark.parametrize("placement", ["tool", "system"])
def test_once_is_for_one_request(store: Store, placement: Placement) -> None:
    """Case 46."""
    chat = Chat(store, placement=placement, mode="once")
    chat.user("Go.")
    chat.load("pdf")
    assert [shown(chat.request(), "Body of pdf.") for _ in range(3)] == [1, 0, 0]


def test_session_mode_survives_runs_until_it_is_cleared(store: Store) -> None:
    """Case 47."""
    chat = Chat(store, mode="session")
    chat.user("Go.")
    chat.load("pdf")
    first = chat.request()
    chat.user("And now?")
    chat.user("And then?")
    assert chat.request()[: len(first)] == first
    assert Session(store, KEY._replace(session="other"), mode="session").loaded() == []
    store.delete(KEY)
    assert chat.session.loaded() == []


def test_old_answers_do_not_bring_back_what_is_not_loaded_now(store: Store) -> None:
    """Case 48."""
    chat = Chat(store)
    chat.user("Go.")
    chat.load("a")
    chat.user("Now the other.")
    chat.load("b")
    sent = chat.request()
    assert (shown(sent, "Body of a."), shown(sent, "Body of b.")) == (0, 1)
    assert sent[3]["content"].startswith("unloaded since: a")
    assert {m["tool_call_id"] for m in sent if m["role"] == "tool"} == {"c1", "c2"}


def test_the_cap_pushes_out_what_was_not_touched_for_longest(store: Store) -> None:
    """Case 49."""
    session = Session(store, KEY, max_loaded=2)
    assert [session.load(name) for name in "abc"] == [(), (), ("a",)]
    assert [skill.name for skill in session.loaded()] == ["b", "c"]
    other = Session(store, KEY._replace(session="other"), max_loaded=2)
    other.load("a")
    other.load("b")
    other.select_docs("a", ["x.md"])
    assert other.load("c") == ("b",)
    assert [skill.name for skill in other.loaded()] == ["a", "c"]


def test_selections_add_replace_clear_and_all(store: Store) -> None:
    """Case 50."""
    session = Session(store, KEY)
    session.load("pdf", ["a"])

    def selected(docs: Sequence[str], mode: str, every: bool = False) -> tuple[set[str], bool]:
        result = session.select_docs("pdf", docs, every, mode)
        assert session.loaded() == [
            LoadedSkill("pdf", result.selected_docs, result.include_all_docs)
        ]
        return set(result.selected_docs), result.include_all_docs

    assert selected(["b"], "add") == ({"a", "b"}, False)
    assert selected(["c"], "replace") == ({"c"}, False)
    assert selected([], "clear") == (set(), False)
    assert selected(["a"], "add", True) == (set(), True)
    assert selected(["b"], "replace") == (set(), True)
    assert selected(["b"], "add") == (set(), True)
    assert selected(["b"], "clear") == (set(), False)


def test_a_selection_mode_that_is_not_known_replaces(store: Store) -> None:
    """Case 51."""
    session = Session(store, KEY)
    session.load("pdf", ["a"])
    assert session.select_docs("pdf", ["b"], mode="bogus") == ("pdf", ("b",), False, "replace")


@pytest.mark.parametrize("placement", ["tool", "system"])
def test_a_childs_load_does_not_reach_its_parent(store: Store, placement: Placement) -> None:
    """Case 52."""
    parent = Chat(store, placement=placement)
    child = Chat(store, placement=placement, agent="child")
    parent.user("Go.")
    before = parent.request()
    child.user("Your part.")
    child.load("pdf")
    assert shown(child.request(), "Body of pdf.") == 1
    assert parent.request() == before
    parent.load("pdf")
    child.session.unload("pdf")
    assert shown(parent.request(), "Body of pdf.") == 1


def test_a_batch_with_one_unknown_name_changes_nothing(store: Store) -> None:
    """Case 54."""
    session = Session(store, KEY, max_loaded=1)
    session.load("a", ["x.md"])
    state, events = session.state(), session.events()
    with pytest.raises(SkillNotFound) as caught:
        session.load_all([LoadRequest("b"), LoadRequest("nope"), LoadRequest("c")], KNOWN)
    assert caught.value.name == "nope"
    assert (session.state(), session.events()) == (state, events)


def test_a_restart_gives_the_same_messages(tmp_path: Path) -> None:
    """Case 47: where text landed is part of the state."""
    path = str(tmp_path / "state.sqlite3")
    chat = Chat(SqliteStore(path), mode="session")
    chat.user("Go.")
    chat.load("a", ["x.md"])
    chat.select("a", ["y.md"])
    chat.load("a")
    sent = chat.request()
    again = Chat(SqliteStore(path), mode="session")
    again.history = chat.history
    assert again.request() == sent
