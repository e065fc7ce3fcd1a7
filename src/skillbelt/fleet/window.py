"""How much live output of a run may be on its way from a node to a server.

Nothing between the two bounds it: Ray keeps what is sent until it is taken. So the server says how
much it took, and the node lets the command wait while too much is under way, as a pipe does.
"""

from __future__ import annotations

import math
import threading
import time

WINDOW_BYTES = 4 * 2**20
# How often the server says what it took: often enough that the node does not wait for it.
TOLD_BYTES = WINDOW_BYTES // 8


class OutputWindow:
    """Room for the live output of one run.

    The command waits for room only while it may run: afterwards what has no room is dropped. The
    result has the beginning of each stream anyway.
    """

    def __init__(self, max_bytes: int = WINDOW_BYTES) -> None:
        self._changed = threading.Condition()
        self._max_bytes, self._sent, self._taken = max_bytes, 0, 0
        self._until = math.inf

    def end_after(self, seconds: float) -> None:
        """Let the command wait for room no longer than that; once it was ended, not at all."""
        with self._changed:
            self._until = min(self._until, time.monotonic() + seconds)
            self._changed.notify_all()

    def enter(self, size: int) -> bool:
        """Wait until so many bytes more may be sent; False when they are to be dropped."""
        with self._changed:
            while self._sent - self._taken and self._sent + size - self._taken > self._max_bytes:
                left = self._until - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(None if left == math.inf else left)
            self._sent += size
            return True

    def note_taken(self, total: int) -> None:
        """Note how many bytes the server took in all."""
        with self._changed:
            self._taken = max(self._taken, min(total, self._sent))
            self._changed.notify_all()
