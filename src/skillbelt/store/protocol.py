"""What a store of sessions promises, and what every store needs to keep the promise.

`skillbelt.testing.suites.StoreConformance` holds each of these promises as a test.
"""

from __future__ import annotations

import heapq
import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from skillbelt.errors import LeaseLost
from skillbelt.events import Event, NewEvent
from skillbelt.untrusted_json import read_json

Scope = Literal["app", "user", "session"]
NO_CHANGE: Mapping[str, str | None] = MappingProxyType({})
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class SessionKey(NamedTuple):
    """Whose conversation it is. Any text will do; two users may have sessions of one name."""

    app: str
    user: str
    session: str


class SessionInfo(NamedTuple):
    """What is known of a session without reading it; times in Unix seconds."""

    key: SessionKey
    created: float
    updated: float
    events: int


class EventRow(NamedTuple):
    """An event with its data as the JSON text that is kept."""

    seq: int
    time: float
    type: str
    agent: str
    data: str


class SharedEntry(NamedTuple):
    """An entry of the state of an app, or of a user in it; None for the app's own."""

    app: str
    user: str | None
    key: str
    value: str


class Lease(NamedTuple):
    """Who has a session for a turn, and until when by the clock of the store.

    `number` is a random text that tells a lease from every other one.
    """

    number: str
    holder: str
    until: float


class StoreWatch(Protocol):
    """Waits for news. What comes after it was made, or between two waits, is not lost."""

    def wait(self, seconds: float) -> bool:
        """Return True when there may be news, False when the time passed without.

        News can be lost with the process that should have sent them, so who waits long looks now
        and then. Stores may say True without need.
        """

    def close(self) -> None:
        """Stop watching."""


class Store(Protocol):
    """Where sessions are kept: a log that only grows, and a small map of text.

    Safe to use from many threads. What is given is copied and what comes back is the caller's own.
    """

    def append(
        self,
        key: SessionKey,
        events: Sequence[NewEvent],
        delta: Mapping[str, str | None] = NO_CHANGE,
        *,
        lease: str = "",
    ) -> list[Event]:
        """Add the events and change the state, all or nothing; the events as they are kept now.

        A session begins with its first append, and each append touches it. In `delta`, None
        deletes a key; `app:` and `user:` keys are shared by all sessions of the app and of the
        user in it, every other key is the session's. TypeError or ValueError, and no change, when
        `data` is not what JSON can hold. With the number of a `lease`: LeaseLost, and no change,
        when that lease does not have the session any more. Without one, leases do not matter.
        """

    def events(self, key: SessionKey, after: int = 0) -> list[Event]:
        """The events with a higher number, in order; none for a session that does not exist."""

    def state(self, key: SessionKey) -> dict[str, str]:
        """The entries of the app, of the user and of the session together."""

    def sessions(
        self,
        app: str | None = None,
        user: str | None = None,
        *,
        after: SessionKey | None = None,
        limit: int | None = None,
    ) -> list[SessionInfo]:
        """Every session there is, or those of an app, of a user or both, in order of their keys.

        `after` and `limit` give a page of them: the first ones with a greater key. `list_sessions`
        goes through all pages.
        """

    def delete(self, key: SessionKey) -> bool:
        """Forget the session's events and state, not its user's or app's; whether there was one."""

    def expire(self, before: float) -> int:
        """Delete each session that was last touched before that time; how many there were."""

    def take_lease(self, key: SessionKey, number: str, holder: str, seconds: float) -> Lease:
        """Take the session for a turn, and return the lease that has it now.

        That is another one as long as it has not run out. The session need not exist. `holder` is
        for people.
        """

    def renew_lease(self, key: SessionKey, number: str, seconds: float) -> bool:
        """Extend the lease to so long from now; False when it does not have the session any more.

        One that ran out is renewed as long as no other took the session.
        """

    def release_lease(self, key: SessionKey, number: str) -> None:
        """Give the session back, and wake who watches `lease_topic`; one that is lost is nothing.

        Deleting a session ends its lease too, so that a turn does not make it anew.
        """

    def watch(self, topic: str) -> StoreWatch:
        """Return what waits for `wake`, in this process and in others that share the store."""

    def wake(self, topic: str) -> None:
        """Wake who watches the topic, after a change that they shall see."""

    def now(self) -> float:
        """The time in Unix seconds on which all agree who share the store.

        The clocks of two machines may differ by more than a time-out.
        """


class OpenedStore(Store, Protocol):
    """What `open_store` returns: a store that can be closed and opens itself again."""

    def find_session(self, key: SessionKey) -> SessionInfo | None:
        """What `sessions` says of one session; None if there is none."""

    def first_events(self, key: SessionKey, most: int) -> list[Event]:
        """Return the first events that can be read, without reading the others."""

    def latest_sessions(
        self, limit: int, *, before: SessionInfo | None = None, without: str = ""
    ) -> list[SessionInfo]:
        """Return the sessions that were touched last, the newest first.

        `before` is the last one of the page before; sessions of apps that begin with `without` are
        left out.
        """

    def close(self) -> None:
        """Let go of the file or the connections; the next call opens them again."""


def list_sessions(
    store: Store, app: str | None = None, user: str | None = None, *, page: int = 1000
) -> Iterator[SessionInfo]:
    """Go through the sessions in order of their keys, with one page of them in memory at a time."""
    after: SessionKey | None = None
    while found := store.sessions(app, user, after=after, limit=page):
        yield from found
        after = found[-1].key


def list_latest(
    store: Store, limit: int, *, before: SessionInfo | None = None, without: str = ""
) -> list[SessionInfo]:
    """Return a page of the sessions that were touched last, as `latest_sessions`.

    A store without that is gone through, with one page of it in memory at a time.
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


def lease_topic(key: SessionKey) -> str:
    """Return the topic that is woken when a lease of the session is given back."""
    return json.dumps(["lease", *key])


def check_lease(found: Lease | None, number: str) -> None:
    """LeaseLost when the lease with that number, if one is named, does not have the session."""
    if number and (found is None or found.number != number):
        raise LeaseLost


def encoded(data: Mapping[str, object]) -> str:
    """The data as JSON; TypeError or ValueError when it has none.

    Letters of all scripts stay as they are. An escape for each surrogate would turn two of them
    that stand side by side into one other character.
    """
    try:
        return _ENCODER.encode(dict(data))
    except RecursionError as error:
        raise ValueError("the data of an event is nested too deeply") from error


def decoded(data: str) -> dict[str, object]:
    """What `encoded` was given; ValueError for another text."""
    value: object = read_json(data)
    if not isinstance(value, dict):
        raise ValueError("the data of an event is not an object")
    return value


def changes(delta: Mapping[str, str | None]) -> Iterator[tuple[Scope, str, str | None]]:
    """Each change with the scope that its key names."""
    for key, value in delta.items():
        if not (isinstance(key, str) and (value is None or isinstance(value, str))):
            raise TypeError(f"state is text by text, not {key!r}: {value!r}")
        yield scope(key), key, value


def scope(key: str) -> Scope:
    """Who shares a state key."""
    if key.startswith("app:"):
        return "app"
    return "user" if key.startswith("user:") else "session"
