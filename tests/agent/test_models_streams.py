"""Answers as Gemini and Anthropic stream them, and as no provider should."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skillbelt import Runtime
from skillbelt.agent import Agent, Called, Reply, Retry, ThinkingDelta, ToolCall, Usage
from skillbelt.store.memory import MemoryStore
from tests.agent.scripted import Scripted, final, of, play, results
from tests.bounds import bounds
from tests.openai_server import Raw, Refused, Server, Unfinished, said, serving
from tests.tree import Tree

GEMINI, ANTHROPIC = "google:gemini-3-pro-preview", "anthropic:claude-haiku-5-5"
SIGNED, AGAIN = "c2lnbmVk", "YWdhaW4="
HALF = "\ud800"  # of a character


@pytest.fixture(autouse=True)
def no_waiting(tree: Tree) -> None:
    bounds(retry_wait_seconds=0)


def at(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point both providers at that address."""
    root = server.url.removesuffix("/v1")
    for name in ("GOOGLE", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "key")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", root)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", root)


# Gemini


def gemini(*parts: dict[str, Any], finish: str = "STOP") -> Raw:
    """Each part in its own chunk; the last one has the finish reason."""
    ends = [""] * (len(parts) - 1) + [finish]
    return Raw(tuple(_candidate(*one) for one in zip(parts, ends, strict=True)))


def _candidate(part: dict[str, Any], finish: str) -> str:
    content = {"role": "model", "parts": [part]}
    end = {"finishReason": finish} if finish else {}
    counted = {"promptTokenCount": 100, "cachedContentTokenCount": 80, "candidatesTokenCount": 10}
    made = {"candidates": [{"content": content, **end}], "usageMetadata": counted}
    return f"data: {json.dumps(made)}\r\n\r\n"


