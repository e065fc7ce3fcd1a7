"""Sessions that live as long as the process."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from skillbelt.events import Event, NewEvent
from skillbelt.store.notifications import TopicCounts, TopicWatch
from skillbelt.store.protocol import (
    NO_CHANGE,
    Lease,
    SessionInfo,
    SessionKey,
    changes,
    check_lease,
    decoded,
    encoded,
    lease_topic,
)


class _Kept(NamedTuple):
    """An event with its data as JSON text, so that a caller cannot change it afterwards."""

    seq: int
    time: float
    type: str
    agent: str
    data: str


class _Log:
    """One session."""

    def __init__(self, now: float) -> None:
        self.created = self.updated = now
        self.events: list[_Kept] = []


class MemoryStore:
    """A store in memory, for tests and for sessions that need not outlive the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._logs: dict[SessionKey, _Log] = {}
        self._state: dict[tuple[str, ...], dict[str, str]] = {}
        self._leases: dict[SessionKey, Lease] = {}
        self._notifications = TopicCounts()

    def append(
        self,
        key: SessionKey,
        events: Sequence[NewEvent],
        delta: Mapping[str, str | None] = NO_CHANGE,
        *,
        lease: str = "",
    ) -> list[Event]:
        """Add the events and change the state, all or nothing; return the events as stored."""
        rows = [(event.type, event.agent, encoded(event.data)) for event in events]
        changed = list(changes(delta))
        with self._lock:
            now = time.time()
            check_lease(self._leases.get(key), lease)
            log = self._logs.setdefault(key, _Log(now))
            first = len(log.events) + 1
            kept = [_Kept(seq, now, *row) for seq, row in enumerate(rows, first)]
            log.events += kept
            log.updated = now
            for scope, name, value in changed:
                self._change(_owner(scope, key), name, value)
        return [_event(one) for one in kept]

    def events(self, key: SessionKey, after: int = 0) -> list[Event]:
        """Return the events with a higher number, in order; [] if the session does not exist."""
        with self._lock:
            log = self._logs.get(key)
            kept = log.events[max(after, 0) :] if log else []
        return [_event(one) for one in kept]

    def state(self, key: SessionKey) -> dict[str, str]:
        """Return the entries of the app, of the user and of the session together."""
        found: dict[str, str] = {}
        with self._lock:
            for scope in ("app", "user", "session"):
                found.update(self._state.get(_owner(scope, key), {}))
        return found

    def sessions(
        self,
        app: str | None = None,
        user: str | None = None,
        *,
        after: SessionKey | None = None,
        limit: int | None = None,
    ) -> list[SessionInfo]:
        """Return all sessions, or those of an app, of a user or both, in order of their keys."""
        with self._lock:
            return [
                SessionInfo(key, log.created, log.updated, len(log.events))
                for key, log in sorted(self._logs.items(), key=lambda item: item[0])
                if app in (None, key.app)
                and user in (None, key.user)
                and (after is None or key > after)
            ][:limit]

    def delete(self, key: SessionKey) -> bool:
        """Delete the session with its own events and state; return whether it existed."""
        with self._lock:
            self._state.pop(_owner("session", key), None)
            self._leases.pop(key, None)
            return self._logs.pop(key, None) is not None

    def expire(self, before: float) -> int:
        """Delete each session that was last touched before that time; return how many."""
        with self._lock:
            for key in [key for key, one in self._leases.items() if one.until < before]:
                del self._leases[key]
            old = [key for key, log in self._logs.items() if log.updated < before]
            return sum(self.delete(key) for key in old)

    def take_lease(self, key: SessionKey, number: str, holder: str, seconds: float) -> Lease:
        """Take a lease on the session for a turn; return the lease that holds the session now."""
        with self._lock:
            now, found = time.time(), self._leases.get(key)
            if found is None or found.number == number or found.until <= now:
                found = self._leases[key] = Lease(number, holder, now + seconds)
            return found

    def renew_lease(self, key: SessionKey, number: str, seconds: float) -> bool:
        """Extend the lease to `seconds` from now; False when it no longer holds the session."""
        with self._lock:
            found = self._leases.get(key)
            if found is None or found.number != number:
                return False
            self._leases[key] = found._replace(until=time.time() + seconds)
            return True

    def release_lease(self, key: SessionKey, number: str) -> None:
        """Release the lease."""
        with self._lock:
            found = self._leases.get(key)
            if found is not None and found.number == number:
                del self._leases[key]
        self._notifications.notify(lease_topic(key))

    def watch(self, topic: str) -> TopicWatch:
        """Return a watch that waits for `wake`."""
        return TopicWatch(self._notifications, topic)

    def wake(self, topic: str) -> None:
        """Wake the watchers of the topic."""
        self._notifications.notify(topic)

    def now(self) -> float:
        """Return the time of this machine, the only one that uses the store."""
        return time.time()

    def _change(self, owner: tuple[str, ...], name: str, value: str | None) -> None:
        if value is None:
            self._state.get(owner, {}).pop(name, None)
        else:
            self._state.setdefault(owner, {})[name] = value


def _owner(scope: str, key: SessionKey) -> tuple[str, ...]:
    return key[: {"app": 1, "user": 2, "session": 3}[scope]]


def _event(kept: _Kept) -> Event:
    return Event(*kept[:4], decoded(kept.data))
