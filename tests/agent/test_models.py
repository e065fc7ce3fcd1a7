"""Models of providers, by name, over real sockets."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from skillbelt import ConfigError, MissingExtra, Runtime, Tool
from skillbelt.agent import (
    Agent,
    Called,
    ModelFailure,
    Prompt,
    Reply,
    Retry,
    Runner,
    TextDelta,
    ThinkingDelta,
    ToolResponse,
    Usage,
)
from skillbelt.agent.models import Piece, with_unique_ids
from skillbelt.agent.provider import ProvidedModel, model_by_name, settings_for
from tests.agent.scripted import final, of, play, results
from tests.bounds import bounds
from tests.openai_server import (
    Broken,
    Calls,
    Garbage,
    Refused,
    Said,
    Server,
    Slow,
    Unfinished,
    called,
    said,
    serving,
)
from tests.tree import Tree

ASKED = [{"role": "user", "content": "Hello?"}]


@pytest.fixture(autouse=True)
def keys(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key of this machine, and no pause before a retry."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_BASE_URL", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    bounds(retry_wait_seconds=0)


def name_of(server: Server) -> str:
    return f"tiny@{server.url}"


def asked(name: str, prompt: Prompt | None = None) -> list[Piece]:
    async def collected() -> list[Piece]:
        async with model_by_name(name) as model:
            return [piece async for piece in model.ask(prompt or Prompt(ASKED))]

    return asyncio.run(collected())


def reply_of(name: str) -> Reply:
    [reply] = [piece for piece in asked(name) if isinstance(piece, Reply)]
    return reply


# What comes over the wire


def test_an_answer_comes_in_pieces_with_its_usage() -> None:
    with serving(said("Hel", "lo")) as server:
        pieces = asked(name_of(server))
    assert pieces[:2] == [TextDelta("Hel"), TextDelta("lo")]
    assert pieces[2] == Reply("Hello", usage=Usage(100, 10, 80, 0))


def test_calls_come_whole() -> None:
    two = Calls((("a", "skill_load", '{"skill": "x"}'), ("b", "skill_list", "{}")), "Let me see.")
    with serving(two) as server:
        reply = reply_of(name_of(server))
    assert reply.text == "Let me see."
    assert [(call.id, call.name) for call in reply.calls] == [
        ("a", "skill_load"),
        ("b", "skill_list"),
    ]
    assert json.loads(str(reply.calls[0].arguments)) == {"skill": "x"}


def test_an_answer_that_was_cut_says_so() -> None:
    with serving(Said(("Hel",), "length")) as server:
        assert "was cut" in reply_of(name_of(server)).fault


@pytest.mark.parametrize("answer", [Broken(said("Hel", "lo"), 1), Garbage()])
def test_an_answer_that_breaks_off_is_a_failure_that_may_pass(answer: Any) -> None:
    with serving(answer) as server, pytest.raises(ModelFailure) as failure:
        asked(name_of(server))
    assert failure.value.again


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_request_that_is_refused_is_not_made_again(status: int) -> None:
    with serving(Refused(status)) as server, pytest.raises(ModelFailure) as failure:
        asked(name_of(server))
    assert not failure.value.again
    assert len(server.requests) == 1


def test_a_server_that_fails_is_asked_again_by_its_own_client() -> None:
    with serving(Refused(500), said("Hello")) as server:
        assert reply_of(name_of(server)).text == "Hello"


def test_a_request_that_is_too_long_is_known_as_such() -> None:
    refused = Refused(400, "maximum context length is 10 tokens", "context_length_exceeded")
    with serving(refused) as server, pytest.raises(ModelFailure) as failure:
        asked(name_of(server))
    assert failure.value.too_long


def test_a_server_that_is_not_there_is_a_failure() -> None:
    with pytest.raises(ModelFailure):
        asked("tiny@http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    "answer",
    [
        Said(("x" * 60,) * 5),
        Said(("x" * 300,)),
        called("skill_load", "x" * 300),
        Calls(tuple((f"c{number}", "x", "") for number in range(60))),
    ],
    ids=["pieces", "at once", "arguments", "calls"],
)
def test_an_answer_without_an_end_is_ended(answer: Said | Calls) -> None:
    with (
        serving(answer) as server,
        pytest.raises(ModelFailure, match=r"longer than 100 characters \(max_answer_chars\)"),
    ):
        bounds(max_answer_chars=100)
        asked(name_of(server))


def test_a_model_that_falls_silent_is_given_up() -> None:
    slow = Slow(said("Once", " upon a time"), threading.Event())
    with (
        serving(slow) as server,
        pytest.raises(ModelFailure, match=r"sent nothing for 0\.2 s") as failure,
    ):
        bounds(model_idle_seconds=0.2)
        asked(name_of(server))
    assert failure.value.again
    assert server.gone.wait(150)


def test_thoughts_are_told_apart_and_kept_for_their_provider() -> None:
    from pydantic_ai.models.function import DeltaThinkingPart, FunctionModel

    async def thinking(*_: object) -> AsyncIterator[Any]:
        yield {0: DeltaThinkingPart(content="Hm", signature="signed")}
        yield "Hello"

    async def collected() -> list[Piece]:
        model = ProvidedModel(FunctionModel(stream_function=thinking))
        return [piece async for piece in model.ask(Prompt(ASKED))]

    thought, text, reply = asyncio.run(collected())
    assert (thought, text) == (ThinkingDelta("Hm"), TextDelta("Hello"))
    assert isinstance(reply, Reply)
    assert reply.text == "Hello"
    assert reply.kept is not None


# What goes over the wire


def test_the_system_text_history_and_tools_are_sent(belt: Runtime) -> None:
    with serving(called("skill_load", {"skill": "greet"}), said("mellifluous")) as server:
        events = play(Agent(belt, name_of(server), instructions="Be brief."), "Greet Bob.")
        first, second = server.requests
    assert final(events).text == "mellifluous"
    assert first["messages"][0]["role"] == "system"
    assert first["messages"][0]["content"].startswith("Be brief.")
    assert [tool["function"]["name"] for tool in first["tools"]][:2] == [
        "skill_load",
        "skill_list_docs",
    ]
    roles = [message["role"] for message in second["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]
    assert second["messages"][-1]["content"].startswith("[Loaded] greet")


def test_a_request_begins_with_all_of_the_one_before(belt: Runtime) -> None:
    """So that a provider's cache can serve it."""
    load, listing = called("skill_load", {"skill": "greet"}), called("skill_list", {}, "call_2")
    with serving(load, listing, said("done")) as server:
        play(Agent(belt, name_of(server)))
        sent = server.requests
    for before, after in pairwise(sent):
        assert after["messages"][: len(before["messages"])] == before["messages"]
        assert after["tools"] == before["tools"]


