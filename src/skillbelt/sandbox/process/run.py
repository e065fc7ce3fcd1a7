"""A run from its start to its end: streams, deadline, killing. All sandboxes share it.

The last program of a sandbox's own chain writes one byte once everything is in place, and continues
only after a line on its input. Until then nothing untrusted runs; if the runtime dies before, the
answer never comes and nothing is left. It writes the byte when everything already ends with the
runtime. There is an outcome when no process of the run is alive; a process that the kernel cannot
kill is waited for a while, and the outcome says so.
"""

import _thread
import errno
import os
import select
import signal
import termios
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import current_thread, main_thread
from typing import NamedTuple, Protocol

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.sandbox.process.limit_checks import TICK_SECONDS, LimitChecks
from skillbelt.sandbox.process.spawn import Ends, Order, children, descendants, order
from skillbelt.sandbox.process.streams import Ending, Feed, Piped, Sink, outcome_of
from skillbelt.sandbox.protocol import Job, Listener, Mount, Outcome, Running
from skillbelt.values import Limits

READY = b"1"
ANSWER = b"go\n"
LOST = 255
START_SECONDS = 40.0  # from the start until everything is in place
END_SECONDS = 5.0
_PATIENCE_SECONDS, _PAUSE_SECONDS = 0.5, 0.02
_LAST_WORDS = 4 * 2**10
_WINDOW = (24, 80)
_UNBOUNDED = 2**62


class StartHangs(SandboxUnavailable):
    """The start takes too long, for an unknown reason; a retry would take as long."""


class LimitWatch(Protocol):
    """Checks the limits that the kernel does not enforce by itself."""

    def look(self, pid: int) -> str | None:
        """Return the limit that was exceeded, so that the run must end; called every TICK_SECONDS.

        It may be slow: nothing else waits for it while the run lasts.
        """

    def halt(self) -> None:
        """Forbid new processes, if possible; `look` may be running."""

    def finish(self, exit_code: int, cpu_seconds: float) -> tuple[str, ...]:
        """Return all limits that were reached, after all processes ended; release resources."""


class LaunchPlan(NamedTuple):
    """The way a sandbox runs a job: the chain of programs, and the descriptors that it gets.

    `fds` are closed here once the chain has them. With `supervised` the first program of the chain
    kills everything below it on SIGTERM; else its only child is the first process of a pid
    namespace. `explain` turns the stderr of a chain that did not start into a reason and a remedy.
    """

    argv: tuple[str, ...]
    enforced: Mapping[str, str]
    watch: LimitWatch
    explain: Callable[[str], str]
    fds: tuple[int, ...] = ()
    supervised: bool = False
    terminal_owner: tuple[int, int] | None = None


