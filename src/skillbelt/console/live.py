"""Events for open pages: the store and the log are watched while a browser listens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress

from skillbelt.errors import SkillbeltError, log_warning
from skillbelt.permission.waiting import EveryRequest
from skillbelt.running.history import TOPIC
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.answers import to_json

KEEP_ALIVE_SECONDS = 15.0
# Streams at once: each holds a connection.
MAX_STREAMS = 100
MAX_STREAMS_OF_ONE = 10
# How often to poll without notifications, and the least pause between two polls.
_LOOK_SECONDS = 2.0
_PAUSE_SECONDS = 0.05


class NewsStream:
    """The events that one browser has not received yet: the newest of each kind."""

    def __init__(self, who: str, may_read: Callable[[], bool]) -> None:
        self.who, self._may_read = who, may_read
        self._loop = asyncio.get_running_loop()
        self._news: dict[str, object] = {}
        self._ready = asyncio.Event()
        self._over = False

    def tell(self, kind: str, document: object) -> None:
        """Add an event, from any thread."""
        self._loop.call_soon_threadsafe(self._add, kind, document)

    def end(self) -> None:
        """End `events`, from any thread."""
        self._loop.call_soon_threadsafe(self._stop)

    def _add(self, kind: str, document: object) -> None:
        self._news[kind] = document
        self._ready.set()

    def _stop(self) -> None:
        self._over = True
        self._ready.set()

    async def events(self) -> AsyncIterator[bytes]:
        """Yield server-sent events until the stream ends or the person loses access."""
        yield b"retry: 2000\n\n"
        while not self._over:
            timed_out = False
            try:
                await asyncio.wait_for(self._ready.wait(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                timed_out = True
            if not self._may_read():
                return
            if timed_out:
                yield b": still here\n\n"
                continue
            self._ready.clear()
            news, self._news = self._news, {}
            for kind, document in news.items():
                yield b"event: " + kind.encode() + b"\ndata: " + to_json(document) + b"\n\n"


class Live:
    """The streams of all browsers, and the watching threads while there is a stream."""

    def __init__(self, belt: Runtime, requests: EveryRequest) -> None:
        self._belt, self._requests = belt, requests
        self._lock = threading.Lock()
        self._streams: set[NewsStream] = set()
        self._over = threading.Event()  # replaced with each set of threads
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._waiting: int | None = None  # requests that were already reported

    def open(self, who: str, may_read: Callable[[], bool] = lambda: True) -> NewsStream | None:
        """Return a new stream for a person; None if there are too many, or after `close`.

        `may_read` is called before each event.
        """
        stream = NewsStream(who, may_read)
        with self._lock:
            if self._closed or len(self._streams) >= MAX_STREAMS:
                return None
            if sum(one.who == who for one in self._streams) >= MAX_STREAMS_OF_ONE:
                return None
            self._streams.add(stream)
            if self._waiting is not None and len(self._streams) > 1:
                # Something may have changed between rendering the page and opening its stream.
                stream.tell("inbox", {"count": self._waiting})
            if len(self._streams) == 1:
                self._over = threading.Event()
                self._threads = [one for one in self._threads if one.is_alive()]
                for watch in (self._watch_requests, self._watch_runs, self._watch_log):
                    thread = threading.Thread(
                        target=self._guard,
                        args=(watch, self._over),
                        name="skillbelt-live",
                        daemon=True,
                    )
                    thread.start()
                    self._threads.append(thread)
        stream.tell("hello", {})
        return stream

    def leave(self, stream: NewsStream) -> None:
        """Remove a stream; without any the threads end."""
        with self._lock:
            self._streams.discard(stream)
            if not self._streams:
                self._over.set()

    def close(self) -> None:
        """End all streams, and wait for the threads: afterwards none of them uses the store."""
        with self._lock:
            self._closed = True
            self._over.set()
            for stream in self._streams:
                stream.end()
        with suppress(SkillbeltError):  # else they end when they look the next time
            self._belt.store.wake(TOPIC)
            self._requests.wake()
        for thread in self._threads:
            thread.join(2 * _LOOK_SECONDS)

    def tell(self, kind: str, document: object) -> None:
        """Send an event to all browsers, from any thread."""
        with self._lock:
            for stream in self._streams:
                stream.tell(kind, document)

    def _guard(self, watch: Callable[[threading.Event], None], over: threading.Event) -> None:
        while not over.is_set():
            try:
                watch(over)
            except Exception:
                log_warning("the console cannot look for news; it tries again", trace=True)
                over.wait(_LOOK_SECONDS)

    def _watch_requests(self, over: threading.Event) -> None:
        known: object = None
        with closing(self._requests.watch()) as watch:
            while not over.is_set():
                waiting = list(self._requests.waiting())
                if waiting != known:
                    known = waiting
                    self._waiting = len(waiting)
                    self.tell("inbox", {"count": self._waiting})
                watch.wait(_LOOK_SECONDS)
                over.wait(_PAUSE_SECONDS)

    def _watch_runs(self, over: threading.Event) -> None:
        with closing(self._belt.store.watch(TOPIC)) as watch:
            while not over.is_set():
                if watch.wait(_LOOK_SECONDS):
                    self.tell("runs", {})
                    over.wait(_PAUSE_SECONDS * 4)

    def _watch_log(self, over: threading.Event) -> None:
        for event in self._belt.gate.audit.follow(limit=0, stop=over):
            self.tell("log", {"time": event.time})
