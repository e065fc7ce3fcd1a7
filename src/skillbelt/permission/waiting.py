"""Where requests wait for an answer.

Who asks waits; who listens is told of every request and answers from any thread, or from another
process that shares the store. Nothing is written there while somebody listens here.
"""

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from skillbelt.permission.remembered import Ledger, binding, memorable, texts
from skillbelt.permission.rules import Answer, Request
from skillbelt.permission.waiting_store import (
    BEAT_SECONDS,
    BY,
    DISPOSED,
    NOBODY,
    TIMEOUT,
    Board,
    Pending,
    Posted,
    Settled,
)
from skillbelt.store.protocol import Store

__all__ = ["Desk", "Pending", "Settled"]

Callback = Callable[[Pending], object]


class _Entry:
    """A request on its way to an answer.

    `takers` are the listeners here that may still give one, `asker` is the desk it comes from when
    that is another one, and a `shared` one is settled by what the store says of it.
    """

    def __init__(
        self, pending: Pending, takers: Iterable[int] = (), *, asker: str = "", shared: bool = False
    ) -> None:
        self.pending = pending
        self.takers = set(takers)
        self.asker = asker
        self.shared = shared
        self.claimed = False
        self.settled: Settled | None = None
        self.done = threading.Event()

    def groups(self) -> list[tuple[str, ...]]:
        """What an answer to another request may reach this one by."""
        return [group for kind in ("always", "reject") if (group := _group(self, kind))]