def gemini_call(name: str, arguments: object, signed: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {"functionCall": {"name": name, "args": arguments}}
    return made | {"thoughtSignature": signed} if signed else made


def test_gemini_streams_thoughts_calls_and_answers(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signature goes back with its call: Gemini refuses a request without it."""
    first = gemini(
        {"text": "Greet.", "thought": True},
        {"text": "Let me see."},
        gemini_call("skill_load", {"skill": "greet"}, SIGNED),
        gemini_call("skill_list", {}),
    )
    last = gemini({"text": "melli"}, {"text": "fluous", "thoughtSignature": AGAIN})
    with serving(first, last) as server:
        at(server, monkeypatch)
        agent = Agent(belt, GEMINI)
        events, more = play(agent, "Greet Bob."), play(agent, "And Eve.")
        sent = server.requests
    assert of(events, ThinkingDelta) == [ThinkingDelta("Greet.")]
    assert results(events)[0] == "loaded: greet"
    assert [final(one).text for one in (events, more)] == ["mellifluous"] * 2
    assert of(events, Usage)[0].cached_tokens == 80
    parts = sent[1]["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, None, SIGNED, None]
    answers = [part["functionResponse"] for part in sent[1]["contents"][2]["parts"]]
    assert [one["name"] for one in answers] == ["skill_load", "skill_list"]
    assert answers[0]["response"]["return_value"].startswith("[Loaded] greet")
    assert sent[2]["contents"][3]["parts"][0]["thoughtSignature"] == AGAIN


@pytest.mark.parametrize("status", [429, 503])
def test_a_provider_whose_client_does_not_try_again_is_asked_again(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    with serving(Refused(status, "overloaded"), gemini({"text": "Fine."})) as server:
        at(server, monkeypatch)
        events = play(Agent(belt, GEMINI))
    assert f"answered {status}: overloaded" in of(events, Retry)[0].reason
    assert final(events).text == "Fine."


def test_arguments_that_are_nested_too_deeply_do_not_end_the_conversation(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = json.loads("[" * 700 + "]" * 700)
    with serving(
        gemini(gemini_call("skill_load", {"skill": deep})), gemini({"text": "Fine."})
    ) as server:
        at(server, monkeypatch)
        for _ in range(2):
            events = play(Agent(belt, GEMINI))
            assert final(events).text == "Fine."


# Anthropic


def anthropic(*blocks: dict[str, Any], stop: str = "end_turn", ended: bool = True) -> Raw:
    """The blocks, each in one piece."""
    counted = {"input_tokens": 20, "cache_read_input_tokens": 80, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m"}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "usage": counted}}
    ]
    for index, block in enumerate(blocks):
        events += _block_events(index, dict(block))
    if ended:
        told = {"delta": {"stop_reason": stop}, "usage": {"output_tokens": 10}}
        events += [{"type": "message_delta", **told}, {"type": "message_stop"}]
    return Raw(tuple(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events))


def _block_events(index: int, block: dict[str, Any]) -> list[dict[str, Any]]:
    at, written = {"index": index}, block.pop("json", "")
    events = [{"type": "content_block_start", **at, "content_block": block}]
    if written:
        delta = {"type": "input_json_delta", "partial_json": written}
        events.append({"type": "content_block_delta", **at, "delta": delta})
    return [*events, {"type": "content_block_stop", **at}]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thought(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": SIGNED}


def use(name: str, arguments: str = "", id: str = "t1") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {}, "json": arguments}


def test_anthropic_streams_thoughts_calls_and_answers(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = anthropic(thought("Hm"), use("skill_load", '{"skill": "greet"}'), stop="tool_use")
    with serving(first, anthropic(text("mellifluous"))) as server:
        at(server, monkeypatch)
        events = play(Agent(belt, ANTHROPIC), "Greet Bob.")
        sent = server.requests[1]["messages"]
    assert results(events) == ["loaded: greet"]
    assert final(events).text == "mellifluous"
    assert [(one["type"], one.get("signature")) for one in sent[1]["content"]] == [
        ("thinking", SIGNED),
        ("tool_use", None),
    ]
    assert sent[2]["content"][0]["content"][0]["text"].startswith("[Loaded] greet")


@pytest.mark.parametrize(
    "broken",
    [
        anthropic(use("skill_list"), ended=False),
        anthropic(use("skill_list"), stop="max_tokens"),
    ],
    ids=["ends", "is cut"],
)
def test_a_call_that_ends_before_its_arguments_is_not_made(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch, broken: Raw
) -> None:
    """B18."""
    with serving(broken, anthropic(text("Fine."))) as server:
        at(server, monkeypatch)
        events = play(Agent(belt, ANTHROPIC))
    assert "broke off before its arguments" in results(events)[0]


@pytest.mark.parametrize(
    "answer",
    [
        anthropic(use(f"no{HALF}"), stop="tool_use"),
        anthropic(use("skill_list", id=f"t{HALF}"), stop="tool_use"),
        anthropic(thought(f"Hm{HALF}"), use("skill_list"), stop="tool_use"),
    ],
    ids=["name", "id", "thought"],
)
def test_half_a_character_anywhere_does_not_end_the_conversation(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch, answer: Raw
) -> None:
    with serving(answer, anthropic(text("Fine."))) as server:
        at(server, monkeypatch)
        for _ in range(2):
            assert final(play(Agent(belt, ANTHROPIC))).text == "Fine."


# Anybody


def name_of(server: Server) -> str:
    return f"tiny@{server.url}"


def test_an_answer_without_a_word_of_its_end_may_be_cut(belt: Runtime) -> None:
    with serving(Unfinished(said("Hel", "lo"), 1)) as server:
        end = final(play(Agent(belt, name_of(server))))
    assert (end.text, end.reason) == ("Hel", "answer")
    assert "may be cut" in end.error


def test_a_model_of_this_process_need_not_say_that_it_ended(belt: Runtime) -> None:
    from pydantic_ai.models.test import TestModel

    assert final(play(Agent(belt, TestModel(call_tools=[])))).error == ""


@pytest.mark.parametrize("piece", [": wait\n\n", "data: {}\n\n"], ids=["comments", "nothing"])
def test_a_server_that_only_says_that_it_is_there_is_given_up(
    belt: Runtime, tree: Tree, piece: str
) -> None:
    bounds(model_idle_seconds=0.2)
    with serving(Raw((piece,), endless=True)) as server, Runtime(tree.project) as hurried:
        end = final(play(Agent(hurried, name_of(server), max_retries=0)))
    assert end.error.endswith("sent nothing for 0.2 s (model_idle_seconds)")


@pytest.mark.parametrize("piece", ["data: [1]\n\n", "<html>", "data: " + "[" * 5_000 + "\n\n"])
def test_an_answer_of_another_protocol_is_told_with_who_gave_it(belt: Runtime, piece: str) -> None:
    with serving(Raw((piece,))) as server:
        end = final(play(Agent(belt, name_of(server), max_retries=0)))
    assert end.error.startswith(f"compatible:tiny at 127.0.0.1:{server.url.split(':')[-1][:-3]} ")
    assert "sent an invalid answer" in end.error


def test_a_model_of_the_host_may_nest_arguments_as_it_likes(belt: Runtime) -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    reply = Reply(calls=(Called("c1", "skill_load", {"skill": deep}),))
    store = MemoryStore()
    agent = Agent(belt, Scripted(reply, Reply("done")))
    events = play(agent, store=store)
    assert final(events).text == "done"
    assert "too deeply" in str(of(events, ToolCall)[0].arguments)
