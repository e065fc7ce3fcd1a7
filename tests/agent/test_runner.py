"""Runs as a host sees them: a message in, events out, a session that remembers."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from skillbelt import Answer, ConfigError, Rule, Runtime
from skillbelt.agent import (
    Agent,
    AgentEvent,
    Final,
    HostTool,
    ModelFailure,
    PermissionRequest,
    Prompt,
    Reply,
    Runner,
    RunOutput,
    TextDelta,
    ToolCall,
    ToolResponse,
    Usage,
)
from skillbelt.agent.models import Piece
from skillbelt.store.memory import MemoryStore
from tests.agent.scripted import Scripted, called, final, messages, of, play, results, roles, said
from tests.bounds import bounds
from tests.tree import Tree

# The ordinary course


def test_an_answer_is_streamed_and_kept(belt: Runtime) -> None:
    events = play(Agent(belt, Scripted(said("Hello, Ada."))), "Hello")
    assert "".join(delta.text for delta in of(events, TextDelta)) == "Hello, Ada."
    assert final(events) == Final("Hello, Ada.", "answer", "", Usage(100, 10, 80, 0))
    assert [message["content"] for message in messages(belt)] == ["Hello", "Hello, Ada."]


def test_a_call_is_told_carried_out_and_answered(belt: Runtime) -> None:
    model = Scripted(called(("skill_load", {"skill": "greet"})), said("mellifluous"))
    events = play(Agent(belt, model))
    assert of(events, ToolCall) == [ToolCall("c1", "skill_load", {"skill": "greet"})]
    [response] = of(events, ToolResponse)
    assert (response.text, response.error) == ("loaded: greet", "")
    assert model.sent()[-1]["content"].startswith("[Loaded] greet\n\nSay `mellifluous` first.")
    assert final(events).text == "mellifluous"


def test_a_response_carries_what_it_changed_in_the_state(belt: Runtime) -> None:
    """V01: a tool response may carry a state delta."""
    model = Scripted(called(("skill_load", {"skill": "greet"})), said("done"))
    [response] = of(play(Agent(belt, model)), ToolResponse)
    assert response.state_delta["temp:skill:loaded:greet"] == "1"
    state = belt.session("ada", "chat").session.state()
    assert response.state_delta.items() <= state.items()


def test_the_stored_history_keeps_the_stub(belt: Runtime) -> None:
    model = Scripted(called(("skill_load", {"skill": "greet"})), said("done"))
    play(Agent(belt, model))
    assert roles(belt) == ["user", "assistant", "tool", "assistant"]
    assert messages(belt)[2]["content"] == "loaded: greet"


def test_the_usage_of_every_request_is_told_and_summed(belt: Runtime) -> None:
    model = Scripted(called(("skill_list", {})), said("done"))
    events = play(Agent(belt, model))
    assert of(events, Usage) == [Usage(100, 10, 80, 0)] * 2
    assert final(events).usage == Usage(
        input_tokens=200, output_tokens=20, cached_tokens=160, cache_write_tokens=0, requests=2
    )


def test_a_session_goes_on_with_the_next_message(belt: Runtime) -> None:
    model = Scripted(said("first"), said("second"))
    agent = Agent(belt, model, instructions="Be brief.")
    play(agent, "One")
    play(agent, "Two")
    assert [message["role"] for message in model.sent()] == ["system", "user", "assistant", "user"]
    assert model.sent()[0]["content"].startswith("Be brief.\n\n")


def test_sessions_are_apart(belt: Runtime) -> None:
    model = Scripted(said("hello"))
    play(Agent(belt, model), session="one")
    play(Agent(belt, model), session="two")
    assert len(model.sent()) == 2  # the system's and the user's


def test_a_store_of_its_own_keeps_the_session(belt: Runtime) -> None:
    store = MemoryStore()
    play(Agent(belt, Scripted(said("hello"))), store=store)
    assert [info.key.session for info in store.sessions()] == ["chat"]
    assert belt.store.sessions(app="skillbelt") == []


def test_what_is_loaded_in_a_turn_is_gone_in_the_next(belt: Runtime) -> None:
    model = Scripted(called(("skill_load", {"skill": "greet"})), said("done"), said("again"))
    agent = Agent(belt, model)
    play(agent, "One")
    play(agent, "Two")
    assert "unloaded since: greet" in model.sent()[3]["content"]


def test_the_user_calls_a_skill_by_name(belt: Runtime) -> None:
    model = Scripted(said("done"))
    play(Agent(belt, model), "/greet Bob")
    assert '<skill_content name="greet">' in model.sent()[-1]["content"]
    assert messages(belt)[0]["said"] == "/greet Bob"


def test_a_skill_that_is_called_by_name_has_the_files_behind_its_text(
    belt: Runtime, tree: Tree
) -> None:
    tree.skill("project/.agents/skills/about", text="About $ARGUMENTS.\n")
    model = Scripted(said("done"))
    with Runner(Agent(belt, model)) as runner:
        list(runner.run_sync("ada", "chat", "/about Bob", files=[tree.write("a.txt", "x")]))
    content = model.sent()[-1]["content"]
    assert "About Bob." in content
    assert content.endswith("x\n</attached_file>")


def test_a_skill_that_users_may_not_call_is_refused_without_a_request(
    belt: Runtime, tree: Tree
) -> None:
    tree.skill("project/.agents/skills/hidden", user_invocable=False)
    model = Scripted(said("done"))
    end = final(play(Agent(belt, model), "/hidden"))
    assert end.reason == "error"
    assert "cannot be called by the user" in end.error
    assert model.prompts == []


def test_a_slash_that_calls_nothing_is_a_message(belt: Runtime) -> None:
    model = Scripted(said("done"))
    play(Agent(belt, model), "/etc/hosts is a file")
    assert model.sent()[-1]["content"] == "/etc/hosts is a file"


def test_a_tool_of_the_host(belt: Runtime) -> None:
    tool = HostTool("add", "Adds.", lambda given: str(sum(given["of"])))  # type: ignore[call-overload]
    model = Scripted(called(("add", {"of": [1, 2]})), said("3"))
    events = play(Agent(belt, model, tools=(tool,)))
    assert results(events) == ["3"]
    assert "add" in [tool.name for tool in model.prompts[0].tools]


def test_a_tool_of_the_host_is_not_called_with_what_does_not_fit(belt: Runtime) -> None:
    """B18."""
    seen: list[object] = []
    schema: dict[str, object] = {"properties": {"of": {"type": "array"}}, "required": ["of"]}

    def add(given: dict[str, object]) -> str:
        seen.append(given)
        return "added"

    tool = HostTool("add", "Adds.", add, schema)
    model = Scripted(called(("add", {}), ("add", {"of": "x"})), said("done"))
    told = results(play(Agent(belt, model, tools=(tool,))))
    assert "argument 'of' is missing" in told[0]
    assert "argument 'of' must be array" in told[1]
    assert seen == []


def test_a_tool_with_the_name_of_another_is_wrong_usage(belt: Runtime) -> None:
    tool = HostTool("skill_load", "Loads.", lambda _: "x")
    with pytest.raises(ConfigError, match="two tools named 'skill_load'"):
        play(Agent(belt, Scripted(said("x")), tools=(tool,)))


def test_a_file_is_told_of_in_the_message(belt: Runtime, tree: Tree) -> None:
    path = tree.write("data/a.txt", "Ahoy </attached_file> there")
    model = Scripted(said("done"))
    with Runner(Agent(belt, model)) as runner:
        list(runner.run_sync("ada", "chat", "Read it.", files=[path]))
    content = model.sent()[-1]["content"]
    assert f'input="host://{path}"' in content
    assert content.count("</attached_file>") == 1


def test_a_file_that_is_not_there_is_wrong_usage(belt: Runtime) -> None:
    with Runner(Agent(belt, Scripted(said("x")))) as runner, pytest.raises(ConfigError, match="no"):
        list(runner.run_sync("ada", "chat", "Read it.", files=["/nowhere/at/all"]))
    assert messages(belt) == []


def test_the_same_events_in_a_coroutine(belt: Runtime) -> None:
    async def collected() -> list[AgentEvent]:
        runner = Runner(Agent(belt, Scripted(said("Hello"))))
        return [event async for event in runner.run("ada", "chat", "Hi")]

    assert final(asyncio.run(collected())).text == "Hello"


def test_a_run_waits_for_whoever_does_not_take_its_events(belt: Runtime) -> None:
    given = 0

    class Talkative:
        name, window_tokens = "talkative", 0

        async def ask(self, _prompt: Prompt) -> AsyncIterator[Piece]:
            nonlocal given
            for _ in range(5_000):
                given += 1
                yield TextDelta("x")
            yield Reply("x" * 5_000)

    with Runner(Agent(belt, Talkative())) as runner:
        events = runner.run_sync("ada", "chat", "Talk.")
        next(events)
        time.sleep(0.5)
        assert given < 1_000
        rest = list(events)
    assert len(of(rest, TextDelta)) == 4_999


def test_one_session_has_one_run_at_a_time(belt: Runtime) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def wait(_: object) -> str:
        inside.set()
        assert go_on.wait(150)
        return "waited"

    tool = HostTool("wait", "Waits.", wait)
    agent = Agent(belt, Scripted(called(("wait", {})), said("done")), tools=(tool,))
    first: list[AgentEvent] = []
    thread = threading.Thread(target=lambda: first.extend(play(agent)))
    thread.start()
    assert inside.wait(150)
    second = play(agent)
    go_on.set()
    thread.join(150)
    assert "another run is active" in final(second).error
    assert final(first).text == "done"
    assert final(play(agent)).text == "done"


# Calls at the same time


def test_calls_of_one_answer_are_carried_out_at_the_same_time(belt: Runtime) -> None:
    both = threading.Barrier(2, timeout=500)  # passed only when two are there at once

    def meet(given: dict[str, object]) -> str:
        both.wait()
        return f"met as {given['as']}"

    tool = HostTool("meet", "Meets.", meet)
    model = Scripted(called(("meet", {"as": 1}), ("meet", {"as": 2})), said("done"))
    assert results(play(Agent(belt, model, tools=(tool,)))) == ["met as 1", "met as 2"]


def test_no_more_calls_than_runs_are_carried_out_at_once(tree: Tree) -> None:
    begun, going, most, lock = 0, 0, 0, threading.Lock()
    together = threading.Barrier(3)

    def work(_: object) -> str:
        nonlocal begun, going, most
        with lock:
            begun, going = begun + 1, going + 1
            most = max(most, going)
            first = begun <= 3
        if first:
            together.wait(150)
        with lock:
            going -= 1
        return "done"

    calls = [("work", {"n": number}) for number in range(20)]
    model = Scripted(called(*calls), said("done"))
    bounds(max_session_runs=3)
    with Runtime(tree.project) as belt:
        play(Agent(belt, model, tools=(HostTool("work", "Works.", work),)))
    assert most == 3


def test_results_come_in_the_order_of_the_calls_whichever_is_first(belt: Runtime) -> None:
    """V01: parallel tool calls are merged."""
    second = threading.Event()

    def work(given: dict[str, object]) -> str:
        if given["n"] == 1:
            assert second.wait(150)
        else:
            second.set()
        return str(given["n"])

    tool = HostTool("work", "Works.", work)
    model = Scripted(called(("work", {"n": 1}), ("work", {"n": 2})), said("done"))
    assert results(play(Agent(belt, model, tools=(tool,)))) == ["1", "2"]
    told = [m["content"] for m in messages(belt) if m["role"] == "tool"]
    assert told == ["1", "2"]


def test_loads_of_one_answer_are_all_there_in_the_next_request(belt: Runtime) -> None:
    loads = [("skill_load", {"skill": name}) for name in ("greet", "count")]
    model = Scripted(called(*loads), said("done"))
    play(Agent(belt, model))
    assert [m["content"].split("\n")[0] for m in model.sent()[-2:]] == [
        "[Loaded] greet",
        "[Loaded] count",
    ]


# What models do wrong


def wrong(belt: Runtime, name: str, arguments: object) -> ToolResponse:
    events = play(Agent(belt, Scripted(called((name, arguments)), said("done"))))
    assert final(events).reason == "answer"
    [response] = of(events, ToolResponse)
    return response


def test_a_tool_that_does_not_exist_is_told_with_those_that_do(belt: Runtime) -> None:
    response = wrong(belt, "launch", {})
    assert response.error.startswith(
        "there is no tool 'launch'; available: skill_load, skill_list_docs"
    )


def test_arguments_that_do_not_fit_are_told_with_what_fits(belt: Runtime) -> None:
    assert "argument 'skill' is missing" in wrong(belt, "skill_load", {"name": "greet"}).error


@pytest.mark.parametrize("text", ['{"skill": "gre', "nothing", '{"a": 1}{'])
def test_arguments_that_are_not_whole_are_told_and_nothing_is_done(
    belt: Runtime, text: str
) -> None:
    """B18: nothing is read before the whole action is validated."""
    response = wrong(belt, "skill_load", text)
    assert "not whole JSON" in response.error
    assert response.state_delta == {}


@pytest.mark.parametrize("given", ["[1]", "3", '"text"', [1]])
def test_arguments_that_are_no_object_are_told(belt: Runtime, given: object) -> None:
    assert "must be an object" in wrong(belt, "skill_load", given).error


def test_a_skill_that_does_not_exist_is_told(belt: Runtime) -> None:
    assert wrong(belt, "skill_load", {"skill": "nothing"}).error == "unknown skill: nothing"


def test_a_tool_of_the_host_that_raises_is_told(belt: Runtime) -> None:
    def fail(_: object) -> str:
        raise ValueError("no luck")

    model = Scripted(called(("fail", {})), said("done"))
    events = play(Agent(belt, model, tools=(HostTool("fail", "Fails.", fail),)))
    assert results(events) == ["fail failed: ValueError: no luck"]
    assert final(events).text == "done"


def test_a_model_that_makes_one_call_for_ever_is_told_and_then_ended(belt: Runtime) -> None:
    events = play(Agent(belt, Scripted(called(("skill_list", {})))))
    assert final(events).reason == "loop"
    told = results(events)
    assert [text for text in told if "the same result each time" in text] == told[3:]
    assert len(told) == 6


def test_a_call_that_gives_something_new_may_be_made_again(belt: Runtime) -> None:
    numbers = iter(range(100))
    tool = HostTool("next", "Counts.", lambda _: str(next(numbers)))
    model = Scripted(*[called(("next", {}))] * 8, said("done"))
    assert final(play(Agent(belt, model, tools=(tool,)))).text == "done"


def test_a_model_that_never_ends_is_bounded(belt: Runtime) -> None:
    numbers = iter(range(100))
    model = Scripted(lambda _: called(("skill_list", {"offset": next(numbers)})))
    end = final(play(Agent(belt, model, max_steps=5)))
    assert (end.reason, len(model.prompts)) == ("max_steps", 5)
    assert "max_steps" in end.error


def test_an_answer_with_too_many_calls_has_the_first_of_them_carried_out(belt: Runtime) -> None:
    calls = [("skill_list", {"offset": number}) for number in range(70)]
    events = play(Agent(belt, Scripted(called(*calls), said("done"))))
    told = results(events)
    assert len(told) == 70
    assert ["may have 64 calls" in text for text in told] == [False] * 64 + [True] * 6


def test_an_answer_that_is_nothing_but_calls_is_not_kept(belt: Runtime) -> None:
    flood = called(*[("skill_list", {})] * 2_000)
    events = play(Agent(belt, Scripted(flood)))
    assert final(events).error == "an answer with 2000 calls (max_answer_calls)"
    assert roles(belt) == ["user"]


def test_calls_that_share_an_id_are_told_apart(belt: Runtime) -> None:
    twice = called(("skill_list", {}), ("skill_list", {"offset": 1}))
    same = twice._replace(calls=tuple(call._replace(id="x") for call in twice.calls))
    events = play(Agent(belt, Scripted(same, said("done"))))
    assert [event.id for event in of(events, ToolResponse)] == ["x-1", "x-2"]


def test_an_empty_answer_says_so(belt: Runtime) -> None:
    assert final(play(Agent(belt, Scripted(said(""))))).error == "the model gave no answer"


def test_a_model_that_raises_anything_is_an_error_and_not_an_exception(belt: Runtime) -> None:
    model = Scripted(RuntimeError("out of order"))
    end = final(play(Agent(belt, model, max_retries=0)))
    assert (end.reason, end.error) == ("error", "RuntimeError: out of order")
    assert roles(belt) == ["user"]


# Permission


def test_a_request_for_permission_is_told_and_can_be_answered(open_tree: Tree) -> None:
    open_tree.skill("project/.agents/skills/kit")
    model = Scripted(called(("skill_run", {"skill": "kit", "command": "echo ran"})), said("done"))
    told: list[AgentEvent] = []
    with (
        Runtime(open_tree.project) as belt,
        Runner(Agent(belt, model), interactive=True) as runner,
    ):
        for event in runner.run_sync("ada", "chat", "Run it."):
            told.append(event)
            if isinstance(event, PermissionRequest):
                assert runner.answer(event.pending.id, Answer("once"))
    assert of(told, PermissionRequest)[0].pending.request.type == "run"
    assert json.loads(results(told)[0])["stdout"] == "ran\n"


def test_nobody_to_answer_is_a_result_the_model_can_read(open_tree: Tree) -> None:
    open_tree.skill("project/.agents/skills/kit")
    model = Scripted(called(("skill_run", {"skill": "kit", "command": "echo ran"})), said("done"))
    with Runtime(open_tree.project) as belt:
        events = play(Agent(belt, model))
    assert len(of(events, PermissionRequest)) == 1
    assert "no user or callback can grant it" in results(events)[0]
    assert final(events).text == "done"


def test_whoever_the_runtime_asks_is_still_asked(open_tree: Tree) -> None:
    open_tree.skill("project/.agents/skills/kit")
    model = Scripted(called(("skill_run", {"skill": "kit", "command": "echo ran"})), said("done"))
    with Runtime(open_tree.project, ask=lambda _: Answer("once")) as belt:
        events = play(Agent(belt, model))
    assert json.loads(results(events)[0])["exit_code"] == 0


def test_the_rules_of_an_agent_hold_for_its_sessions(belt: Runtime) -> None:
    model = Scripted(called(("skill_load", {"skill": "greet"})), said("done"))
    agent = Agent(belt, model, rules=[Rule("skill", "greet", "deny")])
    assert results(play(agent)) == ["unknown skill: greet"]


# Runs


def test_output_is_told_while_the_command_runs(running: Runtime) -> None:
    command = "echo first; read line < work/gate; echo second"
    arguments = {"skill": "kit", "command": f"mkfifo work/gate; {command}"}
    model = Scripted(called(("skill_run", arguments)), said("done"))
    told = b""
    with Runner(Agent(running, model)) as runner:
        for event in runner.run_sync("ada", "chat", "Run it."):
            if isinstance(event, RunOutput):
                told += event.data
                if told == b"first\n":  # it still runs, and waits for this
                    running.run_sync(
                        "kit", "echo go > work/gate", session=running.session("ada", "chat")
                    )
    assert told == b"first\nsecond\n"


def test_a_secret_of_a_run_is_not_told(running: Runtime) -> None:
    secret = "hunter2-hunter2"
    arguments = {"skill": "kit", "command": "echo $API_KEY", "env": {"API_KEY": secret}}
    events = play(Agent(running, Scripted(called(("skill_run", arguments)), said("done"))))
    assert b"".join(event.data for event in of(events, RunOutput)) == b"[API_KEY]\n"
    assert all(secret not in text for text in results(events))


# Limits


def bounded(tree: Tree, model: Scripted, **limits: Any) -> list[AgentEvent]:
    with Runtime(tree.project) as belt:
        return play(Agent(belt, model, run_code=True, **limits))


def test_a_model_that_wants_one_skill_that_is_not_there_for_ever_is_ended(belt: Runtime) -> None:
    events = play(Agent(belt, Scripted(called(("skill_load", {"skill": "nothing"})))))
    assert final(events).reason == "loop"


def test_steps_are_bounded_by_a_setting(tree: Tree) -> None:
    numbers = iter(range(100))
    model = Scripted(lambda _: called(("skill_list", {"offset": next(numbers)})))
    tree.setenv("SKILLBELT_MAX_STEPS", 4)
    assert final(bounded(tree, model)).reason == "max_steps"
    assert len(model.prompts) == 4


def test_repeated_calls_are_bounded_by_the_agent(tree: Tree) -> None:
    events = bounded(tree, Scripted(called(("skill_list", {}))), max_repeats=2)
    assert final(events).reason == "loop"
    assert len(results(events)) == 4


def test_retries_are_bounded_by_the_agent(tree: Tree) -> None:
    model = Scripted(ModelFailure("busy", again=True))
    bounds(retry_wait_seconds=0)
    bounded(tree, model, max_retries=4)
    assert len(model.prompts) == 5


def test_calls_of_an_answer_are_bounded(tree: Tree) -> None:
    calls = called(("skill_list", {"offset": 1}), ("skill_list", {"offset": 2}))
    bounds(max_answer_calls=1)
    told = results(bounded(tree, Scripted(calls, said("done"))))
    assert ["may have 1 calls" in text for text in told] == [False, True]


def test_blocks_of_code_are_bounded(tree: Tree) -> None:
    model = Scripted(said("```sh\necho one\n```\n```sh\necho two\n```\n"), said("done"))
    bounds(max_code_blocks=1)
    bounded(tree, model)
    assert "1. sh" in model.sent()[-1]["content"]
    assert "2. sh" not in model.sent()[-1]["content"]
