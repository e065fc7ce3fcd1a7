"""Handles and threads that a part of a test left in this process.

Other tests ran here before. What they left may end at any time, and a thread of theirs may open
something for a moment: so fewer are never a failure, and more only if they stay.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.desks import until

FOLDER = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"


def count_handles() -> int:
    """Return how many handles this process has open."""
    return len(os.listdir(FOLDER))


@contextmanager
def no_handle_left(most: int = 0) -> Iterator[None]:
    """Require that no more than so many handles that the block opens stay open."""
    before = count_handles()
    yield
    until(lambda: count_handles() <= before + most)


@contextmanager
def no_thread_left() -> Iterator[None]:
    """Require that every thread that the block starts ends."""
    before = set(threading.enumerate())
    yield
    begun = set(threading.enumerate()) - before
    until(lambda: not any(thread.is_alive() for thread in begun))
