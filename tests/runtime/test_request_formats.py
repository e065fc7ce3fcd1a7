"""A loop with a vendor's own package: the objects that a session accepts, and its results."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import anyio
import pytest
from google.genai import types as gemini

from skillbelt import ConfigError, Runtime, RuntimeSession
from skillbelt.conversation.vendors.shapes import MESSAGE_FORMATS, MessageFormat
from skillbelt.store.memory import MemoryStore
from tests.conversation.vendor_histories import (
    ASKED,
    REPLIES,
    asked,
    chat_reply,
    gemini_reply,
    response_reply,
    results,
)
from tests.tree import Tree

every = pytest.mark.parametrize("format", MESSAGE_FORMATS)
SENT = {"openai": "messages", "responses": "input", "anthropic": "messages", "gemini": "contents"}
PDF, CSV = "Read the pages in order.", "Count the rows first."
OUTPUT = {"type": "function_call_output", "call_id": "c1"}
STUBS = ("loaded: pdf", "loaded: csv")


@pytest.fixture
def session(tree: Tree) -> RuntimeSession:
    tree.skill("project/.agents/skills/pdf", text=f"{PDF}\n")
    tree.skill("project/.agents/skills/csv", text=f"{CSV}\n")
    return Runtime(tree.project, store=MemoryStore()).session("u", "c")


def ask(session: RuntimeSession, history: list[Any], format: MessageFormat) -> Any:
    """Return the items of a request, as the package would send them."""
    return json.loads(json.dumps(session.request(history, format=format)[SENT[format]]))


def system_of(request: dict[str, Any]) -> str:
    """Return the system text, from the vendor's place for it."""
    if "system" in request:
        return "\n\n".join(block["text"] for block in request["system"])
    if "config" in request:
        return str(request["config"].get("system_instruction", ""))
    if "messages" in request:
        return str(request["messages"][0]["content"])
    return str(request.get("instructions", ""))


def told(format: MessageFormat, items: list[Any]) -> list[str]:
    """Return the texts of the results in the last items, in order."""
    if format == "openai":
        return [one["content"] for one in items[-2:]]
    if format == "responses":
        return [one["output"] for one in items[-2:]]
    if format == "anthropic":
        return [block["content"] for block in items[-1]["content"]]
    parts = [
        part.get("functionResponse") or part["function_response"] for part in items[-1]["parts"]
    ]
    return [text for part in parts for text in part["response"].values()]


@every
def test_calls_at_once_are_answered_in_order_and_their_texts_land(
    session: RuntimeSession, format: MessageFormat
) -> None:
    history: list[Any] = [asked(format)]
    first = ask(session, history, format)
    history.append(reply := REPLIES[format]())
    history += session.answer_calls(reply, format)
    assert told(format, history) == list(STUBS)
    sent = ask(session, history, format)
    assert sent[: len(first)] == first
    pdf, csv = told(format, sent)
    assert pdf.startswith("[Loaded] pdf\n") and PDF in pdf
    assert csv.startswith("[Loaded] csv\n") and CSV in csv
    assert told(format, history) == list(STUBS)  # nothing is written back


@every
def test_results_that_the_host_wrote_hold_the_texts(
    session: RuntimeSession, format: MessageFormat
) -> None:
    history = [asked(format), REPLIES[format]()]
    session.request(history, format=format)
    for id, name in (("c1", "pdf"), ("c2", "csv")):
        session.call_sync("skill_load", {"skill": name}, id)
    sent = ask(session, [*history, *results(format, *STUBS)], format)
    assert [text.split("\n")[0] for text in told(format, sent)] == ["[Loaded] pdf", "[Loaded] csv"]


@every
def test_each_request_begins_with_the_whole_of_the_one_before(
    session: RuntimeSession, format: MessageFormat
) -> None:
    history: list[Any] = [asked(format)]
    requests = [session.request(history, format=format, system="You help.")]
    for number in range(3):
        plain = json.dumps(read_plain(REPLIES[format]()))
        reply = json.loads(plain.replace('"c1"', f'"a{number}"').replace('"c2"', f'"b{number}"'))
        history += [reply, *session.answer_calls(reply, format)]
        requests.append(session.request(history, format=format, system="You help."))
    lists = [json.dumps(one.pop(SENT[format])) for one in requests]
    assert all(new.startswith(old[:-1]) and new != old for old, new in pairwise(lists))
    assert all(one == requests[0] for one in requests)


