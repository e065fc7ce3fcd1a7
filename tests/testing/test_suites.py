"""The suite must notice a store that breaks a promise: each store here breaks one."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from skillbelt.errors import LeaseLost
from skillbelt.events import Event, NewEvent
from skillbelt.store import SessionInfo, SessionKey, Store
from skillbelt.store.memory import MemoryStore
from skillbelt.store.notifications import TopicWatch
from skillbelt.store.protocol import Lease
from skillbelt.testing.suites import StoreConformance

NONE: Mapping[str, str | None] = {}
Events = Sequence[NewEvent]
Delta = Mapping[str, str | None]


class Gaps(MemoryStore):
    """Numbers leave one out."""

    def events(self, key: SessionKey, after: int = 0) -> list[Event]:
        found = super().events(key, after)
        return [event._replace(seq=event.seq * 2) for event in found]


class OneLog(MemoryStore):
    """All users share a log."""

    def append(
        self, key: SessionKey, events: Events, delta: Delta = NONE, *, lease: str = ""
    ) -> list[Event]:
        return super().append(key._replace(user=""), events, delta)

    def events(self, key: SessionKey, after: int = 0) -> list[Event]:
        return super().events(key._replace(user=""), after)


class Joined(MemoryStore):
    """The parts of a key run together."""

    def append(
        self, key: SessionKey, events: Events, delta: Delta = NONE, *, lease: str = ""
    ) -> list[Event]:
        return super().append(SessionKey("", "", "/".join(key)), events, delta)

    def events(self, key: SessionKey, after: int = 0) -> list[Event]:
        return super().events(SessionKey("", "", "/".join(key)), after)


class Partial(MemoryStore):
    """Keeps the good part of a bad batch."""

    def append(
        self, key: SessionKey, events: Events, delta: Delta = NONE, *, lease: str = ""
    ) -> list[Event]:
        return [event for one in events for event in super(Partial, self).append(key, [one], delta)]


class Unlocked(MemoryStore):
    """Adds a batch event by event."""

    def append(
        self, key: SessionKey, events: Events, delta: Delta = NONE, *, lease: str = ""
    ) -> list[Event]:
        kept = super().append(key, [], delta, lease=lease)
        for event in events:
            time.sleep(0)
            kept += super().append(key, [event], lease=lease)
        return kept


class Shared(MemoryStore):
    """Gives out what it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[tuple[SessionKey, int], Event] = {}

    def events(self, key: SessionKey, after: int = 0) -> list[Event]:
        found = super().events(key, after)
        return [self._given.setdefault((key, event.seq), event) for event in found]


class Including(MemoryStore):
    """`after` includes the number itself."""

    def events(self, key: SessionKey, after: int = 0) -> list[Event]:
        return super().events(key, after - 1)


class Stripping(MemoryStore):
    """Takes blanks off."""

    def append(
        self, key: SessionKey, events: Events, delta: Delta = NONE, *, lease: str = ""
    ) -> list[Event]:
        return super().append(key, [event._replace(type=event.type.strip()) for event in events])


class NoState(MemoryStore):
    """Knows no state."""

    def state(self, key: SessionKey) -> dict[str, str]:
        return {}


class OwnState(MemoryStore):
    """Shares no state between sessions."""

    def append(
        self, key: SessionKey, events: Events, delta: Delta = NONE, *, lease: str = ""
    ) -> list[Event]:
        return super().append(key, events, {f"-{name}": value for name, value in delta.items()})

    def state(self, key: SessionKey) -> dict[str, str]:
        return {name[1:]: value for name, value in super().state(key).items()}


class Unsorted(MemoryStore):
    """Lists sessions in another order."""

    def sessions(
        self, app: str | None = None, user: str | None = None, **page: Any
    ) -> list[SessionInfo]:
        return super().sessions(app, user, **page)[::-1]


