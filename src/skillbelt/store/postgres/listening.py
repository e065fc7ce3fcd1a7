"""Notifications from other machines, with polling as the fallback.

Uses LISTEN and NOTIFY of PostgreSQL.
"""

import hashlib
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from skillbelt.store.notifications import TopicCounts

# How often a watch reports possible news while no notification can arrive: the server is away, or a
# proxy does not pass notifications on.
POLL_SECONDS = 0.2
# How often an idle connection is checked.
_CHECK_SECONDS = 20.0
# How often to send a test notification until one comes back.
_PROBE_SECONDS = 2.0


class Listener:
    """One connection that listens for all watches of a process, in its own thread."""

    def __init__(
        self,
        notifications: TopicCounts,
        connect: "Callable[[], psycopg.Connection[Any]]",
        wake: Callable[[str], None],
    ) -> None:
        self._notifications, self._connect, self._wake = notifications, connect, wake
        # Notifications count only after a test notification came back.
        self.hears = False
        self.gaps = 0
        self._own = f"listener {os.urandom(8).hex()}"
        self._ended = threading.Event()
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="skillbelt-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        os.write(self._stop_write, b"x")
        self._thread.join()
        os.close(self._stop_read)
        os.close(self._stop_write)

    def _run(self) -> None:
        pause = 0.1
        while not self._ended.is_set():
            with suppress(psycopg.Error, OSError), self._connect() as db:
                db.execute("LISTEN skillbelt")
                pause = 0.1
                self._receive(db)
            self._set_listening(False)
            self._ended.wait(pause)
            pause = min(2 * pause, 2.0)

    def _receive(self, db: "psycopg.Connection[Any]") -> None:
        own = mark_topic(self._own)
        poll = select.poll()
        poll.register(db.fileno(), select.POLLIN)
        poll.register(self._stop_read, select.POLLIN)
        self._wake(self._own)
        while not self._ended.is_set():
            if not poll.poll(1000 * (_CHECK_SECONDS if self.hears else _PROBE_SECONDS)):
                db.execute("SELECT 1")
                if not self.hears:
                    self._wake(self._own)
            for note in db.notifies(timeout=0):
                if note.payload == own:
                    self._set_listening(True)
                else:
                    self._notifications.notify(note.payload)

    def _set_listening(self, hears: bool) -> None:
        """Record whether notifications arrive; until they do, some may have been missed."""
        with self._notifications.changed:
            self.hears = hears
            self.gaps += hears
            self._notifications.changed.notify_all()


def mark_topic(topic: str) -> str:
    """Return the hash of a topic for a notification, whose length is limited."""
    return hashlib.sha256(topic.encode("utf-8", "surrogatepass")).hexdigest()
