"""A run from the inside: attempts, failures, and the state it leaves in each case."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from skillbelt import ConfigError, Runtime
from skillbelt.agent import Agent, ModelFailure, Prompt, Retry, Runner, TextDelta
from skillbelt.agent.models import Piece
from tests.agent.scripted import Scripted, called, final, of, play, said
from tests.bounds import bounds
from tests.tree import Tree


@pytest.fixture(autouse=True)
def no_waiting(tree: Tree) -> None:
    bounds(retry_wait_seconds=0)


def test_a_failure_that_may_pass_is_tried_again(belt: Runtime) -> None:
    model = Scripted(ModelFailure("busy", again=True), said("Hello"))
    events = play(Agent(belt, model))
    assert of(events, Retry) == [Retry("busy")]
    assert final(events).text == "Hello"


def test_a_failure_that_lasts_is_tried_so_often(belt: Runtime) -> None:
    model = Scripted(ModelFailure("busy", again=True))
    end = final(play(Agent(belt, model, max_retries=3)))
    assert (end.reason, end.error, len(model.prompts)) == ("error", "busy", 4)


def test_a_failure_that_will_not_pass_is_not_tried_again(belt: Runtime) -> None:
    model = Scripted(ModelFailure("no credit"))
    assert final(play(Agent(belt, model))).error == "no credit"
    assert len(model.prompts) == 1


def test_a_failure_in_the_second_step_keeps_the_first(belt: Runtime) -> None:
    model = Scripted(called(("skill_load", {"skill": "greet"})), ModelFailure("no credit"))
    play(Agent(belt, model))
    session = belt.session("ada", "chat")
    assert [m["role"] for m in session.session.messages()] == ["user", "assistant", "tool"]
    assert [one.name for one in session.loaded()] == ["greet"]
    after = Scripted(said("done"))
    with Runner(Agent(belt, after)) as runner:
        assert final(list(runner.resume_sync("ada", "chat"))).text == "done"
    assert after.sent()[-1]["content"].startswith("[Loaded] greet")


def test_what_once_shows_is_shown_again_when_the_request_failed(belt: Runtime) -> None:
    """The request changes the state with its answer, or not at all."""
    once = Runtime(belt.settings.project, load_mode="once")
    load = called(("skill_load", {"skill": "greet"}))
    model = Scripted(load, ModelFailure("busy", again=True), said("done"))
    play(Agent(once, model))
    assert "mellifluous" in model.sent(1)[-1]["content"]
    assert "mellifluous" in model.sent(2)[-1]["content"]


def test_a_wrong_configuration_is_raised(belt: Runtime) -> None:
    with Runner(Agent(belt, Scripted(ConfigError("no such region")))) as runner:
        with pytest.raises(ConfigError, match="region"):
            list(runner.run_sync("ada", "chat", "Hi"))
        # The session is free for the next run.
        with pytest.raises(ConfigError, match="region"):
            list(runner.run_sync("ada", "chat", "Hi"))


class Silent:
    """A model that ends without an answer."""

    name, window_tokens = "silent", 0

    async def ask(self, prompt: Prompt) -> AsyncIterator[Piece]:
        yield TextDelta("...")


def test_a_model_that_ends_without_an_answer_is_a_failure(belt: Runtime) -> None:
    end = final(play(Agent(belt, Silent(), max_retries=0)))
    assert (end.reason, end.error) == ("error", "the model gave no answer")


class Entered(Scripted):
    """A model that records how long it is needed."""

    entered = left = 0

    async def __aenter__(self) -> Entered:
        self.entered += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.left += 1


def test_a_model_is_open_for_as_long_as_a_run(belt: Runtime) -> None:
    model = Entered(said("Hi"))
    play(Agent(belt, model))
    assert (model.entered, model.left) == (1, 1)


def test_a_model_of_pydantic_ai_is_taken_as_it_is(belt: Runtime) -> None:
    from pydantic_ai.models.test import TestModel

    model = TestModel(call_tools=["skill_list"], custom_output_text="Listed.")
    assert final(play(Agent(belt, model))).text == "Listed."
