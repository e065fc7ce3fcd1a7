"""Rate limits for people and addresses, by token buckets."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

_MOST_BUCKETS = 10_000
_NETWORK_BITS = 64  # prefix of an IPv6 address; its owner can choose the rest


class AllowedRate(NamedTuple):
    """A burst of requests, and the requests per minute after that."""

    burst: int
    minute: int


# Sign-in attempts from one address; requests and changes by one person.
SIGN_IN = AllowedRate(10, 10)
READ = AllowedRate(240, 1_200)
CHANGE = AllowedRate(120, 240)


class Buckets:
    """Token buckets with the same rate, by caller. Thread-safe."""

    def __init__(self, rate: AllowedRate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock, self._lock = rate, clock, threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> bool:
        """Take a token; False if there is none left."""
        with self._lock:
            now = self._clock()
            left, then = self._left.pop(who, (float(self._rate.burst), now))
            left = min(self._rate.burst, left + (now - then) * self._rate.minute / 60)
            enough = left >= 1
            self._left[who] = (left - enough, now)
            if len(self._left) > _MOST_BUCKETS:
                self._left.popitem(last=False)
            return enough


def name_caller(address: str) -> str:
    """Return the key of a caller: the IPv4 address, or the network of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), _NETWORK_BITS), strict=False))
