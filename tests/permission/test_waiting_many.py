from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from skillbelt.permission.rules import Answer, AnswerKind, Request
from skillbelt.permission.waiting import Pending, Settled, WaitingRequests
from tests.desks import HANG_SECONDS, PDF, Listener, asked, ours, result, until


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    until(lambda: not ours())


@pytest.fixture
def small_stacks() -> Iterator[None]:
    before = threading.stack_size(256 * 1024)
    yield
    threading.stack_size(before)


def held(desk: WaitingRequests) -> int:
    """Return how many entries a desk holds in total."""
    return sum(len(value) for value in vars(desk).values() if isinstance(value, dict))


@pytest.mark.parametrize("many", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_requests_settle_as_they_are_answered(small_stacks: None, many: int) -> None:
    with closing(WaitingRequests()) as desk:
        listener = Listener(desk)
        alone = held(desk)
        futures = {}
        for number in range(many):
            name = str(number)
            futures[name] = asked(desk, PDF._replace(skill=name, session=name))
        ids = {one.request.skill: one.id for one in (listener.next() for _ in range(many))}
        assert len(desk.pending()) == len(ids) == many
        order = random.Random(4).sample(sorted(ids), many)
        for part in (order[: many // 2], order[many // 2 :]):
            assert not any(futures[name].done() for name in part)
            for name in part:
                assert desk.answer(ids[name], Answer("once", name))
            assert all(result(futures[name]).answer == Answer("once", name) for name in part)
        assert desk.pending() == []
        assert held(desk) == alone


class Model:
    """A model of a desk's promises: outcomes by number, decided one step at a time."""

    def __init__(self) -> None:
        self.waiting: dict[int, Request] = {}
        self.outcomes: dict[int, str] = {}

    def settle(self, by: str, reached: Callable[[Request], bool]) -> None:
        for number in [one for one, request in self.waiting.items() if reached(request)]:
            del self.waiting[number]
            self.outcomes[number] = by

    def answer(self, number: int, kind: AnswerKind) -> bool:
        if number not in self.waiting:
            return False
        request = self.waiting[number]
        by = {"once": "once", "always": "always", "reject": "rejected"}[kind]
        self.outcomes[number] = by
        del self.waiting[number]
        if kind == "always":
            self.settle(by, lambda other: other[:3] == request[:3] and other.skill == request.skill)
        if kind == "reject" and request.session:
            self.settle(by, lambda other: other.session == request.session)
        return True


@pytest.mark.parametrize("seed", range(12))
def test_any_steps_end_as_the_model_says(seed: int) -> None:
    chance = random.Random(seed)
    model, futures, ids = Model(), {}, {}
    desk = WaitingRequests()
    listener = Listener(desk)
    for number in range(60):
        skill, session = chance.choice("abcd"), chance.choice(["", "s1", "s2", "s3"])
        request = PDF._replace(skill=skill, session=session)
        futures[number] = asked(desk, request)
        ids[number] = listener.next().id
        model.waiting[number] = request
        if chance.random() < 0.5:
            kind: AnswerKind = chance.choice(["once", "once", "always", "reject"])
            chosen = chance.randrange(number + 1)
            assert desk.answer(ids[chosen], Answer(kind)) == model.answer(chosen, kind)
        assert [one.id for one in desk.pending()] == [ids[one] for one in model.waiting]
    desk.close()
    model.settle("disposed", lambda _: True)
    assert {number: result(one).by for number, one in futures.items()} == model.outcomes
    assert held(desk) == 0


class Crowd:
    """Requesters, answers and timeouts all at once; every answer is recorded."""

    def __init__(self, desk: WaitingRequests) -> None:
        self.desk = desk
        self.told: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self.counted: dict[str, AnswerKind] = {}
        self.outcomes: list[tuple[Request, Settled]] = []
        desk.listen(self.told.put)

    def ask(self, name: str) -> None:
        chance = random.Random(name)
        for number in range(40):
            skill, session = f"{name}{number % 7}", chance.choice(["", name])
            request = PDF._replace(skill=skill, session=session, agent=f"{name}/{number}")
            seconds = chance.choice([0.0, 0.002, 30])
            self.outcomes.append((request, self.desk.ask(request, seconds)))

    def answer(self, name: str) -> None:
        chance = random.Random(name)
        while pending := self.told.get(timeout=HANG_SECONDS):
            kind: AnswerKind = chance.choice(["once", "always", "reject"])
            if self.desk.answer(pending.id, Answer(kind, by=pending.request.agent)):
                self.counted[pending.request.agent] = kind

    def run(self) -> None:
        askers = [threading.Thread(target=self.ask, args=[name]) for name in "abcdefgh"]
        answerers = [threading.Thread(target=self.answer, args=[name]) for name in "xyz"]
        for thread in (*askers, *answerers):
            thread.start()
        for thread in askers:
            thread.join(HANG_SECONDS)
        for _ in answerers:
            self.told.put(None)
        for thread in answerers:
            thread.join(HANG_SECONDS)


def test_askers_answers_and_time_outs_at_once_all_end() -> None:
    """Every answer that counted is the outcome of a request.

    The others were covered or timed out.
    """
    desk = WaitingRequests()
    crowd = Crowd(desk)
    crowd.run()
    assert len(crowd.outcomes) == 8 * 40
    for request, settled in crowd.outcomes:
        given = crowd.counted.pop(request.agent, None)
        if given:
            assert settled.answer == Answer(given, by=request.agent)
        else:
            assert settled.by in ("timeout", "always", "rejected")
            assert (settled.answer is None) == (settled.by == "timeout")
    assert crowd.counted == {}
    assert desk.pending() == []
    assert held(desk) == 1
    desk.close()
