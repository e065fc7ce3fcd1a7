"""The result of one call."""

from __future__ import annotations

from skillbelt import Runtime
from skillbelt.agent import Agent, Called, HostTool
from skillbelt.agent.tool_calls import PendingCall, Repeats
from skillbelt.agent.transaction import Journal
from skillbelt.store import SessionKey
from skillbelt.store.memory import MemoryStore
from skillbelt.tools.schema import ToolResult
from tests.agent.scripted import Scripted, called, final, play, results, said


def job(result: str = "", name: str = "x", arguments: object = None) -> PendingCall:
    writes = Journal(MemoryStore(), SessionKey("a", "b", "c")).new_writes()
    made = PendingCall(Called("c1", name, arguments), writes)
    made.result = ToolResult(result)
    return made


def test_a_call_is_refused_once_it_gave_the_same_often_enough() -> None:
    repeats = Repeats(2)
    for _ in range(2):
        assert repeats.refusal(job()) == ""
        repeats.note(job("same"))
    assert "2 times" in repeats.refusal(job())


def test_other_arguments_are_another_call() -> None:
    repeats = Repeats(1)
    repeats.note(job("same", arguments={"a": 1}))
    assert repeats.refusal(job(arguments={"a": 2})) == ""


def test_another_result_begins_the_count_again() -> None:
    repeats = Repeats(2)
    for result in ("one", "two", "one", "two"):
        assert repeats.refusal(job()) == ""
        repeats.note(job(result))


def test_it_is_endless_after_as_many_refusals() -> None:
    repeats = Repeats(2)
    for _ in range(2):
        repeats.note(job("same"))
    assert [(repeats.refusal(job()) != "", repeats.endless) for _ in range(2)] == [
        (True, False),
        (True, True),
    ]


def test_the_same_broken_arguments_count_as_well(belt: Runtime) -> None:
    events = play(Agent(belt, Scripted(called(("skill_load", "{")))))
    assert final(events).reason == "loop"
    assert len(results(events)) == 6


def test_waiting_for_a_run_is_no_circle(belt: Runtime) -> None:
    polls = [called(("skill_poll", {"run_id": "x"}))] * 10
    assert final(play(Agent(belt, Scripted(*polls, said("done"))))).text == "done"


def test_a_tool_of_the_host_does_not_hide_one_for_skills(belt: Runtime) -> None:
    tool = HostTool("other", "Other.", lambda _: "mine")
    model = Scripted(called(("other", {}), ("skill_list", {})), said("done"))
    assert results(play(Agent(belt, model, tools=(tool,))))[0] == "mine"
