"""The live output of a run, on its way from a node to a server.

Nothing between the two bounds it: Ray keeps sent data until it is taken. So the server reports how
much it took, and the node makes the command wait while too much is in flight, as a pipe does.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

WINDOW_BYTES = 4 * 2**20
# How often the server reports what it took: often enough that the node does not wait for it.
REPORT_BYTES = WINDOW_BYTES // 8
# Bytes kept of each stream of a run that no server follows yet.
_EARLY_BYTES = 2**18
_PIECE_BYTES = 2**16
FEED_END = "end"


class OutputWindow:
    """Flow control for the live output of one run.

    The command waits for room only while it may run: afterwards, output without room is dropped.
    The result has the beginning of each stream anyway.
    """

    def __init__(self, max_bytes: int = WINDOW_BYTES) -> None:
        self._changed = threading.Condition()
        self._max_bytes, self._sent, self._taken = max_bytes, 0, 0
        self._until = math.inf

    def end_after(self, seconds: float) -> None:
        """Let the command wait for room no longer than `seconds`; 0 after it was killed."""
        with self._changed:
            self._until = min(self._until, time.monotonic() + seconds)
            self._changed.notify_all()

    def enter(self, size: int) -> bool:
        """Wait until `size` more bytes may be sent; False when they must be dropped."""
        with self._changed:
            while self._sent - self._taken and self._sent + size - self._taken > self._max_bytes:
                left = self._until - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(None if left == math.inf else left)
            self._sent += size
            return True

    def note_taken(self, total: int) -> None:
        """Record how many bytes the server has taken in total."""
        with self._changed:
            self._taken = max(self._taken, min(total, self._sent))
            self._changed.notify_all()


class OutputFeed:
    """The live output of one run: its beginning, and from `follow` on all of it."""

    def __init__(self) -> None:
        self.window = OutputWindow()
        self._lock = threading.Lock()
        self._followed = False
        self._room = {"stdout": _EARLY_BYTES, "stderr": _EARLY_BYTES}
        self._pieces: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def listen(self, stream: str, data: bytes) -> None:
        """Accept output of the command; wait for room once a server follows."""
        with self._lock:
            if not self._followed:
                data = data[: self._room[stream]]
                self._room[stream] -= len(data)
                if data:
                    self._pieces.put((stream, data))
                return
        if self.window.enter(len(data)):
            self._pieces.put((stream, data))

    def end(self, value: object) -> None:
        """Record that the run ended, and its value."""
        self._pieces.put((FEED_END, value))

    def follow(self) -> None:
        """Send everything from now on."""
        with self._lock:
            self._followed = True

    def pieces(self) -> Iterator[tuple[str, Any]]:
        """Yield the pieces, joining those of one stream, and last ("end", value)."""
        name = ""
        while name != FEED_END:
            name, value = self._pieces.get()
            waiting = [(name, value)]
            while name != FEED_END and not self._pieces.empty():
                waiting.append(self._pieces.get())
                name = waiting[-1][0]
            yield from _join(waiting)


def _join(pieces: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the pieces, joining consecutive ones of one stream."""
    name, data = pieces[0]
    for next_name, next_data in pieces[1:]:
        if next_name == name != FEED_END and len(data) < _PIECE_BYTES:
            data += next_data
        else:
            yield name, data
            name, data = next_name, next_data
    yield name, data
