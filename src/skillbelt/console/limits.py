"""How much one person or address may ask for: buckets that fill again with time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

_MOST_BUCKETS = 10_000


class AllowedRate(NamedTuple):
    """So many at once, and so many in a minute after that."""

    burst: int
    minute: int


# Tries to sign in from one address; what one person asks for, and changes.
SIGN_IN = AllowedRate(10, 10)
READ = AllowedRate(240, 1_200)
CHANGE = AllowedRate(120, 240)


class Buckets:
    """Buckets of one rate, by who they are for. Thread-safe."""

    def __init__(self, rate: AllowedRate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock, self._lock = rate, clock, threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> bool:
        """Take one; False when there is none left."""
        with self._lock:
            now = self._clock()
            left, then = self._left.pop(who, (float(self._rate.burst), now))
            left = min(self._rate.burst, left + (now - then) * self._rate.minute / 60)
            enough = left >= 1
            self._left[who] = (left - enough, now)
            if len(self._left) > _MOST_BUCKETS:
                self._left.popitem(last=False)
            return enough
