"""Check that the head, the store and the object store of a fleet answer, and how quickly."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from skillbelt.errors import ClusterAway, ConfigError, SkillbeltError
from skillbelt.text import one_line

CONNECT_SECONDS = 5.0


class PartState(NamedTuple):
    """Whether a part answered, after how many milliseconds, and why not."""

    part: str
    milliseconds: float
    problem: str = ""


def check_reachable(address: str) -> float:
    """Connect to HOST:PORT and return the seconds it took; ClusterAway when nothing answers."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"{one_line(address)!r} is not HOST:PORT of a Ray head; set ray_address, or give "
            "--address"
        )
    start = time.perf_counter()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
            return time.perf_counter() - start
    except OSError as error:
        raise ClusterAway(f"no Ray head answers at {address}: {error}") from error


def try_part(part: str, use: Callable[[], object]) -> PartState:
    """Use a part once, and return whether it answered."""
    start = time.perf_counter()
    try:
        use()
    except (SkillbeltError, OSError) as error:
        taken = (time.perf_counter() - start) * 1000
        return PartState(part, round(taken, 1), one_line(str(error)))
    return PartState(part, round((time.perf_counter() - start) * 1000, 1))
