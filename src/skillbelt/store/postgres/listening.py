"""News from other machines: PostgreSQL's LISTEN and NOTIFY, and looking regularly without them."""

import hashlib
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import psycopg

# How often one looks while no news can come: the server is away, or a proxy swallows them.
POLL_SECONDS = 0.2
_CHECK_SECONDS = 20.0


class Listener:
    """One connection that listens for all watches of a process, in a thread of its own."""

    def __init__(
        self, connect: "Callable[[], psycopg.Connection[Any]]", wake: Callable[[str], None]
    ) -> None:
        self._connect, self._wake = connect, wake
        self.changed = threading.Condition()
        # News count only once a message of our own came back.
        self.hears = False
        self._own = f"listener {os.urandom(8).hex()}"
        self._counts: dict[str, int] = {}
        self._gaps = 0
        self._ended = threading.Event()
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="skillbelt-listen", daemon=True)
        self._thread.start()

    @staticmethod
    def mark(topic: str) -> str:
        """Return what stands for a topic in a notification, which has no room for any text."""
        return hashlib.sha256(topic.encode("utf-8", "surrogatepass")).hexdigest()

    def watch(self, topic: str) -> "DatabaseWatch":
        """Return a watch of the topic."""
        mark = self.mark(topic)
        with self.changed:
            self._counts.setdefault(mark, 0)
        return DatabaseWatch(self, mark)

    def count(self, mark: str) -> tuple[int, int]:
        """Return what changes whenever there is news of the topic, or some may have been missed."""
        return self._gaps, self._counts.get(mark, 0)

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
                self._wake(self._own)
                self._hear(db)
            with self.changed:
                self.hears = False
                self.changed.notify_all()
            self._ended.wait(pause)
            pause = min(2 * pause, 2.0)

    def _hear(self, db: "psycopg.Connection[Any]") -> None:
        own = self.mark(self._own)
        poll = select.poll()
        poll.register(db.fileno(), select.POLLIN)
        poll.register(self._stop_read, select.POLLIN)
        while not self._ended.is_set():
            if not poll.poll(_CHECK_SECONDS * 1000):
                db.execute("SELECT 1")
            for note in db.notifies(timeout=0):
                with self.changed:
                    if note.payload == own:
                        self.hears = True
                        self._gaps += 1
                    elif note.payload in self._counts:
                        self._counts[note.payload] += 1
                    self.changed.notify_all()


class DatabaseWatch:
    """Waits for news of one topic. What comes between two waits is not lost."""

    def __init__(self, listener: Listener, mark: str) -> None:
        self._listener, self._mark = listener, mark
        self._seen = listener.count(mark)

    def wait(self, seconds: float) -> bool:
        """Return True when there may be news, False when the time passed without."""
        until = time.monotonic() + seconds
        listener = self._listener
        with listener.changed:
            while (count := listener.count(self._mark)) == self._seen:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                deaf = not listener.hears
                listener.changed.wait(min(left, POLL_SECONDS) if deaf else left)
                if deaf and listener.count(self._mark) == self._seen:
                    return True
            self._seen = count
            return True

    def close(self) -> None:
        """Do nothing: the listener belongs to the database."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
