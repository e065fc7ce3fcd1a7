"""The queue of runs: bounded, and shared fairly."""

from __future__ import annotations

import threading

import pytest

from skillbelt.errors import RunRefused
from skillbelt.fleet.fair_queue import FairSlots


def test_one_tenant_does_not_keep_another_from_its_turn() -> None:
    slots = FairSlots(1, max_waiting=100, max_of_tenant=100)
    first = slots.enter("greedy")
    greedy = [slots.enter("greedy") for _ in range(50)]
    modest = slots.enter("modest")
    order = []
    first.end()
    for _ in range(3):
        now = next(turn for turn in (*greedy, modest) if turn.running and not turn.ended)
        order.append(now.tenant)
        now.end()
    assert "modest" in order[:2]


def test_as_many_run_as_may() -> None:
    slots = FairSlots(2, max_waiting=10, max_of_tenant=10)
    turns = [slots.enter(name) for name in ("a", "a", "b")]
    assert [turn.running for turn in turns] == [True, True, False]
    assert slots.counts == {"running": 2, "waiting": 1}
    turns[0].end()
    turns[0].end()
    assert turns[2].wait(0)
    assert slots.counts == {"running": 2, "waiting": 0}


def test_a_full_queue_refuses() -> None:
    slots = FairSlots(1, max_waiting=3, max_of_tenant=2)
    for _ in range(3):
        slots.enter("a")
    with pytest.raises(RunRefused, match="too many runs wait already: 2 of this user"):
        slots.enter("a")
    slots.enter("b")
    with pytest.raises(RunRefused, match="3 in all; nothing was run; try again later"):
        slots.enter("c")


def test_one_that_is_cancelled_leaves_its_place() -> None:
    slots = FairSlots(1, max_waiting=3, max_of_tenant=3)
    first, second, third = (slots.enter("a") for _ in range(3))
    assert not second.wait(60, lambda: True)
    first.end()
    assert third.wait(0)


def test_a_turn_is_waited_for() -> None:
    slots = FairSlots(1, max_waiting=3, max_of_tenant=3)
    first, second = slots.enter("a"), slots.enter("a")
    found: list[bool] = []
    waiting = threading.Thread(target=lambda: found.append(second.wait(60)))
    waiting.start()
    first.end()
    waiting.join()
    assert found == [True]
