"""The runtime's side of the streams of a run: bounded output, buffered input."""

import errno
import os
import select
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from skillbelt.errors import log_warning
from skillbelt.sandbox.protocol import Captured, Listener, Outcome, Stream

TIMED_OUT = 124
_CHUNK = 64 * 2**10
_READS_AFTER_END = 64  # more than a pipe holds once all its writers are gone
_END_OF_INPUT = b"\x04"


class Sink:
    """One stream of output: keeps its head, counts all of it and passes it to the listener."""

    def __init__(self, fd: int, stream: Stream, keep: int, listener: Listener | None) -> None:
        self.fd, self.stream, self._keep, self._listener = fd, stream, keep, listener
        self._head = bytearray()
        self._total = 0
        self._ended = False
        os.set_blocking(fd, False)

    def take(self) -> bool:
        """Read once; return False at EOF."""
        return self._read() != 0

    def drain(self) -> None:
        """Read the rest after the run has ended, without waiting for EOF."""
        for _ in range(_READS_AFTER_END):
            if self._read() <= 0:
                return

    def captured(self) -> Captured:
        """Return the kept head, and the total size."""
        return Captured(bytes(self._head), self._total)

    def _read(self) -> int:
        if self._ended:
            return 0
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return -1
        except OSError as error:
            if error.errno == errno.EIO:  # a terminal whose other end is closed
                return 0
            raise
        if data:
            self._add(data)
        self._ended = not data
        return len(data)

    def _add(self, data: bytes) -> None:
        room = self._keep - len(self._head)
        if room > 0:
            self._head += data[:room]
        self._total += len(data)
        if data and self._listener is not None:
            try:
                self._listener(self.stream, data)
            except Exception:
                log_warning(f"the listener for {self.stream} of a run failed", trace=True)


class Feed:
    """The input: buffered, and written as the command reads it."""

    def __init__(self, fd: int, data: bytes | None, terminal: bool) -> None:
        self.fd, self._terminal = fd, terminal
        self._pending = deque([memoryview(data)] if data else [])
        self._last = data is not None
        self.over = False
        os.set_blocking(fd, False)

    def add(self, data: bytes) -> None:
        """Append input; BrokenPipeError when the command has closed its input."""
        if self.over or self._last:
            raise BrokenPipeError(errno.EPIPE, "the command takes no more input")
        self._pending.append(memoryview(bytes(data)))

    def end(self) -> None:
        """Close the input after the buffered data."""
        self._last = True

    @property
    def waiting(self) -> bool:
        """Whether there is something to write."""
        return bool(self._pending) and not self.over

    def write(self) -> None:
        """Write as much as the command reads now; drop the rest once its end is closed."""
        while self.waiting:
            try:
                count = os.write(self.fd, self._pending[0][:_CHUNK])
            except BlockingIOError:
                return
            except OSError:
                self.over = True
                return
            self._advance(count)

    def _advance(self, count: int) -> None:
        first = self._pending[0]
        if count == len(first):
            self._pending.popleft()
        else:
            self._pending[0] = first[count:]

    def finished(self) -> bool:
        """Whether all input is written; true once, then the caller closes it."""
        if self.over or not self._last or self._pending:
            return False
        self.over = True
        if self._terminal:
            with suppress(OSError):  # the command has closed its terminal
                os.write(self.fd, _END_OF_INPUT)
        return not self._terminal


class Controls(ABC):
    """The methods of `Running` that all runs share."""

    _feed: Feed

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._outcome: Outcome | None = None
        self._cancelled = False

    def write(self, data: bytes) -> None:
        """Write to its stdin; BrokenPipeError after stdin was closed."""
        with self._lock:
            self._feed.add(data)
            self._notify()

    def close_stdin(self) -> None:
        """Close its stdin after the written data."""
        with self._lock:
            self._feed.end()
            self._notify()

    def kill(self) -> None:
        """Kill it and everything it started at once."""
        with self._lock:
            self._cancelled = True
            self._notify()

    def wait(self, timeout_seconds: float | None = None) -> Outcome | None:
        """Return the outcome; None on timeout."""
        self._ended.wait(timeout_seconds)
        return self._outcome

    @abstractmethod
    def _notify(self) -> None:
        """Wake the thread that supervises it; the caller holds the lock."""


class Piped(Controls):
    """A run whose streams are file descriptors of this process."""

    def __init__(self) -> None:
        super().__init__()
        self._fds: set[int] = set()

    def _own(self, fd: int) -> int:
        self._fds.add(fd)
        return fd

    def _pipe(self) -> tuple[int, int]:
        read, write = os.pipe()
        return self._own(read), self._own(write)

    def _close(self, *fds: int) -> None:
        for fd in fds:
            if fd in self._fds:
                self._fds.discard(fd)
                os.close(fd)

    def _offer(self, poll: select.poll, sinks: Mapping[int, Sink]) -> bool:
        """Poll for writing while there is input; return False once there is no more.

        Closes the input at its end.
        """
        feed = self._feed
        with self._lock:
            reads = select.POLLIN if feed.fd in sinks else 0
            if feed.waiting:
                poll.register(feed.fd, select.POLLOUT | reads)
            elif reads:
                poll.register(feed.fd, reads)
            elif feed.fd in self._fds:
                with suppress(KeyError):
                    poll.unregister(feed.fd)
            if feed.finished():
                self._close(feed.fd)
            return not feed.over

    def _pass_on(
        self, poll: select.poll, sinks: dict[int, Sink], events: Mapping[int, int]
    ) -> None:
        """Read the output that arrived, and write the input that the command accepts."""
        for fd, event in events.items():
            if fd in sinks and event & ~select.POLLOUT and not sinks[fd].take():
                poll.unregister(fd)
                del sinks[fd]
        if events.get(self._feed.fd, 0) & ~select.POLLIN:
            with self._lock:
                self._feed.write()


class Ending(NamedTuple):
    """Why the runtime ended a run, if it did."""

    timed_out: bool = False
    cancelled: bool = False
    limit: str | None = None


def outcome_of(
    ending: Ending,
    code: int,
    *,
    hits: Iterable[str],
    sinks: Iterable[Sink],
    seconds: float,
    enforced: Mapping[str, str],
) -> Outcome:
    """Return the outcome of a run, with the heads of its streams and the limits it reached."""
    streams = [*(sink.captured() for sink in sinks), Captured()]
    hit = {*hits, *([ending.limit] if ending.limit else ())}
    if ending.timed_out:
        hit.add("run_timeout_seconds")
    if any(one.truncated for one in streams):
        hit.add("max_stream_bytes")
    return Outcome(
        exit_code=TIMED_OUT if ending.timed_out else code,
        timed_out=ending.timed_out,
        cancelled=ending.cancelled and not ending.timed_out,
        stdout=streams[0],
        stderr=streams[1],
        duration_seconds=seconds,
        limits_hit=tuple(sorted(hit)),
        enforced=enforced,
    )
