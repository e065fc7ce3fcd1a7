"""A run on a system that is not Linux: streams, deadline, killing, with what every Unix has."""

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
from functools import lru_cache
from typing import NamedTuple

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.identity import run_identity
from skillbelt.sandbox.limits import process_limits
from skillbelt.sandbox.process import END_SECONDS, LOST, TICK_SECONDS, TIMED_OUT
from skillbelt.sandbox.protocol import Job, Listener, Outcome
from skillbelt.sandbox.spawn import Ends, spawn
from skillbelt.sandbox.streams import Controls, Feed, Sink
from skillbelt.sandbox.supervised import launcher_python
from skillbelt.sandbox.watch import DiskWatch

_KEEPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keeper.py")
_CPU_SIGNAL, _FILE_SIGNAL = 128 + signal.SIGXCPU, 128 + signal.SIGXFSZ


class Chain(NamedTuple):
    """What is started for a job; without `argv`, the name of what is missing is told instead.

    `finish` is called once, when all is over.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    enforced: Mapping[str, str]
    finish: Callable[[], None] = lambda: None
    missing: str = ""


class PortableRun(Controls):
    """A started command; see `Running`."""

    def __init__(self, chain: Chain, job: Job, listener: Listener | None) -> None:
        self._chain, self._job = chain, job
        self._started = time.monotonic()
        super().__init__()
        self._fds: set[int] = set()
        try:
            self._disk = DiskWatch(job.workspace, job.limits)
            self._bring_up(listener)
        except OSError as error:
            self._give_back()
            raise SandboxUnavailable(f"the command can not be started: {error}") from error
        except BaseException:
            self._give_back()
            raise
        threading.Thread(target=self._pump, name="skillbelt-run", daemon=True).start()

    def _notify(self) -> None:
        if self._nudge in self._fds:
            with suppress(BlockingIOError):
                os.write(self._nudge, b"1")

    def _bring_up(self, listener: Listener | None) -> None:
        taken, given = self._pipe()
        said, output = self._pipe()
        shown, errors = self._pipe()
        self._wake, self._nudge = self._pipe()
        os.set_blocking(self._nudge, False)
        # Its end is the end of the keeper, and ours is what the keeper lives by.
        self._hold, theirs = (self._own(end.detach()) for end in socket.socketpair())
        task = self._own(_task_file(self._chain, self._job))
        argv = (launcher_python(), "-I", "-S", "-c", _text(), str(task), str(theirs))
        self._pid = spawn(argv, Ends(taken, output, errors, (task, theirs)))
        self._close(taken, output, errors, task, theirs)
        keep = self._job.limits.max_stream_bytes
        self._sinks = (
            Sink(said, "stdout", keep, listener),
            Sink(shown, "stderr", keep, listener),
        )
        self._feed = Feed(given, self._job.stdin, False)

    def _pump(self) -> None:
        """The thread of the run, from the start to the outcome."""
        reason = "cancelled"
        try:
            reason = self._carry()
        finally:
            self._stop()
            self._conclude(reason)

    def _carry(self) -> str:
        """Pass the streams on; gives the reason for an end that was not the command's own."""
        poll = select.poll()
        sinks = {sink.fd: sink for sink in self._sinks}
        for fd in (*sinks, self._hold, self._wake):
            poll.register(fd, select.POLLIN)
        deadline = self._started + self._job.timeout_seconds
        while True:
            self._offer(poll)
            left = min(deadline - time.monotonic(), TICK_SECONDS)
            events = dict(poll.poll(max(0.0, left) * 1000))
            self._pass_on(poll, sinks, events)
            if self._hold in events:
                return ""
            if self._cancelled:
                return "cancelled"
            if time.monotonic() >= deadline:
                return "timed out"
            if limit := self._disk.look():
                return limit

    def _offer(self, poll: select.poll) -> None:
        """Ask to be told when input is taken, if there is some; end the input at its end."""
        with self._lock:
            if self._feed.waiting:
                poll.register(self._feed.fd, select.POLLOUT)
            elif self._feed.fd in self._fds:
                with suppress(KeyError):
                    poll.unregister(self._feed.fd)
            if self._feed.finished():
                self._close(self._feed.fd)

    def _pass_on(
        self, poll: select.poll, sinks: dict[int, Sink], events: Mapping[int, int]
    ) -> None:
        for fd in events.keys() & sinks.keys():
            if not sinks[fd].take():
                poll.unregister(fd)
                del sinks[fd]
        with self._lock:
            if self._feed.fd in events:
                self._feed.write()
        if self._wake in events:
            os.read(self._wake, 512)

    def _stop(self) -> None:
        """Let go of the keeper, which ends everything, and wait for its own end."""
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
        stdout, stderr = (sink.captured() for sink in self._sinks)
        timed_out = reason == "timed out"
        hit = self._hits(code, reason) | (
            {"max_stream_bytes"} if stdout.truncated or stderr.truncated else set()
        )
        self._outcome = Outcome(
            exit_code=TIMED_OUT if timed_out else code,
            timed_out=timed_out,
            cancelled=reason == "cancelled",
            stdout=stdout,
            stderr=stderr,
            duration_seconds=time.monotonic() - self._started,
            limits_hit=tuple(sorted(hit)),
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
        if reason == "timed out":
            return hit | {"run_timeout_seconds"}
        return hit | ({reason} if reason.startswith("max_") else set())

    def _give_back(self) -> None:
        self._close(*self._fds)
        self._chain.finish()

    def _pipe(self) -> tuple[int, int]:
        read, write = os.pipe()
        return self._own(read), self._own(write)

    def _own(self, fd: int) -> int:
        self._fds.add(fd)
        return fd

    def _close(self, *fds: int) -> None:
        for fd in fds:
            if fd in self._fds:
                self._fds.discard(fd)
                os.close(fd)


def _task_file(chain: Chain, job: Job) -> int:
    """What the keeper is to do, in a file without a name: everybody can read a command line."""
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


@lru_cache(maxsize=1)
def _text() -> str:
    with open(_KEEPER, encoding="utf-8") as file:
        return file.read()


def _reap(pid: int) -> int:
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # whoever embeds us has taken it
        return LOST
    return 128 - code if code < 0 else code
