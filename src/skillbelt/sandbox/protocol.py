"""The contract of a sandbox, and the values that it takes and returns.

`skillbelt.testing.suites.SandboxConformance` tests all of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from types import MappingProxyType
from typing import Literal, Protocol

from skillbelt.errors import SandboxUnavailable
from skillbelt.records import NamedTuple
from skillbelt.values import Capabilities, Limits

# The bound on buffered input; larger input belongs in a file.
MAX_STDIN_BYTES = 64 * 2**20

Stream = Literal["stdout", "stderr"]
# Called with each piece of output as it arrives, from a thread of the sandbox; the run's deadline
# is not checked until it returns.
Listener = Callable[[Stream, bytes], None]
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Mount(NamedTuple):
    """A file or folder of the host that is visible inside. `target` is its path inside."""

    source: str
    target: str
    writable: bool = False


class Job(NamedTuple):
    """One command to run. `env` is the whole environment; `cwd` and paths in it are those inside.

    `workspace` is the folder on the host whose growth is bounded; it is among the mounts. The first
    word of `argv` is looked up on the PATH of `env`, inside, unless it contains a slash.
    `timeout_seconds` counts from the start. `bridge` is the program that connects the command to
    the proxy, with its arguments: it runs inside, gets a seccomp filter and `argv`, and becomes the
    command. With `waited`, the calling thread waits for the end right after the start: the sandbox
    may use that thread to start and to supervise the run, which may end with the thread.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    mounts: tuple[Mount, ...]
    workspace: str
    capabilities: Capabilities = Capabilities()
    limits: Limits = Limits()
    timeout_seconds: float = 300.0
    stdin: bytes | None = b""  # None: stays open for `Running.write`
    terminal: bool = False
    bridge: tuple[str, ...] = ()
    waited: bool = False


class Captured(NamedTuple):
    """The kept head of a stream; `total_bytes` counts everything that was written."""

    data: bytes = b""
    total_bytes: int = 0

    @property
    def truncated(self) -> bool:
        """Whether more was written than was kept."""
        return self.total_bytes > len(self.data)


class Outcome(NamedTuple):
    """The end of a run. A command that is missing or fails is an outcome too.

    `exit_code` is 128 + n after signal n, 127 when the program is missing, 124 after a timeout.
    `limits_hit` has the names of the limits that were reached, as in `Limits`. `enforced` says what
    was really applied, and by what. `left` is true when a process may still be alive: the kernel
    may wait for a device or a file system, or the launcher was killed.
    """

    exit_code: int
    timed_out: bool = False
    cancelled: bool = False
    stdout: Captured = Captured()
    stderr: Captured = Captured()
    duration_seconds: float = 0.0
    limits_hit: tuple[str, ...] = ()
    enforced: Mapping[str, str] = _NOTHING
    left: bool = False


class Running(Protocol):
    """A started command. Safe to use from any thread."""

    def write(self, data: bytes) -> None:
        """Write to its stdin; BrokenPipeError after stdin was closed."""

    def close_stdin(self) -> None:
        """Close its stdin after the written data."""

    def kill(self) -> None:
        """Kill it and everything it started at once; `wait` then returns a cancelled outcome."""

    def wait(self, timeout_seconds: float | None = None) -> Outcome | None:
        """Return the outcome; None on timeout. Can be called again."""


class Sandbox(Protocol):
    """A way to run commands. Stronger ones have a higher `level`; 0 means no isolation.

    With `remaps`, a mount's target may differ from its source; else both are the same path.
    """

    name: str
    level: int
    remaps: bool

    def unavailable(self) -> str | None:
        """Return why it cannot be used here, with the remedy; None when it can. Tries it once."""

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        """Start the command; SandboxUnavailable when the sandbox itself cannot be set up."""

    def close(self) -> None:
        """Release everything kept ready for the next run; the sandbox can still be used."""


class Keepless:
    """A sandbox that keeps nothing between runs."""

    def close(self) -> None:
        """Do nothing."""


def run(sandbox: Sandbox, job: Job, listener: Listener | None = None) -> Outcome:
    """Start the command and wait for its end."""
    return run_to_end(lambda: sandbox.start(job._replace(waited=True), listener))


def run_to_end(
    start: Callable[[], Running], started: Callable[[Running], None] | None = None
) -> Outcome:
    """Start a command, call `started` with it and wait for its end. An exception kills it first.

    Ctrl-C may interrupt the main thread anywhere, even between the start of a process and storing
    its pid. So the main thread uses another one.
    """
    attended = _Attended(start, started)
    if threading.current_thread() is not threading.main_thread():
        attended.work()
        return attended.result()
    run_it = copy_context().run
    thread = threading.Thread(target=run_it, args=(attended.work,), name="skillbelt-run")
    thread.daemon = True
    try:
        thread.start()
        thread.join()
    except BaseException:
        attended.cancel()
        raise
    return attended.result()


class _Attended:
    """A command that one thread starts and waits for, while another may cancel it."""

    def __init__(
        self, start: Callable[[], Running], started: Callable[[Running], None] | None
    ) -> None:
        self._start, self._started = start, started
        self._lock = threading.Lock()
        self._begun = self._cancelled = False
        self._running: Running | None = None
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None
        self.ended = threading.Event()

    def work(self) -> None:
        """Start the command and wait for its end, unless it is cancelled already."""
        with self._lock:
            self._begun = not self._cancelled
        try:
            if self._begun:
                self._outcome = self._carry_out()
        except BaseException as error:
            self._error = error
        finally:
            self.ended.set()

    def _carry_out(self) -> Outcome | None:
        running = self._start()
        try:
            with self._lock:
                self._running, cancelled = running, self._cancelled
            if cancelled:
                running.kill()
            if self._started is not None:
                self._started(running)
            return running.wait()
        except BaseException:
            running.kill()
            running.wait()
            raise

    def cancel(self) -> None:
        """Kill the command, now or as soon as it is started, and wait for its end."""
        with self._lock:
            self._cancelled, running, begun = True, self._running, self._begun
        if running is not None:
            running.kill()
        if begun:
            self.ended.wait()

    def result(self) -> Outcome:
        """Return the outcome, or raise the exception."""
        if self._error is not None:
            raise self._error
        assert self._outcome is not None
        return self._outcome


def refusal(attempt: Callable[[], object]) -> str | None:
    """Return why the attempt to use a sandbox fails; None when it succeeds."""
    try:
        attempt()
    except SandboxUnavailable as error:
        return str(error)
    return None
