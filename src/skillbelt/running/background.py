"""Runs in the background: start one, poll its output, write to it, kill it.

Each has a thread from start to result, so its outputs are collected and recorded even if it is
never polled. A run has an id that cannot be guessed and is visible only to the conversation that
started it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from contextvars import copy_context
from typing import NamedTuple, Protocol

from skillbelt.errors import RunRefused
from skillbelt.format.skill import Skill
from skillbelt.running.call import Asker, RunCall, RunResult, check_stdin, unfinished
from skillbelt.running.following import Watch
from skillbelt.running.secrets import redacted
from skillbelt.running.workbench import Workbench
from skillbelt.sandbox.protocol import MAX_STDIN_BYTES, Running, Stream
from skillbelt.store import SessionKey
from skillbelt.text import one_line, shorten

# Background runs of one conversation.
MAX_SESSION_RUNS = 8
# Background runs of all conversations together.
MAX_BACKGROUND_RUNS = 64
# Bytes of each stream kept in memory until the caller reads them.
MAX_BACKGROUND_BYTES = 256 * 2**10

# How many ended runs are kept, of one conversation and in total.
MAX_SESSION_ENDED = 8
MAX_ENDED = 128
MAX_WAIT_SECONDS = 60.0
_END_SECONDS = 30.0


class Polled(NamedTuple):
    """The output of a run from the given offsets on, and its state.

    Offsets count the bytes of a stream after redaction; those here are for the next poll. `dropped`
    counts requested bytes that are no longer kept. `more` says that there is already more to read.
    `result` is set after the end; `error` says why there is none.
    """

    stdout: str
    stderr: str
    stdout_offset: int
    stderr_offset: int
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    more: bool = False
    running: bool = True
    result: RunResult | None = None
    error: str = ""
    error_kind: str = ""


class Listed(NamedTuple):
    """A run of a conversation; `started` in Unix seconds."""

    id: str
    skill: str
    command: str
    started: float
    running: bool


class Piece(NamedTuple):
    """A part of a stream as text; the next part begins at `offset`."""

    text: str
    offset: int
    dropped: int


class Tail:
    """The last bytes of a stream."""

    def __init__(self, keep: int) -> None:
        self._keep, self._data, self.total = keep, bytearray(), 0

    def add(self, data: bytes) -> None:
        """Append to the stream."""
        self.total += len(data)
        self._data += data[-self._keep :]
        # Not at every piece: deleting at the front moves all the rest.
        if len(self._data) >= 2 * self._keep:
            del self._data[: -self._keep]

    def read(self, offset: int, most: int, ended: bool) -> Piece:
        """Return whole characters from the offset on, at most `most` bytes."""
        first = self.total - min(len(self._data), self._keep)
        start = max(offset, first)
        if start > offset:
            start += self._count_continued(start)
        at = len(self._data) - (self.total - start)
        data = bytes(self._data[at : at + most])
        if not ended or start + len(data) < self.total:
            data = data[: len(data) - unfinished(data)]
        return Piece(data.decode("utf-8", "replace"), start + len(data), start - offset)

    def _count_continued(self, start: int) -> int:
        """Count the bytes from there on that continue a character whose beginning is lost."""
        at = len(self._data) - (self.total - start)
        head = self._data[at : at + 3]
        return next((n for n, byte in enumerate(head) if byte & 0xC0 != 0x80), len(head))


class Elsewhere(Protocol):
    """The runs that other servers hold; the id of a run names its server."""

    def mark(self, text: str, key: SessionKey) -> str:
        """Return an id of this server for a run of the conversation, and tell the other servers."""

    def forget(self, key: SessionKey) -> bool:
        """Let all other servers forget the runs of a conversation; return whether there was one."""

    def holds(self, id: str) -> bool:
        """Whether another server holds the run."""

    def ask(self, operation: str, key: SessionKey, id: str, **arguments: object) -> Polled | None:
        """Let that server do the operation; return the result of `poll`, or None."""


class _BackgroundRun:
    """One run. Its thread sets the fields, under the lock of all runs."""

    def __init__(
        self,
        workbench: Workbench,
        skill: Skill,
        call: RunCall,
        who: Asker,
        changed: threading.Condition,
    ) -> None:
        self.id, self.skill, self.who = os.urandom(16).hex(), skill, who
        self.call, self._first = call._replace(stdin=None), call.stdin or b""
        self.started, self.changed = time.time(), changed
        keep = MAX_BACKGROUND_BYTES
        self.streams: dict[Stream, Tail] = {"stdout": Tail(keep), "stderr": Tail(keep)}
        self.running: Running | None = None
        self.killed = self.ended = False
        self.result: RunResult | None = None
        self.error: Exception | None = None
        self.given = len(self._first)
        self.thread = threading.Thread(
            target=copy_context().run,  # its spans become children of the caller's
            args=(self._run, workbench),
            name="skillbelt-background",
            daemon=True,
        )

    def _run(self, workbench: Workbench) -> None:
        """Run it in this thread, from permission to result."""
        result, error = None, None
        try:
            watch = Watch(self._listen, self._note_start)
            result = workbench.run(self.skill, self.call, self.who, watch)
        except Exception as failure:
            error = failure
        with self.changed:
            self.result, self.error, self.ended = result, error, True
            self.changed.notify_all()

    def _note_start(self, running: Running) -> None:
        if self._first:
            with suppress(BrokenPipeError):
                running.write(self._first)
        with self.changed:
            self.running = running
            if self.killed:
                running.kill()
            self.changed.notify_all()

    def _listen(self, stream: Stream, data: bytes) -> None:
        with self.changed:
            self.streams[stream].add(data)
            self.changed.notify_all()

    def end(self) -> None:
        """Kill it now, or as soon as it starts; the caller holds the lock."""
        self.killed = True
        if self.running is not None:
            self.running.kill()

    def poll(self, stdout_offset: int, stderr_offset: int, most: int) -> Polled:
        """Return the current output and state; the caller holds the lock."""
        out, err = self.streams["stdout"], self.streams["stderr"]
        one = out.read(stdout_offset, most, self.ended)
        two = err.read(stderr_offset, most, self.ended)
        ahead = (out.read(one.offset, most, self.ended), err.read(two.offset, most, self.ended))
        more = any(piece.text for piece in ahead)
        return Polled(
            stdout=one.text,
            stderr=two.text,
            stdout_offset=one.offset,
            stderr_offset=two.offset,
            stdout_dropped=one.dropped,
            stderr_dropped=two.dropped,
            more=more,
            running=not self.ended,
            result=self.result,
            error=str(self.error or ""),
            error_kind=getattr(self.error, "kind", "failed") if self.error else "",
        )


class Background:
    """The background runs of one workbench, and those of other servers. Thread-safe."""

    def __init__(self, workbench: Workbench, elsewhere: Elsewhere | None = None) -> None:
        self._workbench, self._elsewhere = workbench, elsewhere
        self._changed = threading.Condition()
        self._runs: dict[str, _BackgroundRun] = {}
        self._closed = False

    def start(self, skill: Skill, call: RunCall, who: Asker) -> str:
        """Start the command and return its id; stdin stays open after the input of the call.

        Raises the errors of `Workbench.run`, and RunRefused when too many runs are running.
        """
        check_stdin(call)
        run = _BackgroundRun(
            workbench=self._workbench, skill=skill, call=call, who=who, changed=self._changed
        )
        if self._elsewhere is not None:
            run.id = self._elsewhere.mark(run.id, who.key)
        self._admit(run)
        try:
            self._await_start(run)
        except BaseException:
            with self._changed:
                run.end()
                if run.ended:
                    del self._runs[run.id]
            raise
        return run.id

    def _admit(self, run: _BackgroundRun) -> None:
        """Add the run and start its thread, if the limits allow it."""
        with self._changed:
            if self._closed:
                raise RunRefused("no run can be started: the runtime was closed")
            going = [one for one in self._runs.values() if not one.ended]
            mine = [one for one in going if one.who.key == run.who.key]
            own = [one for one in going if one.who.key[:2] == run.who.key[:2]]
            # A user with as many runs as there are free places gets no more, so that others find
            # one.
            free = MAX_BACKGROUND_RUNS - len(going)
            if len(mine) >= MAX_SESSION_RUNS or len(own) >= free:
                raise RunRefused(
                    f"{len(mine)} runs of this conversation go on in the background, {len(own)} of "
                    f"this user, {len(going)} in all, which is the limit; end one of them first"
                )
            self._forget(run.who.key)
            # Under the lock, so that `close` finds either no run or a thread to join.
            run.thread.start()
            self._runs[run.id] = run

    def _forget(self, key: SessionKey) -> None:
        """Forget the oldest results of the conversation, and of those with the most of them."""
        ended = [one for one in self._runs.values() if one.ended]
        mine = [one for one in ended if one.who.key == key]
        gone = mine[:-MAX_SESSION_ENDED]
        kept = [one for one in ended if one not in gone]
        while len(kept) > MAX_ENDED:
            ((most, _),) = Counter(one.who.key[:2] for one in kept).most_common(1)
            gone.append(next(one for one in kept if one.who.key[:2] == most))
            kept.remove(gone[-1])
        for one in gone:
            self._runs.pop(one.id, None)

    def _await_start(self, run: _BackgroundRun) -> None:
        with self._changed:
            self._changed.wait_for(lambda: run.running is not None or run.ended)
            if run.running is None and run.error is not None:
                raise run.error

    def poll(
        self,
        key: SessionKey,
        id: str,
        *,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        wait_seconds: float = 0.0,
    ) -> Polled:
        """Return new output of the run, and its result once it has ended.

        Waits up to `wait_seconds`, at most a minute, for something new. At most
        `max_stream_bytes` of a stream are returned at once. RunRefused for a run that this
        conversation does not have.
        """
        if self._elsewhere is not None and self._elsewhere.holds(id):
            polled = self._elsewhere.ask(
                "poll",
                key,
                id,
                stdout_offset=stdout_offset,
                stderr_offset=stderr_offset,
                wait_seconds=wait_seconds,
            )
            assert polled is not None
            return polled
        most = max(self._workbench.settings.limits.max_stream_bytes, 4)
        until = time.monotonic() + min(max(0.0, wait_seconds), MAX_WAIT_SECONDS)
        with self._changed:
            run = self._find(key, id)
            offsets: dict[Stream, int] = {"stdout": stdout_offset, "stderr": stderr_offset}
            for name, offset in offsets.items():
                if not 0 <= offset <= run.streams[name].total:
                    raise RunRefused(f"{name}_offset {offset} was not returned by a poll")
            while True:
                poll = run.poll(stdout_offset, stderr_offset, most)
                left = until - time.monotonic()
                if poll.stdout or poll.stderr or not poll.running or left <= 0:
                    return poll
                self._changed.wait(left)

    def write(self, key: SessionKey, id: str, text: str | bytes = b"", close: bool = False) -> None:
        """Write to the stdin of the run, and `close` it; RunRefused when it takes no input."""
        if self._elsewhere is not None and self._elsewhere.holds(id):
            given = text if isinstance(text, str) else text.decode("utf-8", "replace")
            self._elsewhere.ask("write", key, id, text=given, close=close)
            return
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        with self._changed:
            run = self._find(key, id)
            running, most = run.running, MAX_STDIN_BYTES
            if running is None or run.ended:
                raise RunRefused("the run has ended and takes no more input")
            if run.given + len(data) > most:
                raise RunRefused(f"a run gets no more than {most} bytes of input (max_stdin_bytes)")
            run.given += len(data)
        try:
            if data:
                running.write(data)
            if close:
                running.close_stdin()
        except BrokenPipeError as error:
            raise RunRefused("the run takes no more input") from error

    def kill(self, key: SessionKey, id: str) -> None:
        """Kill the run with all its processes, and wait for its end."""
        if self._elsewhere is not None and self._elsewhere.holds(id):
            self._elsewhere.ask("kill", key, id)
            return
        with self._changed:
            run = self._find(key, id)
            run.end()
            self._changed.wait_for(lambda: run.ended, _END_SECONDS)

    def list(self, key: SessionKey) -> list[Listed]:
        """Return the runs of a conversation, oldest first; of the ended ones, the last few."""
        with self._changed:
            return [
                Listed(
                    id=one.id,
                    skill=one.skill.name,
                    command=redacted(one.call.shown, self._workbench.given_secrets),
                    started=one.started,
                    running=not one.ended,
                )
                for one in self._runs.values()
                if one.who.key == key and (one.running is not None or one.ended)
            ]

    def end(self, key: SessionKey) -> None:
        """Kill all runs of a conversation; their outputs are collected and recorded."""
        with self._changed:
            runs = [one for one in self._runs.values() if one.who.key == key]
            for one in runs:
                one.end()
        self._wait(runs)

    def forget(self, key: SessionKey, *, everywhere: bool = True) -> bool:
        """Kill all runs of a conversation and forget their results.

        Return whether there was one.
        """
        theirs = everywhere and self._elsewhere is not None and self._elsewhere.forget(key)
        self.end(key)
        with self._changed:
            mine = [id for id, one in self._runs.items() if one.who.key == key]
            for id in mine:
                del self._runs[id]
        return bool(mine) or theirs

    def close(self) -> None:
        """Kill all runs and refuse new ones; their outputs are collected and recorded."""
        with self._changed:
            self._closed = True
            runs = list(self._runs.values())
            for one in runs:
                one.end()
        self._wait(runs)

    def _wait(self, runs: Iterable[_BackgroundRun]) -> None:
        until = time.monotonic() + _END_SECONDS
        for one in runs:
            one.thread.join(max(0.0, until - time.monotonic()))

    def _find(self, key: SessionKey, id: str) -> _BackgroundRun:
        run = self._runs.get(id)
        if run is None or run.who.key != key:
            shown = shorten(one_line(id), 80)
            raise RunRefused(f"there is no run {shown!r} in this conversation")
        return run
