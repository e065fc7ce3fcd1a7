"""Search as a model and a host meet it: the tool, what it may tell, and what is suggested."""

from __future__ import annotations

from typing import Any

import pytest

from skillbelt import Rule
from skillbelt.discovery.catalog import Filters
from skillbelt.runtime.runtime import Runtime
from skillbelt.store.memory import MemoryStore
from tests.tree import Tree

SKILLS = "project/.agents/skills"
SMALL = {"max_overview_tokens": 300}


@pytest.fixture(autouse=True)
def _skills(tree: Tree) -> None:
    tree.setenv("XDG_STATE_HOME", tree.home / ".state")
    for n in range(60):
        tree.skill(f"{SKILLS}/filler-{n:02}", f"Does the chore number {n} of many.")
    tree.skill(f"{SKILLS}/pdf-merge", "Joins PDF files.", text="Secretly it uses qpdf.\n")
    tree.skill(f"{SKILLS}/quake", "Locates earthquakes.", text="Read the waveforms.\n")
    tree.skill(f"{SKILLS}/mine", "Joins PDF files by hand.", disable_model_invocation=True)


def belt(tree: Tree, **options: Any) -> Runtime:
    return Runtime(tree.project, store=MemoryStore(), **options)


def names(made: Runtime) -> list[str]:
    return [tool.name for tool in made.tools()]


def test_the_tool_is_offered_when_not_all_skills_can_be_described(tree: Tree) -> None:
    assert "skill_search" in names(belt(tree))
    assert "skill_search" not in names(belt(tree, tool_profile="full"))
    assert "skill_search" in names(belt(tree, tool_profile="full", **SMALL))
    assert "skill_search" in names(belt(tree, **SMALL))
    assert "search_skills" in names(belt(tree, tool_names="common", **SMALL))
    assert names(belt(tree, tools=["skill"], **SMALL)) == ["skill"]
    assert "skill_search" in names(belt(tree, tools=["skill", "skill_search"]))


def test_a_tool_that_is_not_offered_can_not_be_called(tree: Tree) -> None:
    result = belt(tree, tool_profile="full").dispatch("skill_search", {"query": "pdf"})
    assert result.error.startswith("there is no tool 'skill_search'")


def test_a_model_is_told_of_the_tool_where_it_is_needed(tree: Tree) -> None:
    crowded = belt(tree, overview_format="plain", max_overview_tokens=420)
    text = crowded.overview().text
    assert "find them with the skill_search tool" in text
    assert "- skill_search finds skills for a task" in text
    few = belt(tree, overview_format="plain", tool_profile="full")
    assert "skill_search" not in few.overview().text


def test_it_gives_names_descriptions_and_origins_and_never_bodies(tree: Tree) -> None:
    result = belt(tree, **SMALL).dispatch("skill_search", {"query": "qpdf", "limit": 3})
    assert result.text == "- pdf-merge: Joins PDF files. (project)"
    assert result.data == {"names": ["pdf-merge"]}


def test_nothing_found_says_what_to_do(tree: Tree) -> None:
    result = belt(tree, **SMALL).dispatch("skill_search", {"query": "sourdough"})
    assert result.text.startswith("no skill fits")
    assert not result.error


@pytest.mark.parametrize(
    "query", ["", " ", "\x00", "a" * 200_000, "�\ud800", "'; DROP TABLE doc; --"]
)
def test_any_text_is_a_query(tree: Tree, query: str) -> None:
    assert not belt(tree, **SMALL).dispatch("skill_search", {"query": query}).error


def test_a_model_does_not_find_what_it_may_not_see(tree: Tree) -> None:
    denied = belt(tree, rules=[Rule("skill", "pdf-*", "deny")], **SMALL)
    found = denied.dispatch("skill_search", {"query": "joins pdf files"})
    assert "pdf" not in found.text
    assert "mine" not in found.text
    hidden = belt(tree, visible=lambda skill: skill.name != "pdf-merge", **SMALL)
    assert "pdf" not in hidden.dispatch("skill_search", {"query": "joins pdf files"}).text


