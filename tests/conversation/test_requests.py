"""The requests that were sent to a model."""

from __future__ import annotations

import json

import pytest

from skillbelt import Runtime
from skillbelt.agent import Agent
from skillbelt.conversation import requests
from skillbelt.conversation.requests import RequestLog, forget_requests, place_of, split_sent
from skillbelt.events import NewEvent
from skillbelt.store import SessionKey
from skillbelt.store.memory import MemoryStore
from tests.agent.scripted import Scripted, called, play, said
from tests.tree import Tree

KEY = SessionKey("skillbelt", "ada", "chat")
SYSTEM = {"role": "system", "content": "You help."}
ONE = {"role": "user", "content": "one"}
TWO = {"role": "assistant", "content": "two"}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def log(store: MemoryStore) -> RequestLog:
    return RequestLog(store, KEY)


def test_a_request_comes_back_as_it_was(log: RequestLog) -> None:
    log.add([SYSTEM, ONE], tools=[{"name": "t"}], agent="a", model="m")
    found = log.find(1)
    assert found is not None
    document = found.document()
    assert document["messages"] == [SYSTEM, ONE]
    assert document["tools"] == [{"name": "t"}]
    assert (found.summary.agent, found.summary.model, found.before) == ("a", "m", 0)
    assert log.find(2) is None


def test_what_two_requests_share_is_kept_once(log: RequestLog, store: MemoryStore) -> None:
    long = {"role": "user", "content": "x" * 1000}
    for count in range(1, 20):
        log.add([SYSTEM, long, *[TWO] * count])
    kept = "".join(str(one.data) for one in store.events(place_of(KEY)))
    assert kept.count("x" * 1000) == 1
    found = log.find(19)
    assert found is not None
    assert found.document()["messages"] == [SYSTEM, long, *[TWO] * 19]
    assert (found.before, found.shared) == (18, 20)


def test_a_changed_message_is_shared_up_to_the_change(log: RequestLog) -> None:
    log.add([SYSTEM, ONE])
    log.add([SYSTEM, {**ONE, "content": "only"}, TWO])
    found = log.find(2)
    assert found is not None
    assert found.shared == 1
    assert found.messages[1][: found.shared_start].endswith('"on')
    assert 0 < found.summary.shared_percent < 100


def test_other_tools_share_nothing(log: RequestLog) -> None:
    log.add([SYSTEM, ONE], tools=[{"name": "t"}])
    log.add([SYSTEM, ONE], tools=[{"name": "u"}])
    found = log.find(2)
    assert found is not None
    assert (found.same_tools, found.shared, found.summary.shared_percent) == (False, 0, 0)


def test_each_agent_is_compared_with_itself(log: RequestLog) -> None:
    log.add([SYSTEM, ONE], agent="a")
    log.add([TWO], agent="b")
    log.add([SYSTEM, ONE, TWO], agent="a")
    found = log.find(3)
    assert found is not None
    assert (found.before, found.shared) == (1, 2)


def test_two_processes_may_add_to_one_conversation(store: MemoryStore) -> None:
    RequestLog(store, KEY).add([SYSTEM, ONE])
    RequestLog(store, KEY).add([SYSTEM, ONE, TWO])
    found = RequestLog(store, KEY).find(2)
    assert found is not None
    assert found.document()["messages"] == [SYSTEM, ONE, TWO]


