"""Copy a store into another one: every session as it is, with its numbers and times.

The copy can be stopped at any moment and started again: sessions that are there already are
compared, and missing ones are added. A session that went on in the other store is refused, not
merged.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from skillbelt.errors import ConfigError
from skillbelt.store.protocol import (
    EventRow,
    OpenedStore,
    SessionInfo,
    SessionKey,
    SharedEntry,
    list_sessions,
)

_PAGE = 1000


class Movable(OpenedStore, Protocol):
    """A store that can be read and filled row by row."""

    @property
    def place(self) -> str:
        """Return where the store is, for messages."""

    def event_rows(self, key: SessionKey, after: int, most: int) -> list[EventRow]:
        """Return the next events with a higher number."""

    def session_state(self, key: SessionKey) -> dict[str, str]:
        """Return the session's own entries."""

    def shared_entries(self) -> list[SharedEntry]:
        """Return the entries of all apps and users."""

    def extend(
        self, info: SessionInfo, rows: Sequence[EventRow], state: dict[str, str] | None
    ) -> bool:
        """Add rows after the last one of the session, with its times, and set its state if given.

        Return False, without a change, when they do not follow the last one there.
        """

    def add_shared(self, entries: Sequence[SharedEntry]) -> None:
        """Set the entries."""


class Moved(NamedTuple):
    """The content of the other store, and how many sessions were added or extended this time."""

    sessions: int
    events: int
    copied: int
    shared: int
    digest: str


def move_store(
    source: Movable, target: Movable, report: Callable[[int], None] = lambda _: None
) -> Moved:
    """Copy all sessions and shared state, compare every one of them, and return the totals.

    ConfigError when the other store has something else under the same name, or differs afterwards.
    `report` is called with the number of sessions that are done.
    """
    shared = _move_shared(source, target)
    total = hashlib.sha256()
    sessions = events = copied = 0
    for info in list_sessions(source, page=_PAGE):
        copied += _move_session(source, target, info)
        wanted, found = (_digest_session(store, info.key) for store in (source, target))
        if wanted != found:
            raise _refuse(target, info.key, "is not equal after it was copied")
        total.update(wanted)
        sessions, events = sessions + 1, events + info.events
        report(sessions)
    return Moved(
        sessions=sessions, events=events, copied=copied, shared=shared, digest=total.hexdigest()
    )


def _move_shared(source: Movable, target: Movable) -> int:
    entries = source.shared_entries()
    there = {entry[:3]: entry.value for entry in target.shared_entries()}
    for entry in entries:
        if there.get(entry[:3], entry.value) != entry.value:
            whose = entry.app if entry.user is None else f"{entry.app}/{entry.user}"
            raise ConfigError(
                f"{target.place}: the entry {entry.key!r} of {whose!r} has another value there;"
                " begin with a store that was not used yet"
            )
    missing = [entry for entry in entries if entry[:3] not in there]
    target.add_shared(missing)
    return len(entries)


def _move_session(source: Movable, target: Movable, info: SessionInfo) -> bool:
    """Bring a session up to date in the other store; return whether something was missing."""
    known = target.find_session(info.key)
    last = known.events if known else 0
    if known and (last > info.events or not _begins_alike(source, target, info.key, last)):
        raise _refuse(target, info.key, "has other events there")
    state = source.session_state(info.key)
    if known == info and target.session_state(info.key) == state:
        return False
    while True:
        rows = source.event_rows(info.key, last, _PAGE)
        whole = last + len(rows) == info.events
        if not target.extend(info, rows, state if whole else None) or not (rows or whole):
            raise _refuse(target, info.key, "was changed meanwhile")
        last += len(rows)
        if whole:
            return True


def _begins_alike(source: Movable, target: Movable, key: SessionKey, last: int) -> bool:
    pairs = zip(_rows(source, key, last), _rows(target, key, last), strict=False)
    return all(one == other for one, other in pairs)


def _rows(store: Movable, key: SessionKey, last: int | None = None) -> Iterator[EventRow]:
    after = 0
    while rows := store.event_rows(key, after, _PAGE):
        for row in rows:
            if last is not None and row.seq > last:
                return
            yield row
        after = rows[-1].seq


def _digest_session(store: Movable, key: SessionKey) -> bytes:
    sha = hashlib.sha256()
    info = store.find_session(key)
    parts: list[object] = [*key, *(info[1:] if info else ())]
    for name, value in sorted(store.session_state(key).items()):
        parts += [name, value]
    for part in parts:
        _add(sha, part)
    for row in _rows(store, key):
        for cell in row:
            _add(sha, cell)
    return sha.digest()


def _add(sha: "hashlib._Hash", part: object) -> None:
    data = str(part).encode("utf-8", "surrogatepass")
    sha.update(len(data).to_bytes(8, "big") + data)


def _refuse(target: Movable, key: SessionKey, reason: str) -> ConfigError:
    return ConfigError(
        f"{target.place}: the session {'/'.join(key)!r} {reason}; nothing of it was overwritten:"
        " end what uses either store, and delete the session there or begin with an empty store"
    )
