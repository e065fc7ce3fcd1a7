"""Runs in the background: start one, read what it says, answer it, end it.

Each has a thread that carries it from its start to its result, so it is collected and recorded once
whether anybody looks at it or not. A run is known by an id that can not be guessed, and only to the
conversation that started it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from contextvars import copy_context
from typing import NamedTuple

from skillbelt.errors import RunRefused
from skillbelt.format.skill import Skill
from skillbelt.running.call import RunCall, RunResult, check_stdin, unfinished
from skillbelt.running.executor import Workbench
from skillbelt.running.following import Watch
from skillbelt.running.run import Asker
from skillbelt.sandbox.protocol import MAX_STDIN_BYTES, Running, Stream
from skillbelt.store import SessionKey
from skillbelt.text import one_line, shorten

# Runs in the background of one conversation.
MAX_SESSION_RUNS = 8
# Runs in the background of all conversations together.
MAX_BACKGROUND_RUNS = 64
# Kept in memory of each stream until the caller reads it.
MAX_BACKGROUND_BYTES = 256 * 2**10

# What ended is forgotten when there is more of it, of one conversation and in all.
MAX_SESSION_ENDED = 8
MAX_ENDED = 128
MAX_WAIT_SECONDS = 60.0
_END_SECONDS = 30.0


class Polled(NamedTuple):
    """What a run said from the given offsets on, and how it is.

    Offsets count the bytes of a stream, without secrets; the ones here are for the next time.
    `dropped` counts the bytes that were wanted and are kept no more. `more` says that there is
    already more to read. `result` comes with the end; `error` says why there is none.
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


class Listed(NamedTuple):
    """A run of a conversation; `started` in Unix seconds."""

    id: str
    skill: str
    command: str
    started: float
    running: bool


class Piece(NamedTuple):
    """A part of a stream as text; `offset` is where the next one begins."""

    text: str
    offset: int
    dropped: int


class Tail:
    """The end of a stream, so much of it as is kept."""

    def __init__(self, keep: int) -> None:
        self._keep, self._data, self.total = keep, bytearray(), 0

    def add(self, data: bytes) -> None:
        """More of the stream."""
        self.total += len(data)
        self._data += data[-self._keep :]
        # Not at every piece: to cut at the front moves all that is kept.
        if len(self._data) >= 2 * self._keep:
            del self._data[: -self._keep]

    def read(self, offset: int, most: int, ended: bool) -> Piece:
        """What follows the offset, whole characters of it; fewer bytes than `most` or as many."""
        first = self.total - min(len(self._data), self._keep)
        start = max(offset, first)
        if start > offset:
            start += self._continued(start)
        at = len(self._data) - (self.total - start)
        data = bytes(self._data[at : at + most])
        if not ended or start + len(data) < self.total:
            data = data[: len(data) - unfinished(data)]
        return Piece(data.decode("utf-8", "replace"), start + len(data), start - offset)

    def _continued(self, start: int) -> int:
        """How many bytes from there on belong to a character that has lost its beginning."""
        at = len(self._data) - (self.total - start)
        head = self._data[at : at + 3]
        return next((n for n, byte in enumerate(head) if byte & 0xC0 != 0x80), len(head))


class _Kept:
    """One run. Whatever is set here is set by its thread, under the lock of all."""

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
        self.unwanted = self.ended = False
        self.result: RunResult | None = None
        self.error: Exception | None = None
        self.given = len(self._first)
        self.thread = threading.Thread(
            target=copy_context().run,  # whoever traces sees it below what started it
            args=(self._carry, workbench),
            name="skillbelt-background",
            daemon=True,
        )

    def _carry(self, workbench: Workbench) -> None:
        """The thread of the run, from permission to result."""
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
            if self.unwanted:
                running.kill()
            self.changed.notify_all()

    def _listen(self, stream: Stream, data: bytes) -> None:
        with self.changed:
            self.streams[stream].add(data)
            self.changed.notify_all()

    def end(self) -> None:
        """Kill it now, or as soon as it has started; the caller holds the lock."""
        self.unwanted = True
        if self.running is not None:
            self.running.kill()

    def polled(self, stdout_offset: int, stderr_offset: int, most: int) -> Polled:
        """All there is now; the caller holds the lock."""
        out, err = self.streams["stdout"], self.streams["stderr"]
        one = out.read(stdout_offset, most, self.ended)
        two = err.read(stderr_offset, most, self.ended)
        ahead = (out.read(one.offset, most, self.ended), err.read(two.offset, most, self.ended))
        more = any(piece.text for piece in ahead)
        places = (one.offset, two.offset, one.dropped, two.dropped)
        error = str(self.error or "")
        return Polled(one.text, two.text, *places, more, not self.ended, self.result, error)