def test_nothing_tells_a_denied_skill_from_one_that_is_not_there(tree: Tree) -> None:
    def results(*rules: Rule) -> list[tuple[object, ...]]:
        found = belt(tree, rules=rules).search("joins pdf files and locates chores", 100)
        return [tuple(one) for one in found]

    denied = results(Rule("skill", "pdf-*", "deny"))
    (tree.path(f"{SKILLS}/pdf-merge") / "SKILL.md").unlink()
    assert denied == results()
    assert len(denied) > 50


def test_a_skill_that_came_since_is_found(tree: Tree) -> None:
    made = belt(tree, **SMALL)
    assert "sourdough" not in made.dispatch("skill_search", {"query": "bake bread"}).text
    tree.skill(f"{SKILLS}/sourdough", "Bakes bread.")
    assert made.dispatch("skill_search", {"query": "bake bread"}).data == {"names": ["sourdough"]}


def test_a_conversation_keeps_its_tools(tree: Tree) -> None:
    made = belt(tree, **SMALL)
    chat = made.session("u", "s")
    chat.request([{"role": "user", "content": "hello"}])
    before = chat.tools("openai")
    for n in range(60):
        (tree.path(f"{SKILLS}/filler-{n:02}") / "SKILL.md").unlink()
    made.catalog.refresh()
    made.look()
    after = chat.tools("openai")
    assert [tool["function"]["name"] for tool in after] == [  # type: ignore[index]
        tool["function"]["name"]  # type: ignore[index]
        for tool in before
    ]
    assert "pdf-merge" in chat.call_sync("skill_search", {"query": "qpdf"}).text


# What is suggested


def test_a_host_learns_what_a_request_needs(tree: Tree) -> None:
    assert belt(tree).suggest("where did the earthquake happen?", 1) == ["quake"]
    assert belt(tree).suggest("", 3) == []


def test_what_is_suggested_is_described_and_stays(tree: Tree) -> None:
    chat = belt(tree, **SMALL).session("u", "s")
    assert chat.suggest("where did the earthquake happen?", 1) == ["quake"]
    first = chat.request([{"role": "user", "content": "where did the earthquake happen?"}])
    assert "Locates earthquakes." in first[0]["content"]
    assert chat.suggest("join these pdf files", 5) == ["quake"]
    later = chat.request([{"role": "user", "content": "join these pdf files"}])
    assert later[0] == first[0]


def test_without_a_suggestion_the_overview_is_as_ever(tree: Tree) -> None:
    chat = belt(tree, **SMALL).session("u", "s")
    sent = chat.request([{"role": "user", "content": "where did the earthquake happen?"}])
    assert "Locates earthquakes." not in sent[0]["content"]


def test_where_everything_fits_a_suggestion_changes_nothing(tree: Tree) -> None:
    made = belt(tree)
    assert made._overview_of(made.available(), ["quake"]) == made.overview()


# What may be found


def test_filters_hold_inside_the_search(tree: Tree) -> None:
    tree.skill("home/.agents/skills/pdf-home", "Joins PDF files at home.")
    catalog = tree.catalog()

    def found(filters: Filters) -> set[str]:
        return {one.skill.name for one in catalog.search("joins pdf files", 50, filters)}

    assert found(Filters()) == {"pdf-merge", "pdf-home", "mine"}
    assert found(Filters(agent="")) == {"pdf-merge", "pdf-home"}
    assert found(Filters(scopes=("user",))) == {"pdf-home"}
    assert found(Filters(keep=lambda skill: skill.name == "mine")) == {"mine"}


def test_internal_skills_are_not_found(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/inner", "Joins PDF files inside.", metadata={"internal": True})
    found = tree.catalog().search("joins pdf files", 50)
    assert "inner" not in {one.skill.name for one in found}