def test_a_loaded_skill_without_its_answer_stands_behind_the_system_text(belt: Runtime) -> None:
    """Case 44. It changes, so it must not be in what is cached before it."""
    session = belt.session("ada", "chat")
    session.declare(["greet"])
    made = session.request([{"role": "user", "content": "Hi"}])
    with serving(said("done")) as server:
        asked(name_of(server), Prompt(made))
        sent = server.requests[0]["messages"]
    assert [message["role"] for message in sent] == ["system", "system", "user"]
    assert sent[1]["content"].startswith("Loaded skill context:")


# Hostile and broken servers, through a whole run


def test_a_broken_answer_is_asked_for_again_and_nothing_of_it_is_kept(belt: Runtime) -> None:
    broken = Broken(called("skill_load", {"skill": "greet"}), 1)
    with serving(broken, said("whole")) as server:
        events = play(Agent(belt, name_of(server)))
    assert len(of(events, Retry)) == 1
    assert of(events, ToolResponse) == []
    assert final(events).text == "whole"
    assert [m["role"] for m in belt.session("ada", "chat").session.messages()] == [
        "user",
        "assistant",
    ]


def test_half_a_call_is_a_tool_error_and_nothing_is_done(belt: Runtime) -> None:
    """B18. The server ends its answer in the middle of a call, as if it were complete."""
    with serving(Unfinished(called("skill_load", {"skill": "greet"}), 1), said("done")) as server:
        events = play(Agent(belt, name_of(server)))
    assert "not whole JSON" in results(events)[0]
    assert of(events, ToolResponse)[0].state_delta == {}
    assert final(events).text == "done"


