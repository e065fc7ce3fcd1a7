"""What a sandbox promises, and the values that go in and come out.

`skillbelt.testing.suites.SandboxConformance` holds each of these promises as a test.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from skillbelt.errors import SandboxUnavailable
from skillbelt.values import Capabilities, Limits

# Held in memory while a run is fed; larger input belongs into a file.
MAX_STDIN_BYTES = 64 * 2**20

Stream = Literal["stdout", "stderr"]
# Called with each piece of output as it comes, from a thread of the sandbox; the run's deadline is
# not looked at until it returns.
Listener = Callable[[Stream, bytes], None]
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Mount(NamedTuple):
    """A file or folder of the host that is there inside. `target` is its path inside."""

    source: str
    target: str
    writable: bool = False


class Job(NamedTuple):
    """One command to run. `env` is the whole environment; `cwd` and paths in it are as inside.

    `workspace` is the folder on the host whose growth is bounded; it is among the mounts. The first
    word of `argv` is looked up on the PATH of `env`, inside, unless it holds a slash.
    `timeout_seconds` counts from the start, whatever the command does. `bridge` is the program that
    carries the network, with its arguments: it is run inside, is given a filter for system calls
    and `argv`, and becomes the command. With `waited`, whoever starts it waits for it at once and
    for as long as it takes: the sandbox may leave it to that thread to start it and to look after
    it, and the run may end with the thread.
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
    """The kept head of a stream; `total_bytes` counts all that came."""

    data: bytes = b""
    total_bytes: int = 0

    @property
    def truncated(self) -> bool:
        """Whether more came than was kept."""
        return self.total_bytes > len(self.data)


class Outcome(NamedTuple):
    """How a run ended. A command that was not found or failed is an outcome like any other.

    `exit_code` is 128 + n after signal n, 127 when the program is missing, 124 after a time-out.
    `limits_hit` names the limits that fired, by their names in `Limits`. `enforced` says what was
    really applied: what by what. `left` is true when something could not be ended: the kernel may
    wait for a device or a file system, or somebody ended what was to see to it.
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
    """A command that was started. Safe to use from any thread."""

    def write(self, data: bytes) -> None:
        """Give it more input; BrokenPipeError once it does not take any."""

    def close_stdin(self) -> None:
        """Tell it that no more input comes."""

    def kill(self) -> None:
        """End it and everything it started, at once; `wait` then gives a cancelled outcome."""

    def wait(self, timeout_seconds: float | None = None) -> Outcome | None:
        """The outcome, when it has ended; None when the time is over first. Can be called again."""


class Sandbox(Protocol):
    """A way to run commands. Stronger ones have a higher `level`; 0 means nothing is held back.

    With `remaps`, a mount's target may differ from its source; else both are the same path.
    """

    name: str
    level: int
    remaps: bool

    def unavailable(self) -> str | None:
        """Why it can not be used here, with the remedy; None when it can. Tried once, for real."""

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        """Start the command; SandboxUnavailable when the sandbox itself can not be brought up."""

    def close(self) -> None:
        """Let go of what is kept ready for the next run; it can be used again all the same."""


class Keepless:
    """A sandbox that keeps nothing between runs."""

    def close(self) -> None:
        """There is nothing to let go of."""


def run(sandbox: Sandbox, job: Job, listener: Listener | None = None) -> Outcome:
    """Start the command and wait for its end."""
    outcome = sandbox.start(job._replace(waited=True), listener).wait()
    assert outcome is not None
    return outcome


def refusal(attempt: Callable[[], object]) -> str | None:
    """Why the attempt to use a sandbox fails; None when it does not."""
    try:
        attempt()
    except SandboxUnavailable as error:
        return str(error)
    return None
