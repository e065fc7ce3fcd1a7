"""The streams of a run, as the runtime holds them: output with a kept head, input that can wait."""

import errno
import os
import select
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from skillbelt.sandbox.protocol import Captured, Listener, Outcome, Stream

TIMED_OUT = 124
_CHUNK = 64 * 2**10
_READS_AFTER_END = 64  # more than a pipe can hold when nobody is left to write
_END_OF_INPUT = b"\x04"


class Sink:
    """One stream of output: its head is kept, all of it is counted and passed on."""

    def __init__(self, fd: int, stream: Stream, keep: int, listener: Listener | None) -> None:
        self.fd, self.stream, self._keep, self._listener = fd, stream, keep, listener
        self._head = bytearray()
        self._total = 0
        self._ended = False
        os.set_blocking(fd, False)

    def take(self) -> bool:
        """Read once; False when nothing more can come."""
        return self._read() != 0

    def drain(self) -> None:
        """Read what is left once the run is over; a stranger who still writes is not waited for."""
        for _ in range(_READS_AFTER_END):
            if self._read() <= 0:
                return

    def captured(self) -> Captured:
        """What was kept, and how much came."""
        return Captured(bytes(self._head), self._total)

    def _read(self) -> int:
        if self._ended:
            return 0
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return -1
        except OSError as error:
            if error.errno == errno.EIO:  # a terminal that nobody holds any more
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
            # What a listener throws is its own affair; the run goes on.
            with suppress(Exception):
                self._listener(self.stream, data)


class Feed:
    """The input: given at once, written as the command takes it."""

    def __init__(self, fd: int, data: bytes | None, terminal: bool) -> None:
        self.fd, self._terminal = fd, terminal
        self._pending = deque([memoryview(data)] if data else [])
        self._last = data is not None
        self.over = False
        os.set_blocking(fd, False)

    def add(self, data: bytes) -> None:
        """More input; BrokenPipeError when none is taken."""
        if self.over or self._last:
            raise BrokenPipeError(errno.EPIPE, "the command takes no more input")
        self._pending.append(memoryview(bytes(data)))

    def end(self) -> None:
        """Nothing comes after what was given."""
        self._last = True

    @property
    def waiting(self) -> bool:
        """Whether there is something to write."""
        return bool(self._pending) and not self.over

    def write(self) -> None:
        """Write what is taken now; the rest of it is dropped once nobody can read it."""
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
        """Whether the end of the input is reached; true once, then the caller ends it."""
        if self.over or not self._last or self._pending:
            return False
        self.over = True
        if self._terminal:
            with suppress(OSError):
                os.write(self.fd, _END_OF_INPUT)
        return not self._terminal


class Controls(ABC):
    """What whoever started a run can do with it, whichever way it is carried."""

    _feed: Feed

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._outcome: Outcome | None = None
        self._cancelled = False

    def write(self, data: bytes) -> None:
        """Give it more input; BrokenPipeError once it does not take any."""
        with self._lock:
            self._feed.add(data)
            self._notify()

    def close_stdin(self) -> None:
        """Tell it that no more input comes."""
        with self._lock:
            self._feed.end()
            self._notify()

    def kill(self) -> None:
        """End it and everything it started, at once."""
        with self._lock:
            self._cancelled = True
            self._notify()

    def wait(self, timeout_seconds: float | None = None) -> Outcome | None:
        """The outcome, when it has ended; None when the time is over first."""
        self._ended.wait(timeout_seconds)
        return self._outcome

    @abstractmethod
    def _notify(self) -> None:
        """Wake the thread that carries it; the caller holds the lock."""


class Piped(Controls):
    """A run whose streams are handles of ours, passed on by whoever carries it."""

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
        """Ask to be told when input is taken, if there is some; False once that is over.

        At the end of the input, that is ended.
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
        """Read what came, write what is taken."""
        for fd, event in events.items():
            if fd in sinks and event & ~select.POLLOUT and not sinks[fd].take():
                poll.unregister(fd)
                del sinks[fd]
        if events.get(self._feed.fd, 0) & ~select.POLLIN:
            with self._lock:
                self._feed.write()


class Ending(NamedTuple):
    """Why a run was ended before its time, or that it was not."""

    timed_out: bool = False
    cancelled: bool = False
    limit: str | None = None


def outcome_of(
    ending: Ending,
    code: int,
    hits: Iterable[str],
    sinks: Iterable[Sink],
    seconds: float,
    enforced: Mapping[str, str],
) -> Outcome:
    """How a run ended, with what was kept of its streams and all limits that fired."""
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