@every
def test_the_system_text_is_where_the_vendor_wants_it(
    session: RuntimeSession, format: MessageFormat
) -> None:
    request = session.request([asked(format)], format=format, system="You help.")
    keys = {
        "openai": {"messages"},
        "responses": {"input", "instructions"},
        "anthropic": {"system", "messages", "cache_control"},
        "gemini": {"contents", "config"},
    }
    assert request.keys() == keys[format]
    assert system_of(request).startswith("You help.\n\nSkills provide")
    assert "<name>pdf</name>" in system_of(request)
    items = request[SENT[format]]
    assert len(items) == (2 if format == "openai" else 1)


@pytest.mark.parametrize("format", ["responses", "anthropic"])
def test_a_system_message_at_the_beginning_joins_it(
    session: RuntimeSession, format: MessageFormat
) -> None:
    history = [{"role": "system", "content": "Be brief."}, asked(format)]
    request = session.request(history, format=format, system="You help.")
    assert system_of(request).startswith("You help.\n\nBe brief.\n\nSkills provide")
    assert request[SENT[format]] == [asked(format)]


@every
def test_tools_go_where_they_belong(session: RuntimeSession, format: MessageFormat) -> None:
    tools = session.tools(format)
    assert "tools" not in session.request([asked(format)], format=format)
    request = session.request([asked(format)], format=format, tools=tools)
    assert (request["config"] if format == "gemini" else request)["tools"] == tools


def test_tools_of_the_responses_api_are_flat_and_not_strict(session: RuntimeSession) -> None:
    load = next(one for one in session.tools("responses") if one["name"] == "skill_load")
    assert load["type"] == "function" and load["strict"] is False
    assert "skill" in load["parameters"]["properties"]  # type: ignore[index]


