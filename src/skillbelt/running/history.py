"""The history of runs: what ran, how it ended, how long each step took, and what it printed.

It is in the store, so that every process that shares the store sees it. A short run is written
once, at its end. A longer one is written while it lasts, and another process can ask it to end.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

from skillbelt.errors import log_warning
from skillbelt.events import NewEvent
from skillbelt.permission.audit import user_name
from skillbelt.permission.audit_events import machine_name
from skillbelt.permission.waiting import has_ended, process_mark
from skillbelt.running.following import Watch
from skillbelt.sandbox.protocol import Running, Stream
from skillbelt.store.protocol import SessionKey, Store
from skillbelt.untrusted_json import BadJson, read_json

APP = "skillbelt:runs"
TOPIC = APP  # woken when a run begins, prints or ends
# The number of runs kept in a store; the oldest are removed first.
MAX_RUNS = 2_000
# Bytes kept of each stream of a run.
MAX_OUTPUT_BYTES = 256 * 2**10
# After how long a run counts as long, and how often it is written then.
LIVE_SECONDS = 1.0
FLUSH_SECONDS = 0.5
STEPS = ("stage", "ask", "provide", "run", "collect")
_OWNER = "all"
_RUN, _STOP = "run", "stop"
_LATEST = 2**52
_PRUNED_ONE_IN = 64
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Step(NamedTuple):
    """A step of a run: when it began, in milliseconds after the call, and how long it took."""

    name: str
    start_ms: float
    duration_ms: float


class StepClock:
    """Measures the steps of one run."""

    def __init__(self) -> None:
        self._zero = time.monotonic()
        self.time = time.time()
        self.steps: list[Step] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a block."""
        start = time.monotonic()
        try:
            yield
        finally:
            end = time.monotonic()
            self.steps.append(
                Step(name, round((start - self._zero) * 1e3, 2), round((end - start) * 1e3, 2))
            )


class PastRun(NamedTuple):
    """A run of the history. `state` is `running`, `ended` or `lost`: its process is gone.

    `facts` are those of its record in the audit log, with the files in and out, the protections
    that the sandbox enforced and the warnings.
    """

    id: str
    time: float
    state: str
    skill: str
    command: str
    project: str = ""
    session: str = ""
    agent: str = ""
    initiator: str = ""
    user: str = ""
    machine: str = ""
    hash: str = ""
    sandbox: str = ""
    exit_code: int | None = None
    duration_ms: int = 0
    steps: tuple[Step, ...] = ()
    facts: Mapping[str, Any] = _NOTHING

    @property
    def outcome(self) -> str:
        """Return how it ended, in a word or two."""
        if self.state != "ended":
            return self.state
        if self.facts.get("timed_out"):
            return "timed out"
        return "stopped" if self.facts.get("cancelled") else f"exit {self.exit_code}"

    def document(self) -> dict[str, object]:
        """Return it as a JSON document."""
        steps = [one._asdict() for one in self.steps]
        return {**self._asdict(), "outcome": self.outcome, "steps": steps,
                "facts": dict(self.facts)}  # fmt: skip


class PrintedText(NamedTuple):
    """A part of a run's output."""

    stream: str
    text: str


