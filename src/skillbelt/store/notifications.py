"""Notifications between the threads of one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self


class TopicCounts:
    """Counts the notifications of each watched topic."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._counts: dict[str, int] = {}
        self._watched: dict[str, int] = {}

    def notify(self, topic: str) -> None:
        """Wake the threads that wait for the topic; does nothing for a topic without a watcher."""
        with self.changed:
            if topic in self._counts:
                self._counts[topic] += 1
                self.changed.notify_all()

    def count(self, topic: str) -> int:
        """Return how often `notify` was called for the topic."""
        return self._counts.get(topic, 0)

    def add(self, topic: str) -> None:
        """Start to count a topic."""
        with self.changed:
            self._watched[topic] = self._watched.get(topic, 0) + 1
            self._counts.setdefault(topic, 0)

    def remove(self, topic: str) -> None:
        """Forget the topic with its last watcher."""
        with self.changed:
            self._watched[topic] -= 1
            if not self._watched[topic]:
                del self._watched[topic], self._counts[topic]
            self.changed.notify_all()


class TopicWatch:
    """Waits for one topic. `look`, if given, is polled every `pause` seconds.

    A new value counts as news.
    """

    def __init__(
        self,
        counts: TopicCounts,
        topic: str,
        look: Callable[[], object] = lambda: None,
        pause: float = float("inf"),
    ) -> None:
        self._counts, self._topic, self._look, self._pause = counts, topic, look, pause
        self._open = True
        counts.add(topic)
        self._seen = self._state()

    def wait(self, seconds: float) -> bool:
        """Return True when there may be news, False on timeout."""
        until = time.monotonic() + seconds
        while (state := self._state()) == self._seen:
            left = until - time.monotonic()
            if left <= 0:
                return False
            with self._counts.changed:
                if self._counts.count(self._topic) == state[0]:
                    self._counts.changed.wait(min(left, self._pause))
        self._seen = state
        return True

    def close(self) -> None:
        """Stop watching."""
        if self._open:
            self._open = False
            self._counts.remove(self._topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _state(self) -> tuple[int, object]:
        return self._counts.count(self._topic), self._look()