class Background:
    """The runs of one workbench that nobody waits for. Safe to use from threads."""

    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench
        self._changed = threading.Condition()
        self._runs: dict[str, _Kept] = {}
        self._closed = False

    def start(self, skill: Skill, call: RunCall, who: Asker) -> str:
        """Start the command and give its id; its input stays open after what the call gives.

        Refused as `Workbench.run` refuses, and when too many runs go on.
        """
        check_stdin(call, self._workbench.settings.limits)
        kept = _Kept(
            workbench=self._workbench, skill=skill, call=call, who=who, changed=self._changed
        )
        self._admit(kept)
        try:
            self._await_start(kept)
        except BaseException:
            with self._changed:
                kept.end()
                if kept.ended:
                    del self._runs[kept.id]
            raise
        return kept.id

    def _admit(self, kept: _Kept) -> None:
        """Take the run in, if there is room for it."""
        with self._changed:
            if self._closed:
                raise RunRefused("no run can be started any more: the runtime was closed")
            going = [one for one in self._runs.values() if not one.ended]
            mine = [one for one in going if one.who.key == kept.who.key]
            if len(mine) >= MAX_SESSION_RUNS or len(going) >= MAX_BACKGROUND_RUNS:
                raise RunRefused(
                    f"{len(mine)} runs of this conversation go on in the background, {len(going)} "
                    "in all, and there can not be more; end one of them first"
                )
            self._forget(kept.who.key)
            # Here, so that whoever closes meets either nothing or a thread to wait for.
            kept.thread.start()
            self._runs[kept.id] = kept

    def _forget(self, key: SessionKey) -> None:
        ended = [one for one in self._runs.values() if one.ended]
        mine = [one for one in ended if one.who.key == key]
        for one in (*mine[:-MAX_SESSION_ENDED], *ended[:-MAX_ENDED]):
            self._runs.pop(one.id, None)

    def _await_start(self, kept: _Kept) -> None:
        with self._changed:
            self._changed.wait_for(lambda: kept.running is not None or kept.ended)
            if kept.running is None and kept.error is not None:
                raise kept.error

    def poll(
        self,
        key: SessionKey,
        id: str,
        *,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        wait_seconds: float = 0.0,
    ) -> Polled:
        """What the run said since, and its result once it has ended.

        Waits so long for something new, at most a minute. No more than `max_stream_bytes` of a
        stream are given at once. RunRefused for a run that this conversation does not have.
        """
        most = max(self._workbench.settings.limits.max_stream_bytes, 4)
        until = time.monotonic() + min(max(0.0, wait_seconds), MAX_WAIT_SECONDS)
        with self._changed:
            kept = self._found(key, id)
            offsets: dict[Stream, int] = {"stdout": stdout_offset, "stderr": stderr_offset}
            for name, offset in offsets.items():
                if not 0 <= offset <= kept.streams[name].total:
                    raise RunRefused(f"{name}_offset {offset} is none that a poll has given")
            while True:
                polled = kept.polled(stdout_offset, stderr_offset, most)
                left = until - time.monotonic()
                if polled.stdout or polled.stderr or not polled.running or left <= 0:
                    return polled
                self._changed.wait(left)

    def write(self, key: SessionKey, id: str, text: str | bytes = b"", close: bool = False) -> None:
        """Give the run more input, and with `close` its end; RunRefused when it takes none."""
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        with self._changed:
            kept = self._found(key, id)
            running, most = kept.running, MAX_STDIN_BYTES
            if running is None or kept.ended:
                raise RunRefused("the run has ended and takes no more input")
            if kept.given + len(data) > most:
                raise RunRefused(f"a run gets no more than {most} bytes of input (max_stdin_bytes)")
            kept.given += len(data)
        try:
            if data:
                running.write(data)
            if close:
                running.close_stdin()
        except BrokenPipeError as error:
            raise RunRefused("the run takes no more input") from error

    def kill(self, key: SessionKey, id: str) -> None:
        """End the run and everything it started; it has ended when this returns."""
        with self._changed:
            kept = self._found(key, id)
            kept.end()
            self._changed.wait_for(lambda: kept.ended, _END_SECONDS)

    def list(self, key: SessionKey) -> list[Listed]:
        """The runs of a conversation, oldest first; of those that ended, the last few."""
        with self._changed:
            return [
                Listed(
                    id=one.id,
                    skill=one.skill.name,
                    command=one.call.shown,
                    started=one.started,
                    running=not one.ended,
                )
                for one in self._runs.values()
                if one.who.key == key and (one.running is not None or one.ended)
            ]

    def end(self, key: SessionKey) -> None:
        """End all runs of a conversation; what they left is collected and recorded."""
        with self._changed:
            runs = [one for one in self._runs.values() if one.who.key == key]
            for one in runs:
                one.end()
        self._wait(runs)

    def close(self) -> None:
        """End all runs, and let none be started; what they left is collected and recorded."""
        with self._changed:
            self._closed = True
            runs = list(self._runs.values())
            for one in runs:
                one.end()
        self._wait(runs)

    def _wait(self, runs: Iterable[_Kept]) -> None:
        until = time.monotonic() + _END_SECONDS
        for one in runs:
            one.thread.join(max(0.0, until - time.monotonic()))

    def _found(self, key: SessionKey, id: str) -> _Kept:
        kept = self._runs.get(id)
        if kept is None or kept.who.key != key:
            shown = shorten(one_line(id), 80)
            raise RunRefused(f"there is no run {shown!r} in this conversation")
        return kept
