"""A command in a container: its streams, timeout and termination."""

from __future__ import annotations

import json
import os
import select
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.container.channel import ContainerChannel, ContainerLost
from skillbelt.sandbox.container.counters import ContainerWatch
from skillbelt.sandbox.container.pool import Container, ContainerPool
from skillbelt.sandbox.inside import container as first_process
from skillbelt.sandbox.process.limit_checks import TICK_SECONDS
from skillbelt.sandbox.process.run import END_SECONDS, LOST, START_SECONDS
from skillbelt.sandbox.process.streams import Controls, Ending, Feed, Sink, outcome_of
from skillbelt.sandbox.protocol import Job, Listener, Stream
from skillbelt.untrusted_json import read_json

_MAX_IN_FLIGHT = 256 * 2**10  # input that was sent and not yet consumed
_CHUNK = 64 * 2**10
_KILL_SECONDS = 2.0  # for the first process to kill everything; after that the engine does


class FrameInput(Feed):
    """Input that is sent in frames instead of written to a descriptor."""

    def __init__(self, data: bytes | None) -> None:
        self.fd, self._terminal, self.over = -1, False, False
        self._pending = deque([memoryview(data)] if data else [])
        self._last = data is not None

    def take(self, most: int) -> bytes:
        """Return the next piece, at most that long."""
        piece = bytes(self._pending[0][: min(most, _CHUNK)])
        self._advance(len(piece))
        return piece


class FrameOutput(Sink):
    """Output that arrives in frames instead of on a descriptor."""

    def __init__(self, stream: Stream, keep: int, listener: Listener | None) -> None:
        self.fd, self.stream, self._keep, self._listener = -1, stream, keep, listener
        self._head, self._total = bytearray(), 0

    def add(self, data: bytes) -> None:
        """Record the data and pass it to the listener."""
        self._add(data)