def test_a_call_whose_arguments_never_came_is_not_made(belt: Runtime) -> None:
    begun = Calls((("call_1", "skill_list", ""),))
    with serving(Unfinished(begun, 1), said("done")) as server:
        events = play(Agent(belt, name_of(server)))
    assert "broke off" in results(events)[0]


def test_a_server_that_stays_broken_is_an_error_in_the_end(belt: Runtime) -> None:
    with serving(Garbage()) as server:
        end = final(play(Agent(belt, name_of(server), max_retries=1)))
        assert len(server.requests) == 2
    assert end.reason == "error"
    assert end.error


def test_cancelling_hangs_up(belt: Runtime) -> None:
    go_on = threading.Event()
    with serving(Slow(said("Once", " upon a time"), go_on)) as server:
        with Runner(Agent(belt, name_of(server))) as runner:
            for event in runner.run_sync("ada", "chat", "Tell me a story."):
                if isinstance(event, TextDelta):
                    break
        assert server.gone.wait(150)
    assert [m["role"] for m in belt.session("ada", "chat").session.messages()] == ["user"]


# By name


def test_a_key_for_openai_is_not_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with serving(said("x")) as server:
        asked(name_of(server))
        assert "sk-secret" not in str(server.headers)


def test_a_compatible_server_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "for-this-one")
    with serving(said("x")) as server:
        asked(name_of(server))
        assert server.headers[0]["authorization"] == "Bearer for-this-one"


