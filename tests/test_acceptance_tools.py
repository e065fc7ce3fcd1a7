"""The acceptance cases about tools, end to end through the facade."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skillbelt import SkillNotFound
from skillbelt.conversation.state import LoadRequest
from skillbelt.permission.rules import Rule
from skillbelt.runtime.runtime import Runtime
from skillbelt.store.memory import MemoryStore
from skillbelt.tools.definitions import DEFINITIONS, SEARCH
from skillbelt.tools.schema import FORMATS
from tests.tree import Tree

SKILLS = "project/.agents/skills"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(autouse=True)
def _pdf(tree: Tree) -> None:
    tree.setenv("XDG_STATE_HOME", tree.home / ".state")
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.", text="The body of pdf.\n")
    tree.write(f"{SKILLS}/pdf/reference/a.md", "# A\n")
    tree.write(f"{SKILLS}/pdf/reference/b.md", "# B\n")


def runtime(tree: Tree, **options: Any) -> Runtime:
    return Runtime(tree.project, store=MemoryStore(), **options)


def loading_state(state: dict[str, str]) -> dict[str, str]:
    kept = ("temp:skill:loaded:", "temp:skill:docs:")
    return {key: value for key, value in state.items() if key.startswith(kept)}


def test_loading_marks_the_skill_and_leaves_documents_alone(tree: Tree) -> None:
    """Case 39."""
    session = runtime(tree).session("u", "s")
    result = session.call_sync("skill_load", {"skill": "pdf"}, "c1")
    assert (result.text, result.error) == ("loaded: pdf", "")
    assert loading_state(session.session.state()) == {"temp:skill:loaded:pdf": "1"}
    session.call_sync("skill_load", {"skill": "pdf", "docs": ["reference/a.md"]}, "c2")
    before = loading_state(session.session.state())
    session.call_sync("skill_load", {"skill": "pdf"}, "c3")
    assert loading_state(session.session.state()) == before


def test_documents_are_kept_as_a_list_or_as_all(tree: Tree) -> None:
    """Case 40."""
    session = runtime(tree).session("u", "s")
    docs = ["reference/b.md", "reference/a.md"]
    session.call_sync("skill_load", {"skill": "pdf", "docs": docs})
    assert json.loads(session.session.state()["temp:skill:docs:pdf"]) == docs
    session.call_sync("skill_load", {"skill": "pdf", "include_all_docs": True})
    assert session.session.state()["temp:skill:docs:pdf"] == "*"


@pytest.mark.parametrize("name", ["unknown", "", "../pdf", "a/pdf", "PDF", "pdf\n"])
def test_an_unknown_skill_is_an_error_and_changes_nothing(tree: Tree, name: str) -> None:
    """Case 41."""
    session = runtime(tree).session("u", "s")
    before = session.session.state()
    result = session.call_sync("skill_load", {"skill": name})
    assert result.error == f"unknown skill: {name.strip()}"
    assert session.session.state() == before


def test_what_is_hidden_is_nowhere(tree: Tree) -> None:
    """Case 53."""
    tree.skill(f"{SKILLS}/classified", "Knows the hidden thing.")
    tree.write(f"{SKILLS}/classified/plan.md", "# Plan\n")
    every = [kind for kind in DEFINITIONS if kind != SEARCH]
    belt = runtime(tree, tools=every, visible=lambda skill: skill.name != "classified")
    session = belt.session("u", "s")
    calls = [
        ("skill", {"name": "nothing"}),
        ("skill_list", {}),
        ("skill_unload", {"skill": "nothing"}),
        ("skill_list_docs", {"skill": "clasified"}),
    ]
    texts = [
        belt.overview().text,
        json.dumps([belt.tools(format) for format in FORMATS]),
        json.dumps([session.tools(format, listing=True) for format in FORMATS]),
        json.dumps(session.request(HELLO)),
        *(session.call_sync(*call).text for call in calls),
        *(belt.dispatch(*call).text for call in calls),
    ]
    assert [text for text in texts if "classified" in text or "hidden thing" in text] == []
    for tool, arguments in [
        ("skill", {"name": "classified"}),
        ("skill_load", {"skill": "classified"}),
        ("skill_list_docs", {"skill": "classified"}),
        ("skill_select_docs", {"skill": "classified", "docs": ["plan.md"]}),
        ("load_resource", {"skill": "classified", "relative_path": "plan.md"}),
        ("read_file", {"file_name": "skill://classified/plan.md"}),
    ]:
        for result in (session.call_sync(tool, arguments), belt.dispatch(tool, arguments)):
            made_up = json.loads(json.dumps(arguments).replace("classified", "no-such-one"))
            same = belt.dispatch(tool, made_up).error.replace("no-such-one", "classified")
            assert result.error.partition("\n")[0] == same
            assert "Plan" not in result.text
    assert session.user_command("/classified") is None
    with pytest.raises(SkillNotFound):
        session.declare(["classified"])
    with pytest.raises(SkillNotFound):
        belt.load("classified")


def test_a_filter_hides_a_skill_that_was_loaded_before(tree: Tree) -> None:
    """Case 53."""
    belt = runtime(tree, load_mode="session")
    belt.session("u", "s").call_sync("skill_load", {"skill": "pdf"})
    assert "The body of pdf." in json.dumps(belt.session("u", "s").request(HELLO))
    filtered = belt.session("u", "s", visible=lambda skill: False)
    assert "The body of pdf." not in json.dumps(filtered.request(HELLO))


def test_agents_see_what_their_rules_allow(tree: Tree) -> None:
    """Case 53."""
    tree.skill(f"{SKILLS}/notes")
    belt = runtime(tree, rules=[Rule("skill", "pdf", "deny", agent="writer")])
    assert list(belt.session("u", "s", agent="reader").skills()) == ["notes", "pdf"]
    other = belt.session("u", "s", agent="writer")
    assert list(other.skills()) == ["notes"]
    assert other.call_sync("skill_load", {"skill": "pdf"}).error == "unknown skill: pdf"


def test_declared_loads_are_all_or_nothing(tree: Tree) -> None:
    """Case 54."""
    session = runtime(tree).session("u", "s")
    before = session.session.state(), session.session.events()
    with pytest.raises(SkillNotFound, match="no skill named 'pfd'; closest: pdf"):
        session.declare(["pdf", "pfd"])
    assert (session.session.state(), session.session.events()) == before
    session.declare([LoadRequest("pdf", ["reference/a.md"])])
    sent = json.dumps(session.request(HELLO))
    assert "The body of pdf." in sent
    assert "[Doc] reference/a.md" in sent


@pytest.mark.parametrize(("count", "listed"), [(256, True), (257, False)])
def test_256_names_are_an_enum_and_257_are_not(tree: Tree, count: int, listed: bool) -> None:
    """Case 55."""
    for number in range(1, count):
        tree.skill(f"{SKILLS}/s{number:03}")
    belt = runtime(tree, tool_profile="simple")
    shape: Any = belt.tools("anthropic")
    names = shape[0]["input_schema"]["properties"]["name"].get("enum")
    assert names == (sorted(belt.skills()) if listed else None)
    assert len(belt.skills()) == count
