from __future__ import annotations

import asyncio
import threading

from skillbelt import Settings
from skillbelt.runtime.threads import in_thread
from tests.bounds import bounds
from tests.desks import HANG_SECONDS


class Counter:
    """Calls that wait for each other, and the most that ran at once."""

    def __init__(self, most: int, together: int) -> None:
        self.settings = Settings(limits=bounds(max_parallel_calls=most))
        self.lock = threading.Lock()
        self.now = self.peak = 0
        self.met = threading.Barrier(together)

    def work_sync(self, number: int, *, more: int = 0) -> int:
        """Return the sum, once all the calls have met here."""
        assert threading.current_thread() is not threading.main_thread()
        with self.lock:
            self.now += 1
            self.peak = max(self.peak, self.now)
        self.met.wait(HANG_SECONDS)
        with self.lock:
            self.now -= 1
        return number + more

    work = in_thread(work_sync)


async def all_of(counter: Counter, calls: int) -> list[int]:
    return await asyncio.gather(*(counter.work(number, more=1) for number in range(calls)))


def test_a_method_is_called_in_another_thread_with_what_it_was_given() -> None:
    counter = Counter(most=1, together=1)
    assert asyncio.run(counter.work(1, more=2)) == 3
    assert Counter.work.__name__ == "work_sync"


def test_no_more_calls_run_at_once_than_the_limit_says() -> None:
    counter = Counter(most=2, together=2)
    assert asyncio.run(all_of(counter, 6)) == [1, 2, 3, 4, 5, 6]
    assert counter.peak == 2


def test_each_event_loop_has_a_limit_of_its_own() -> None:
    for most in (1, 3):
        counter = Counter(most=most, together=most)
        asyncio.run(all_of(counter, 3))
        assert counter.peak == most
