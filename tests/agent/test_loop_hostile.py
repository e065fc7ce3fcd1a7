"""For any answer of a model, a run ends, nothing is raised, and the session is intact."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillbelt import Runtime
from skillbelt.agent import Agent, Called, Final, Reply, Usage
from skillbelt.agent.history import repair_history
from skillbelt.agent.provider import convert_messages
from skillbelt.store.memory import MemoryStore
from skillbelt.tools.definitions import DEFINITIONS, RUNNING
from tests.agent.scripted import Scripted, play
from tests.examples import examples

TEXT = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
# Real tools with valid and invalid arguments, and tools that do not exist.
NAMES = st.sampled_from(sorted(set(DEFINITIONS) - set(RUNNING))) | TEXT
KEYS = st.sampled_from(["skill", "name", "docs", "relative_path", "file_name", "offset", "mode"])
SKILL = st.sampled_from(["greet", "count", "nothing", "../greet", "*"])
ARGUMENTS = st.dictionaries(KEYS, SKILL | JSON, max_size=4) | JSON | st.text(max_size=60)
CALLS = st.lists(st.builds(Called, TEXT, NAMES, ARGUMENTS), max_size=4).map(tuple)
REPLIES = st.builds(
    Reply, TEXT, CALLS, st.just(Usage()), st.none(), st.booleans(), st.sampled_from(["", "cut"])
)


@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(replies=st.lists(REPLIES, min_size=1, max_size=5))
def test_no_answer_of_a_model_breaks_a_run(belt: Runtime, replies: list[Reply]) -> None:
    store = MemoryStore()
    events = play(Agent(belt, Scripted(*replies), max_steps=6), store=store)
    assert isinstance(events[-1], Final)
    kept = [dict(e.data) for e in store.events(store.sessions()[0].key) if e.type == "message"]
    assert repair_history(kept) == kept
    convert_messages(kept)  # and could be sent on


@pytest.mark.parametrize(
    "odd",
    [float("nan"), float("inf"), {1, 2}, object(), b"x"],
    ids=["nan", "inf", "set", "object", "bytes"],
)
def test_arguments_that_are_no_json_are_kept_as_text(belt: Runtime, odd: object) -> None:
    store = MemoryStore()
    reply = Reply(calls=(Called("c1", "skill_load", {"skill": odd}),))
    events = play(Agent(belt, Scripted(reply, Reply("done"))), store=store)
    assert isinstance(events[-1], Final)
    assert events[-1].text == "done"