class RunHistory:
    """The runs in a store, the newest first."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def page(self, after: str = "", limit: int = 50) -> tuple[list[PastRun], str]:
        """Return the next runs, and the id to continue after; "" when there are no more."""
        start = SessionKey(APP, _OWNER, after) if after else None
        infos = self._store.sessions(APP, _OWNER, after=start, limit=limit + 1)
        found = [run for info in infos[:limit] if (run := self.find(info.key.session))]
        return found, infos[limit - 1].key.session if len(infos) > limit else ""

    def select(
        self, *, skill: str = "", state: str = "", session: str = "", after: str = "",
        limit: int = 50,
    ) -> tuple[list[PastRun], str]:  # fmt: skip
        """Return the next matching runs, and the id to continue after."""
        found: list[PastRun] = []
        while True:
            runs, after = self.page(after, limit)
            for run in runs:
                if (
                    skill in ("", run.skill)
                    and session in ("", run.session)
                    and _has_state(run, state)
                ):
                    found.append(run)
                if len(found) == limit and (run.id != runs[-1].id or after):
                    return found, run.id
            if not after:
                return found, ""

    def find(self, id: str) -> PastRun | None:
        """Return the run of that id; None if there is none."""
        text = self._store.state(SessionKey(APP, _OWNER, id)).get(_RUN)
        return _decode(id, text) if text else None

    def output(self, id: str) -> list[PrintedText]:
        """Return the output of the run, in order as far as that is known."""
        events = self._store.events(SessionKey(APP, _OWNER, id))
        return [
            PrintedText(str(one.data.get("stream")), str(one.data.get("text")))
            for one in events
            if one.type == "output"
        ]

    def stop(self, id: str, by: str) -> bool:
        """Ask the process of a run to end it; False when the run is not running."""
        run = self.find(id)
        if run is None or run.state != "running":
            return False
        self._store.append(SessionKey(APP, _OWNER, id), [], {_STOP: by})
        self._store.wake(TOPIC)
        return True

    def forget(self, session: str) -> int:
        """Delete the runs of a conversation; return how many."""
        mark, gone, after = _session_mark(session), 0, None
        while infos := self._store.sessions(APP, _OWNER, after=after, limit=500):
            after = infos[-1].key
            gone += sum(self._store.delete(one.key) for one in infos if mark in one.key.session)
        return gone

    def prune(self) -> None:
        """Delete the oldest runs above the limit."""
        kept = self._store.sessions(APP, _OWNER, limit=MAX_RUNS)
        if len(kept) == MAX_RUNS:
            for one in self._store.sessions(APP, _OWNER, after=kept[-1].key, limit=MAX_RUNS):
                self._store.delete(one.key)


class RunRecorder:
    """Writes one run into the history. A failing store is logged and stops no run."""

    def __init__(self, store: Store, run: PastRun) -> None:
        """Take the facts that are known before the start, and create the id of the run."""
        order = f"{_LATEST - int(run.time * 1000):014x}"  # the newest run sorts first
        self.id = f"{order}{_session_mark(run.session)}{os.urandom(4).hex()}"
        self._run = run._replace(id=self.id)
        self._store, self._key = store, SessionKey(APP, _OWNER, self.id)
        self._lock, self._over = threading.Lock(), threading.Event()
        self._parts: list[PrintedText] = []
        self._decoders = {
            name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")
        }
        self._left = dict.fromkeys(self._decoders, MAX_OUTPUT_BYTES)
        self._running: Running | None = None
        self._thread: threading.Thread | None = None

    def listen(self, stream: Stream, data: bytes) -> None:
        """Accept output, without secrets."""
        with self._lock:
            data = data[: self._left[stream]]
            self._left[stream] -= len(data)
            if text := self._decoders[stream].decode(data):
                if self._parts and self._parts[-1].stream == stream:
                    self._parts[-1] = PrintedText(stream, self._parts[-1].text + text)
                else:
                    self._parts.append(PrintedText(stream, text))

    def start(self, running: Running) -> None:
        """Record that the command runs; from now on it is written while it lasts."""
        self._running = running
        self._thread = threading.Thread(
            target=self._write_while_running, name="skillbelt-history", daemon=True
        )
        self._thread.start()

    def end(self, facts: Mapping[str, Any] | None, steps: Iterable[Step]) -> None:
        """Write the end of the run; without facts it did not start, and nothing is written."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if facts is None:
            with _log_errors():
                self._store.delete(self._key)
            return
        ended = self._run._replace(
            state="ended",
            exit_code=facts["exit_code"],
            duration_ms=facts["duration_ms"],
            sandbox=facts["sandbox"],
            steps=tuple(steps),
            facts=facts,
        )
        with _log_errors():
            self._write(ended)
            if os.urandom(1)[0] * _PRUNED_ONE_IN < 256:
                RunHistory(self._store).prune()

    def _write_while_running(self) -> None:
        if self._over.wait(LIVE_SECONDS):
            return
        with _log_errors():
            self._write(self._run)
            with closing(self._store.watch(TOPIC)) as watch:
                while not self._over.is_set():
                    watch.wait(FLUSH_SECONDS)
                    if _STOP in self._store.state(self._key) and self._running is not None:
                        self._running.kill()
                    if self._parts:
                        self._write(None)
                    self._over.wait(FLUSH_SECONDS / 5)

    def _write(self, run: PastRun | None) -> None:
        with self._lock:
            parts, self._parts = self._parts, []
        events = [NewEvent("output", data=part._asdict()) for part in parts]
        self._store.append(self._key, events, {} if run is None else {_RUN: _encode(run)})
        self._store.wake(TOPIC)


def record_output(watch: Watch, recorder: RunRecorder | None) -> Watch:
    """Return a watch that also writes its output into the history."""
    if recorder is None:
        return watch
    listener, started = watch.listener, watch.started

    def listen(stream: Stream, data: bytes) -> None:
        recorder.listen(stream, data)
        if listener is not None:
            listener(stream, data)

    def start(running: Running) -> None:
        recorder.start(running)
        if started is not None:
            started(running)

    return watch._replace(listener=listen, started=start)


def begin_record(store: Store, run: PastRun) -> RunRecorder:
    """Return the recorder that writes the run into the history."""
    return RunRecorder(
        store,
        run._replace(user=user_name(), machine=machine_name(), facts={"process": process_mark()}),
    )


@contextmanager
def _log_errors() -> Iterator[None]:
    try:
        yield
    except Exception:
        log_warning("the history of runs cannot be written", trace=True)


def _has_state(run: PastRun, state: str) -> bool:
    if state == "failed":
        return run.state == "lost" or (run.state == "ended" and bool(run.exit_code))
    if state == "ok":
        return run.state == "ended" and not run.exit_code
    return state in ("", run.state)


def _session_mark(session: str) -> str:
    """Return the common part of the ids of a conversation's runs."""
    return f"-{hashlib.sha256(session.encode('utf-8', 'replace')).hexdigest()[:12]}-"


def _encode(run: PastRun) -> str:
    return json.dumps({**run._asdict(), "facts": dict(run.facts)}, default=str)


def _decode(id: str, text: str) -> PastRun | None:
    """Read a run of the store; None when it is not one."""
    try:
        found = read_json(text)
        steps = tuple(
            Step(str(name), float(start), float(length)) for name, start, length in found["steps"]
        )
        known = {name: found[name] for name in PastRun._fields}
        run = PastRun(**{**known, "id": id, "steps": steps, "facts": dict(found["facts"])})
    except (BadJson, KeyError, TypeError, ValueError):
        return None
    ended = run.state == "running" and has_ended(str(run.facts.get("process", "")))
    return run._replace(state="lost") if ended else run
