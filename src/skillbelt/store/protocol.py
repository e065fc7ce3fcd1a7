"""The contract of a session store, and the helpers that every store needs.

`skillbelt.testing.suites.StoreConformance` tests each promise.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from skillbelt.events import Event, NewEvent
from skillbelt.store.values import NO_CHANGE as NO_CHANGE
from skillbelt.store.values import EventRow as EventRow
from skillbelt.store.values import Lease as Lease
from skillbelt.store.values import Scope as Scope
from skillbelt.store.values import SessionInfo as SessionInfo
from skillbelt.store.values import SessionKey as SessionKey
from skillbelt.store.values import SharedEntry as SharedEntry
from skillbelt.store.values import changes as changes
from skillbelt.store.values import check_lease as check_lease
from skillbelt.store.values import decoded as decoded
from skillbelt.store.values import encoded as encoded
from skillbelt.store.values import hash_texts as hash_texts
from skillbelt.store.values import lease_topic as lease_topic
from skillbelt.store.values import scope as scope


class StoreWatch(Protocol):
    """Waits for news. News that arrive after its creation, or between two waits, are not lost."""

    def wait(self, seconds: float) -> bool:
        """Return True when there may be news, False on timeout.

        News can be lost with the process that should have sent them, so a caller that waits for
        long checks now and then. A store may return True without news.
        """

    def close(self) -> None:
        """Stop watching."""


class Store(Protocol):
    """A session store: a log that only grows, and a small map of text.

    Safe to use from many threads. Arguments are copied, and results belong to the caller.
    """

    def append(
        self,
        key: SessionKey,
        events: Sequence[NewEvent],
        delta: Mapping[str, str | None] = NO_CHANGE,
        *,
        lease: str = "",
    ) -> list[Event]:
        """Add the events and change the state, all or nothing; return the events as stored.

        A session begins with its first append, and each append touches it. In `delta`, None deletes
        a key; `app:` and `user:` keys are shared by all sessions of the app and of the user in it,
        every other key belongs to the session. TypeError or ValueError, without a change, when JSON
        cannot hold `data`. With the number of a `lease`: LeaseLost, without a change, when that
        lease no longer holds the session. Without a number, leases do not matter.
        """

    def events(self, key: SessionKey, after: int = 0) -> list[Event]:
        """Return the events with a higher number, in order; [] if the session does not exist."""

    def state(self, key: SessionKey) -> dict[str, str]:
        """Return the entries of the app, of the user and of the session together."""

    def sessions(
        self,
        app: str | None = None,
        user: str | None = None,
        *,
        after: SessionKey | None = None,
        limit: int | None = None,
    ) -> list[SessionInfo]:
        """Return all sessions, or those of an app, of a user or both, in order of their keys.

        `after` and `limit` give a page of them: the first ones with a greater key. `list_sessions`
        goes through all pages.
        """

    def delete(self, key: SessionKey) -> bool:
        """Delete the session with its own events and state; return whether it existed."""

    def expire(self, before: float) -> int:
        """Delete each session that was last touched before that time; return how many."""

    def take_lease(self, key: SessionKey, number: str, holder: str, seconds: float) -> Lease:
        """Take a lease on the session for a turn; return the lease that holds the session now.

        That is another one until it has expired. The session need not exist. `holder` is for
        people.
        """

    def renew_lease(self, key: SessionKey, number: str, seconds: float) -> bool:
        """Extend the lease to `seconds` from now; False when it no longer holds the session.

        An expired lease is renewed as long as no other one took the session.
        """

    def release_lease(self, key: SessionKey, number: str) -> None:
        """Release the lease, and wake the watchers of `lease_topic`; does nothing for a lost lease.

        Deleting a session ends its lease too, so that a turn does not create the session again.
        """

    def watch(self, topic: str) -> StoreWatch:
        """Return a watch that waits for `wake`, in every process that shares the store."""

    def wake(self, topic: str) -> None:
        """Wake the watchers of the topic, after a change that they must see."""

    def now(self) -> float:
        """Return the time in Unix seconds on which all users of the store agree.

        The clocks of two machines may differ by more than a timeout.
        """


class OpenedStore(Store, Protocol):
    """The store that `open_store` returns: it can be closed and opens itself again."""

    def find_session(self, key: SessionKey) -> SessionInfo | None:
        """Return the entry of one session, as in `sessions`; None if there is none."""

    def first_events(self, key: SessionKey, most: int) -> list[Event]:
        """Return the first events that can be read, without reading the others."""

    def latest_sessions(
        self, limit: int, *, before: SessionInfo | None = None, without: str = ""
    ) -> list[SessionInfo]:
        """Return the sessions that were touched last, the newest first.

        `before` is the last session of the previous page; sessions of apps that begin with
        `without` are left out.
        """

    def close(self) -> None:
        """Close the file or the connections; the next call opens them again."""


def list_sessions(
    store: Store, app: str | None = None, user: str | None = None, *, page: int = 1000
) -> Iterator[SessionInfo]:
    """Yield the sessions in order of their keys, with one page of them in memory at a time."""
    after: SessionKey | None = None
    while found := store.sessions(app, user, after=after, limit=page):
        yield from found
        after = found[-1].key


def list_latest(
    store: Store, limit: int, *, before: SessionInfo | None = None, without: str = ""
) -> list[SessionInfo]:
    """Return a page of the sessions that were touched last, as `latest_sessions` does.

    For a store without that method, read all sessions, with one page in memory at a time.
    """
    own = getattr(store, "latest_sessions", None)
    if own is not None:
        found: list[SessionInfo] = own(limit, before=before, without=without)
        return found
    order = operator.attrgetter("updated", "key")
    fitting = (
        one
        for one in list_sessions(store)
        if not (without and one.key.app.startswith(without))
        and (before is None or order(one) < order(before))
    )
    return heapq.nlargest(limit, fitting, key=order)
