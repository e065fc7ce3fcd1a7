"""What waits in a store for an answer from another process, and who listens for it.

Every request is a log of its own: the request is its first event and the outcome its second. The
store numbers them, so that of two answers exactly one counts, and none can come after the asker
has given up.
"""

import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from skillbelt.errors import SkillbeltError
from skillbelt.events import Event, NewEvent
from skillbelt.permission.remembered import APP
from skillbelt.permission.rules import Answer, Request
from skillbelt.store.protocol import SessionInfo, SessionKey, Store
from skillbelt.untrusted_json import read_json

# How often a process says that it listens, and when it is taken to be gone.
BEAT_SECONDS = 2.0
STALE_SECONDS = 6.0
# How long what an asker left behind stays: after its deadline, and after it was settled. One that
# is merely slow still finds it.
GRACE_SECONDS = 5.0
LEFT_SECONDS = 60.0
_LISTENER = "listener:"
_POSTED = "desk:"
_WORDS = ("type", "summary", "initiator", "agent", "session", "skill", "hash", "origin",
          "exact")  # fmt: skip


class Pending(NamedTuple):
    """A request that waits for an answer, since `time` in Unix seconds."""

    id: str
    request: Request
    time: float
    project: str = ""


class Settled(NamedTuple):
    """How the wait ended.

    `by` is `once`, `always`, `rejected`, `timeout`, `nobody` or `disposed`; the last three come
    without an answer.
    """

    answer: Answer | None
    by: str


BY = {"once": "once", "always": "always", "reject": "rejected"}
TIMEOUT, NOBODY, DISPOSED = (Settled(None, by) for by in ("timeout", "nobody", "disposed"))


class Posted(NamedTuple):
    """A request in the store; the asker has given up by the `deadline`, in Unix seconds."""

    pending: Pending
    deadline: float
    desk: str


class Board:
    """The requests of all processes that wait in a store, and who listens for them."""

    def __init__(self, store: Store, project: str) -> None:
        self.id = os.urandom(8).hex()
        self._store = store
        self._project = project
        self._desk = SessionKey(APP, project, "desk")

    def beat(self, listening: bool) -> None:
        """Say whether somebody listens here, and forget those who no longer say so."""
        now = time.time()
        delta: dict[str, str | None] = {
            key: None
            for key, value in self._store.state(self._desk).items()
            if key.startswith(_LISTENER) and not _fresh(value, now)
        }
        delta[_LISTENER + self.id] = repr(now) if listening else None
        self._store.append(self._desk, [], delta)

    def elsewhere(self, asker: str = "") -> bool:
        """Whether another desk listens; one that asks is not counted."""
        now = time.time()
        known = (_LISTENER + self.id, _LISTENER + asker)
        return any(
            key.startswith(_LISTENER) and key not in known and _fresh(value, now)
            for key, value in self._store.state(self._desk).items()
        )

    def post(self, pending: Pending, seconds: float) -> None:
        """Put a request where other processes see it."""
        posted = Posted(pending, time.time() + seconds, self.id)
        self._store.append(self._place(pending.id), [NewEvent("asked", data=_asked(posted))])

    def find(self, id: str) -> Posted | None:
        """The request of that id, unless it is settled."""
        events = self._store.events(self._place(id))
        return _posted(id, self._project, events[0]) if len(events) == 1 else None

    def settle(self, id: str, settled: Settled) -> bool:
        """Whether this is the first outcome of the request; a later one does not count."""
        place = self._place(id)
        [event] = self._store.append(place, [NewEvent("settled", data=_outcome(settled))])
        if event.seq == 1:
            # The asker took its request away meanwhile.
            self._store.delete(place)
        return event.seq == 2

    def outcome(self, id: str) -> Settled | None:
        """The outcome that counts."""
        for event in self._store.events(self._place(id), after=1):
            return _settled(event)
        return None

    def remove(self, id: str) -> None:
        """Leave nothing of the request."""
        self._store.delete(self._place(id))

    def listing(self) -> dict[str, SessionInfo]:
        """Everything that is posted, by its id."""
        return {
            info.key.session.removeprefix(_POSTED): info
            for info in self._store.sessions(APP, self._project)
            if info.key.session.startswith(_POSTED)
        }

    def waiting(
        self, listing: Mapping[str, SessionInfo], seen: Mapping[str, Posted]
    ) -> dict[str, Posted]:
        """Each request that is not settled yet; what crashed askers left behind is removed."""
        now = time.time()
        found = {}
        for id, info in listing.items():
            if info.events > 1:
                if now > info.updated + LEFT_SECONDS:
                    self.remove(id)
            elif posted := seen.get(id) or self._read(id):
                if now > posted.deadline + GRACE_SECONDS:
                    self.remove(id)
                else:
                    found[id] = posted
        return found

    def _read(self, id: str) -> Posted | None:
        """As `find`, but what is not a request is removed, and what can not be read is left."""
        try:
            events = self._store.events(self._place(id))
        except SkillbeltError:
            return None
        posted = _posted(id, self._project, events[0]) if events else None
        if events and posted is None:
            self.remove(id)
        return posted if len(events) == 1 else None

    def _place(self, id: str) -> SessionKey:
        return SessionKey(APP, self._project, _POSTED + id)


def _fresh(value: str, now: float) -> bool:
    try:
        return abs(now - float(value)) < STALE_SECONDS
    except ValueError:
        return False


def _asked(posted: Posted) -> dict[str, object]:
    request = posted.pending.request
    return {
        "desk": posted.desk,
        "deadline": posted.deadline,
        "time": posted.pending.time,
        "request": {**request._asdict(), "metadata": _plain(request.metadata)},
    }


def _plain(metadata: Mapping[str, object]) -> dict[str, object]:
    """The metadata as a store can keep it; what is no JSON is there as text."""
    import json

    try:
        plain: dict[str, object] = read_json(json.dumps(dict(metadata), allow_nan=False))
        return plain
    except (TypeError, ValueError, RecursionError):
        return {str(key): repr(value) for key, value in metadata.items()}


def _posted(id: str, project: str, event: Event) -> Posted | None:
    """The request that an event tells of; None when it tells of none."""
    data: Mapping[str, Any] = event.data
    try:
        request = _request(data["request"])
        pending = Pending(id, request, float(data["time"]), project)
        return Posted(pending, float(data["deadline"]), str(data["desk"]))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _request(fields: Mapping[str, Any]) -> Request:
    values: dict[str, Any] = {name: fields[name] for name in Request._fields}
    for name in ("patterns", "always", "tools"):
        values[name] = tuple(map(_text, fields[name]))
    values["trusted"] = fields["trusted"] is True
    values["metadata"] = dict(fields["metadata"])
    for name in _WORDS:
        _text(fields[name])
    return Request(**values)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"not a text: {value!r}")
    return value


def _outcome(settled: Settled) -> dict[str, object]:
    return {"by": settled.by, "answer": settled.answer and settled.answer._asdict()}


def _settled(event: Event) -> Settled:
    """The outcome that an event tells of. One that can not be read allows nothing."""
    data: Mapping[str, Any] = event.data
    try:
        if data["answer"] is None:
            return {one.by: one for one in (TIMEOUT, NOBODY, DISPOSED)}[data["by"]]
        fields: dict[str, Any] = {name: _text(data["answer"][name]) for name in Answer._fields}
        answer = Answer(**fields)
        return Settled(answer, BY[answer.kind])
    except (KeyError, TypeError):
        return NOBODY