class ContainerRun(Controls):
    """A started command; see `Running`."""

    def __init__(
        self,
        job: Job,
        task: Mapping[str, object],
        container: Container,
        pool: ContainerPool,
        enforced: Mapping[str, str],
        watch: ContainerWatch,
        listener: Listener | None,
    ) -> None:
        super().__init__()
        self._started = time.monotonic()
        self._job, self._container, self._pool = job, container, pool
        self._enforced, self._watch = enforced, watch
        self._channel: ContainerChannel = container.channel
        keep = job.limits.max_stream_bytes
        self._sinks = {
            first_process.OUTPUT: FrameOutput("stdout", keep, listener),
            first_process.ERRORS: FrameOutput("stderr", keep, listener),
        }
        self._feed = FrameInput(job.stdin)
        self._sent = 0
        self._code, self._cpu_seconds = LOST, 0.0
        self._done = self._clean = self._lost = False
        self._gone = True
        self._wake = self._nudge = -1
        try:
            self._wake, self._nudge = os.pipe()
            os.set_blocking(self._nudge, False)
            self._start_command(task)
            threading.Thread(target=self._pump, name="skillbelt-container", daemon=True).start()
        except BaseException:
            self._close()
            pool.discard(container)
            raise

    def _notify(self) -> None:
        if self._nudge >= 0:
            with suppress(BlockingIOError):
                os.write(self._nudge, b"1")

    def _start_command(self, task: Mapping[str, object]) -> None:
        """Send the task; raises SandboxUnavailable when the command cannot be started."""
        try:
            self._channel.send(first_process.JOB, json.dumps(task).encode())
            kind, data = self._channel.expect(
                (first_process.STARTED, first_process.REFUSED), START_SECONDS
            )
        except ContainerLost as error:
            raise SandboxUnavailable(f"the container has exited: {error}") from error
        if kind == first_process.REFUSED:
            said = data.decode("utf-8", "replace")
            raise SandboxUnavailable(f"the container cannot start the command: {said}")

    def _pump(self) -> None:
        """Run in a thread from the start until the container can be reused."""
        ending = Ending(cancelled=True)
        try:
            ending = self._loop()
        except ContainerLost:
            self._lost, ending = True, self._why_lost()
            with suppress(ContainerLost):  # frames that arrived before
                self._handle_frames()
        finally:
            self._conclude(ending)
        self._give_back()

    def _loop(self) -> Ending:
        """Relay the streams until the command exits or must be stopped."""
        deadline = self._started + self._job.timeout_seconds
        look_at = time.monotonic() + TICK_SECONDS
        while True:
            self._send_input()
            self._poll_once(min(deadline, look_at) - time.monotonic())
            if self._done:
                return Ending()
            now, limit = time.monotonic(), None
            if now >= look_at:
                limit, look_at = self._watch.look(), time.monotonic() + TICK_SECONDS
            if limit or self._cancelled or now >= deadline:
                ending = Ending(now >= deadline, self._cancelled, limit)
                self._stop()
                return ending

    def _why_lost(self) -> Ending:
        """Return the ending of a container that exited by itself, usually for lack of memory."""
        timed_out = time.monotonic() >= self._started + self._job.timeout_seconds
        return Ending(timed_out, self._cancelled)

    def _send_input(self) -> None:
        """Send input within the limit in flight, and its end."""
        with self._lock:
            feed = self._feed
            assert isinstance(feed, FrameInput)
            while feed.waiting and self._sent < _MAX_IN_FLIGHT:
                piece = feed.take(_MAX_IN_FLIGHT - self._sent)
                self._sent += len(piece)
                self._channel.send(first_process.INPUT, piece)
            if feed.finished():
                self._channel.send(first_process.END_OF_INPUT)

    def _poll_once(self, seconds: float) -> None:
        """Wait for an event, and handle it."""
        if self._channel.frames:
            return self._handle_frames()
        poll = select.poll()
        sending = select.POLLOUT if self._channel.sending else 0
        poll.register(self._channel.fileno(), select.POLLIN | sending)
        poll.register(self._wake, select.POLLIN)
        events = dict(poll.poll(max(0.0, seconds) * 1000))
        if self._wake in events:
            os.read(self._wake, 512)
        happened = events.get(self._channel.fileno(), 0)
        if happened & select.POLLOUT:
            self._channel.flush()
        if happened & ~select.POLLOUT:
            self._channel.receive()
            self._handle_frames()

    def _handle_frames(self) -> None:
        while self._channel.frames:
            self._handle_frame(*self._channel.frames.popleft())

    def _handle_frame(self, kind: bytes, data: bytes) -> None:
        if kind in self._sinks:
            self._sinks[kind].add(data)
        elif kind == first_process.TAKEN:
            self._sent -= struct.unpack(">I", data)[0] if len(data) == 4 else 0
        elif kind == first_process.BROKEN:
            with self._lock:
                self._feed.over = True
        elif kind == first_process.DONE:
            self._read_result(data)
        elif kind in (first_process.CLEAN, first_process.UNCLEAN):
            self._clean, self._lost = kind == first_process.CLEAN, kind == first_process.UNCLEAN
        else:
            raise ContainerLost("an unexpected frame from the container")

    def _read_result(self, data: bytes) -> None:
        try:
            said = read_json(data)
            self._code, self._cpu_seconds = int(said["code"]), float(said["cpu"])
            self._gone = bool(said["gone"])
        except (ValueError, KeyError, TypeError) as error:
            raise ContainerLost("a malformed result from the container") from error
        self._done = True

    def _stop(self) -> None:
        """Kill everything, through the first process or else through the engine."""
        try:
            self._channel.send(first_process.KILL)
            self._until_done(_KILL_SECONDS)
            if not self._done:
                self._container.kill()
                self._until_done(END_SECONDS)
        except ContainerLost:
            self._lost = True

    def _until_done(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._done and (left := until - time.monotonic()) > 0:
            self._poll_once(left)

    def _conclude(self, ending: Ending) -> None:
        if not (self._done and self._gone):
            self._container.kill()
        code = self._code if self._done else 128 + 9
        hits = self._watch.finish(code, self._cpu_seconds)
        sinks, seconds = self._sinks.values(), time.monotonic() - self._started
        found = outcome_of(
            ending, code, hits=hits, sinks=sinks, seconds=seconds, enforced=self._enforced
        )
        self._outcome = found._replace(left=not self._gone)
        self._pool.finishing(self._container)
        with self._lock:
            self._feed.over = True
            self._close_handles()
        self._ended.set()

    def _give_back(self) -> None:
        """Return the container to the pool when it is clean, else remove it."""
        try:
            if not self._lost and not self._clean:
                kind, _ = self._channel.expect(
                    (first_process.CLEAN, first_process.UNCLEAN), END_SECONDS
                )
                self._clean = kind == first_process.CLEAN
        except ContainerLost:
            self._clean = False
        if self._clean and not self._lost:
            self._pool.give_back(self._container)
        else:
            self._pool.discard(self._container)

    def _close(self) -> None:
        with self._lock:
            self._close_handles()

    def _close_handles(self) -> None:
        for fd in (self._wake, self._nudge):
            with suppress(OSError):
                os.close(fd)
        self._wake = self._nudge = -1
