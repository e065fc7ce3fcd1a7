"""The parts that every framework gets: stable instructions, and answers that hold the text."""

from __future__ import annotations

import re
import threading

import anyio
import pytest

from skillbelt import Runtime, Skill
from skillbelt.integrations.common import Kit, Kits
from skillbelt.tools.definitions import DEFINITIONS, PROFILES
from tests.bounds import bounds
from tests.integrations.conftest import BODY
from tests.tree import Tree


def kit(belt: Runtime) -> Kit:
    return Kit(belt.session("ada", "chat"))


def test_the_text_of_a_skill_is_in_the_answer(belt: Runtime) -> None:
    answer = kit(belt).call_sync("skill_load", {"skill": "greet"})
    assert BODY.strip() in answer.text
    assert not answer.failed


def test_a_document_comes_with_it(belt: Runtime) -> None:
    wanted = {"skill": "greet", "docs": ["references/words.md"]}
    assert "Never say `moist`." in kit(belt).call_sync("skill_load", wanted).text


def test_what_the_model_has_before_it_is_not_given_again(belt: Runtime) -> None:
    first = kit(belt).call_sync("skill_load", {"skill": "greet"}).text
    again = kit(belt).call_sync("skill_load", {"skill": "greet"}, [first]).text
    assert again.startswith("Skill greet is loaded already")


def test_a_text_that_changed_since_is_given(belt: Runtime, open_tree: Tree) -> None:
    first = kit(belt).call_sync("skill_load", {"skill": "greet"}).text
    open_tree.skill("project/.agents/skills/greet", text="Say hello.")
    belt.look()
    assert "Say hello." in kit(belt).call_sync("skill_load", {"skill": "greet"}, [first]).text


def test_a_wrong_call_is_an_answer(belt: Runtime) -> None:
    answer = kit(belt).call_sync("skill_load", '{"skill": "greed"}')
    assert answer.failed and answer.text == "unknown skill: greed"


def test_a_command_runs_in_the_workspace_of_the_conversation(belt: Runtime) -> None:
    one, other = Kit(belt.session("ada", "one")), Kit(belt.session("ada", "other"))
    one.call_sync("skill_run", {"skill": "greet", "command": "echo mine > work/note"})
    look = {"skill": "greet", "command": "cat work/note"}
    assert '"stdout": "mine\\n"' in one.call_sync("skill_run", look).text
    assert "No such file" in other.call_sync("skill_run", look).text


def test_no_tool_is_offered_that_would_change_an_earlier_answer(belt: Runtime) -> None:
    names = {tool.name for tool in kit(belt).tools()}
    assert {"skill_load", "load_resource", "skill_run"} <= names
    assert not names & {"skill_unload", "skill_select_docs", "skill"}


def test_only_what_is_offered_is_explained(belt: Runtime) -> None:
    text = kit(belt).instructions()
    assert "<name>greet</name>" in text and "skill_load" in text
    assert "skill_unload" not in text and "skill_select_docs" not in text


@pytest.mark.parametrize("format", ["xml", "markdown", "plain", "json"])
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_profile_explains_what_it_offers_in_every_format(
    open_tree: Tree, profile: str, format: str
) -> None:
    open_tree.skill("project/.agents/skills/greet")
    made = kit(Runtime(open_tree.project, tool_profile=profile, overview_format=format))
    offered = {tool.name for tool in made.tools()}
    words = set(re.findall(r"\w+", made.instructions()))
    assert words & (set(DEFINITIONS) - {"skill"}) <= offered
    assert not words & {"skill_unload", "skill_select_docs"}


def test_the_event_loop_does_not_scan_for_a_framework(open_tree: Tree) -> None:
    open_tree.skill("project/.agents/skills/greet")
    threads: set[str] = set()

    def visible(_skill: Skill) -> bool:
        threads.add(threading.current_thread().name)
        return True

    async def main() -> tuple[str, str]:
        made = kit(Runtime(open_tree.project, visible=visible))
        text = await made.instructions_async()
        assert await made.tools_async()
        assert threading.main_thread().name not in threads
        return text, made.instructions()

    first, second = anyio.run(main)
    assert first == second and "<name>greet</name>" in first
    assert threads


def test_a_simple_profile_has_its_one_tool(open_tree: Tree) -> None:
    open_tree.skill("project/.agents/skills/greet")
    made = kit(Runtime(open_tree.project, tool_profile="simple"))
    assert [tool.name for tool in made.tools()] == ["skill"]
    assert "<skill_content" in made.call_sync("skill", {"name": "greet"}).text


def test_the_instructions_stay_as_they_were(belt: Runtime, open_tree: Tree) -> None:
    one = kit(belt)
    before = one.instructions()
    open_tree.skill("project/.agents/skills/another")
    assert one.instructions() == before
    assert "another" in kit(belt).instructions()


def test_each_conversation_has_a_kit_of_its_own(belt: Runtime) -> None:
    kits = Kits(belt)
    assert kits.of("ada", "1") is kits.of("ada", "1")
    assert kits.of("ada", "1") is not kits.of("ada", "2")


def test_kits_that_nobody_used_for_long_are_let_go_of(open_tree: Tree) -> None:
    bounds(max_served_sessions=2)
    kits = Kits(Runtime(open_tree.project))
    first = kits.of("ada", "1")
    kits.of("ada", "2")
    assert kits.of("ada", "1") is first
    kits.of("ada", "3")
    assert kits.of("ada", "1") is first
    assert len(kits) == 2


def test_in_a_coroutine(belt: Runtime) -> None:
    answer = anyio.run(kit(belt).call, "skill_load", {"skill": "greet"})
    assert BODY.strip() in answer.text


def test_what_the_settings_say_about_single_skills_holds_for_frameworks(open_tree: Tree) -> None:
    for name in ("off", "mine", "short"):
        open_tree.skill(f"project/.agents/skills/{name}", description=f"What {name} does.")
    said = {"off": {"enabled": False}, "mine": {"visible": "manual"}, "short": {"visible": "name"}}
    with Runtime(open_tree.project, skills=said) as belt:
        made = kit(belt)
        text = made.instructions() + str([tool.schema for tool in made.tools()])
        assert "short" in text and "What short does." not in text
        assert "'off'" not in text and "mine" not in text
        assert made.call_sync("skill_load", {"skill": "off"}).failed
        assert made.call_sync("skill_load", {"skill": "mine"}).failed
        assert not made.call_sync("skill_load", {"skill": "short"}).failed
