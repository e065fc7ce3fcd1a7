"""Forward requests to the server that holds the run, through the store that all servers share.

A server holds little that another one cannot read in the store: a command that runs in the
background, and a call that waits for an answer of its client. Their ids begin with the id of the
server, so that any server knows which one to ask. A request is a session in the store: its first
event is the request, the second acknowledges it, the third is the answer. If the acknowledgement
does not come in time, the server has ended.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Any

from skillbelt.errors import ConfigError, SkillbeltError
from skillbelt.events import NewEvent
from skillbelt.metrics import count
from skillbelt.serving.answers import HttpRefusal
from skillbelt.store import SessionKey, Store
from skillbelt.store.protocol import StoreWatch, list_sessions

logger = logging.getLogger(__name__)
# The product's own records in the store; no token can name an app with a colon.
SERVING = "skillbelt:serving"
# How long a server may take to acknowledge a request, and how long it may be silent afterwards.
RECEIVED_SECONDS = 5.0
SILENT_SECONDS = 10.0
BEAT_SECONDS = 2.0
# How long requests of ended servers are kept.
KEPT_SECONDS = 86_400.0
_WATCH_SECONDS = 1.0
_TIDY_SECONDS = 3_600.0
_CALL = "call:"
_ID_CHARS = 12
_MARK = "-"
GONE = "the server that held this has ended, and with it what it ran; start again"
Handler = Callable[[Mapping[str, Any], Callable[[], bool]], Mapping[str, Any]]


class Relay:
    """Sends requests to other servers and answers theirs. Thread-safe.

    A handler gets the data of a request and a function that says whether the caller gave up.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self.id = os.urandom(_ID_CHARS // 2).hex()
        self._store = store
        self._handlers: dict[str, Handler] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._seen: set[str] = set()
        self._stop = threading.Event()

    def mark(self, text: str) -> str:
        """Return an id that names this server."""
        return f"{self.id}{_MARK}{text}"

    def holder_of(self, id: object) -> str:
        """Return the other server that an id names; "" for an id of this server or of none."""
        server, mark, _ = id.partition(_MARK) if isinstance(id, str) else ("", "", "")
        known = mark and len(server) == _ID_CHARS and not server.strip("0123456789abcdef")
        return server if known and server != self.id else ""

    def handle(self, kind: str, handler: Handler) -> None:
        """Answer requests of this kind."""
        self._handlers[kind] = handler

    def listen(self) -> None:
        """Accept requests from now on; call this before an id of this server is given away."""
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(
                    target=self._take_all, name="skillbelt-relay", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Accept no more requests."""
        self._stop.set()
        if self._thread is not None:
            _wake(self._store(), self.id)
            self._thread.join(RECEIVED_SECONDS)

    # Asking

    def call(
        self,
        server: str,
        kind: str,
        data: Mapping[str, Any],
        is_over: Callable[[], bool] = lambda: False,
    ) -> Mapping[str, Any]:
        """Let another server answer a request; HttpRefusal when that server has ended.

        `is_over` says that the answer is no longer needed.
        """
        store, id = self._store(), os.urandom(8).hex()
        place = SessionKey(SERVING, server, _CALL + id)
        store.append(place, [NewEvent("request", data={"kind": kind, **data})])
        _wake(store, server)
        try:
            answer = self._await_answer(store, place, is_over)
        except HttpRefusal:
            count("forwarded_requests", outcome="gone")
            raise
        finally:
            store.delete(place)
        count("forwarded_requests", outcome="failed" if "error" in answer else "ok")
        if "error" in answer:
            raise HttpRefusal(str(answer["kind"]), str(answer["error"]))
        return answer

    def tell(self, server: str, kind: str, data: Mapping[str, Any]) -> None:
        """Send another server a request, without waiting for the answer."""
        store, place = self._store(), SessionKey(SERVING, server, _CALL + os.urandom(8).hex())
        notice = {"kind": kind, "told": True, **data}
        store.append(place, [NewEvent("request", data=notice)])
        _wake(store, server)

    def _await_answer(
        self, store: Store, place: SessionKey, is_over: Callable[[], bool]
    ) -> Mapping[str, Any]:
        heard, beat, patience = time.monotonic(), "", RECEIVED_SECONDS
        with closing(_watch(store, place.session)) as news:
            while not is_over():
                events = store.events(place, after=1)
                if len(events) > 1:
                    return events[1].data
                now = f"{len(events)} {store.state(place).get('beat', '')}"
                if now != beat and events:
                    heard, beat, patience = time.monotonic(), now, SILENT_SECONDS
                if time.monotonic() - heard > patience:
                    raise HttpRefusal("gone", GONE)
                news.wait(_WATCH_SECONDS)
        raise HttpRefusal("gone", "the call was given up")

    # Answering

    def _take_all(self) -> None:
        tidied = -_TIDY_SECONDS
        with closing(_watch(self._store(), self.id)) as news:
            while not self._stop.is_set():
                try:
                    if time.monotonic() - tidied > _TIDY_SECONDS:
                        tidied = time.monotonic()
                        self._tidy()
                    self._take_new()
                    news.wait(_WATCH_SECONDS)
                except Exception:  # the store may be back soon
                    logger.warning("cannot look for requests of other servers", exc_info=True)
                    self._stop.wait(1.0)

    def _tidy(self) -> None:
        store = self._store()
        before = store.now() - KEPT_SECONDS
        # A role under row-level security cannot list them: `store expire` deletes them there.
        with suppress(ConfigError):
            for info in list_sessions(store, SERVING):
                if info.updated < before:
                    store.delete(info.key)

    def _take_new(self) -> None:
        store = self._store()
        found = [
            one
            for one in list_sessions(store, SERVING, self.id)
            if one.key.session.startswith(_CALL)
        ]
        self._seen &= {one.key.session for one in found}
        for info in found:
            if info.key.session not in self._seen:
                self._seen.add(info.key.session)
                threading.Thread(
                    target=self._answer, args=(store, info.key), name="skillbelt-relay", daemon=True
                ).start()

    def _answer(self, store: Store, place: SessionKey) -> None:
        request = store.events(place)
        if len(request) != 1:
            return
        data, done = request[0].data, threading.Event()
        store.append(place, [NewEvent("received")])
        over = threading.Event()

        def beat() -> None:
            number = 0
            while not done.wait(BEAT_SECONDS):
                number += 1
                try:
                    if not store.events(place):
                        over.set()  # the caller gave up
                        return
                    store.append(place, [], {"beat": str(number)})
                except Exception:  # the store may be back soon, and the work here goes on
                    logger.warning("cannot tell another server to wait", exc_info=True)

        threading.Thread(target=beat, name="skillbelt-relay", daemon=True).start()
        try:
            answer = dict(self._handlers[str(data["kind"])](data, over.is_set))
        except SkillbeltError as error:
            answer = {"error": str(error), "kind": error.kind}
        except Exception:
            logger.exception("a request of another server failed")
            answer = {"error": "internal error; see the log of the server", "kind": "internal"}
        finally:
            done.set()
        [event] = store.append(place, [NewEvent("answer", data=answer)])
        if event.seq == 1 or data.get(
            "told"
        ):  # the request is gone, and no one would delete the answer
            store.delete(place)
        _wake(store, place.session)


def _wake(store: Store, topic: str) -> None:
    store.wake(f"{SERVING} {topic}")


def _watch(store: Store, topic: str) -> StoreWatch:
    return store.watch(f"{SERVING} {topic}")
