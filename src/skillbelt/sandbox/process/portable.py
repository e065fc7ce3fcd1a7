"""A run on a system other than Linux: streams, deadline, killing, with POSIX only."""

import json
import os
import select
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.inside.source import source_of
from skillbelt.sandbox.linux.identity import run_identity
from skillbelt.sandbox.process.limit_checks import TICK_SECONDS
from skillbelt.sandbox.process.limits import process_limits
from skillbelt.sandbox.process.run import END_SECONDS, LOST
from skillbelt.sandbox.process.spawn import Ends, spawn
from skillbelt.sandbox.process.streams import Ending, Feed, Piped, Sink, outcome_of
from skillbelt.sandbox.process.supervised import launcher_python
from skillbelt.sandbox.process.watch import DiskWatch
from skillbelt.sandbox.protocol import Job, Listener

_CPU_SIGNAL, _FILE_SIGNAL = 128 + signal.SIGXCPU, 128 + signal.SIGXFSZ


class Chain(NamedTuple):
    """The programs that start a job; without `argv`, the name of the missing program is reported.

    `finish` is called once, after the end.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    enforced: Mapping[str, str]
    finish: Callable[[], None] = lambda: None
    missing: str = ""


class PortableRun(Piped):
    """A started command; see `Running`."""

    def __init__(self, chain: Chain, job: Job, listener: Listener | None) -> None:
        self._chain, self._job = chain, job
        self._started = time.monotonic()
        super().__init__()
        try:
            self._disk = DiskWatch(job.workspace, job.limits)
            self._start_chain(listener)
        except OSError as error:
            self._give_back()
            raise SandboxUnavailable(f"the command cannot be started: {error}") from error
        except BaseException:
            self._give_back()
            raise
        threading.Thread(target=self._pump, name="skillbelt-run", daemon=True).start()

    def _notify(self) -> None:
        if self._nudge in self._fds:
            with suppress(BlockingIOError):
                os.write(self._nudge, b"1")

    def _start_chain(self, listener: Listener | None) -> None:
        taken, given = self._pipe()
        said, output = self._pipe()
        shown, errors = self._pipe()
        self._wake, self._nudge = self._pipe()
        os.set_blocking(self._nudge, False)
        # We see EOF when the launcher ends, and the launcher ends when it sees EOF.
        self._hold, theirs = (self._own(end.detach()) for end in socket.socketpair())
        task = self._own(_task_file(self._chain, self._job))
        argv = (
            launcher_python(),
            "-I",
            "-S",
            "-c",
            source_of("portable_launch"),
            str(task),
            str(theirs),
        )
        self._pid = spawn(argv, Ends(taken, output, errors, (task, theirs)))
        self._close(taken, output, errors, task, theirs)
        keep = self._job.limits.max_stream_bytes
        self._sinks = (
            Sink(said, "stdout", keep, listener),
            Sink(shown, "stderr", keep, listener),
        )
        self._feed = Feed(given, self._job.stdin, False)

    def _pump(self) -> None:
        """Supervise the run from the start to the outcome; the body of its thread."""
        reason = "cancelled"
        try:
            reason = self._forward()
        finally:
            self._stop()
            self._conclude(reason)

    def _forward(self) -> str:
        """Forward the streams; return why the run must end, or nothing when it ended by itself."""
        poll = select.poll()
        sinks = {sink.fd: sink for sink in self._sinks}
        for fd in (*sinks, self._hold, self._wake):
            poll.register(fd, select.POLLIN)
        deadline = self._started + self._job.timeout_seconds
        while True:
            self._offer(poll, sinks)
            left = min(deadline - time.monotonic(), TICK_SECONDS)
            events = dict(poll.poll(max(0.0, left) * 1000))
            self._pass_on(poll, sinks, events)
            if self._wake in events:
                os.read(self._wake, 512)
            if self._hold in events:
                return ""
            if self._cancelled:
                return "cancelled"
            if time.monotonic() >= deadline:
                return "timed out"
            if limit := self._disk.look():
                return limit

    def _stop(self) -> None:
        """Close the connection to the launcher, which then kills everything; wait for its end."""
        end = socket.socket(fileno=os.dup(self._hold))
        with end, suppress(OSError):
            end.shutdown(socket.SHUT_WR)
        poll = select.poll()
        poll.register(self._hold, select.POLLIN)
        if not poll.poll(END_SECONDS * 1000):
            os.kill(self._pid, signal.SIGKILL)

    def _conclude(self, reason: str) -> None:
        code = _reap(self._pid)
        for sink in self._sinks:
            sink.drain()
        ending = Ending(reason == "timed out", reason == "cancelled")
        hits, seconds = self._hits(code, reason), time.monotonic() - self._started
        self._outcome = outcome_of(
            ending,
            code,
            hits=hits,
            sinks=self._sinks,
            seconds=seconds,
            enforced=self._chain.enforced,
        )
        with self._lock:
            self._feed.over = True
            self._give_back()
        self._ended.set()

    def _hits(self, code: int, reason: str) -> set[str]:
        self._disk.finish()
        by_signal = {_CPU_SIGNAL: "max_cpu_seconds", _FILE_SIGNAL: "max_written_file_bytes"}
        hit = self._disk.seen | ({by_signal[code]} if code in by_signal else set())
        return hit | ({reason} if reason.startswith("max_") else set())

    def _give_back(self) -> None:
        self._close(*self._fds)
        self._chain.finish()


def _task_file(chain: Chain, job: Job) -> int:
    """Write the launcher's task to an unnamed file: every user can read a command line."""
    task = {
        "argv": chain.argv,
        "missing": chain.missing,
        "env": dict(chain.env),
        "cwd": job.cwd,
        "identity": run_identity(),
        "processes": job.capabilities.processes,
        "limits": process_limits(job.limits, 0),
    }
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(task).encode())
        file.seek(0)
        return os.dup(file.fileno())


def _reap(pid: int) -> int:
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # the embedding program has reaped it
        return LOST
    return 128 - code if code < 0 else code
