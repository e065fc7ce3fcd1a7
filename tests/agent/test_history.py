"""An agent in a session: its messages, and what a step stores."""

from __future__ import annotations

import pytest

from skillbelt import Runtime
from skillbelt.agent import Agent, Called, Reply
from skillbelt.agent.history import INTERRUPTED, AgentContext, repair_history, result_message
from skillbelt.conversation.messages import Message
from skillbelt.store import SessionKey
from skillbelt.store.memory import MemoryStore
from tests.agent.scripted import USAGE

KEY = SessionKey("skillbelt", "ada", "chat")
CALL = Called("c1", "skill_load", {"skill": "greet"})


@pytest.fixture
def context(belt: Runtime) -> AgentContext:
    return AgentContext(Agent(belt), MemoryStore(), KEY)


def test_a_message_is_kept(context: AgentContext) -> None:
    context.commit([{"role": "user", "content": "Hi"}])
    other = AgentContext(context.agent, context.store, KEY)
    other.read()
    assert other.history == context.history == [{"role": "user", "content": "Hi"}]


def test_what_a_request_changes_is_kept_with_the_answer_to_it(context: AgentContext) -> None:
    context.commit([{"role": "user", "content": "Hi"}])
    context.prompt()
    assert len(context.store.events(KEY)) == 1
    context.store_reply(Reply("Hello", usage=USAGE))
    types = [event.type for event in context.store.events(KEY)]
    assert types == ["message", "run_started", "usage", "message"]
    assert "temp:skill:system" in context.store.state(KEY)


def test_a_request_that_is_dropped_leaves_nothing(context: AgentContext) -> None:
    context.commit([{"role": "user", "content": "Hi"}])
    context.prompt()
    context.drop()
    assert context.store.state(KEY) == {}
    assert len(context.store.events(KEY)) == 1


def test_a_turn_begins_once(context: AgentContext) -> None:
    context.commit([{"role": "user", "content": "Hi"}])
    context.prompt()
    context.store_reply(Reply("", (CALL,)))
    context.commit([result_message(CALL, "loaded: greet")])
    context.prompt()
    context.store_reply(Reply("Hello"))
    types = [event.type for event in context.store.events(KEY)]
    assert types.count("run_started") == 1


def test_the_same_words_again_begin_another_turn(context: AgentContext) -> None:
    for _ in range(2):
        context.commit([{"role": "user", "content": "Hi"}])
        context.prompt()
        context.store_reply(Reply("Hello"))
    assert [event.type for event in context.store.events(KEY)].count("run_started") == 2


def test_calls_without_an_answer_are_known(context: AgentContext) -> None:
    context.commit([{"role": "user", "content": "Hi"}])
    context.store_reply(Reply("", (CALL,)))
    assert context.pending() == [CALL]
    context.commit([result_message(CALL, "done")])
    assert context.pending() == []


def test_what_the_user_wants_is_in_their_words(context: AgentContext) -> None:
    context.commit([{"role": "user", "content": "<skill_content>", "said": "/greet Bob"}])
    context.commit([{"role": "user", "content": "Code gave 3.", "goes_on": True}])
    assert context.question_text() == "/greet Bob"


def test_messages_of_another_agent_are_not_read(context: AgentContext) -> None:
    other = AgentContext(context.agent._replace(name="other"), context.store, KEY)
    other.commit([{"role": "user", "content": "Psst"}])
    context.read()
    assert context.history == []


def test_another_page_of_the_conversation_is_written_apart(context: AgentContext) -> None:
    writes = context.journal.new_writes()
    context.session_for(writes).call_sync("skill_load", {"skill": "greet"}, "c1")
    assert writes.delta["temp:skill:loaded:greet"] == "1"
    assert context.writes.events_written == []


def test_tools_are_made_once_for_as_long_as_the_skills_last(context: AgentContext) -> None:
    context.commit([{"role": "user", "content": "Hi"}])
    assert context.prompt().tools[0] is context.prompt().tools[0]


ASKING: Message = {"role": "assistant", "content": "", "tool_calls": [CALL._asdict()]}
USER: Message = {"role": "user", "content": "Hi"}


def test_a_history_that_is_whole_stays_as_it_is() -> None:
    messages = [USER, ASKING, result_message(CALL, "done"), USER]
    assert repair_history(messages) == messages


def test_an_answer_that_nobody_asked_for_is_left_out() -> None:
    late = result_message(CALL, "late")
    assert repair_history([USER, ASKING, result_message(CALL, "done"), USER, late]) == [
        USER,
        ASKING,
        result_message(CALL, "done"),
        USER,
    ]


def test_a_call_that_was_never_answered_is_answered() -> None:
    assert repair_history([USER, ASKING, USER])[2] == result_message(CALL, INTERRUPTED, "open")


def test_the_last_calls_may_be_open() -> None:
    assert repair_history([USER, ASKING]) == [USER, ASKING]


def test_what_comes_after_the_end_of_a_step_is_not_kept(context: AgentContext) -> None:
    """As by a thread that is still running when the run is ended."""
    writes = context.journal.new_writes()
    context.drop()
    context.commit([{"role": "user", "content": "late"}], parts=[writes])
    assert context.history == []
    assert context.store.events(KEY) == []