def test_the_oldest_requests_go(
    log: RequestLog, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MAX_BYTES", 5_000)
    for count in range(1, 30):
        log.add([SYSTEM, {"role": "user", "content": f"{count} " * 200}])
    size = sum(len(str(one.data)) for one in store.events(place_of(KEY)))
    assert size < 10_000
    numbers = [one.number for one in log.summaries()]
    assert numbers[-1] == 29
    assert numbers[0] > 20
    found = log.find(29)
    assert found is not None
    assert found.document()["messages"][1]["content"].startswith("29 ")  # type: ignore[index]


def test_only_so_many_requests_are_kept(log: RequestLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_REQUESTS", 5)
    for _ in range(23):
        log.add([ONE])
    assert [one.number for one in log.summaries()] == [20, 21, 22, 23]


def test_a_long_text_is_cut_and_says_so(log: RequestLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_TEXT_CHARS", 100)
    log.add([{"role": "user", "content": "x" * 1000}])
    found = log.find(1)
    assert found is not None
    assert found.messages[0].endswith("more characters, not kept")
    assert isinstance(found.document()["messages"][0], str)  # type: ignore[index]


def test_secrets_are_not_kept(log: RequestLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "of-the-process")
    call = {"id": "c", "name": "skill_run", "arguments": {"env": {"A_TOKEN": "of-the-call"}}}
    log.add([{"role": "assistant", "content": "of-the-process", "tool_calls": [call]}])
    found = log.find(1)
    assert found is not None
    assert "of-the" not in found.messages[0]
    assert "[A_TOKEN]" in found.messages[0]


GIVEN = {"env": {"A_TOKEN": "of-the-call"}}


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": [{"function": {"name": "skill_run", "arguments": json.dumps(GIVEN)}}]},
        {"type": "function_call", "name": "skill_run", "arguments": json.dumps(GIVEN)},
        {"content": [{"type": "tool_use", "name": "skill_run", "input": GIVEN}]},
        {"parts": [{"functionCall": {"name": "skill_run", "args": GIVEN}}]},
    ],
)
def test_secrets_are_not_kept_in_any_form_of_a_call(
    log: RequestLog, message: dict[str, object]
) -> None:
    log.add([message])
    found = log.find(1)
    assert found is not None
    assert "[A_TOKEN]" in found.messages[0]
    assert "of-the-call" not in found.messages[0]


def test_a_damaged_entry_is_left_out(log: RequestLog, store: MemoryStore) -> None:
    log.add([ONE])
    bad = [NewEvent("request", data={"number": "x"}), NewEvent("text", data={}), NewEvent("odd")]
    store.append(place_of(KEY), bad, {"last:": "[1"})
    log.add([ONE, TWO])
    assert [one.number for one in log.summaries()] == [1, 2]
    found = log.find(2)
    assert found is not None
    assert found.document()["messages"] == [ONE, TWO]


def test_vendors_requests_are_split() -> None:
    sent = {"system": "You help.", "messages": [ONE], "tools": [{"name": "t"}]}
    first = {"role": "system", "system": "You help."}
    assert split_sent(sent) == ([first, ONE], [{"name": "t"}])
    assert split_sent([ONE]) == ([ONE], ())


def test_an_agent_keeps_what_it_sends(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf", "Reads PDF files.", text="The body.\n")
    with Runtime(tree.project) as belt:
        model = Scripted(called(("skill_load", {"skill": "pdf"})), said("done"))
        play(Agent(belt, model=model))
        log = RequestLog(belt.store, KEY)
        assert [one.number for one in log.summaries()] == [1, 2]
        for number in (1, 2):
            found = log.find(number)
            assert found is not None
            assert found.document()["messages"] == list(model.sent(number - 1))
        assert found is not None
        assert found.same_tools
        assert found.shared == len(model.sent(0))
        belt.delete_session("ada", "chat")
        assert log.summaries() == []


def test_nothing_is_kept_without_the_audit_log(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf", "Reads PDF files.")
    with Runtime(tree.project, audit=False) as belt:
        play(Agent(belt, model=Scripted(said("done"))))
        assert not belt.session("ada", "chat").record_request([ONE])
        assert RequestLog(belt.store, KEY).summaries() == []


def test_a_host_keeps_its_own_requests_if_it_wants(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf", "Reads PDF files.")
    with Runtime(tree.project) as belt:
        session = belt.session("ada", "chat")
        sent = session.request([ONE])
        assert RequestLog(belt.store, KEY).summaries() == []
        assert session.record_request(sent, model="mine")
        found = RequestLog(belt.store, KEY).find(1)
        assert found is not None
        assert found.document()["messages"] == sent
        assert forget_requests(belt.store, KEY)
