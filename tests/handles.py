"""Handles that a part of a test left open in this process.

Other tests ran here before: what they left may end at any time, so a plain count may fall or, while
one of their threads works, rise. Only a handle that is new and stays is one that was left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.desks import until

Handle = tuple[int, int, int]


def open_handles() -> set[Handle]:
    """Return the open handles of this process, each with what it leads to."""
    found: set[Handle] = set()
    for name in os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"):
        with suppress(OSError):  # that of the folder itself, and those that are closed meanwhile
            info = os.fstat(int(name))
            found.add((int(name), info.st_dev, info.st_ino))
    return found


@contextmanager
def no_handle_left(most: int = 0) -> Iterator[None]:
    """Require that at most so many handles that the block opens stay open."""
    before = open_handles()
    yield
    until(lambda: len(open_handles() - before) <= most)
