"""A conversation through the facade: requests, turns, calls, requests of users and hosts."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shutil
import time
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from skillbelt import Command, SkillNotFound
from skillbelt.conversation.state import LoadRequest
from skillbelt.errors import LoadError, PermissionDenied
from skillbelt.permission.rules import Answer, Rule
from skillbelt.permission.waiting import Pending
from skillbelt.runtime.runtime import Runtime, RuntimeSession
from skillbelt.store.memory import MemoryStore
from skillbelt.store.sqlite import SqliteStore
from tests.tree import Tree

SKILLS = "project/.agents/skills"
Message = dict[str, Any]


@pytest.fixture(autouse=True)
def _skills(tree: Tree) -> None:
    tree.setenv("XDG_STATE_HOME", tree.home / ".state")
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.", text="The body of pdf.\n")
    tree.write(f"{SKILLS}/pdf/guide.md", "The guide of pdf.\n")
    tree.skill(f"{SKILLS}/notes", "Takes notes.", text="The body of notes.\n")


class Chat:
    """A host: it keeps the history, makes calls, and sees what would be sent."""

    def __init__(self, tree: Tree, **options: Any) -> None:
        self.belt = Runtime(tree.project, store=MemoryStore(), **options)
        self.session: RuntimeSession = self.belt.session("u", "s")
        self.history: list[Message] = [{"role": "system", "content": "You help."}]

    def says(self, text: str) -> list[Message]:
        self.history.append({"role": "user", "content": text})
        return self.sent()

    def sent(self) -> list[Message]:
        before = deepcopy(self.history)
        made = self.session.request(self.history)
        assert self.history == before
        return made

    def calls(self, tool: str, **arguments: object) -> list[Message]:
        """Make a call, put it and its answer into the history, and give the next request."""
        number = f"c{len(self.history)}"
        call = {"id": number, "name": tool, "arguments": arguments}
        self.history.append({"role": "assistant", "content": "", "tool_calls": [call]})
        text = self.session.call_sync(tool, arguments, number).text
        self.history.append({"role": "tool", "tool_call_id": number, "content": text})
        return self.sent()

    def answers(self, text: str = "Done.") -> None:
        self.history.append({"role": "assistant", "content": text})


@pytest.fixture
def chat(tree: Tree) -> Chat:
    return Chat(tree)


def text(messages: list[Message]) -> str:
    return json.dumps(messages)


# Requests


def test_a_request_has_the_overview_in_its_system_message(chat: Chat) -> None:
    sent = chat.says("hello")
    assert [message["role"] for message in sent] == ["system", "user"]
    assert sent[0]["content"].startswith("You help.\n\nSkills provide specialized instructions")
    assert "<name>pdf</name>" in sent[0]["content"]
    assert "The body" not in text(sent)


def test_what_is_sent_grows_at_its_end_only(chat: Chat) -> None:
    """Case 43."""
    requests = [
        chat.says("Read it."),
        chat.calls("skill_load", skill="pdf"),
        chat.calls("skill_select_docs", skill="pdf", docs=["guide.md"]),
        chat.calls("skill_load", skill="notes"),
    ]
    for shorter, longer in pairwise(requests):
        assert longer[: len(shorter)] == shorter
    assert "The body of pdf." in requests[-1][3]["content"]
    assert "The guide of pdf." in requests[-1][5]["content"]
    assert chat.history[3]["content"] == "loaded: pdf"


def test_a_new_user_message_begins_a_turn(chat: Chat) -> None:
    """Cases 45 and 48."""
    chat.says("Read it.")
    assert "The body of pdf." in text(chat.calls("skill_load", skill="pdf"))
    chat.answers()
    assert "The body of pdf." not in text(chat.says("And now?"))
    assert chat.session.loaded() == []
    sent = text(chat.calls("skill_load", skill="notes"))
    assert "The body of notes." in sent
    assert "The body of pdf." not in sent


def test_the_host_can_say_what_a_turn_is(chat: Chat) -> None:
    """Some hosts add the time to the last user message, so that it is never the same."""
    chat.says("Read it. It is 10:00.")
    chat.session.call_sync("skill_load", {"skill": "pdf"})
    chat.history[-1] = {"role": "user", "content": "Read it. It is 10:01."}
    assert "The body of pdf." in text(chat.session.request(chat.history, new_turn=False))
    assert "The body of pdf." not in text(chat.session.request(chat.history, new_turn=True))


def test_once_is_once_and_session_stays(tree: Tree) -> None:
    """Cases 46 and 47."""
    once = Chat(tree, load_mode="once")
    once.says("Read it.")
    assert "The body of pdf." in text(once.calls("skill_load", skill="pdf"))
    assert "The body of pdf." not in text(once.sent())
    long = Chat(tree, load_mode="session")
    long.says("Read it.")
    long.calls("skill_load", skill="pdf")
    long.answers()
    assert "The body of pdf." in text(long.says("And now?"))


def test_bodies_can_go_into_the_system_message(tree: Tree) -> None:
    """Case 42."""
    chat = Chat(tree, placement="system")
    chat.says("Read it.")
    sent = chat.calls("skill_load", skill="pdf", docs=["guide.md"])
    assert "[Loaded] pdf\n\nThe body of pdf." in sent[0]["content"]
    assert "Docs loaded: guide.md" in sent[0]["content"]
    assert sent[3]["content"] == "loaded: pdf"


def test_after_the_history_was_cut_what_is_loaded_is_still_there(chat: Chat) -> None:
    """Case 44."""
    chat.says("Read it.")
    chat.calls("skill_load", skill="pdf")
    del chat.history[2:]
    sent = chat.sent()
    assert sent[1]["content"].startswith("Loaded skill context:")
    assert "The body of pdf." in sent[1]["content"]


def test_a_call_without_an_id_lands_in_its_answer_all_the_same(chat: Chat) -> None:
    chat.says("Read it.")
    call = {"id": "x", "name": "skill_load", "arguments": {"skill": "pdf"}}
    told = chat.session.call_sync("skill_load", {"skill": "pdf"}).text
    chat.history += [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x", "content": told},
    ]
    sent = chat.sent()
    assert "The body of pdf." in sent[-1]["content"]
    assert "Loaded skill context" not in text(sent)


def test_common_names_work_the_same(tree: Tree) -> None:
    chat = Chat(tree, tool_names="common", tool_profile="full")
    chat.says("Read it.")
    assert "The body of pdf." in chat.calls("load_skill", skill="pdf")[-1]["content"]
    sent = chat.calls("unload_skill", skill="pdf")
    assert "The body of pdf." not in text(sent)
    assert "unloaded" in sent[3]["content"]


def test_the_simple_tool_keeps_its_answer_under_its_common_name(tree: Tree) -> None:
    chat = Chat(tree, tool_names="common", tool_profile="simple")
    chat.says("Read it.")
    first = chat.calls("load_skill", name="pdf")
    assert '<skill_content name="pdf">' in first[-1]["content"]
    chat.answers()
    assert chat.says("And?")[: len(first)] == first


def test_a_skill_that_is_gone_is_not_sent(tree: Tree, chat: Chat) -> None:
    chat.says("Read it.")
    chat.calls("skill_load", skill="pdf", docs=["guide.md"])
    tree.path(f"{SKILLS}/pdf/guide.md").unlink()
    assert "(cannot be given now: guide.md: cannot be read" in text(chat.sent())
    shutil.rmtree(tree.path(f"{SKILLS}/pdf"))
    sent = text(chat.sent())
    assert "cannot be given now" in sent
    chat.belt.look()
    assert "cannot be given" not in text(chat.sent())


def test_agents_do_not_share_what_they_load(chat: Chat) -> None:
    """Case 52."""
    parent = chat.says("Read it.")
    child = chat.belt.session("u", "s", agent="child")
    child.request([{"role": "user", "content": "Do it."}])
    child.call_sync("skill_load", {"skill": "pdf"}, "c1")
    assert "The body of pdf." in text(child.request([{"role": "user", "content": "Do it."}]))
    assert chat.sent() == parent


def test_two_processes_share_a_conversation(tree: Tree) -> None:
    history = [{"role": "user", "content": "Read it."}]
    first = Runtime(tree.project).session("u", "s")
    sent = first.request(history)
    first.call_sync("skill_load", {"skill": "pdf"})
    second = Runtime(tree.project).session("u", "s")
    assert isinstance(second.session.store, SqliteStore)
    again = second.request(history)
    assert "The body of pdf." in text(again)
    assert again[0] == sent[0]


# The catalogue changes


def test_changes_are_told_with_the_next_user_message_and_stay_there(tree: Tree, chat: Chat) -> None:
    first = chat.says("one")
    tree.skill(f"{SKILLS}/new", "Is new.")
    shutil.rmtree(tree.path(f"{SKILLS}/notes"))
    assert chat.sent() == first
    chat.answers()
    second = chat.says("two")
    assert second[0] == first[0]
    assert second[-1]["content"].endswith("\n- added new: Is new.\n- removed notes\n\ntwo")
    chat.answers()
    third = chat.says("three")
    assert third[: len(second)] == second
    assert third[-1]["content"] == "three"
    assert chat.session.call_sync("skill_load", {"skill": "new"}).text == "loaded: new"


def test_another_process_tells_changes_too(tree: Tree) -> None:
    history = [{"role": "user", "content": "one"}]
    Runtime(tree.project).session("u", "s").request(history)
    tree.skill(f"{SKILLS}/new", "Is new.")
    history += [{"role": "assistant", "content": "yes"}, {"role": "user", "content": "two"}]
    sent = Runtime(tree.project).session("u", "s").request(history)
    assert "- added new: Is new." in sent[-1]["content"]
    assert "new" not in sent[0]["content"]


def test_skills_for_some_files_are_told_when_such_a_file_is_in_play(tree: Tree, chat: Chat) -> None:
    tree.skill(f"{SKILLS}/go", "Writes Go.", paths=["*.go"])
    chat.session.files = ["a.py"]
    assert "Writes Go." not in text(chat.says("one"))
    assert "unknown" in chat.session.call_sync("skill_load", {"skill": "go"}).text
    chat.session.files = ["a.py", "b.go"]
    chat.answers()
    assert "- added go: Writes Go." in chat.says("two")[-1]["content"]


# What is always there


def test_skills_that_are_always_there(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/house", disable_model_invocation=True, text="The rules of the house.\n")
    chat = Chat(tree, always=["house"])
    first = chat.says("one")
    assert first[0]["content"].count("The rules of the house.") == 1
    assert "[Loaded] house" in first[0]["content"]
    chat.answers()
    assert chat.says("two")[0] == first[0]
    with pytest.raises(SkillNotFound):
        Chat(tree, always="hose").says("one")


# Calls


def test_a_call_as_a_coroutine(chat: Chat) -> None:
    assert inspect.iscoroutinefunction(RuntimeSession.call)
    result = asyncio.run(chat.session.call("skill_load", {"skill": "pdf"}, call_id="c1"))
    assert result == chat.session.call_sync("skill_load", {"skill": "pdf"}, call_id="c1")
    assert RuntimeSession.call.__doc__ == RuntimeSession.call_sync.__doc__


def test_calls_at_the_same_time_lose_nothing(tree: Tree) -> None:
    names = [f"s{number}" for number in range(8)]
    for name in names:
        tree.skill(f"{SKILLS}/{name}")
    session = Runtime(tree.project).session("u", "s")

    async def all_at_once() -> None:
        await asyncio.gather(*(session.call("skill_load", {"skill": name}) for name in names))

    asyncio.run(all_at_once())
    assert [one.name for one in session.loaded()] == names


def test_tools_are_for_what_the_conversation_may_see(chat: Chat) -> None:
    one = chat.belt.session("u", "t", visible=lambda skill: skill.name == "pdf")
    assert '"enum": ["pdf"]' in json.dumps(one.tools("openai"))
    assert [tool.name for tool in one.tools()] == [tool.name for tool in chat.belt.tools()]
    assert repr(one) == "<RuntimeSession skillbelt/u/t>"


# Trust


def test_what_nobody_approved_is_refused_until_the_user_asks(tree: Tree) -> None:
    chat = Chat(tree, trust_project="ask")
    chat.says("Read it.")
    for tool, arguments in [
        ("skill_load", {"skill": "pdf"}),
        ("skill_list_docs", {"skill": "pdf"}),
        ("load_resource", {"skill": "pdf", "relative_path": "guide.md"}),
        ("read_file", {"file_name": "skill://pdf/guide.md"}),
    ]:
        result = chat.session.call_sync(tool, arguments)
        assert "Ask the user to load it with /pdf" in result.error
    assert chat.session.loaded() == []
    command = chat.session.user_command("/pdf")
    assert command is not None
    assert "The body of pdf." in command.text
    read = {"skill": "pdf", "relative_path": "guide.md"}
    assert chat.session.call_sync("load_resource", read).text == "The guide of pdf.\n"
    assert chat.belt.session("u", "other").call_sync("load_resource", read).error
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.", text="Changed since.\n")
    chat.belt.look()
    assert "no user or callback can grant it" in chat.session.call_sync("load_resource", read).error


def test_whoever_is_asked_has_the_last_word(tree: Tree) -> None:
    asked: list[tuple[str, str]] = []

    def ask(pending: Pending) -> Answer:
        asked.append((pending.request.skill, pending.request.initiator))
        return Answer("reject", "Not now.") if pending.request.skill == "pdf" else Answer("once")

    chat = Chat(tree, rules=[Rule("skill", "*", "ask")], ask=ask)
    assert "Not now." in chat.session.call_sync("skill_load", {"skill": "pdf"}).error
    assert not chat.session.call_sync("skill_load", {"skill": "notes"}).error
    command = chat.session.user_command("/pdf")
    assert command is not None
    assert "Not now." in command.error
    assert asked == [("pdf", "model"), ("notes", "model"), ("pdf", "user")]
    assert chat.session.unload("notes")
    with pytest.raises(PermissionDenied, match=r"Not now\."):
        chat.session.declare(["notes", "pdf"])
    assert chat.session.loaded() == []


# What the user asks for


@pytest.mark.parametrize("said", ["/fix a.py 'b c'", "$fix a.py 'b c'", "  /fix\n a.py 'b c' \n"])
def test_a_user_calls_a_skill_with_arguments(tree: Tree, chat: Chat, said: str) -> None:
    body = "Fix $0, then $1. All: $ARGUMENTS ${CLAUDE_SESSION_ID}\n"
    tree.skill(f"{SKILLS}/fix", text=body, disable_model_invocation=True)
    command = chat.session.user_command(said)
    assert command is not None
    assert (command.skill, command.arguments, command.error) == ("fix", "a.py 'b c'", "")
    assert "Fix a.py, then b c. All: a.py 'b c' s\n" in command.text
    assert command.text.startswith('<skill_content name="fix">')


@pytest.mark.parametrize(
    "said", ["", "/", "$", "/help me", "$HOME is full", "read /pdf", "/pdf/x", "//pdf", "/../pdf"]
)
def test_any_other_text_is_no_command(chat: Chat, said: str) -> None:
    assert chat.session.user_command(said) is None


def test_what_is_not_for_users_is_refused(tree: Tree, chat: Chat) -> None:
    tree.skill(f"{SKILLS}/inner", user_invocable=False)
    command = chat.session.user_command("/inner x")
    assert command is not None
    assert command.text == ""
    assert "cannot be called by the user" in command.error
    assert chat.session.call_sync("skill_load", {"skill": "inner"}).text == "loaded: inner"


def test_a_skill_that_can_not_be_read_is_told(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/long", text="x\n" * 600)
    command = Chat(tree, body_overflow="refuse").session.user_command("/long")
    assert command is not None
    assert "move what is not always needed into files below reference/" in command.error


def test_the_files_of_what_the_user_called_can_be_read(tree: Tree, chat: Chat) -> None:
    tree.skill(f"{SKILLS}/mine", disable_model_invocation=True)
    tree.write(f"{SKILLS}/mine/more.md", "More.\n")
    read = {"skill": "mine", "relative_path": "more.md"}
    assert chat.session.call_sync("load_resource", read).error == "unknown skill: mine"
    chat.session.user_command("/mine")
    assert chat.session.call_sync("load_resource", read).text == "More.\n"
    assert chat.session.call_sync("skill_load", {"skill": "mine"}).error == "unknown skill: mine"
    assert "mine" not in chat.session.call_sync("skill_search", {"query": "mine"}).text


# What the host asks for


def test_declared_skills_are_there_for_the_coming_turn(chat: Chat) -> None:
    chat.says("one")
    chat.answers()
    chat.session.declare(["pdf", LoadRequest("notes")])
    sent = text(chat.says("two"))
    assert "The body of pdf." in sent
    assert "The body of notes." in sent
    assert "The body of pdf." in text(chat.sent())
    chat.answers()
    assert "The body" not in text(chat.says("three"))


def test_what_is_declared_within_a_turn_goes_with_it(chat: Chat) -> None:
    chat.says("one")
    chat.calls("skill_load", skill="notes")
    chat.session.declare(["pdf"])
    assert [one.name for one in chat.session.loaded()] == ["notes", "pdf"]
    assert "The body of pdf." in text(chat.sent())
    chat.answers()
    assert "The body" not in text(chat.says("two"))


def test_what_the_host_does_to_its_list_later_changes_no_declaration(
    chat: Chat, tree: Tree
) -> None:
    for name in ("a.md", "b.md"):
        tree.write(f"project/.agents/skills/pdf/{name}", f"Text of {name}")
    docs = ["a.md"]
    chat.session.declare([LoadRequest("pdf", docs)])
    docs[0] = "b.md"
    sent = text(chat.says("one"))
    assert "Text of a.md" in sent
    assert "Text of b.md" not in sent


def test_a_declaration_with_a_fault_changes_nothing(chat: Chat) -> None:
    """Case 54."""
    with pytest.raises(LoadError, match=r"x\.md: pdf has no such document"):
        chat.session.declare(["notes", LoadRequest("pdf", ["x.md"])])
    with pytest.raises(SkillNotFound):
        chat.session.declare(["notes", "nots"])
    assert chat.session.session.events() == []
    assert chat.session.session.state() == {}


def test_what_is_put_away_does_not_come_back(chat: Chat) -> None:
    chat.session.declare(["pdf", "notes"])
    assert chat.session.unload("pdf")
    assert not chat.session.unload("pdf")
    sent = text(chat.says("one"))
    assert "The body of pdf." not in sent
    assert "The body of notes." in sent


def test_a_user_command_is_a_value(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf", text="Do it with $ARGUMENTS.")
    session = Runtime(tree.project).session("u", "s")
    assert session.user_command("hello") is None
    command = session.user_command("/pdf a.pdf")
    assert isinstance(command, Command)
    assert (command.skill, command.arguments, command.error) == ("pdf", "a.pdf", "")
    assert "Do it with a.pdf." in command.text


def test_a_body_is_read_again_only_when_its_file_changed(tree: Tree) -> None:
    chat = Chat(tree, load_mode="session")
    chat.session.declare(["pdf"])
    file = Path(chat.belt.get_skill("pdf").location)
    past = time.time() - 60
    os.utime(file, (past, past))

    def sent() -> str:
        return json.dumps(chat.session.request([{"role": "user", "content": "go"}]))

    assert "The body of pdf." in sent()
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.", text="Another body.\n")
    assert "Another body." in sent()


def test_a_host_without_requests_has_the_text_in_the_answer_and_the_load_in_the_store(
    tree: Tree,
) -> None:
    session = Runtime(tree.project, tool_profile="full").session("u", "s")
    loaded = session.call_sync("skill_load", {"skill": "pdf"}, inline=True)
    assert loaded.text.startswith("[Loaded] pdf")
    assert "The body of pdf." in loaded.text
    assert [one.name for one in session.loaded()] == ["pdf"]
    chosen = {"skill": "pdf", "docs": ["guide.md"]}
    selected = session.call_sync("skill_select_docs", chosen, inline=True)
    assert selected.text == "[Doc] guide.md\n\nThe guide of pdf.\n"
    assert selected.data["selected_docs"] == ("guide.md",)
    put_away = session.call_sync("skill_unload", {"skill": "pdf"}, inline=True)
    assert put_away.text == "unloaded: pdf"


@pytest.mark.parametrize("placement", ["tool", "system"])
def test_a_long_document_says_in_the_request_that_it_was_cut(tree: Tree, placement: str) -> None:
    tree.write(f"{SKILLS}/pdf/long.md", "A line of it.\n" * 5_000)
    chat = Chat(tree, placement=placement)
    chat.says("hello")
    made = chat.calls("skill_load", skill="pdf", docs=["long.md"])
    (holder,) = [one["content"] for one in made if "[Doc] long.md" in str(one["content"])]
    assert "[Cut to fit the limit. The rest is left out, from line " in holder
    assert "The whole text is stored: stored:" in holder


@pytest.mark.parametrize(
    ("options", "tool"),
    [
        ({}, "skill_load"),
        ({"tool_profile": "knowledge"}, "skill_load"),
        ({"tool_profile": "simple"}, "skill"),
        ({"tool_names": "common"}, "load_skill"),
        ({"tools": ["skill_list_docs"]}, ""),
    ],
)
def test_the_overview_names_the_loading_tool_that_is_offered(
    tree: Tree, options: dict[str, Any], tool: str
) -> None:
    system = Chat(tree, **options).says("hello")[0]["content"]
    assert (f"Use the {tool} tool to load a skill" in system) == bool(tool)
    assert ("tool to load a skill" in system) == bool(tool)
