"""A bounded fair queue: the tenants that wait take turns."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from skillbelt.errors import RunRefused


class QueuePlace:
    """A place in the queue. `end` releases it, at any time; further calls do nothing."""

    def __init__(self, slots: FairSlots, tenant: str) -> None:
        self._slots, self.tenant = slots, tenant
        self.running = self.ended = False

    def wait(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Wait for the turn of this place; False on timeout, or when `is_over`."""
        return self._slots._wait(self, seconds, is_over)

    def end(self) -> None:
        """Release the place."""
        self._slots._end(self)


class FairSlots:
    """A fixed number run at once; the others wait, up to a bound for all and for each tenant.

    A tenant with a thousand waiting runs delays another one by a single run.
    """

    def __init__(self, most: int, *, max_waiting: int, max_of_tenant: int) -> None:
        self._most, self._max_waiting, self._max_of_tenant = most, max_waiting, max_of_tenant
        self._changed = threading.Condition()
        self._running = 0
        # Tenants that wait, the next one first; each with its own runs in order.
        self._waiting: OrderedDict[str, deque[QueuePlace]] = OrderedDict()

    def enter(self, tenant: str) -> QueuePlace:
        """Return a place in the queue; RunRefused when the queue is full."""
        with self._changed:
            mine, all = len(self._waiting.get(tenant, ())), sum(map(len, self._waiting.values()))
            if mine >= self._max_of_tenant or all >= self._max_waiting:
                raise RunRefused(
                    f"too many runs wait already: {mine} of this user, {all} in all; nothing was "
                    "run; try again later"
                )
            turn = QueuePlace(self, tenant)
            self._waiting.setdefault(tenant, deque()).append(turn)
            self._advance()
            return turn

    def resize(self, most: int) -> None:
        """Change how many run at once."""
        with self._changed:
            self._most = most
            self._advance()

    @property
    def counts(self) -> dict[str, int]:
        """Return how many run, and how many wait."""
        with self._changed:
            return {"running": self._running, "waiting": sum(map(len, self._waiting.values()))}

    def _advance(self) -> None:
        """Let the next ones run; the tenant whose turn it was goes to the end of the queue."""
        while self._running < self._most and self._waiting:
            tenant, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[tenant] = turns
            turn.running = True
            self._running += 1
        self._changed.notify_all()

    def _wait(self, turn: QueuePlace, seconds: float, is_over: Callable[[], bool]) -> bool:
        until = time.monotonic() + seconds
        with self._changed:
            while not turn.running and not turn.ended:
                left = until - time.monotonic()
                if left <= 0 or is_over():
                    break
                self._changed.wait(min(left, 0.1))
            reached = turn.running and not turn.ended
        if not reached:
            self._end(turn)
        return reached

    def _end(self, turn: QueuePlace) -> None:
        with self._changed:
            if turn.ended:
                return
            turn.ended = True
            if turn.running:
                self._running -= 1
            else:
                turns = self._waiting[turn.tenant]
                turns.remove(turn)
                if not turns:
                    del self._waiting[turn.tenant]
            self._advance()