class Unfiltered(MemoryStore):
    """Lists everybody's sessions."""

    def sessions(
        self, app: str | None = None, user: str | None = None, **page: Any
    ) -> list[SessionInfo]:
        return super().sessions(app, **page)


class Unpaged(MemoryStore):
    """Gives everything as one page, and then none."""

    def sessions(
        self,
        app: str | None = None,
        user: str | None = None,
        *,
        after: SessionKey | None = None,
        limit: int | None = None,
    ) -> list[SessionInfo]:
        return super().sessions(app, user) if after is None else []


class _Silent(TopicWatch):
    """Never has news."""

    def wait(self, seconds: float) -> bool:
        return False


class Deaf(MemoryStore):
    """Wakes no watch."""

    def watch(self, topic: str) -> TopicWatch:
        return _Silent(self._notifications, topic)


class Choosy(MemoryStore):
    """Wakes only what is watched."""

    def wake(self, topic: str) -> None:
        if topic != "topic":
            raise KeyError(topic)
        super().wake(topic)


class Untouched(MemoryStore):
    """An append without events does not count."""

    def append(
        self, key: SessionKey, events: Events, delta: Delta = NONE, *, lease: str = ""
    ) -> list[Event]:
        return super().append(key, events, delta, lease=lease) if events or delta else []


class Undying(MemoryStore):
    """Deletes nothing."""

    def delete(self, key: SessionKey) -> bool:
        return any(info.key == key for info in self.sessions())


class Greedy(MemoryStore):
    """Deletes what the user and the app share, too."""

    def delete(self, key: SessionKey) -> bool:
        self._state.clear()
        return super().delete(key)


class Eager(MemoryStore):
    """Expires what was touched at that very time."""

    def expire(self, before: float) -> int:
        return super().expire(before + 1e-6)


class Asking(MemoryStore):
    """Makes a session when asked about one."""

    def state(self, key: SessionKey) -> dict[str, str]:
        self.append(key, [])
        return super().state(key)


class Crowded(MemoryStore):
    """Gives a session to everyone."""

    def take_lease(self, key: SessionKey, number: str, holder: str, seconds: float) -> Lease:
        return Lease(number, holder, self.now() + seconds)


class Unfenced(MemoryStore):
    """Appends for a turn that lost its session."""

    def append(
        self, key: SessionKey, events: Events, delta: Delta = NONE, *, lease: str = ""
    ) -> list[Event]:
        return super().append(key, events, delta)


class Forgetful(MemoryStore):
    """Forgets leases that go on."""

    def expire(self, before: float) -> int:
        self._leases.clear()
        return super().expire(before)


BROKEN = [store for store in MemoryStore.__subclasses__() if store.__module__ == __name__]
SUITE = [test for name, test in inspect.getmembers(StoreConformance) if name.startswith("test_")]


def failures(make: type[MemoryStore]) -> list[str]:
    failed = []
    for test in SUITE:
        store: Store = make()
        try:
            test(StoreConformance(), store)
        except (AssertionError, ValueError, LookupError, TypeError, LeaseLost):
            failed.append(test.__name__)
    return failed


@pytest.mark.parametrize("broken", BROKEN, ids=lambda store: store.__name__)
def test_the_suite_notices(broken: type[MemoryStore]) -> None:
    assert failures(broken) != []


def test_the_suite_passes_a_store_that_keeps_every_promise() -> None:
    assert failures(MemoryStore) == []


@pytest.mark.long
def test_every_test_of_the_suite_can_fail() -> None:
    """Each is failed by one of the broken stores or by one that answers nothing at all."""

    class Empty(MemoryStore):
        def append(
            self, key: SessionKey, events: Events, delta: Delta = NONE, *, lease: str = ""
        ) -> list[Event]:
            return []

    noticed = {name for broken in [*BROKEN, Empty] for name in failures(broken)}
    assert {test.__name__ for test in SUITE} - noticed == set()