def test_what_a_vendor_wants_back_comes_back_unchanged(session: RuntimeSession) -> None:
    sent = ask(session, [asked("anthropic"), REPLIES["anthropic"]()], "anthropic")
    thought = {"type": "thinking", "thinking": "Two.", "signature": "sig=="}
    assert sent[1]["content"][0] == thought
    sent = ask(session, [asked("responses"), *response_reply().output], "responses")
    reasoning = {"id": "rs", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
    assert sent[1] == reasoning
    sent = ask(session, [asked("gemini"), gemini_reply()], "gemini")
    assert base64.urlsafe_b64decode(sent[1]["parts"][1]["thoughtSignature"]) == b"\xff\xfesig"
    assert gemini.Content.model_validate(sent[1]) == gemini_reply()


@every
def test_what_changed_is_noted_with_the_message_of_the_user(
    session: RuntimeSession, format: MessageFormat, tree: Tree
) -> None:
    history = [asked(format), REPLIES[format](), *results(format, "one", "two")]
    session.request([asked(format)], format=format)
    tree.skill("project/.agents/skills/png", text="Look.\n")
    after = asked(format, "And this?")
    if format == "anthropic":  # the results and the text of a user may share a message
        blocks = history.pop()["content"]
        after = {"role": "user", "content": [*blocks, {"type": "text", "text": "And this?"}]}
    items = ask(session, [*history, after], format)
    last = json.dumps(items[-1])
    assert "png" in last and last.index("png") < last.index("And this?")
    if format == "anthropic":
        kinds = [block["type"] for block in items[-1]["content"]]
        assert kinds == ["tool_result", "tool_result", "text", "text"]
    again = ask(session, [*history, after, REPLIES[format]()], format)
    assert again[: len(items)] == items


@every
def test_a_skill_without_an_answer_is_in_the_system_text_or_behind_it(
    session: RuntimeSession, format: MessageFormat
) -> None:
    session.declare(["pdf"])
    request = session.request([asked(format)], format=format)
    whole = json.dumps(request)
    assert whole.count(PDF) == 1 and whole.index("Loaded skill context:") < whole.index(PDF)
    assert PDF not in json.dumps(request[SENT[format]][-1])
    session.unload("pdf")
    assert PDF not in json.dumps(session.request([asked(format)], format=format))


@every
def test_an_unloaded_skill_is_gone_from_its_answer(
    session: RuntimeSession, format: MessageFormat
) -> None:
    history = [asked(format), reply := REPLIES[format]()]
    session.request(history[:1], format=format)
    history += session.answer_calls(reply, format)
    session.unload("pdf")
    pdf, csv = told(format, ask(session, history, format))
    assert pdf == "unloaded since: pdf (load it again if it is needed)"
    assert CSV in csv


# Calls


@every
def test_a_reply_without_calls_has_no_answers(
    session: RuntimeSession, format: MessageFormat
) -> None:
    said: dict[str, object] = {"role": "assistant", "content": "Done."}
    if format == "gemini":
        said = {"role": "model", "parts": [{"text": "Done."}]}
    assert session.answer_calls(said, format) == []


BAD: dict[MessageFormat, Any] = {
    "openai": {
        "role": "assistant",
        "tool_calls": [{"id": "c", "function": {"name": "skill_load", "arguments": '{"skill"'}}],
    },
    "responses": [
        {"type": "function_call", "call_id": "c", "name": "skill_load", "arguments": "NaN"}
    ],
    "anthropic": {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c", "name": "skill_load", "input": ["pdf"]}],
    },
    "gemini": {"role": "model", "parts": [{"functionCall": {"name": "no_such", "args": None}}]},
}


@every
def test_a_mistake_of_the_model_is_an_answer_that_says_so(
    session: RuntimeSession, format: MessageFormat
) -> None:
    session.request([asked(format)], format=format)
    [answer] = session.answer_calls(BAD[format], format)
    if format == "anthropic":
        [block] = answer["content"]
        assert block["is_error"] is True and block["tool_use_id"] == "c"
    elif format == "gemini":
        [part] = answer["parts"]
        assert "no_such" in part["function_response"]["response"]["error"]
    else:
        text = answer.get("content") or answer["output"]
        assert "skill_load" in text or "JSON" in text


@every
def test_calls_of_other_tools_go_to_the_host(
    session: RuntimeSession, format: MessageFormat
) -> None:
    calls = json.dumps(read_plain(REPLIES[format]())).replace("skill_load", "weather", 1)
    asked_for: list[tuple[str, object]] = []

    def weather(name: str, arguments: object) -> str:
        asked_for.append((name, arguments))
        return "sunny"

    session.request([asked(format)], format=format)
    answers = session.answer_calls(json.loads(calls), format, others=weather)
    assert asked_for == [("weather", {"skill": "pdf"})]
    assert told(format, answers) == ["sunny", "loaded: csv"]


def read_plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_none=True)


def test_arguments_that_are_no_json_never_reach_the_host(session: RuntimeSession) -> None:
    call = {"id": "c", "function": {"name": "weather", "arguments": '{"city": '}}
    reply = {"role": "assistant", "tool_calls": [call]}
    [answer] = session.answer_calls(reply, "openai", others=lambda *_: pytest.fail("was called"))
    assert answer["content"].startswith("the arguments of weather:")


def test_only_calls_without_a_result_are_run(session: RuntimeSession) -> None:
    history = [*response_reply().output, *results("responses", *STUBS)[:1]]
    [answer] = session.answer_calls(history, "responses")
    assert answer["call_id"] == "c2"


PARTS: dict[MessageFormat, list[Callable[[], Any]]] = {
    "openai": [lambda: chat_reply().tool_calls],
    "responses": [lambda: response_reply().output, lambda: response_reply().output[2:]],
    "anthropic": [lambda: REPLIES["anthropic"]().content],
    "gemini": [
        lambda: gemini_reply().parts,
        lambda: [part.function_call for part in gemini_reply().parts or () if part.function_call],
    ],
}


