"""What a step of a run writes, kept all at once or not at all.

A store in front of a store: reads see what was written at once, the store behind sees it when the
step is whole. So a run that is cancelled or killed leaves a session as the last whole step left it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence

from skillbelt.events import Event, NewEvent
from skillbelt.store import SessionInfo, SessionKey, Store
from skillbelt.store.protocol import NO_CHANGE

Delta = Mapping[str, str | None]


class Page:
    """The writes of one part of a step, as a store. Parts may be written at the same time."""

    def __init__(self, journal: Journal, step: int) -> None:
        self._journal, self.step = journal, step
        self.written: list[NewEvent] = []
        self.delta: dict[str, str | None] = {}

    def append(
        self, key: SessionKey, events: Sequence[NewEvent], delta: Delta = NO_CHANGE
    ) -> list[Event]:
        """Note the events and the change for the step; another session is written at once."""
        journal = self._journal
        if key != journal.key:
            return journal.behind.append(key, events, delta)
        return journal.note(self, events, delta)

    def events(self, key: SessionKey, after: int = 0) -> list[Event]:
        """What is kept, and what this step has written so far."""
        if key != self._journal.key:
            return self._journal.behind.events(key, after)
        return self._journal.events(after)

    def state(self, key: SessionKey) -> dict[str, str]:
        """The state as it will be."""
        if key != self._journal.key:
            return self._journal.behind.state(key)
        return self._journal.state()

    def sessions(self, app: str | None = None, user: str | None = None) -> list[SessionInfo]:
        """As the store behind has them."""
        return self._journal.behind.sessions(app, user)

    def delete(self, key: SessionKey) -> bool:
        """As the store behind does."""
        return self._journal.behind.delete(key)

    def expire(self, before: float) -> int:
        """As the store behind does."""
        return self._journal.behind.expire(before)


class Journal:
    """The steps of one run in one session. Only the run itself writes there meanwhile."""

    def __init__(self, behind: Store, key: SessionKey) -> None:
        self.behind, self.key = behind, key
        self._lock = threading.RLock()
        self._step = 0
        self._state: dict[str, str] | None = None
        self._kept: list[Event] = []
        self._noted: list[tuple[Page, Sequence[NewEvent], Delta]] = []

    def page(self) -> Page:
        """A part of the step."""
        return Page(self, self._step)

    def note(self, page: Page, events: Sequence[NewEvent], delta: Delta) -> list[Event]:
        """Write in the name of a part; of a step that is over, nothing is kept."""
        with self._lock:
            if page.step != self._step:
                return [_event(0, one) for one in events]
            noted = sum(len(events) for _, events, _ in self._noted)
            state, first = self._read_state(), len(self._read_events()) + noted + 1
            page.written += events
            page.delta |= delta
            self._noted.append((page, tuple(events), dict(delta)))
            for name, value in delta.items():
                if value is None:
                    state.pop(name, None)
                else:
                    state[name] = value
            return [_event(number, one) for number, one in enumerate(events, first)]

    def events(self, after: int = 0) -> list[Event]:
        """The log with what this step has written so far."""
        with self._lock:
            kept = self._read_events()
            noted = (one for _, events, _ in self._noted for one in events)
            added = [_event(number, one) for number, one in enumerate(noted, len(kept) + 1)]
            return [*kept, *added][max(after, 0) :]

    def state(self) -> dict[str, str]:
        """The state with what this step has changed so far."""
        with self._lock:
            return dict(self._read_state())

    def commit(self, events: Sequence[NewEvent], pages: Collection[Page]) -> bool:
        """Keep these events, in this order, and what these parts changed; begin the next step.

        Nothing is kept, and False is given, once the step of a part is over: it was dropped by
        whoever ended the run, while a thread was still on its way here.
        """
        with self._lock:
            if any(page.step != self._step for page in pages):
                return False
            delta: dict[str, str | None] = {}
            for page, _, changed in self._noted:
                if page in pages:
                    delta |= changed
            if events or delta:
                self.behind.append(self.key, events, delta)
            self.drop()
            return True

    def drop(self) -> None:
        """Forget what was written since the last step that was kept."""
        with self._lock:
            self._step += 1
            self._noted, self._state = [], None

    def _read_state(self) -> dict[str, str]:
        if self._state is None:
            self._state = self.behind.state(self.key)
        return self._state

    def _read_events(self) -> list[Event]:
        """The log that is kept; only what came since is read again."""
        if not self._noted:
            last = self._kept[-1].seq if self._kept else 0
            self._kept += self.behind.events(self.key, last)
        return self._kept


def _event(number: int, new: NewEvent) -> Event:
    return Event(number, time.time(), *new)
