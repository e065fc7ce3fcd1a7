"""Forked skills, which run in a session of their own."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from skillbelt import Answer, Rule, Runtime
from skillbelt.agent import (
    Agent,
    Final,
    ModelFailure,
    PermissionRequest,
    Runner,
    RunOutput,
    TextDelta,
    ToolCall,
    ToolResponse,
    Usage,
)
from tests.agent.scripted import Scripted, called, final, of, play, results, said
from tests.benches import alive
from tests.bounds import bounds
from tests.tree import Tree

SKILLS = "project/.agents/skills"
LOAD = called(("skill_load", {"skill": "research"}))


@pytest.fixture
def forking(belt: Runtime, tree: Tree) -> Runtime:
    """A skill that asks for a fork, beside the others."""
    tree.skill(f"{SKILLS}/research", "Researches.", text="Look twice.\n", context="fork")
    return belt


def sessions(belt: Runtime) -> list[str]:
    return [info.key.session for info in belt.store.sessions(app="skillbelt")]


def fork_of(belt: Runtime) -> str:
    [name] = [name for name in sessions(belt) if name != "chat"]
    return name


def test_only_the_result_of_a_fork_returns(forking: Runtime) -> None:
    """D11, case 95."""
    inner = called(("skill_load", {"skill": "greet"}), text="I look around.")
    model = Scripted(LOAD, inner, said("Found it."), said("It was found."))
    events = play(Agent(forking, model), "Where is it?")
    assert results(events) == ["Found it."]
    assert [call.name for call in of(events, ToolCall)] == ["skill_load"]
    assert "".join(delta.text for delta in of(events, TextDelta)) == "It was found."
    kept = forking.session("ada", "chat").session.messages()
    assert "I look around." not in json.dumps(kept)


def test_what_a_run_prints_stays_in_the_record_of_the_fork(open_tree: Tree) -> None:
    """Case 95: stdout and errors stay in the fork record."""
    open_tree.skill(f"{SKILLS}/research", "Researches.", context="fork")
    command = {"skill": "research", "command": "echo secret; echo oops >&2; exit 3"}
    model = Scripted(LOAD, called(("skill_run", command)), said("It failed."), said("Sorry."))
    with Runtime(open_tree.project, rules=[Rule("run", "*", "allow")]) as belt:
        events = play(Agent(belt, model))
        record = belt.session("ada", fork_of(belt)).session.messages()
    assert results(events) == ["It failed."]
    assert of(events, RunOutput) == []
    assert json.loads(str(record[2]["content"]))["stdout"] == "secret\n"
    assert "secret" not in str([message for prompt in model.prompts[3:] for message in prompt])


def test_a_fork_begins_with_the_skill_and_the_question_and_no_history(forking: Runtime) -> None:
    model = Scripted(said("Hi"), LOAD, said("Found."), said("done"))
    agent = Agent(forking, model)
    play(agent, "An earlier question")
    play(agent, "Where is it?")
    sent = model.sent(2)
    assert [message["role"] for message in sent] == ["system", "system", "user"]
    assert "[Loaded] research\n\nLook twice." in sent[1]["content"]
    assert sent[2]["content"].endswith("\n\nWhere is it?")
    assert "earlier" not in str(sent)


def test_the_parent_does_not_have_the_skill_loaded(forking: Runtime) -> None:
    model = Scripted(LOAD, said("Found."), said("done"))
    [response] = of(play(Agent(forking, model)), ToolResponse)
    assert response.state_delta == {}
    assert forking.session("ada", "chat").loaded() == []


def test_the_parent_writes_down_where_the_fork_is(forking: Runtime) -> None:
    play(Agent(forking, Scripted(LOAD, said("Found."), said("done"))))
    [noted] = [e for e in forking.session("ada", "chat").session.events() if e.type == "fork"]
    assert noted.data["session"] == f"skillbelt/ada/{fork_of(forking)}"
    assert noted.data["reason"] == "answer"


def test_what_a_fork_costs_is_told_and_counted(forking: Runtime) -> None:
    events = play(Agent(forking, Scripted(LOAD, said("Found."), said("done"))))
    assert len(of(events, Usage)) == 3
    assert final(events).usage.requests == 3


def test_a_fork_that_fails_is_a_tool_error(forking: Runtime) -> None:
    model = Scripted(LOAD, ModelFailure("no credit left"), said("Sorry."))
    events = play(Agent(forking, model))
    [response] = of(events, ToolResponse)
    assert response.error == "research failed: no credit left"
    assert final(events).text == "Sorry."


def test_the_skill_does_not_fork_again_in_its_own_fork(forking: Runtime) -> None:
    model = Scripted(LOAD, LOAD, said("Found."), said("done"))
    events = play(Agent(forking, model))
    assert results(events) == ["Found."]
    assert len(sessions(forking)) == 2


def test_forks_go_only_so_deep(belt: Runtime, tree: Tree) -> None:
    for name in ("one", "two", "three"):
        tree.skill(f"{SKILLS}/{name}", context="fork")
    steps = [called(("skill_load", {"skill": name})) for name in ("one", "two", "three")]
    play(Agent(belt, Scripted(*steps, said("done")), max_fork_depth=2))
    assert len(sessions(belt)) == 3


def test_a_run_and_its_forks_take_only_so_many_steps_together(belt: Runtime, tree: Tree) -> None:
    bounds(max_run_steps=7)
    for name in ("one", "two"):
        tree.skill(f"{SKILLS}/{name}", context="fork")
    calls = [called(("skill_load", {"skill": name})) for name in ("one", "two")] * 10
    model = Scripted(*calls)
    with Runtime(tree.project) as bounded:
        end = final(play(Agent(bounded, model)))
    assert (end.reason, len(model.prompts)) == ("max_steps", 7)
    assert "max_run_steps" in end.error


def test_an_agent_that_the_host_knows_works_on_its_skill(belt: Runtime, tree: Tree) -> None:
    tree.skill(f"{SKILLS}/research", "Researches.", agent="Explore")
    explorer = Scripted(said("Explored."))
    explore = Agent(belt, explorer, "Explore", instructions="You explore.")
    agent = Agent(belt, Scripted(LOAD, said("done")), agents={"Explore": explore})
    events = play(agent)
    assert results(events) == ["Explored."]
    assert explorer.sent()[0]["content"].startswith("You explore.")


def test_an_agent_that_the_host_does_not_know_has_no_rules_of_its_own(
    belt: Runtime, tree: Tree
) -> None:
    """A skill must not choose the rules that apply to it."""
    tree.skill(f"{SKILLS}/research", "Researches.", context="fork", agent="admin")
    rules = [Rule("skill", "count", "deny"), Rule("skill", "count", "allow", agent="admin")]
    inner = called(("skill_load", {"skill": "count"}))
    model = Scripted(LOAD, inner, said("done"), said("done"))
    play(Agent(belt, model, rules=rules))
    assert "unknown skill: count" in str(model.sent(2)[-1]["content"])


def test_a_skill_that_may_not_be_loaded_does_not_fork(forking: Runtime) -> None:
    agent = Agent(forking, Scripted(LOAD, said("done")), rules=[Rule("skill", "research", "deny")])
    assert results(play(agent)) == ["unknown skill: research"]
    assert sessions(forking) == ["chat"]


def test_a_skill_that_only_says_which_agent_is_loaded_as_any_other(
    belt: Runtime, tree: Tree
) -> None:
    tree.skill(f"{SKILLS}/research", "Researches.", agent="Nobody")
    assert results(play(Agent(belt, Scripted(LOAD, said("done"))))) == ["loaded: research"]


def test_what_the_user_calls_by_name_is_answered_by_the_fork(forking: Runtime) -> None:
    model = Scripted(said("Found."))
    events = play(Agent(forking, model), "/research the attic")
    assert final(events) == Final("Found.", "answer", "", final(events).usage)
    assert of(events, TextDelta) == [TextDelta("Found.")]
    assert '<skill_content name="research">' in model.sent()[-1]["content"]
    kept = forking.session("ada", "chat").session.messages()
    assert [message["role"] for message in kept] == ["user", "assistant"]
    assert len(model.prompts) == 1


def test_permission_is_asked_for_what_a_fork_wants(open_tree: Tree) -> None:
    open_tree.skill(f"{SKILLS}/research", "Researches.", context="fork")
    run = called(("skill_run", {"skill": "research", "command": "echo hi"}))
    model = Scripted(LOAD, run, said("Found."), said("done"))
    with Runtime(open_tree.project) as belt, Runner(Agent(belt, model), interactive=True) as runner:
        events = []
        for event in runner.run_sync("ada", "chat", "Go."):
            events.append(event)
            if isinstance(event, PermissionRequest):
                runner.answer(event.pending.id, Answer("once"))
    assert len(of(events, PermissionRequest)) == 1
    assert results(events) == ["Found."]


def test_cancelling_ends_the_command_of_a_fork(open_tree: Tree) -> None:
    mark = "7123.45"
    open_tree.skill(f"{SKILLS}/research", "Researches.", context="fork")
    run = called(("skill_run", {"skill": "research", "command": f"exec sleep {mark}"}))
    model = Scripted(LOAD, run, said("Found."), said("done"))

    async def main(belt: Runtime) -> None:
        runner = Runner(Agent(belt, model))
        async with aclosing(runner.run("ada", "chat", "Go.")) as events:
            async for event in events:
                if isinstance(event, ToolCall):
                    while not alive(mark):
                        await asyncio.sleep(0.02)
                    break

    with Runtime(open_tree.project, rules=[Rule("run", "*", "allow")]) as belt:
        asyncio.run(main(belt))
        assert alive(mark) == []
        roles = [m["role"] for m in belt.session("ada", "chat").session.messages()]
        inner = [m["role"] for m in belt.session("ada", fork_of(belt)).session.messages()]
    assert roles == ["user", "assistant", "tool"]
    assert inner == ["user", "assistant", "tool"]
