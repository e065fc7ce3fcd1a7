"""An agent in a session: its messages, and what a step keeps."""

from __future__ import annotations

import pytest

from skillbelt import Runtime
from skillbelt.agent import Agent, Called, Reply
from skillbelt.agent.history import INTERRUPTED, Place, answer_to, mended
from skillbelt.conversation.messages import Message
from skillbelt.store import SessionKey
from skillbelt.store.memory import MemoryStore
from tests.agent.scripted import USAGE

KEY = SessionKey("skillbelt", "ada", "chat")
CALL = Called("c1", "skill_load", {"skill": "greet"})


@pytest.fixture
def place(belt: Runtime) -> Place:
    return Place(Agent(belt), MemoryStore(), KEY)


def test_a_message_is_kept(place: Place) -> None:
    place.commit([{"role": "user", "content": "Hi"}])
    other = Place(place.agent, place.store, KEY)
    other.read()
    assert other.history == place.history == [{"role": "user", "content": "Hi"}]


def test_what_a_request_changes_is_kept_with_the_answer_to_it(place: Place) -> None:
    place.commit([{"role": "user", "content": "Hi"}])
    place.prompt()
    assert len(place.store.events(KEY)) == 1
    place.answered(Reply("Hello", usage=USAGE))
    types = [event.type for event in place.store.events(KEY)]
    assert types == ["message", "run_started", "usage", "message"]
    assert "temp:skill:system" in place.store.state(KEY)


def test_a_request_that_is_dropped_leaves_nothing(place: Place) -> None:
    place.commit([{"role": "user", "content": "Hi"}])
    place.prompt()
    place.drop()
    assert place.store.state(KEY) == {}
    assert len(place.store.events(KEY)) == 1


def test_a_turn_begins_once(place: Place) -> None:
    place.commit([{"role": "user", "content": "Hi"}])
    place.prompt()
    place.answered(Reply("", (CALL,)))
    place.commit([answer_to(CALL, "loaded: greet")])
    place.prompt()
    place.answered(Reply("Hello"))
    types = [event.type for event in place.store.events(KEY)]
    assert types.count("run_started") == 1


def test_the_same_words_again_begin_another_turn(place: Place) -> None:
    for _ in range(2):
        place.commit([{"role": "user", "content": "Hi"}])
        place.prompt()
        place.answered(Reply("Hello"))
    assert [event.type for event in place.store.events(KEY)].count("run_started") == 2


def test_calls_without_an_answer_are_known(place: Place) -> None:
    place.commit([{"role": "user", "content": "Hi"}])
    place.answered(Reply("", (CALL,)))
    assert place.pending() == [CALL]
    place.commit([answer_to(CALL, "done")])
    assert place.pending() == []


def test_what_the_user_wants_is_in_their_words(place: Place) -> None:
    place.commit([{"role": "user", "content": "<skill_content>", "said": "/greet Bob"}])
    place.commit([{"role": "user", "content": "Code gave 3.", "goes_on": True}])
    assert place.asked() == "/greet Bob"


def test_messages_of_another_agent_are_not_read(place: Place) -> None:
    other = Place(place.agent._replace(name="other"), place.store, KEY)
    other.commit([{"role": "user", "content": "Psst"}])
    place.read()
    assert place.history == []


def test_another_page_of_the_conversation_is_written_apart(place: Place) -> None:
    page = place.journal.page()
    place.on(page).call_sync("skill_load", {"skill": "greet"}, "c1")
    assert page.delta["temp:skill:loaded:greet"] == "1"
    assert place.page.written == []


def test_tools_are_made_once_for_as_long_as_the_skills_last(place: Place) -> None:
    place.commit([{"role": "user", "content": "Hi"}])
    assert place.prompt().tools[0] is place.prompt().tools[0]


ASKING: Message = {"role": "assistant", "content": "", "tool_calls": [CALL._asdict()]}
USER: Message = {"role": "user", "content": "Hi"}


def test_a_history_that_is_whole_stays_as_it_is() -> None:
    messages = [USER, ASKING, answer_to(CALL, "done"), USER]
    assert mended(messages) == messages


def test_an_answer_that_nobody_asked_for_is_left_out() -> None:
    late = answer_to(CALL, "late")
    assert mended([USER, ASKING, answer_to(CALL, "done"), USER, late]) == [
        USER,
        ASKING,
        answer_to(CALL, "done"),
        USER,
    ]


def test_a_call_that_was_never_answered_is_answered() -> None:
    assert mended([USER, ASKING, USER])[2] == answer_to(CALL, INTERRUPTED, "open")


def test_the_last_calls_may_be_open() -> None:
    assert mended([USER, ASKING]) == [USER, ASKING]


def test_what_comes_after_the_end_of_a_step_is_not_kept(place: Place) -> None:
    """As by a thread that is still on its way when the run is ended."""
    page = place.journal.page()
    place.drop()
    place.commit([{"role": "user", "content": "late"}], parts=[page])
    assert place.history == []
    assert place.store.events(KEY) == []