def test_openai_at_another_address_speaks_the_chat_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(said("x")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        assert reply_of("openai:gpt-5").text == "x"


def test_the_newer_protocol_of_openai_does_as_well(belt: Runtime) -> None:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    with serving(called("skill_load", {"skill": "greet"}), said("mellifluous")) as server:
        provider = OpenAIProvider(base_url=server.url, api_key="key")
        events = play(Agent(belt, OpenAIResponsesModel("gpt-5", provider=provider)), "Greet Bob.")
        sent = server.requests[1]["input"]
    assert results(events) == ["loaded: greet"]
    assert final(events).text == "mellifluous"
    assert final(events).usage == Usage(
        input_tokens=200, output_tokens=20, cached_tokens=160, cache_write_tokens=0, requests=2
    )
    assert [item.get("type") for item in sent[-2:]] == ["function_call", "function_call_output"]
    assert sent[-1]["output"].startswith("[Loaded] greet")


def test_ollama_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(said("x")) as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", server.url)
        assert reply_of("ollama:llama3").text == "x"


def test_ollama_is_looked_for_where_it_usually_is() -> None:
    assert model_by_name("ollama:llama3").name == "ollama:llama3"


@pytest.mark.parametrize("name", ["openai:gpt-5", "anthropic:claude-haiku-5-5", "google:gemini-3"])
def test_a_missing_key_is_told_with_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    with pytest.raises(ConfigError, match="_API_KEY") as error:
        model_by_name(name)
    assert "'offline' needs no key" in str(error.value)
    assert "Provider(" not in str(error.value)  # a person at a terminal cannot do that


@pytest.mark.parametrize("name", ["nothing", "nobody:model", "", "@", "x@y"])
def test_a_name_that_is_no_model_is_wrong_usage(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        model_by_name(name)


@pytest.mark.parametrize(
    "url", ["http://[::1", "ftp://host/v1", "http://", "http:///v1", "http://host:x/", "http://h:0"]
)
def test_an_address_without_a_server_is_wrong_usage(url: str) -> None:
    with pytest.raises(ConfigError, match="is not the URL of a server"):
        model_by_name(f"tiny@{url}")


def test_a_failure_says_who_failed_and_why() -> None:
    with pytest.raises(ModelFailure, match=r"tiny at 127\.0\.0\.1:9: connection failed: .*"):
        asked("tiny@http://user:word@127.0.0.1:9/v1")
    with serving(Refused(401, "bad key")) as server, pytest.raises(ModelFailure) as failure:
        asked(name_of(server))
    assert str(failure.value).endswith(" answered 401: bad key")


def test_a_missing_package_is_told_with_its_extra(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai.exceptions", None)
    monkeypatch.delitem(sys.modules, "skillbelt.agent.provider")
    runner = Runner(Agent(belt, "openai:gpt-5"))
    with runner, pytest.raises(MissingExtra, match=r"the model 'openai:gpt-5'.*skillbelt\[agent\]"):
        list(runner.run_sync("ada", "chat", "Hi"))


def test_a_package_that_no_extra_brings_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cohere", None)
    with pytest.raises(ConfigError, match=r"pip install 'pydantic-ai-slim\[cohere\]'"):
        model_by_name("cohere:command")


def test_a_run_with_a_model_that_can_not_be_used_raises(belt: Runtime) -> None:
    with Runner(Agent(belt, "nobody:model")) as runner, pytest.raises(ConfigError):
        list(runner.run_sync("ada", "chat", "Hi"))


# What providers are told of caching


def test_openai_itself_has_a_key_for_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic_ai.models import infer_model

    monkeypatch.setenv("OPENAI_API_KEY", "key")
    model = infer_model("openai:gpt-5")
    keys = [
        str(settings_for(model, f"app/ada/{name}").get("openai_prompt_cache_key"))
        for name in ("chat", "chat", "chat." + "x" * 100)
    ]
    assert keys[0] == keys[1] != keys[2]
    assert all(len(key) <= 64 for key in keys)  # more is refused there
    assert "ada" not in keys[0]


def test_nobody_else_is_sent_a_field_they_may_not_know() -> None:
    with serving(said("x")) as server:
        asked(name_of(server), Prompt(ASKED, session="app/ada/chat"))
        assert "prompt_cache_key" not in server.requests[0]


def test_anthropic_is_told_what_to_cache(tree: Tree) -> None:
    tree.setenv("ANTHROPIC_API_KEY", "key")
    tree.skill("project/.agents/skills/pdf")
    tools = Runtime(tree.project).tools()
    sent = anthropic_request(model_by_name("anthropic:claude-haiku-5-5"), tools)
    assert sent["system"][0]["cache_control"]["type"] == "ephemeral"
    assert sent["tools"][-1]["cache_control"]["type"] == "ephemeral"
    # Marks the end of the history, at any position.
    assert sent["cache_control"]["type"] == "ephemeral"


def anthropic_request(model: ProvidedModel, tools: Sequence[Tool] = ()) -> dict[str, Any]:
    """Return the request to the provider, as it goes to the socket."""
    import httpx2
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    sent: list[dict[str, Any]] = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(400, json={"error": {"type": "invalid", "message": "enough"}})

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(refuse))
    provider = AnthropicProvider(anthropic_client=AsyncAnthropic(api_key="key", http_client=client))
    other = ProvidedModel(AnthropicModel(model.name.partition(":")[2], provider=provider))
    messages = [{"role": "system", "content": "Be brief."}, *ASKED]

    async def ask() -> None:
        async with client, other:
            async for _ in other.ask(Prompt(messages, tools)):
                pass

    with pytest.raises(ModelFailure):
        asyncio.run(ask())
    return sent[0]


def test_settings_of_the_host_win(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic_ai.models.test import TestModel

    assert settings_for(TestModel(), "s", {"cache": False}).get("cache") is False


# Small things


def test_calls_without_ids_are_given_some() -> None:
    calls = (Called("", "a", {}), Called("", "b", {}))
    assert [call.id for call in with_unique_ids(Reply(calls=calls)).calls] == ["call-1", "call-2"]


def test_ids_that_differ_stay() -> None:
    reply = Reply(calls=(Called("a", "x", {}), Called("b", "x", {})), kept={"k": 1})
    assert with_unique_ids(reply) is reply