@every
def test_the_parts_of_a_reply_are_taken_too(session: RuntimeSession, format: MessageFormat) -> None:
    for make in PARTS[format]:
        session.request([asked(format)], format=format)
        assert told(format, session.answer_calls(make(), format)) == list(STUBS)


def test_calls_can_be_answered_in_a_coroutine(session: RuntimeSession) -> None:
    async def main() -> Any:
        await session.request_async([asked("openai")], format="openai")
        return await session.answer_calls_async(chat_reply(), "openai")

    assert told("openai", anyio.run(main)) == list(STUBS)


# What is special about each


def test_calls_of_gemini_without_ids_keep_their_texts_apart(session: RuntimeSession) -> None:
    history: list[Any] = [asked("gemini")]
    requests = [ask(session, history, "gemini")]
    for _ in range(2):
        history.append(reply := gemini_reply(None, None))
        history += session.answer_calls(reply, "gemini")
        requests.append(ask(session, history, "gemini"))
    assert all(new[: len(old)] == old for old, new in pairwise(requests))
    assert "skillbelt-" not in json.dumps(requests)
    assert [PDF in text for text in told("gemini", requests[1])] == [True, False]
    for content in requests[-1]:
        gemini.Content.model_validate(content)


def test_a_cut_history_of_gemini_has_its_skill_elsewhere(session: RuntimeSession) -> None:
    history: list[Any] = [asked("gemini")]
    session.request(history, format="gemini")
    history.append(reply := gemini_reply(None, None))
    history += session.answer_calls(reply, "gemini")
    history.append(gemini_reply(None, None))
    history += results("gemini", "one", "two")  # of other calls, which the host answered
    request = session.request([history[0], *history[3:]], format="gemini", new_turn=False)
    assert PDF in request["config"]["system_instruction"]
    assert PDF not in json.dumps(request["contents"])


@pytest.mark.parametrize(
    ("marks", "whole"), [(0, True), (1, True), (2, True), (3, False), (4, False)]
)
def test_no_request_has_more_marks_than_anthropic_takes(
    session: RuntimeSession, marks: int, whole: bool
) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    tools = [
        {**one, **(mark if at < marks else {})} for at, one in enumerate(session.tools("anthropic"))
    ]
    request = session.request([asked("anthropic")], format="anthropic", tools=tools)
    assert json.dumps(request).count('"cache_control"') == max(min(marks + 2, 4), marks)
    assert ("cache_control" in request) is whole


def test_marks_of_the_host_in_messages_are_left_to_it(session: RuntimeSession) -> None:
    block = {"type": "text", "text": ASKED, "cache_control": {"type": "ephemeral"}}
    request = session.request([{"role": "user", "content": [block]}], format="anthropic")
    assert "cache_control" not in request
    assert request["messages"][0]["content"] == [block]
    assert "cache_control" not in request["system"][-1]


def test_a_mark_that_the_host_changes_is_its_own(session: RuntimeSession) -> None:
    first = session.request([asked("anthropic")], format="anthropic")
    first["cache_control"]["ttl"] = first["system"][-1]["cache_control"]["ttl"] = "1h"
    assert '"ttl"' not in json.dumps(session.request([asked("anthropic")], format="anthropic"))


def test_a_response_that_the_vendor_keeps_is_continued(session: RuntimeSession) -> None:
    session.declare(["csv"])
    first = session.request([asked("responses")], format="responses")
    assert CSV in json.dumps(first["input"])
    answers = session.answer_calls(response_reply(), "responses")
    second = session.request(answers, format="responses", previous_response_id="resp")
    assert second["previous_response_id"] == "resp"
    assert second["instructions"] == first["instructions"]
    assert [one["type"] for one in second["input"]] == ["function_call_output"] * 2
    assert PDF in second["input"][0]["output"]
    more = [{"type": "function_call_output", "call_id": "c3", "output": "x"}]
    third = session.request(more, format="responses", previous_response_id="resp2")
    assert third["input"] == more  # the vendor has the skills
    assert [one.name for one in session.loaded()] == ["csv", "pdf"]
    session.request([asked("responses")], format="responses", previous_response_id="resp3")
    assert session.loaded() == []  # the user said something: another turn


