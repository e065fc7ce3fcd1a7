"""Parsing the answer of a node, which may be anything."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.errors import PermissionDenied, RunLost, RunRefused
from skillbelt.fleet.node import _to_plain
from skillbelt.fleet.perform import MissingParts, Performed
from skillbelt.fleet.replies import NodeReply, error_of, read_reply
from skillbelt.running.mirrors import Carried, EntryFact
from skillbelt.sandbox.network.connection import Connection
from skillbelt.sandbox.protocol import Captured, Outcome

DONE = Performed(
    outcome=Outcome(3, stdout=Captured(b"said", 9), limits_hit=("x",), enforced={"files": "yes"}),
    carried=Carried({"work/a": EntryFact("file", 0o600, 1, "ab")}, ("work/b",), {"ab": b"x"}),
    connections=(Connection("a.example", 443, "192.0.2.1", True),),
    limits_hit=("max_network_bytes",),
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def places(plain: object, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in the answer."""
    found = [way]
    if isinstance(plain, dict):
        for key, value in plain.items():
            found += places(value, (*way, key))
    elif isinstance(plain, list | tuple):
        for number, value in enumerate(plain):
            found += places(value, (*way, number))
    return found


def change(plain: Any, way: tuple[Any, ...], value: object) -> Any:
    """The answer with another value in one place."""
    if not way:
        return value
    if isinstance(plain, dict):
        return {**plain, way[0]: change(plain[way[0]], way[1:], value)}
    return [change(one, way[1:], value) if n == way[0] else one for n, one in enumerate(plain)]


PLAIN = _to_plain(DONE, "node")


def test_an_answer_arrives_as_it_was_sent() -> None:
    reply = read_reply(PLAIN)
    assert reply.ran
    assert (reply.outcome, reply.carried) == (DONE.outcome, DONE.carried)
    assert (reply.connections, reply.limits_hit) == (DONE.connections, DONE.limits_hit)


def test_a_node_that_lacks_something_ran_nothing() -> None:
    lacking = DONE._replace(lacks=MissingParts(skills=("hash",)))
    assert not read_reply(_to_plain(lacking, "node")).ran


@given(st.sampled_from(places(PLAIN)), ANY)
def test_an_answer_with_something_else_in_it_is_read_or_is_one_error(
    way: tuple[Any, ...], value: object
) -> None:
    try:
        reply = read_reply(change(PLAIN, way, value))
    except RunLost as error:
        assert "skillbelt fleet nodes" in str(error)
    else:
        assert isinstance(reply, NodeReply)
        assert isinstance(reply.outcome.stdout.data, bytes)
        assert isinstance(reply.outcome.exit_code, int)


@given(ANY)
def test_what_is_no_answer_is_one_error(value: object) -> None:
    assert error_of("skill", value) is None
    with pytest.raises(RunLost):
        read_reply(value)


@pytest.mark.parametrize(
    ("kind", "error"),
    [("permission_denied", PermissionDenied), ("run_lost", RunLost), ("other", RunRefused)],
)
def test_an_error_of_a_node_is_one_here(kind: str, error: type[Exception]) -> None:
    found = error_of("skill", {"error": {"kind": kind, "message": "no"}})
    assert type(found) is error
