"""Store the writes of a step in one transaction.

A store in front of a store: reads see the writes at once, the store behind gets them when the step
is complete. A run that is cancelled or killed leaves the session as after its last complete step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence

from skillbelt.events import Event, NewEvent
from skillbelt.store import SessionInfo, SessionKey, Store
from skillbelt.store.protocol import NO_CHANGE, Lease, StoreWatch

Delta = Mapping[str, str | None]


class StepWrites:
    """The writes of one part of a step, as a store. Several parts may be open at once."""

    def __init__(self, journal: Journal, step: int) -> None:
        self._journal, self.step = journal, step
        self.events_written: list[NewEvent] = []
        self.delta: dict[str, str | None] = {}

    def append(
        self,
        key: SessionKey,
        events: Sequence[NewEvent],
        delta: Delta = NO_CHANGE,
        *,
        lease: str = "",
    ) -> list[Event]:
        """Record events and changes for the step; write those of another session at once."""
        journal = self._journal
        if key != journal.key:
            return journal.behind.append(key, events, delta, lease=lease)
        return journal.record(self, events, delta)

    def events(self, key: SessionKey, after: int = 0) -> list[Event]:
        """Return the stored events and those of this step."""
        if key != self._journal.key:
            return self._journal.behind.events(key, after)
        return self._journal.events(after)

    def state(self, key: SessionKey) -> dict[str, str]:
        """Return the state with the changes of this step."""
        if key != self._journal.key:
            return self._journal.behind.state(key)
        return self._journal.state()

    def sessions(
        self,
        app: str | None = None,
        user: str | None = None,
        *,
        after: SessionKey | None = None,
        limit: int | None = None,
    ) -> list[SessionInfo]:
        """Return the sessions of the store behind."""
        return self._journal.behind.sessions(app, user, after=after, limit=limit)

    def delete(self, key: SessionKey) -> bool:
        """Delete a session of the store behind."""
        return self._journal.behind.delete(key)

    def expire(self, before: float) -> int:
        """Delete old sessions of the store behind."""
        return self._journal.behind.expire(before)

    def take_lease(self, key: SessionKey, number: str, holder: str, seconds: float) -> Lease:
        """Take the lease of a session in the store behind."""
        return self._journal.behind.take_lease(key, number, holder, seconds)

    def renew_lease(self, key: SessionKey, number: str, seconds: float) -> bool:
        """Renew a lease in the store behind."""
        return self._journal.behind.renew_lease(key, number, seconds)

    def release_lease(self, key: SessionKey, number: str) -> None:
        """Release the lease of a session in the store behind."""
        self._journal.behind.release_lease(key, number)

    def watch(self, topic: str) -> StoreWatch:
        """Watch a topic of the store behind."""
        return self._journal.behind.watch(topic)

    def wake(self, topic: str) -> None:
        """Wake the watchers of a topic of the store behind."""
        self._journal.behind.wake(topic)

    def now(self) -> float:
        """Return the time of the store behind."""
        return self._journal.behind.now()


class Journal:
    """The steps of one run in one session, which the run holds by a lease of that number."""

    def __init__(self, behind: Store, key: SessionKey, lease: str = "") -> None:
        self.behind, self.key, self._lease = behind, key, lease
        self._lock = threading.RLock()
        self._step = 0
        self._state: dict[str, str] | None = None
        self._stored: list[Event] = []
        self._recorded: list[tuple[StepWrites, Sequence[NewEvent], Delta]] = []

    def new_writes(self) -> StepWrites:
        """Open a part of the current step."""
        return StepWrites(self, self._step)

    def record(self, writes: StepWrites, events: Sequence[NewEvent], delta: Delta) -> list[Event]:
        """Record the writes of a part; those of an earlier step are ignored."""
        with self._lock:
            if writes.step != self._step:
                return [_event(0, one) for one in events]
            recorded = sum(len(events) for _, events, _ in self._recorded)
            state, first = self._read_state(), len(self._read_events()) + recorded + 1
            writes.events_written += events
            writes.delta |= delta
            self._recorded.append((writes, tuple(events), dict(delta)))
            for name, value in delta.items():
                if value is None:
                    state.pop(name, None)
                else:
                    state[name] = value
            return [_event(number, one) for number, one in enumerate(events, first)]

    def events(self, after: int = 0) -> list[Event]:
        """Return the stored log with the events of this step."""
        with self._lock:
            stored = self._read_events()
            recorded = (one for _, events, _ in self._recorded for one in events)
            added = [_event(number, one) for number, one in enumerate(recorded, len(stored) + 1)]
            return [*stored, *added][max(after, 0) :]

    def state(self) -> dict[str, str]:
        """Return the stored state with the changes of this step."""
        with self._lock:
            return dict(self._read_state())

    def commit(self, events: Sequence[NewEvent], parts: Collection[StepWrites]) -> bool:
        """Store the events in order with the changes of these parts, and begin the next step.

        Store nothing and return False when the step of a part is over: the run was cancelled
        before a thread got here.
        """
        with self._lock:
            if any(part.step != self._step for part in parts):
                return False
            delta: dict[str, str | None] = {}
            for part, _, changed in self._recorded:
                if part in parts:
                    delta |= changed
            if events or delta:
                self.behind.append(self.key, events, delta, lease=self._lease)
            self.drop()
            return True

    def drop(self) -> None:
        """Discard the writes since the last stored step."""
        with self._lock:
            self._step += 1
            self._recorded, self._state = [], None

    def _read_state(self) -> dict[str, str]:
        if self._state is None:
            self._state = self.behind.state(self.key)
        return self._state

    def _read_events(self) -> list[Event]:
        """Return the stored log; read only the new events from the store."""
        if not self._recorded:
            last = self._stored[-1].seq if self._stored else 0
            self._stored += self.behind.events(self.key, last)
        return self._stored


def _event(number: int, new: NewEvent) -> Event:
    return Event(number, time.time(), *new)
