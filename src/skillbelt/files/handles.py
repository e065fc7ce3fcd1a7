"""File handles: close them after a failure, and count how many this process may have.

A process that runs out of handles must recover by itself, so no handle may leak after an error.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

# Handles this process has open besides connections and runs: streams, the store, the log, the loop.
_OWN = 24
# The most handles to ask for; some systems allow a thousand million.
_MOST = 2**16
_OUT = (errno.EMFILE, errno.ENFILE)
BUSY = "busy: there are no file handles for this now (see ulimit -n); try again later"


class Handles:
    """Handles that belong together, in the order they were opened."""

    def __init__(self) -> None:
        self.all: tuple[int, ...] = ()

    def add(self, handle: int) -> int:
        """Add a handle and return it."""
        self.all = (*self.all, handle)
        return handle


@contextmanager
def closed_on_error() -> Iterator[Handles]:
    """Close the handles that were added if the block fails."""
    handles = Handles()
    try:
        yield handles
    except BaseException:
        for handle in handles.all:
            os.close(handle)
        raise


def is_shortage(error: BaseException | None) -> bool:
    """Whether the error, or its cause, is a lack of handles."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _OUT:
            return True
        error = error.__cause__ or error.__context__
    return False


def spare_handles() -> int:
    """Return how many handles are free for connections and runs; at least 1."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if files == resource.RLIM_INFINITY else max(1, min(files, _MOST) - _OWN)


def raise_limit() -> None:
    """Allow this process as many handles as the system lets it have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
