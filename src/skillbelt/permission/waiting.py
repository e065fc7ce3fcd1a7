"""Pending permission requests, of this process and of others.

`WaitingRequests` is for one process: a call that needs permission waits, and listeners answer from
any thread. `SharedRequests` keeps requests in the store, where other processes of the project see
and answer them; one that a listener here answers at once is not written there.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from contextvars import copy_context
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from skillbelt.errors import ConfigError, SkillbeltError, log_warning
from skillbelt.events import Event, NewEvent
from skillbelt.permission.remembered import APP, RememberedAnswers, binding, memorable, texts
from skillbelt.permission.rules import Answer, Request
from skillbelt.records import NamedTuple
from skillbelt.store.values import SessionInfo, SessionKey
from skillbelt.untrusted_json import read_json

if TYPE_CHECKING:
    from skillbelt.store.protocol import Store, StoreWatch

# How often a process publishes that it listens, and after how long it counts as gone.
BEAT_SECONDS = 2.0
STALE_SECONDS = 6.0
# How long an abandoned request stays: after its deadline, and after it was settled. A slow
# requester still finds it.
GRACE_SECONDS = 5.0
LEFT_SECONDS = 60.0
# How long a listener of this process may take before other processes see the request too.
SHOW_SECONDS = 0.2
# The longest wait for a notification, and the shortest time between two polls: many notifications
# must not keep a process busy.
_NEWS_SECONDS = 0.5
_PAUSE_SECONDS = 0.02
_LISTENER = "listener:"
# The store shares this key among all projects: a process that writes it answers for each of them.
_FOR_ALL = f"app:{_LISTENER}"
_EVERYWHERE = f"{APP} *"  # the topic of processes that watch all projects
_POSTED = "desk:"
_WORDS = ("type", "summary", "initiator", "agent", "session", "skill", "hash", "origin",
          "exact")  # fmt: skip


class Pending(NamedTuple):
    """A pending request, since `time` in Unix seconds."""

    id: str
    request: Request
    time: float
    project: str = ""


class Settled(NamedTuple):
    """The end of a wait.

    `by` is `once`, `conversation`, `always`, `rejected`, `timeout`, `nobody` or `disposed`; the
    last three mean that no answer came.
    """

    answer: Answer | None
    by: str


BY = {
    "once": "once",
    "conversation": "conversation",
    "always": "always",
    "reject": "rejected",
}
TIMEOUT, NO_LISTENER, DISPOSED = (Settled(None, by) for by in ("timeout", "nobody", "disposed"))


class Posted(NamedTuple):
    """A request in the store; the requester gives up at the `deadline`, in Unix seconds.

    `process` identifies the process that asks. `attended` says that it has a listener itself.
    `updated` is when the store last changed it.
    """

    pending: Pending
    deadline: float
    asker: str
    process: str = ""
    attended: bool = False
    updated: float = 0.0


class SharedRequests:
    """The pending requests of all processes in a store, and which processes listen."""

    def __init__(self, store: Store, project: str) -> None:
        self.id = os.urandom(8).hex()
        self._store = store
        self._project = project
        self._desk = SessionKey(APP, project, "desk")
        self._topic = f"{APP} {project}"
        self._listens = False

    def watch(self) -> StoreWatch:
        """Return a subscription to changes of the project's requests, on any machine.

        A notification only says that it is time to poll: the store has the state.
        """
        return self._store.watch(self._topic)

    def beat(self, listening: bool) -> None:
        """Publish whether this process listens, and forget processes that stopped publishing."""
        now = self._store.now()
        delta: dict[str, str | None] = {
            key: None
            for key, value in self._store.state(self._desk).items()
            if key.startswith(_LISTENER) and not _is_fresh(value, now)
        }
        delta[_LISTENER + self.id] = repr(now) if listening else None
        self._store.append(self._desk, [], delta)
        if listening != self._listens:
            self._listens = listening
            self._wake()

    def elsewhere(self, asker: str = "") -> bool:
        """Whether another process listens, not counting the asker."""
        now = self._store.now()
        known = (_LISTENER + self.id, _LISTENER + asker)
        return any(
            key.startswith((_LISTENER, _FOR_ALL)) and key not in known and _is_fresh(value, now)
            for key, value in self._store.state(self._desk).items()
        )

    def post(self, pending: Pending, seconds: float, *, attended: bool = False) -> None:
        """Write a request to the store for other processes."""
        posted = Posted(
            pending=pending,
            deadline=self._store.now() + seconds,
            asker=self.id,
            process=process_mark(),
            attended=attended,
        )
        self._store.append(
            self._key_of(pending.id), [NewEvent("asked", data=_encode_request(posted))]
        )
        self._wake()

    def seconds_left(self, posted: Posted) -> float:
        """Return how long the requester still waits."""
        return posted.deadline - self._store.now()

    def find(self, id: str) -> Posted | None:
        """Return the request with that id, unless it is settled or its asker has ended."""
        posted = self._open(id)
        return None if posted is None or has_ended(posted.process) else posted

    def is_abandoned(self, id: str) -> bool:
        """Whether the request is pending, but the process that asked has ended."""
        posted = self._open(id)
        return posted is not None and has_ended(posted.process)

    def _open(self, id: str) -> Posted | None:
        events = self._store.events(self._key_of(id))
        return _decode_posted(id, self._project, events[0]) if len(events) == 1 else None

    def settle(self, id: str, settled: Settled) -> bool:
        """Settle the request; False when it already had an outcome, which then counts."""
        place = self._key_of(id)
        [event] = self._store.append(place, [NewEvent("settled", data=_encode_outcome(settled))])
        if event.seq == 1:
            # The requester removed its request meanwhile.
            self._store.delete(place)
        self._wake()
        return event.seq == 2

    def outcome(self, id: str) -> Settled | None:
        """Return the first outcome of the request, or None."""
        for event in self._store.events(self._key_of(id), after=1):
            return _decode_outcome(event)
        return None

    def remove(self, id: str) -> None:
        """Delete the request from the store."""
        self._store.delete(self._key_of(id))
        self._store.wake(_EVERYWHERE)

    def _wake(self) -> None:
        self._store.wake(self._topic)
        self._store.wake(_EVERYWHERE)

    def listing(self) -> dict[str, SessionInfo]:
        """Return all posted requests by id."""
        return {
            info.key.session.removeprefix(_POSTED): info
            for info in self._store.sessions(APP, self._project)
            if info.key.session.startswith(_POSTED)
        }

    def waiting(
        self, listing: Mapping[str, SessionInfo], seen: Mapping[str, Posted]
    ) -> dict[str, Posted]:
        """Return the unsettled requests; remove those that crashed requesters left behind."""
        now = self._store.now()
        found = {}
        for id, info in listing.items():
            if info.events > 1:
                if now > info.updated + LEFT_SECONDS:
                    self.remove(id)
            elif posted := self._read_changed(id, info, seen):
                if now > posted.deadline + GRACE_SECONDS or has_ended(posted.process):
                    self.remove(id)
                else:
                    found[id] = posted
        return found

    def _read_changed(
        self, id: str, info: SessionInfo, seen: Mapping[str, Posted]
    ) -> Posted | None:
        known = seen.get(id)
        return known if known and known.updated == info.updated else self._read(id)

    def _read(self, id: str) -> Posted | None:
        """Like `find`, but remove an invalid request, and return None when the store fails."""
        try:
            events = self._store.events(self._key_of(id))
        except SkillbeltError:
            return None
        posted = _decode_posted(id, self._project, events[0]) if events else None
        if events and posted is None:
            self.remove(id)
        return posted if len(events) == 1 else None

    def _key_of(self, id: str) -> SessionKey:
        return SessionKey(APP, self._project, _POSTED + id)


class EveryRequest:
    """The pending requests of all projects in a store, to answer them in one place.

    A process asks only if another one listens. `listen` says that this one does, until `close`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = _FOR_ALL + os.urandom(8).hex()
        self._inbox = SessionKey(APP, "", "inbox")
        self._seen: dict[str, Posted] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def listen(self) -> None:
        """Publish that this process answers requests of every project, until `close`."""
        self._publish(repr(self._store.now()))
        self._thread = threading.Thread(
            target=self._keep_publishing, name="skillbelt-inbox", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            with _log_failure("cannot tell other processes that no one answers here any more"):
                self._publish(None)

    def watch(self) -> StoreWatch:
        """Return a subscription to changes of any project's requests."""
        return self._store.watch(_EVERYWHERE)

    def wake(self) -> None:
        """Wake every such subscription, so that its thread can end."""
        self._store.wake(_EVERYWHERE)

    def waiting(self) -> dict[str, Posted]:
        """Return the pending requests in the store, by id, oldest first."""
        projects: dict[str, dict[str, SessionInfo]] = {}
        for info in self._store.sessions(APP):
            if info.key.session.startswith(_POSTED):
                id = info.key.session.removeprefix(_POSTED)
                projects.setdefault(info.key.user, {})[id] = info
        found: dict[str, Posted] = {}
        for project, listing in projects.items():
            found |= SharedRequests(self._store, project).waiting(listing, self._seen)
        self._seen = found
        return dict(sorted(found.items(), key=lambda one: one[1].pending.time))

    def answer(self, project: str, id: str, answer: Answer) -> bool:
        """Settle a request and others that the answer covers; False if it is not pending."""
        answers = RememberedAnswers(self._store, project)
        return WaitingRequests(answers, store=self._store, project=project).answer(id, answer)

    def _keep_publishing(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            with _log_failure("cannot tell other processes who answers"):
                self._publish(repr(self._store.now()))

    def _publish(self, value: str | None) -> None:
        now = self._store.now()
        delta: dict[str, str | None] = {
            key: None
            for key, text in self._store.state(self._inbox).items()
            if key.startswith(_FOR_ALL) and not _is_fresh(text, now)
        }
        self._store.append(self._inbox, [], {**delta, self._key: value})


def _is_fresh(value: str, now: float) -> bool:
    try:
        return abs(now - float(value)) < STALE_SECONDS
    except ValueError:
        return False


def process_mark() -> str:
    """Return a mark that identifies this running process on this machine; "" if unknown."""
    started = _start_time(os.getpid())
    return f"{_machine()} {os.getpid()} {started}" if _machine() and started else ""


def has_ended(mark: str) -> bool:
    """Whether the process of the mark has certainly ended; never true for another machine's."""
    machine, _, process = mark.partition(" ")
    pid, _, started = process.partition(" ")
    if not pid.isdigit() or machine != _machine():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # a number that is not a process id is not known to have ended
        return False
    return _start_time(int(pid)) not in ("", started)


@cache
def _machine() -> str:
    """Return the boot id, the host name and the process namespace, within which a pid is unique.

    Two machines resumed from one memory image share the boot id, but not the name.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            boot = file.read().strip()
        name = os.uname().nodename.replace(" ", "_")
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}/{name}"
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """Return when a process started; "" if unknown, "ended" if it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return "ended" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


def _encode_request(posted: Posted) -> dict[str, object]:
    request = posted.pending.request
    return {
        "desk": posted.asker,
        "deadline": posted.deadline,
        "time": posted.pending.time,
        "process": posted.process,
        "attended": posted.attended,
        "request": {**request._asdict(), "metadata": _plain_metadata(request.metadata)},
    }


def _plain_metadata(metadata: Mapping[str, object]) -> dict[str, object]:
    """Return the metadata as JSON; values that are not JSON as their repr."""
    try:
        plain: dict[str, object] = read_json(json.dumps(dict(metadata), allow_nan=False))
        return plain
    except (TypeError, ValueError, RecursionError):
        return {str(key): repr(value) for key, value in metadata.items()}


def _decode_posted(id: str, project: str, event: Event) -> Posted | None:
    """Read the request in an event; None when it is invalid."""
    data: Mapping[str, Any] = event.data
    try:
        request = _decode_request(data["request"])
        pending = Pending(id, request, float(data["time"]), project)
        return Posted(
            pending=pending,
            deadline=float(data["deadline"]),
            asker=str(data["desk"]),
            process=str(data.get("process", "")),
            attended=data.get("attended") is True,
            updated=event.time,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _decode_request(fields: Mapping[str, Any]) -> Request:
    values: dict[str, Any] = {name: fields[name] for name in Request._fields}
    for name in ("patterns", "always", "tools"):
        values[name] = tuple(map(_require_text, fields[name]))
    values["trusted"] = fields["trusted"] is True
    values["metadata"] = dict(fields["metadata"])
    for name in _WORDS:
        _require_text(fields[name])
    return Request(**values)


def _require_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"not a text: {value!r}")
    return value


def _encode_outcome(settled: Settled) -> dict[str, object]:
    return {"by": settled.by, "answer": settled.answer and settled.answer._asdict()}


def _decode_outcome(event: Event) -> Settled:
    """Read the outcome in an event; an invalid one allows nothing."""
    data: Mapping[str, Any] = event.data
    try:
        if data["answer"] is None:
            return {one.by: one for one in (TIMEOUT, NO_LISTENER, DISPOSED)}[data["by"]]
        fields: dict[str, Any] = {
            name: _require_text(data["answer"][name]) for name in Answer._fields
        }
        answer = Answer(**fields)
        return Settled(answer, BY[answer.kind])
    except (KeyError, TypeError, ConfigError):
        return NO_LISTENER


Callback = Callable[[Pending], object]


class NotAnswered(LookupError):
    """Raised by a listener that leaves a request to other listeners."""


@contextmanager
def _log_failure(what: str) -> Iterator[None]:
    """Log a failure of the store, which must not stop the threads that use it."""
    try:
        yield
    except Exception:
        log_warning(what, trace=True)


class _Entry:
    """A pending request. `takers` are the listeners of this process that may still answer.

    `asker` is the process that asks, when it is another one. A `shared` request is settled by the
    store, and `attended` if the requester has listeners itself. `given` is an answer from this
    process to a shared one, and `failure` the error of a listener here.
    """

    def __init__(
        self,
        pending: Pending,
        takers: Iterable[int] = (),
        *,
        asker: str = "",
        shared: bool = False,
        attended: bool = False,
    ) -> None:
        self.pending = pending
        self.takers = set(takers)
        self.asker = asker
        self.shared, self.attended = shared, attended
        self.given: Settled | None = None
        self.failure: ConfigError | None = None
        self.claimed = False
        self.settled: Settled | None = None
        self.done = threading.Event()

    def groups(self) -> list[tuple[str, ...]]:
        """Return the groups whose answers also settle this request."""
        return [group for kind in ("always", "reject") if (group := _group(self, kind))]


class WaitingRequests:
    """The pending requests of a process. Thread-safe.

    With a `store`, the project's other processes see the requests and may answer them. ConfigError
    when the store is needed and cannot be used.
    """

    def __init__(
        self,
        answers: RememberedAnswers | None = None,
        *,
        store: Store | None = None,
        project: str = "",
        timeout_seconds: float = 300.0,
        poll_seconds: float = 0.2,
    ) -> None:
        self._answers = answers
        self._project = project
        self._timeout_seconds = timeout_seconds
        self._poll_seconds = poll_seconds
        self._shared = SharedRequests(store, project) if store is not None else None
        self._lock = threading.Lock()
        self._beating = threading.Lock()
        self._wake = threading.Event()
        self._poller: threading.Thread | None = None
        self._closed = False
        self._numbers = itertools.count()
        self._listeners: dict[int, Callback] = {}
        self._public: set[int] = set()  # listeners that also serve other processes
        self._entries: dict[str, _Entry] = {}
        self._groups: dict[tuple[str, ...], dict[str, _Entry]] = {}
        self._abroad: dict[str, _Entry] = {}

    def listen(self, callback: Callback, *, elsewhere: bool = True) -> Callable[[], None]:
        """Call `callback` for every request, also pending ones; return a function that stops it.

        Each call has its own thread, so a callback may block. One that raises does not answer:
        NotAnswered leaves the request to others; a ConfigError, as for a wrong answer, goes to the
        requester; any other error is logged. Without `elsewhere` it gets the requests of this
        process only.
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
            self._publish_listening()
            self._poll()
        for entry in waiting:
            self._publish(entry, {number: callback})
        return partial(self._remove_listener, number)

    def ask(self, request: Request, timeout_seconds: float | None = None) -> Settled:
        """Wait until the request is settled, by an answer, the timeout or a lack of listeners.

        Listeners of this process are asked first; those of other processes when none answers at
        once. With no listener left anywhere the request is refused; a killed process is noticed
        after a few seconds.
        """
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        until = time.monotonic() + min(max(seconds, 0.0), threading.TIMEOUT_MAX)
        pending = Pending(os.urandom(8).hex(), request, time.time(), self._project)
        settled = self._ask_here(pending, until)
        if settled == NO_LISTENER and self._shared is not None and self._shared.elsewhere():
            return self._ask_elsewhere(self._shared, pending, until)
        return settled

    def answer(self, id: str, answer: Answer) -> bool:
        """Settle a request and others that the answer covers; False if it is not pending.

        "always" settles all requests it covers, "reject" all of the same session. ConfigError when
        "always" cannot be saved: the request is allowed, and nothing is remembered.
        """
        settled = Settled(answer, BY[answer.kind])
        entry = self._entries.get(id)
        if entry is None or not self._claim(entry):
            if entry is not None and not entry.shared:
                return False
            if entry is not None:
                entry.given = settled
            return self._answer_posted(id, settled)
        try:
            self._remember(entry.pending.request, answer)
        finally:
            self._finish(entry, settled)
        self._reach(entry, settled)
        self._reach_posted(entry, settled)
        return True

    def withdraw(self, about: Callable[[Request], bool]) -> None:
        """Withdraw requests of this process without an answer: no call waits for them any more."""
        with self._lock:
            entries = [one for one in self._entries.values() if about(one.pending.request)]
        for entry in entries:
            with _log_failure("cannot withdraw a permission request"):
                self._resolve(entry, DISPOSED)

    def pending(self) -> list[Pending]:
        """Return the pending requests, of this process and in the store, oldest first."""
        found = {}
        if self._shared is not None:
            posted = self._shared.waiting(self._shared.listing(), {})
            found = {id: one.pending for id, one in posted.items()}
        with self._lock:
            found |= {id: entry.pending for id, entry in self._entries.items()}
        return sorted(found.values(), key=lambda pending: pending.time)

    def is_abandoned(self, id: str) -> bool:
        """Whether the process that asked has ended, so that no answer reaches it."""
        return self._shared is not None and self._shared.is_abandoned(id)

    def close(self) -> None:
        """Refuse all requests of this process, and later ones at once."""
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
            self._publish_listening()
        for entry in entries:
            # The waiting call gets its answer even if the store cannot be written.
            with _log_failure("cannot withdraw a permission request"):
                self._resolve(entry, DISPOSED)

    # Asking

    def _ask_here(self, pending: Pending, until: float) -> Settled:
        entry = _Entry(pending)
        with self._lock:
            if self._closed or not self._listeners:
                return DISPOSED if self._closed else NO_LISTENER
            listeners = dict(self._listeners)
            entry.takers.update(listeners)
            self._add(entry)
        try:
            if not self._settle_remembered(entry):
                self._publish(entry, listeners)
                self._show(entry, until)
            settled = self._outcome(entry, until)
            return self._apply_answer(entry, settled) if entry.shared else settled
        finally:
            with self._lock:
                self._drop(entry)
            if entry.shared and self._shared is not None:
                self._wake.set()
                self._shared.remove(pending.id)

    def _show(self, entry: _Entry, until: float) -> None:
        """Write a request to the store if no listener here answers it at once."""
        shared = self._shared
        at_once = min(SHOW_SECONDS, max(until - time.monotonic(), 0.0))
        if shared is None or entry.done.wait(at_once):
            return
        with _log_failure("cannot show a permission request to other processes"):
            shared.post(entry.pending, until - time.monotonic(), attended=True)
            with self._lock:
                shown = not (entry.claimed or entry.settled or self._closed)
                entry.shared = entry.attended = shown
            if shown:
                self._poll()
            else:
                shared.remove(entry.pending.id)

    def _ask_elsewhere(self, shared: SharedRequests, pending: Pending, until: float) -> Settled:
        entry = _Entry(pending, shared=True)
        try:
            shared.post(pending, until - time.monotonic())
            with self._lock:
                if self._closed:
                    return DISPOSED
                self._add(entry)
            if not self._settle_remembered(entry):
                self._poll()
            return self._apply_answer(entry, self._outcome(entry, until))
        finally:
            with self._lock:
                self._drop(entry)
            self._wake.set()
            shared.remove(pending.id)

    def _outcome(self, entry: _Entry, until: float) -> Settled:
        if not entry.done.wait(max(until - time.monotonic(), 0.0)):
            self._resolve(entry, TIMEOUT)
        # An answer may have come first and may be in the middle of being remembered.
        entry.done.wait()
        if entry.failure is not None and entry.settled == NO_LISTENER:
            raise entry.failure
        return entry.settled or NO_LISTENER

    def _apply_answer(self, entry: _Entry, settled: Settled) -> Settled:
        """Apply another process's answer here: remember it, and settle other waiting requests."""
        if settled.answer is not None:
            try:
                self._remember(entry.pending.request, settled.answer)
            except ConfigError:
                if settled != entry.given:  # else the process that answered has this error
                    raise
            self._reach(entry, settled)
        return settled

    def _settle_remembered(self, entry: _Entry) -> bool:
        """Settle the entry if it was permanently approved just before it began to wait."""
        request = entry.pending.request
        if self._answers is None or not memorable(request):
            return False
        found = self._answers.covering(request)
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
        """Settle the entry unless an answer came first."""
        if self._claim(entry):
            self._finish(entry, settled)
        elif entry.shared and self._shared is not None:
            try:
                if not self._shared.settle(entry.pending.id, settled):
                    settled = self._shared.outcome(entry.pending.id) or settled
            finally:
                self._finish(entry, settled)

    def _claim(self, entry: _Entry) -> bool:
        """Claim the entry; False when another thread already settles it, or the store does."""
        with self._lock:
            if entry.claimed or entry.shared:
                return False
            entry.claimed = True
            return True

    # Answers

    def _answer_posted(self, id: str, settled: Settled) -> bool:
        if self._shared is None or settled.answer is None:
            return False
        posted = self._shared.find(id)
        if posted is None or not self._shared.settle(id, settled):
            return False
        self._wake.set()
        entry = _Entry(posted.pending)
        self._reach(entry, settled)
        self._reach_posted(entry, settled)
        self._remember(posted.pending.request, settled.answer)
        return True

    def _remember(self, request: Request, answer: Answer) -> None:
        if answer.kind == "always" and self._answers is not None:
            self._answers.remember(request, answer.by)

    def _reach(self, entry: _Entry, settled: Settled) -> None:
        """Settle the other waiting requests of this process that the answer covers."""
        group = _group(entry, settled.answer.kind if settled.answer else "")
        with self._lock:
            others = list(self._groups.get(group, {}).values())
        for other in others:
            if not other.shared and self._reaches(entry, other.pending, settled):
                self._resolve(other, settled)

    def _reach_posted(self, entry: _Entry, settled: Settled) -> None:
        """Settle the requests in the store that the answer covers."""
        group = _group(entry, settled.answer.kind if settled.answer else "")
        if self._shared is None or not group:
            return
        for id, posted in self._shared.waiting(self._shared.listing(), {}).items():
            if self._reaches(entry, posted.pending, settled):
                self._shared.settle(id, settled)
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
        return self._answers is not None and self._answers.covering(other.request) is not None

    # Listeners

    def _publish(self, entry: _Entry, listeners: Mapping[int, Callback]) -> None:
        for number, callback in listeners.items():
            thread = threading.Thread(
                # Keep the context variables of the requesting call: a host may need them.
                target=copy_context().run,
                args=(self._call, entry, number, callback),
                name="skillbelt-listener",
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError:
                self._drop_listener(entry, number)

    def _call(self, entry: _Entry, number: int, callback: Callback) -> None:
        try:
            if number in self._listeners:
                callback(entry.pending)
                return
        except NotAnswered:
            pass  # the listener declines
        except ConfigError as error:
            log_warning(f"a permission callback is wrong: {error}")
            if entry.asker == "":
                entry.failure = error
                self._resolve(entry, NO_LISTENER)
        except BaseException:
            # The request must not wait for this listener; a thread has no caller to raise to.
            log_warning("a permission callback failed, so it does not answer", trace=True)
        with _log_failure("cannot withdraw a permission callback"):
            self._drop_listener(entry, number)

    def _drop_listener(self, entry: _Entry, number: int) -> None:
        """Note that a listener will not answer; settle the request if it was the last one."""
        with self._lock:
            entry.takers.discard(number)
            left = bool(entry.takers)
            abroad = entry.pending.id in self._abroad
        if left:
            return
        if entry.shared:
            self._wake.set()
        elif not abroad:
            self._resolve(entry, NO_LISTENER)
        elif (
            self._shared is not None
            and not entry.attended
            and not self._shared.elsewhere(entry.asker)
        ):
            self._shared.settle(entry.pending.id, NO_LISTENER)

    def _remove_listener(self, number: int) -> None:
        with self._lock:
            if self._listeners.pop(number, None) is None:
                return
            last = self._public == {number}
            self._public.discard(number)
            if last:
                self._abroad.clear()
            waiting = [*self._entries.values(), *self._abroad.values()]
        if last:
            self._publish_listening()
            self._wake.set()
        for entry in waiting:
            self._drop_listener(entry, number)

    # The store

    def _publish_listening(self) -> None:
        """Publish in the store whether this process listens.

        A failure of the store does not stop listening in this process.
        """
        if self._shared is None:
            return
        with self._beating, _log_failure("cannot tell other processes about permission callbacks"):
            self._shared.beat(bool(self._public))

    def _poll(self) -> None:
        """Start the thread that polls the store, unless it runs."""
        with self._lock:
            if self._shared is None or self._poller is not None or self._closed:
                return
            poller = threading.Thread(
                target=self._run_polling,
                args=(self._shared,),
                name="skillbelt-waiting",
                daemon=True,
            )
            poller.start()
            self._poller = poller

    def _run_polling(self, shared: SharedRequests) -> None:
        over = threading.Event()
        # Without notifications, as when the store cannot be reached, the requests are polled.
        with _log_failure("cannot wait for changes of permission requests"):
            watch = shared.watch()
            threading.Thread(
                target=self._pass_on, args=(watch, over), name="skillbelt-news", daemon=True
            ).start()
        try:
            self._poll_until_done(shared)
        finally:
            over.set()

    def _pass_on(self, watch: StoreWatch, over: threading.Event) -> None:
        """Wake the polling thread on each notification, until it ends."""
        with closing(watch), _log_failure("cannot wait for changes of permission requests"):
            while not over.is_set():
                if watch.wait(_NEWS_SECONDS):
                    self._wake.set()
                    over.wait(_PAUSE_SECONDS)

    def _poll_until_done(self, shared: SharedRequests) -> None:
        seen: dict[str, Posted] = {}
        beat = time.monotonic()
        while self._is_needed():
            # The store may work again at the next poll, and every wait has a timeout.
            with _log_failure("cannot look for permission requests in the store"):
                seen = self._poll_once(shared, seen)
            if self._public and time.monotonic() - beat >= BEAT_SECONDS:
                beat = time.monotonic()
                self._publish_listening()
            self._wake.wait(self._poll_seconds)
            self._wake.clear()

    def _is_needed(self) -> bool:
        with self._lock:
            needed = not self._closed and (
                bool(self._public) or any(entry.shared for entry in self._entries.values())
            )
            if not needed:
                self._poller = None
            return needed

    def _poll_once(self, shared: SharedRequests, seen: dict[str, Posted]) -> dict[str, Posted]:
        # In this order: an entry of the snapshot is in the listing, unless it was removed.
        with self._lock:
            mine = [entry for entry in self._entries.values() if entry.shared]
        listing = shared.listing()
        for entry in mine:
            info = listing.get(entry.pending.id)
            if info is None or info.events > 1:
                self._finish(entry, shared.outcome(entry.pending.id) or NO_LISTENER)
        lonely = [entry for entry in mine if not entry.takers]
        if lonely and not shared.elsewhere():
            for entry in lonely:
                self._resolve(entry, NO_LISTENER)
        elif lonely:
            self._leave_to_others(shared, lonely, shared.waiting(listing, {}))
        return self._publish_others(shared.waiting(listing, seen), shared) if self._public else {}

    def _leave_to_others(
        self, shared: SharedRequests, lonely: Iterable[_Entry], posted: Mapping[str, Posted]
    ) -> None:
        """Write requests again that lost their last listener here: others must answer now."""
        for entry in lonely:
            known = posted.get(entry.pending.id)
            if entry.attended and known is not None:
                entry.attended = False
                shared.remove(entry.pending.id)
                shared.post(entry.pending, shared.seconds_left(known))

    def _publish_others(
        self, posted: dict[str, Posted], shared: SharedRequests
    ) -> dict[str, Posted]:
        """Publish the requests of other processes to the listeners here."""
        with self._lock:
            listeners = {number: self._listeners[number] for number in self._public}
            kept = {
                id: entry
                for id, entry in self._abroad.items()
                if id in posted and posted[id].attended == entry.attended
            }
            new = {
                id: _Entry(one.pending, listeners, asker=one.asker, attended=one.attended)
                for id, one in posted.items()
                if id not in kept and one.asker != shared.id
            }
            self._abroad = kept | new if listeners else {}
        for entry in new.values():
            self._publish(entry, listeners)
        return posted


def _group(entry: _Entry, kind: str) -> tuple[str, ...]:
    """Return the key of the requests that an answer of this kind covers; () for none."""
    request = entry.pending.request
    if kind == "always":
        return kind, *binding(request)
    return (kind, request.session) if kind == "reject" and request.session else ()