@every
def test_a_tool_of_the_hosts_may_be_a_coroutine(
    session: RuntimeSession, format: MessageFormat
) -> None:
    async def weather(name: str, arguments: dict[str, Any]) -> str:
        await anyio.sleep(0)
        return f"{name} for {arguments['skill']}"

    calls = json.loads(json.dumps(read_plain(REPLIES[format]())).replace("skill_load", "weather"))

    async def main() -> list[Any]:
        return await session.answer_calls_async(calls, format, others=weather)

    assert told(format, anyio.run(main)) == ["weather for pdf", "weather for csv"]


def test_cancelling_ends_a_coroutine_of_the_hosts(session: RuntimeSession) -> None:
    ended: list[bool] = []

    async def main() -> None:
        async def wait(*_: object) -> str:
            try:
                scope.cancel()
                await anyio.sleep_forever()
            finally:
                ended.append(True)
            return "never"

        calls = json.loads(json.dumps(read_plain(chat_reply())).replace("skill_load", "wait"))
        with anyio.CancelScope() as scope:
            await session.answer_calls_async(calls, "openai", others=wait)

    anyio.run(main)
    assert ended == [True]


@pytest.mark.parametrize("written", ["[1]", '"x"', "7"])
def test_arguments_that_are_no_object_never_reach_a_tool_of_the_hosts(
    session: RuntimeSession, written: str
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "mine", "arguments": written}}
    reply = {"role": "assistant", "content": None, "tool_calls": [call]}
    [answer] = session.answer_calls(reply, "openai", others=lambda *_: pytest.fail("was called"))
    assert answer["content"] == "the arguments of mine: they must be a JSON object"


def test_a_tool_of_the_hosts_gives_parts_of_the_vendor(session: RuntimeSession) -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    reply = {"role": "assistant", "content": [call]}
    answers = session.answer_calls(reply, "anthropic", others=lambda *_: [image])
    assert answers[0]["content"][0]["content"] == [image]
    sent = session.request([asked("anthropic"), reply, *answers], format="anthropic")
    assert sent["messages"][-1] == answers[0]


async def gives_text(*_: object) -> str:
    return "text"


@every
@pytest.mark.parametrize(
    ("others", "says"),
    [
        (lambda *_: {"sun": 1}, "for mine: expected text, found a dict with sun"),
        (lambda *_: None, "for mine: expected text, found nothing"),
        (gives_text, "for mine: expected text, .*; answer_calls_async awaits it"),
    ],
)
def test_what_no_model_can_read_is_one_error(
    session: RuntimeSession, format: MessageFormat, others: Any, says: str
) -> None:
    calls = json.loads(json.dumps(read_plain(REPLIES[format]())).replace("skill_load", "mine"))
    with pytest.raises(ConfigError, match=says):
        session.answer_calls(calls, format, others=others)


@pytest.mark.parametrize(
    ("give", "says"),
    [
        (lambda one: one.request([], system="x"), "system needs format"),
        (lambda one: one.request([], tools=[]), "tools needs format"),
        (
            lambda one: one.request([], format="openai", previous_response_id="r"),
            "previous_response_id needs format='responses'",
        ),
        (lambda one: one.request([], format="x"), "format: expected one of openai, responses"),
        (lambda one: one.request([], format="openai", system=7), "system: expected text"),
        (lambda one: one.request([], format="openai", tools={}), "tools: expected a list"),
        (
            lambda one: one.request([], format="openai", tools=one.tools()),
            r"tools\[0\]: expected session.tools\('openai'\)",
        ),
        (
            lambda one: one.request([{**OUTPUT, "output": 7}], format="responses"),
            r"history\[0\].output: expected text",
        ),
        (lambda one: one.tools("x"), "format must be one of openai, responses, anthropic"),
        (lambda one: one.answer_calls(7, "gemini"), r"reply\[0\]: expected a content of Gemini"),
    ],
)
def test_what_does_not_fit_is_one_error(
    session: RuntimeSession, give: Callable[[Any], object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        give(session)
