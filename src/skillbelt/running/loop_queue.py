"""A queue from a thread that runs something to the event loop that reports it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class LoopQueue(Generic[_Item]):
    """A queue from any thread to a reader in the event loop.

    Unread output above `max_bytes` is dropped and counted; the result of the run has its beginning
    anyway.
    """

    def __init__(self, max_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._lock = threading.Lock()
        self._items: deque[tuple[_Item, int]] = deque()
        self._max_bytes, self._bytes, self._dropped = max_bytes, 0, 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: _Item, size: int = 0) -> None:
        """Add an item; a `size` marks output that may be dropped."""
        with self._lock:
            if size and self._bytes and self._bytes + size > self._max_bytes:
                self._dropped += size
                return
            self._bytes += size
            self._items.append((item, size))
        with suppress(RuntimeError):  # the loop is closed, so there is no reader
            self._loop.call_soon_threadsafe(self._arrived.set)

    async def next(self) -> _Item:
        """Wait for the next item."""
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()
        with self._lock:
            item, size = self._items.popleft()
            self._bytes -= size
        return item

    def peek(self) -> _Item | None:
        """Return the next item without removing it; None when there is none yet."""
        with self._lock:
            return self._items[0][0] if self._items else None

    def take_dropped(self) -> int:
        """Return how many bytes were dropped since the last time."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        return dropped
