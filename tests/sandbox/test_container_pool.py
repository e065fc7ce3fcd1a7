"""Containers are shared out fairly: to one run each, never too many, never one that has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.container.pool import Container, ContainerPool

HANG_SECONDS = 500.0


class Box(Container):
    """A container without an engine behind it."""

    def __init__(self, key: str) -> None:
        self.key, self.idle_since = key, 0.0
        self.living, self.ended = True, threading.Event()

    def alive(self) -> bool:
        return self.living

    def close(self) -> None:
        self.ended.set()

    def discard(self) -> None:
        self.ended.set()


class Maker:
    """Makes boxes and counts them."""

    def __init__(self) -> None:
        self.made: list[Box] = []

    def take(self, pool: ContainerPool, key: str = "a", patience: float = HANG_SECONDS) -> Box:
        found = pool.take(key, lambda: self._make(key), patience)
        assert isinstance(found, Box)
        return found

    def _make(self, key: str) -> Box:
        self.made.append(Box(key))
        return self.made[-1]


@pytest.fixture
def maker() -> Maker:
    return Maker()


@pytest.fixture
def pool() -> Iterator[ContainerPool]:
    made = ContainerPool(2, 600.0, reuse=True)
    yield made
    made.close()


def test_one_that_was_given_back_is_used_again(pool: ContainerPool, maker: Maker) -> None:
    first = maker.take(pool)
    pool.give_back(first)
    assert maker.take(pool) is first


def test_one_in_use_is_nobody_elses(pool: ContainerPool, maker: Maker) -> None:
    assert maker.take(pool) is not maker.take(pool)


def test_one_of_another_kind_is_not_taken(pool: ContainerPool, maker: Maker) -> None:
    pool.give_back(maker.take(pool, "a"))
    assert maker.take(pool, "b").key == "b"


def test_one_that_has_ended_is_replaced(pool: ContainerPool, maker: Maker) -> None:
    first = maker.take(pool)
    pool.give_back(first)
    first.living = False
    assert maker.take(pool) is not first
    assert first.ended.is_set()


def test_the_one_that_waited_longest_makes_way(pool: ContainerPool, maker: Maker) -> None:
    first, second = maker.take(pool, "a"), maker.take(pool, "b")
    pool.give_back(first)
    pool.give_back(second)
    maker.take(pool, "c")
    assert first.ended.is_set() and not second.ended.is_set()


def test_who_finds_none_waits_for_one(pool: ContainerPool, maker: Maker) -> None:
    first, _ = maker.take(pool), maker.take(pool)
    found: list[Box] = []
    waiting = threading.Thread(target=lambda: found.append(maker.take(pool)))
    waiting.start()
    pool.give_back(first)
    waiting.join(HANG_SECONDS)
    assert found == [first]


def test_nobody_waits_for_ever(pool: ContainerPool, maker: Maker) -> None:
    maker.take(pool)
    maker.take(pool)
    with pytest.raises(SandboxUnavailable, match=r"all 2 containers are in use \(max_containers\)"):
        maker.take(pool, patience=0.05)


def test_one_that_is_being_emptied_is_waited_for(pool: ContainerPool, maker: Maker) -> None:
    """A new one takes longer."""
    first = maker.take(pool)
    pool.finishing(first)
    threading.Timer(0.02, pool.give_back, (first,)).start()
    assert maker.take(pool) is first


def test_but_not_for_long(pool: ContainerPool, maker: Maker) -> None:
    """The next call does not wait for a slow removal."""
    first = maker.take(pool)
    pool.finishing(first)
    assert maker.take(pool) is not first


def test_one_that_could_not_be_made_takes_no_room(pool: ContainerPool, maker: Maker) -> None:
    def broken() -> Container:
        raise SandboxUnavailable("no")

    for _ in range(5):
        with pytest.raises(SandboxUnavailable, match="no"):
            pool.take("a", broken, 0.05)
    assert maker.take(pool) is not maker.take(pool)


def test_idle_ones_go_after_a_while(maker: Maker) -> None:
    pool = ContainerPool(2, 0.05, reuse=True)
    first, second = maker.take(pool), maker.take(pool)
    for one in (first, second):
        pool.give_back(one)
        assert one.ended.wait(HANG_SECONDS)
    pool.give_back(maker.take(pool))
    assert maker.made[-1].ended.wait(HANG_SECONDS)


def test_without_reuse_each_goes_after_its_run(maker: Maker) -> None:
    pool = ContainerPool(2, 600.0, reuse=False)
    first = maker.take(pool)
    pool.give_back(first)
    assert first.ended.is_set()


def test_after_closing_those_in_use_go_with_their_runs(pool: ContainerPool, maker: Maker) -> None:
    idle, busy = maker.take(pool), maker.take(pool)
    pool.give_back(idle)
    pool.close()
    assert idle.ended.is_set() and not busy.ended.is_set()
    pool.give_back(busy)
    assert busy.ended.is_set()


def test_many_at_once_get_one_each(maker: Maker) -> None:
    pool = ContainerPool(3, 600.0, reuse=True)
    used: list[Box] = []
    faults: list[Box] = []

    def work() -> None:
        for _ in range(20):
            box = maker.take(pool)
            (faults if box in used else used).append(box)
            time.sleep(0.001)
            used.remove(box)
            pool.give_back(box)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert (faults, len(maker.made) <= 3) == ([], True)
    pool.close()