class ProcessRun(Piped):
    """A started command; see `Running`."""

    def __init__(self, plan: LaunchPlan, job: Job, listener: Listener | None) -> None:
        self._plan, self._job = plan, job
        self._started = time.monotonic()
        super().__init__()
        self._fds |= set(plan.fds)
        self._pid = self._pidfd = self._wake = self._inner = -1
        self._unseen: Exception | None = None  # why the first process cannot be opened
        self._checks = LimitChecks(lambda: plan.watch.look(self._pid), self._wake_up)
        # Handing a run to another thread costs about 5 % of the throughput of two at a time. Ctrl-C
        # may interrupt the main thread at any point, so it never supervises a run.
        self._unattended = job.waited and current_thread() is not main_thread()
        try:
            self._wake = self._own(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
            self._start_chain(listener)
            if not self._unattended:
                _thread.start_new_thread(self._pump, ())
        except (OSError, ValueError) as error:
            self._abandon()
            raise _unstartable(error) from error
        except BaseException:
            self._abandon()
            raise

    def wait(self, timeout_seconds: float | None = None) -> Outcome | None:
        """Return the outcome; None on timeout."""
        with self._lock:
            mine, self._unattended = self._unattended, False
        if mine and timeout_seconds is None:
            self._pump()
        elif mine:
            _thread.start_new_thread(self._pump, ())
        return super().wait(timeout_seconds)

    def _notify(self) -> None:
        # The descriptor is closed under the lock, so it is still open if it is in the set.
        if self._wake in self._fds:
            os.eventfd_write(self._wake, 1)

    def _wake_up(self) -> None:
        os.eventfd_write(self._wake, 1)  # closed only when no check is running

    def _start_chain(self, listener: Listener | None) -> None:
        given, answer = self._pipe()
        said, ready = self._pipe()
        shown, errors = self._terminal() if self._job.terminal else self._pipe()
        self._fds -= {given, ready, errors, *self._plan.fds}
        ends = Ends(given, ready, errors, self._plan.fds)
        started = order(self._plan.argv, ends, here=self._unattended)
        self._await_ready(started, said, shown)
        self._set_streams(answer, said, shown, listener)

    def _terminal(self) -> tuple[int, int]:
        """Return our end and the chain's.

        The chain gets it as stderr and uses it for all three streams.
        """
        ours, theirs = map(self._own, os.openpty())
        termios.tcsetwinsize(theirs, _WINDOW)
        if self._plan.terminal_owner is not None:
            os.fchown(theirs, *self._plan.terminal_owner)
        return ours, theirs

    def _await_ready(self, started: Order, said: int, errors: int) -> None:
        until = self._started + START_SECONDS
        settled = started.settled.acquire(timeout=max(0.0, until - time.monotonic()))
        if started.error is not None:
            raise started.error
        if started.pid >= 0:
            self._pid = started.pid
            self._pidfd = self._own(os.pidfd_open(started.pid))
        poll = select.poll()
        poll.register(said, select.POLLIN)
        in_time = settled and poll.poll(max(0.0, until - time.monotonic()) * 1000)
        if in_time and os.read(said, 1) == READY:
            return
        self._stop()
        words = Sink(errors, "stderr", _LAST_WORDS, None)
        words.drain()
        reason = self._plan.explain(words.captured().data.decode("utf-8", "replace").strip())
        if in_time:
            raise SandboxUnavailable(reason)
        raise StartHangs(
            f"the sandbox was not ready after {START_SECONDS:g} seconds and is given up; a file "
            f"system that does not respond may be the cause ({reason})"
        )

    def _set_streams(self, answer: int, said: int, shown: int, listener: Listener | None) -> None:
        if not self._plan.supervised and not self._find_inner():
            reason = "the first process of the sandbox cannot be found"
            raise SandboxUnavailable(reason) from self._unseen
        with suppress(BrokenPipeError):
            os.write(answer, ANSWER)
        keep, terminal = self._job.limits.max_stream_bytes, self._job.terminal
        if terminal:
            self._close(answer, said)
            self._sinks = [Sink(shown, "stdout", keep, listener)]
        else:
            self._sinks = [
                Sink(said, "stdout", keep, listener),
                Sink(shown, "stderr", keep, listener),
            ]
        self._feed = Feed(shown if terminal else answer, self._job.stdin, terminal)

    def _find_inner(self) -> bool:
        """Open the first process of the namespace; it must exist before the answer."""
        try:
            self._inner = self._own(os.pidfd_open(children(self._pid)[0]))
        except (OSError, IndexError) as error:
            self._unseen = error
        return self._inner >= 0

    def _pump(self) -> None:
        """Supervise the run from the answer to the outcome; the body of its thread."""
        try:
            ending, gone = self._forward()
        except BaseException:
            # No thread would supervise it any more.
            self._conclude(Ending(cancelled=True), self._stop())
            raise
        self._conclude(ending, gone)

    def _forward(self) -> tuple[Ending, bool]:
        """Forward the streams until the command ends or must end; also return whether all ended."""
        poll = select.poll()
        sinks = {sink.fd: sink for sink in self._sinks}
        firsts = {self._pidfd, self._inner} - {-1}
        for fd in (*sinks, *firsts, self._wake):
            poll.register(fd, select.POLLIN)
        deadline = self._started + self._job.timeout_seconds
        look_at: float | None = time.monotonic() + TICK_SECONDS
        offering = True
        while True:
            offering = offering and self._offer(poll, sinks)
            until = min(deadline, look_at or deadline) - time.monotonic()
            events = dict(poll.poll(max(0.0, until) * 1000))
            self._pass_on(poll, sinks, events)
            if self._wake in events:
                os.eventfd_read(self._wake)
            if firsts & events.keys():
                return Ending(), self._finish()
            now = time.monotonic()
            if look_at is not None and now >= look_at:
                self._checks.begin()
                look_at = None
            limit = self._checks.limit()
            if limit or self._cancelled or now >= deadline:
                return Ending(now >= deadline, self._cancelled, limit), self._stop()

    def _stop(self) -> bool:
        """Kill the whole tree and wait for it; return False when a process is left."""
        if self._pidfd < 0:
            return True
        self._plan.watch.halt()
        if self._plan.supervised:
            return _end(self._pidfd, signal.SIGCONT, signal.SIGTERM) or self._force()
        if self._inner < 0:
            self._find_inner()
        gone = self._inner < 0 or self._end_inner()
        return _end(self._pidfd, signal.SIGKILL) and gone

    def _end_inner(self) -> bool:
        """Kill the first process, which kills all others; if it is starved, kill them first."""
        until = time.monotonic() + END_SECONDS
        gone = _end(self._inner, signal.SIGKILL, seconds=min(_PATIENCE_SECONDS, END_SECONDS))
        while not gone and time.monotonic() < until:
            _kill(descendants(self._pid))
            gone = _end(self._inner, seconds=_PAUSE_SECONDS)
        return gone

    def _force(self) -> bool:
        """Kill the processes that the launcher should have killed, and it.

        Return False, as some may be left.
        """
        _kill(descendants(self._pid))
        _end(self._pidfd, signal.SIGKILL)
        return False

    def _finish(self) -> bool:
        """Check that a run that ended by itself left no process; return False when it may have."""
        if self._plan.supervised:
            return True
        # Its parent reads its exit code, if it has not yet.
        gone = self._end_inner()
        return (_end(self._pidfd) or _end(self._pidfd, signal.SIGKILL)) and gone

    def _conclude(self, ending: Ending, gone: bool) -> None:
        code, cpu_seconds, killed = self._reap()
        self._checks.end()
        # A launcher that was killed has not killed the processes below it.
        gone = gone and not (self._plan.supervised and killed)
        for sink in self._sinks:
            sink.drain()
        hits = self._plan.watch.finish(code, cpu_seconds)
        seconds = time.monotonic() - self._started
        found = outcome_of(
            ending,
            code,
            hits=hits,
            sinks=self._sinks,
            seconds=seconds,
            enforced=self._plan.enforced,
        )
        self._outcome = found if gone else found._replace(left=True)
        with self._lock:
            self._feed.over = True
            self._close(*self._fds)
        self._ended.set()

    def _reap(self) -> tuple[int, float, bool]:
        """Return the exit code, the CPU time of all, and if a signal killed the first process.

        A process that does not end is left to a thread that waits for it.
        """
        if not self._plan.supervised and self._inner >= 0:
            with suppress(ChildProcessError):  # it is our child only where we are a subreaper
                os.waitid(os.P_PIDFD, self._inner, os.WEXITED | os.WNOHANG)
        if self._pidfd < 0:
            if self._pid >= 0:
                _kill_child(self._pid)
            return LOST, 0.0, False
        if not _end(self._pidfd, seconds=0):
            _thread.start_new_thread(_wait_for, (self._pid,))
            return LOST, 0.0, False
        return _wait_for(self._pid)

    def _abandon(self) -> None:
        """Clean up after a run that did not start."""
        self._stop()
        self._reap()
        self._plan.watch.finish(LOST, 0.0)
        self._close(*self._fds)


def _end(pidfd: int, *numbers: signal.Signals, seconds: float | None = None) -> bool:
    """Send the signals and wait for the process to end; return False on timeout."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    with suppress(ProcessLookupError):
        for number in numbers:
            signal.pidfd_send_signal(pidfd, number)
    return bool(poll.poll((END_SECONDS if seconds is None else seconds) * 1000))


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _kill_child(pid: int) -> None:
    """Kill a child without a pidfd, and reap it if that does not take long."""
    _kill([pid])
    until = time.monotonic() + END_SECONDS
    with suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS)


def check_job(job: Job) -> None:
    """Raise RunRefused for values that cannot be passed to the system unchanged."""
    words = (*job.argv, job.cwd, *job.env, *job.env.values())
    if not job.argv or any("\0" in word for word in words):
        raise RunRefused("a command, its folder and its environment must not hold a NUL")
    try:
        os.fsencode("".join(words))
    except UnicodeEncodeError as error:
        raise RunRefused("a command must be text that the system can encode") from error
    if not os.path.isdir(job.workspace):
        raise RunRefused(f"there is no workspace at {job.workspace}")


def try_start(
    start: Callable[[Job], Running], cwd: str, workspace: str, mounts: tuple[Mount, ...] = ()
) -> None:
    """Run `true` as a sandbox runs commands; SandboxUnavailable when it fails."""
    job = Job(
        argv=("true",),
        env={"PATH": "/usr/bin:/bin"},
        cwd=cwd,
        mounts=mounts,
        workspace=workspace,
        limits=Limits(max_workspace_bytes=_UNBOUNDED, max_workspace_files=_UNBOUNDED),
    )
    outcome = start(job).wait()
    assert outcome is not None
    if outcome.exit_code:
        stderr = outcome.stderr.data.decode("utf-8", "replace").strip()
        raise SandboxUnavailable(f"a program in it ends with {outcome.exit_code}: {stderr}")


def _wait_for(pid: int) -> tuple[int, float, bool]:
    """Return exit code and CPU time of the chain with its children, and if it was killed."""
    try:
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:  # the embedding program has reaped it
        return LOST, 0.0, False
    code = os.waitstatus_to_exitcode(status)
    return (128 - code if code < 0 else code), usage.ru_utime + usage.ru_stime, code < 0


def _unstartable(error: OSError | ValueError) -> Exception:
    if isinstance(error, ValueError):
        return RunRefused(f"the command cannot be passed to the system: {error}")
    if error.errno == errno.E2BIG:
        return RunRefused("the command and its environment are too long for the system")
    return SandboxUnavailable(f"the sandbox cannot be started: {error}")