class Desk:
    """Where requests wait. All of it may be called from any thread.

    With a `store`, requests nobody listens for here wait for the other processes of the project
    that do. ConfigError when the store is needed and can not be used.
    """

    def __init__(
        self,
        ledger: Ledger | None = None,
        *,
        store: Store | None = None,
        project: str = "",
        timeout_seconds: float = 300.0,
        poll_seconds: float = 0.2,
    ) -> None:
        self._ledger = ledger
        self._project = project
        self._timeout_seconds = timeout_seconds
        self._poll_seconds = poll_seconds
        self._board = Board(store, project) if store is not None else None
        self._lock = threading.Lock()
        self._beating = threading.Lock()
        self._wake = threading.Event()
        self._poller: threading.Thread | None = None
        self._closed = False
        self._numbers = itertools.count()
        self._listeners: dict[int, Callback] = {}
        self._public: set[int] = set()  # those who listen for other processes too
        self._entries: dict[str, _Entry] = {}
        self._groups: dict[tuple[str, ...], dict[str, _Entry]] = {}
        self._abroad: dict[str, _Entry] = {}

    def listen(self, callback: Callback, *, elsewhere: bool = True) -> Callable[[], None]:
        """Be told of every request, also of those that wait already; returns what ends it.

        Each call has a thread of its own, so a callback may block or answer as it likes. One that
        raises has not taken the request. Without `elsewhere` it is told of what is asked here, and
        not of what other processes ask.
        """
        number = next(self._numbers)
        with self._lock:
            if self._closed:
                return lambda: None
            self._listeners[number] = callback
            waiting = list(self._entries.values())
            if elsewhere:
                self._public.add(number)
                waiting += self._abroad.values()
            for entry in waiting:
                entry.takers.add(number)
        if elsewhere:
            self._beat()
            self._poll()
        for entry in waiting:
            self._publish(entry, {number: callback})
        return partial(self._end, number)

    def ask(self, request: Request, timeout_seconds: float | None = None) -> Settled:
        """Wait until the request is settled; the time-out, and nobody to ask, settle it too.

        Listeners here are asked first, those of other processes when there are none or each of
        them raised or ended. Nobody is there when that holds for all of them; a process that was
        killed is missed after a few seconds.
        """
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        until = time.monotonic() + min(max(seconds, 0.0), threading.TIMEOUT_MAX)
        pending = Pending(os.urandom(8).hex(), request, time.time(), self._project)
        settled = self._ask_here(pending, until)
        if settled == NOBODY and self._board is not None and self._board.elsewhere():
            return self._ask_elsewhere(self._board, pending, until)
        return settled

    def answer(self, id: str, answer: Answer) -> bool:
        """Settle a request, and the others the answer reaches; False when it waits no more.

        "always" reaches what it covers, "reject" what else waits in the same session. ConfigError
        when "always" can not be written down: the request is allowed, and nothing is remembered.
        """
        settled = Settled(answer, BY[answer.kind])
        entry = self._entries.get(id)
        if entry is None or entry.shared:
            return self._answer_posted(id, settled)
        if not self._claim(entry):
            return False
        try:
            self._remember(entry.pending.request, answer)
        finally:
            self._finish(entry, settled)
        self._reach(entry, settled)
        self._reach_posted(entry, settled)
        return True

    def pending(self) -> list[Pending]:
        """What waits here, and in the store for anybody who listens; oldest first."""
        found = {}
        if self._board is not None:
            posted = self._board.waiting(self._board.listing(), {})
            found = {id: one.pending for id, one in posted.items()}
        with self._lock:
            found |= {id: entry.pending for id, entry in self._entries.items()}
        return sorted(found.values(), key=lambda pending: pending.time)

    def close(self) -> None:
        """Reject all that was asked here; what is asked later is refused at once."""
        with self._lock:
            self._closed = True
            listened = bool(self._public)
            self._listeners.clear()
            self._public.clear()
            self._abroad.clear()
            entries, poller = list(self._entries.values()), self._poller
        self._wake.set()
        if poller is not None:
            poller.join()
        if listened:
            self._beat()
        for entry in entries:
            # Whoever waits is told even if the store can not be.
            with suppress(Exception):
                self._resolve(entry, DISPOSED)

    # An asker's way

    def _ask_here(self, pending: Pending, until: float) -> Settled:
        entry = _Entry(pending)
        with self._lock:
            if self._closed or not self._listeners:
                return DISPOSED if self._closed else NOBODY
            listeners = dict(self._listeners)
            entry.takers.update(listeners)
            self._add(entry)
        try:
            if not self._remembered(entry):
                self._publish(entry, listeners)
            return self._outcome(entry, until)
        finally:
            with self._lock:
                self._drop(entry)

    def _ask_elsewhere(self, board: Board, pending: Pending, until: float) -> Settled:
        entry = _Entry(pending, shared=True)
        try:
            board.post(pending, until - time.monotonic())
            with self._lock:
                if self._closed:
                    return DISPOSED
                self._add(entry)
            if not self._remembered(entry):
                self._poll()
            return self._carried_out(entry, self._outcome(entry, until))
        finally:
            with self._lock:
                self._drop(entry)
            self._wake.set()
            board.remove(pending.id)

    def _outcome(self, entry: _Entry, until: float) -> Settled:
        if not entry.done.wait(max(until - time.monotonic(), 0.0)):
            self._resolve(entry, TIMEOUT)
        # An answer may have come first and be remembered right now.
        entry.done.wait()
        return entry.settled or NOBODY

    def _carried_out(self, entry: _Entry, settled: Settled) -> Settled:
        """What another process answered is remembered here too, and reaches what waits here."""
        if settled.answer is not None:
            self._remember(entry.pending.request, settled.answer)
            self._reach(entry, settled)
        return settled

    def _remembered(self, entry: _Entry) -> bool:
        """Whether it was approved for good just before it began to wait."""
        request = entry.pending.request
        if self._ledger is None or not memorable(request):
            return False
        found = self._ledger.covering(request)
        if found is not None:
            self._resolve(entry, Settled(Answer("always", by=found.by), "always"))
        return found is not None

    # The entries

    def _add(self, entry: _Entry) -> None:
        self._entries[entry.pending.id] = entry
        for group in entry.groups():
            self._groups.setdefault(group, {})[entry.pending.id] = entry

    def _drop(self, entry: _Entry) -> None:
        id = entry.pending.id
        if self._entries.pop(id, None) is None:
            return
        for group in entry.groups():
            self._groups[group].pop(id)
            if not self._groups[group]:
                del self._groups[group]

    def _finish(self, entry: _Entry, settled: Settled) -> None:
        with self._lock:
            if entry.settled is None:
                entry.settled = settled
                self._drop(entry)
        entry.done.set()

    def _resolve(self, entry: _Entry, settled: Settled) -> None:
        """Settle the entry unless an answer was first."""
        if entry.shared and self._board is not None:
            try:
                if not self._board.settle(entry.pending.id, settled):
                    settled = self._board.outcome(entry.pending.id) or settled
            finally:
                self._finish(entry, settled)
        elif self._claim(entry):
            self._finish(entry, settled)

    def _claim(self, entry: _Entry) -> bool:
        """Whether nobody else is about to settle the entry."""
        with self._lock:
            claimed, entry.claimed = entry.claimed, True
        return not claimed

    # Answers

    def _answer_posted(self, id: str, settled: Settled) -> bool:
        if self._board is None or settled.answer is None:
            return False
        posted = self._board.find(id)
        if posted is None or not self._board.settle(id, settled):
            return False
        self._wake.set()
        entry = _Entry(posted.pending)
        self._reach(entry, settled)
        self._reach_posted(entry, settled)
        self._remember(posted.pending.request, settled.answer)
        return True

    def _remember(self, request: Request, answer: Answer) -> None:
        if answer.kind == "always" and self._ledger is not None:
            self._ledger.remember(request, answer.by)

    def _reach(self, entry: _Entry, settled: Settled) -> None:
        """Settle what else waits in this process and is reached by the answer."""
        group = _group(entry, settled.answer.kind if settled.answer else "")
        with self._lock:
            others = list(self._groups.get(group, {}).values())
        for other in others:
            if not other.shared and self._reaches(entry, other.pending, settled):
                self._resolve(other, settled)

    def _reach_posted(self, entry: _Entry, settled: Settled) -> None:
        """Settle what waits in the store and is reached by the answer."""
        group = _group(entry, settled.answer.kind if settled.answer else "")
        if self._board is None or not group:
            return
        for id, posted in self._board.waiting(self._board.listing(), {}).items():
            if self._reaches(entry, posted.pending, settled):
                self._board.settle(id, settled)
                self._wake.set()

    def _reaches(self, entry: _Entry, other: Pending, settled: Settled) -> bool:
        if settled.by == "rejected":
            return other.request.session == entry.pending.request.session
        if not memorable(entry.pending.request):
            return False
        if binding(other.request) != binding(entry.pending.request):
            return False
        if set(texts(other.request)) <= set(entry.pending.request.always):
            return bool(texts(other.request))
        return self._ledger is not None and self._ledger.covering(other.request) is not None

    # Listeners

    def _publish(self, entry: _Entry, listeners: Mapping[int, Callback]) -> None:
        for number, callback in listeners.items():
            thread = threading.Thread(
                target=self._call,
                args=(entry, number, callback),
                name="skillbelt-listener",
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError:
                self._untake(entry, number)

    def _call(self, entry: _Entry, number: int, callback: Callback) -> None:
        try:
            if number in self._listeners:
                callback(entry.pending)
                return
        except BaseException:
            # Whatever it was, whoever asked shall not wait for this listener.
            pass
        with suppress(Exception):
            self._untake(entry, number)

    def _untake(self, entry: _Entry, number: int) -> None:
        """A listener will not answer; whoever asked is told when it was the last."""
        with self._lock:
            entry.takers.discard(number)
            left = bool(entry.takers)
            abroad = entry.pending.id in self._abroad
        if left or entry.shared:
            return
        if not abroad:
            self._resolve(entry, NOBODY)
        elif self._board is not None and not self._board.elsewhere(entry.asker):
            self._board.settle(entry.pending.id, NOBODY)

    def _end(self, number: int) -> None:
        with self._lock:
            if self._listeners.pop(number, None) is None:
                return
            last = self._public == {number}
            self._public.discard(number)
            if last:
                self._abroad.clear()
            waiting = [*self._entries.values(), *self._abroad.values()]
        if last:
            self._beat()
            self._wake.set()
        for entry in waiting:
            self._untake(entry, number)

    # The store

    def _beat(self) -> None:
        """Tell other processes whether somebody listens; without a store they need not know.

        One that can not be written to is no reason not to listen here.
        """
        if self._board is None:
            return
        with self._beating, suppress(Exception):
            self._board.beat(bool(self._public))

    def _poll(self) -> None:
        """See to it that somebody looks into the store."""
        with self._lock:
            if self._board is None or self._poller is not None or self._closed:
                return
            poller = threading.Thread(
                target=self._look_on, args=(self._board,), name="skillbelt-desk", daemon=True
            )
            poller.start()
            self._poller = poller

    def _look_on(self, board: Board) -> None:
        seen: dict[str, Posted] = {}
        beat = time.monotonic()
        while self._needed():
            # What the store can not do now it may do the next time; every wait has its end.
            with suppress(Exception):
                seen = self._look(board, seen)
            if self._public and time.monotonic() - beat >= BEAT_SECONDS:
                beat = time.monotonic()
                self._beat()
            self._wake.wait(self._poll_seconds)
            self._wake.clear()

    def _needed(self) -> bool:
        with self._lock:
            needed = not self._closed and (
                bool(self._public) or any(entry.shared for entry in self._entries.values())
            )
            if not needed:
                self._poller = None
            return needed

    def _look(self, board: Board, seen: dict[str, Posted]) -> dict[str, Posted]:
        # In this order: what is in the snapshot is in the listing, unless it was taken away.
        with self._lock:
            mine = [entry for entry in self._entries.values() if entry.shared]
        listing = board.listing()
        for entry in mine:
            info = listing.get(entry.pending.id)
            if info is None or info.events > 1:
                self._finish(entry, board.outcome(entry.pending.id) or NOBODY)
        lonely = [entry for entry in mine if not entry.takers]
        if lonely and not board.elsewhere():
            for entry in lonely:
                self._resolve(entry, NOBODY)
        return self._hear(board.waiting(listing, seen), board) if self._public else {}

    def _hear(self, posted: dict[str, Posted], board: Board) -> dict[str, Posted]:
        """Publish what other processes ask for."""
        with self._lock:
            listeners = {number: self._listeners[number] for number in self._public}
            kept = {id: entry for id, entry in self._abroad.items() if id in posted}
            new = {
                id: _Entry(one.pending, listeners, asker=one.desk)
                for id, one in posted.items()
                if id not in kept and one.desk != board.id
            }
            self._abroad = kept | new if listeners else {}
        for entry in new.values():
            self._publish(entry, listeners)
        return posted


def _group(entry: _Entry, kind: str) -> tuple[str, ...]:
    """What requests that an answer of this kind may reach have in common; nothing: it is alone."""
    request = entry.pending.request
    if kind == "always":
        return kind, *binding(request)
    return (kind, request.session) if kind == "reject" and request.session else ()
