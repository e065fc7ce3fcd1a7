"""The skills that agents may see and load."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from skillbelt import Limits, LoadError, ReadableSkill, SkillNotFound
from skillbelt.errors import PermissionDenied
from skillbelt.permission.rules import Answer, Rule
from skillbelt.permission.waiting import Pending
from skillbelt.runtime.runtime import Runtime
from tests.tree import Tree

SKILLS = "project/.agents/skills"


@pytest.fixture(autouse=True)
def _skills(tree: Tree) -> None:
    tree.setenv("XDG_STATE_HOME", tree.home / ".state")
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.", text="Read $ARGUMENTS.\n")
    tree.skill(f"{SKILLS}/mine", disable_model_invocation=True, text="Mine.\n")


def runtime(tree: Tree, **options: Any) -> Runtime:
    return Runtime(tree.project, **options)


# What there is


def test_a_model_sees_what_it_may_use(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/bare", None)
    assert list(runtime(tree).skills()) == ["bare", "mine", "pdf"]
    assert list(runtime(tree).available()) == ["pdf"]


def test_nothing_is_scanned_between_looks(tree: Tree) -> None:
    one = runtime(tree)
    before = one.available()
    tree.skill(f"{SKILLS}/new")
    assert one.available() is before
    one.look()
    assert list(one.available()) == ["new", "pdf"]
    again = one.available()
    one.look()
    assert one.available() is again


def test_rescan_seconds_says_how_often_a_look_is_a_scan(tree: Tree) -> None:
    one = runtime(tree, rescan_seconds=3600.0)
    one.look()
    tree.skill(f"{SKILLS}/new")
    assert list(one.look()) == ["mine", "pdf"]
    one.catalog.refresh()
    assert list(one.look()) == ["mine", "new", "pdf"]


def test_a_skill_for_some_files_is_there_with_one_of_them(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/go", paths=["**/*.go"])
    one = runtime(tree)
    assert list(one.available()) == ["go", "pdf"]
    assert list(one.available(files=["a.py"])) == ["pdf"]
    assert list(one.available(files=["cmd/a.go"])) == ["go", "pdf"]
    assert "<name>go</name>" not in one.overview(files=["a.py"]).text


def test_a_skill_by_its_name(tree: Tree) -> None:
    one = runtime(tree)
    assert one.get_skill("mine").name == "mine"
    tree.skill(f"{SKILLS}/new")
    assert one.get_skill("new").name == "new"
    with pytest.raises(SkillNotFound, match="closest: pdf"):
        one.get_skill("pfd")
    assert [skill.name for skill in one.discover_skills()] == ["mine", "new", "pdf"]


def test_a_skill_by_its_name_is_as_the_last_refresh_found_it(tree: Tree) -> None:
    one = runtime(tree, rescan_seconds=3600.0)
    assert one.get_skill("pdf").description != "Newer."
    tree.skill(f"{SKILLS}/pdf", "Newer.")
    assert one.catalog.refresh().changed == ("pdf",)
    assert one.get_skill("pdf").description == "Newer."
    shutil.rmtree(tree.path(f"{SKILLS}/pdf"))
    one.catalog.refresh()
    with pytest.raises(SkillNotFound):
        one.get_skill("pdf")


def test_the_instructions_of_a_skill_are_read_after_permission(tree: Tree) -> None:
    one = runtime(tree)
    skill = one.get_skill("pdf")
    assert isinstance(skill, ReadableSkill)
    assert skill == one.skills()["pdf"]
    assert skill.instructions == one.load("pdf").text
    tree.skill(f"{SKILLS}/pdf", text="Newer.\n")
    assert skill.instructions.strip() == "Newer."
    denied = runtime(tree, rules=[Rule("skill", "pdf", "deny")])
    with pytest.raises(PermissionDenied):
        _ = denied.get_skill("pdf").instructions
    with pytest.raises(LoadError, match="get_skill"):
        _ = skill._replace(name="other").instructions


def test_what_a_filter_hides_is_no_suggestion(tree: Tree) -> None:
    one = runtime(tree, visible=lambda skill: skill.name != "pdf")
    with pytest.raises(SkillNotFound) as caught:
        one.get_skill("pdf")
    assert caught.value.closest == ()
    assert [skill.name for skill in one.discover_skills()] == ["mine"]


# What a model is told


def test_the_overview_follows_the_settings(tree: Tree) -> None:
    assert "<name>pdf</name>" in runtime(tree).overview().text
    assert (
        runtime(tree, overview_format="plain")
        .overview()
        .text.startswith("Available skills:\n- pdf")
    )
    assert json.loads(runtime(tree, overview_format="json").overview().text)["skills"]
    assert runtime(tree, max_overview_tokens=30).overview().shown == 0
    assert runtime(tree, context_window_tokens=1_000).overview().tokens <= 20


def test_rules_of_an_agent_shape_its_overview(tree: Tree) -> None:
    """Case 36."""
    tree.skill(f"{SKILLS}/a")
    assert runtime(tree, rules=[Rule("skill", "*", "deny")]).overview().text == ""
    only_a = runtime(tree, rules=[Rule("skill", "pdf", "deny", agent="clerk")])
    assert "pdf" not in only_a.overview("clerk").text
    assert "<name>a</name>" in only_a.overview("clerk").text
    assert "<name>pdf</name>" in only_a.overview("boss").text


def test_guidance_is_of_the_tools_offered_and_can_be_replaced_and_removed(tree: Tree) -> None:
    plain = {"overview_format": "plain"}
    text = runtime(tree, tools=["skill_load"], **plain).overview().text
    assert "Tooling and workspace guidance:\n- Load a skill with skill_load" in text
    assert "read_file" not in text
    assert runtime(tree, guidance="Ask me.", **plain).overview().text.endswith("\n\nAsk me.")
    assert "guidance" not in runtime(tree, guidance="", **plain).overview().text
    assert runtime(tree, tools=[], **plain).guidance == ""


def test_the_rest_of_a_long_list_is_found_with_a_tool_that_is_offered(tree: Tree) -> None:
    for number in range(60):
        tree.skill(f"{SKILLS}/skill-with-a-long-name-{number}")
    small: dict[str, Any] = {"max_overview_tokens": 120, "guidance": ""}
    assert "skill_search tool" in runtime(tree, **small).overview().text
    assert "search_skills tool" in runtime(tree, tool_names="common", **small).overview().text
    listed = runtime(tree, tools=["skill_list"], **small)
    assert "skill_list tool" in listed.overview().text
    assert "tool)" not in runtime(tree, tool_profile="simple", **small).overview().text


def test_tools_can_carry_the_list_of_skills(tree: Tree) -> None:
    one = runtime(tree)
    assert "Reads PDF files." not in json.dumps(one.tools("mcp"))
    listed: Any = one.tools("mcp", listing=True)
    assert listed[0]["description"].endswith("## Available Skills\n- **pdf**: Reads PDF files.")
    assert "mine" not in json.dumps(listed)


# Loading, as the user


def test_the_user_loads_by_name(tree: Tree) -> None:
    """Case 37."""
    tree.skill(f"{SKILLS}/bare", None, text="Bare.\n")
    one = runtime(tree)
    assert one.load("bare").text == "Bare.\n"
    assert one.load("mine").text == "Mine.\n"
    assert one.load("pdf", arguments="a.pdf").text == "Read a.pdf.\n"
    assert one.load_skill_body("pdf").text == "Read $ARGUMENTS.\n"


def test_variables_are_filled(tree: Tree) -> None:
    text = "${CLAUDE_SKILL_DIR} ${CLAUDE_PROJECT_DIR} ${CLAUDE_SESSION_ID} ${mine}\n"
    folder = tree.skill(f"{SKILLS}/vars", text=text)
    given = runtime(tree).load("vars", variables={"mine": "x"}).text
    assert given == f"{folder} {tree.project} ${{CLAUDE_SESSION_ID}} x\n"


def test_a_resource_by_name(tree: Tree) -> None:
    tree.write(f"{SKILLS}/pdf/a.md", "# A\n\none\n\n# B\n\ntwo\n")
    one = runtime(tree)
    assert one.load_resource("pdf", "a.md", "B").text == "# B\n\ntwo\n"
    assert one.load_resource("pdf", "a.md", start_line=3, lines=1).text == "one\n"
    assert one.load_resource("pdf", "a.md", full=True).report.strategy == "whole"


def test_a_caller_may_ask_for_less_but_not_for_more(tree: Tree) -> None:
    tree.write(f"{SKILLS}/pdf/a.md", "x" * 200)
    less = runtime(tree).load_resource("pdf", "a.md", limits=Limits(max_resource_excerpt_chars=10))
    assert less.report.chars_returned <= 10
    tight = runtime(tree, max_resource_excerpt_chars=20)
    more = tight.load_resource("pdf", "a.md", limits=Limits(max_resource_excerpt_chars=100))
    assert more.report.chars_returned <= 20


def test_what_is_refused_is_not_loaded(tree: Tree) -> None:
    asked: list[tuple[str, str]] = []

    def ask(pending: Pending) -> Answer:
        asked.append((pending.request.skill, pending.request.initiator))
        return Answer("reject", "not today")

    one = runtime(tree, rules=[Rule("skill", "*", "ask")], ask=ask)
    with pytest.raises(PermissionDenied, match="not today"):
        one.load("pdf")
    with pytest.raises(PermissionDenied, match="not today"):
        one.load_resource("pdf", "a.md")
    assert asked == [("pdf", "user")] * 2


def test_what_nobody_approved_is_for_the_user_who_names_it(tree: Tree) -> None:
    one = runtime(tree, trust_project="ask")
    assert not one.get_skill("pdf").trusted
    assert one.load("pdf").text
    decision = one.gate.check(one.gate.load_request(one.get_skill("pdf"), "model"))
    assert not decision.allowed
    assert "/pdf" in decision.reason
