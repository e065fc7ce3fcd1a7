from __future__ import annotations

import signal
import threading

import pytest

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.protocol import Captured, Outcome, Running, run, run_to_end
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Capabilities


def test_a_stream_is_truncated_when_more_came_than_was_kept() -> None:
    assert not Captured(b"abc", 3).truncated
    assert Captured(b"abc", 4).truncated
    assert not Captured().truncated


def test_a_job_grants_nothing_by_itself(place: Place) -> None:
    job = place.job("true")
    assert job._replace(capabilities=Capabilities()).capabilities == ((), (), (), False)
    assert (job.stdin, job.terminal, job.bridge) == (b"", False, ())


def test_an_outcome_claims_nothing_by_itself() -> None:
    outcome = Outcome(0)
    assert outcome.enforced == {}
    assert not (outcome.timed_out or outcome.cancelled or outcome.limits_hit)


def test_run_waits_for_the_end(place: Place) -> None:
    heard: list[bytes] = []
    outcome = run(
        NoSandbox(), place.shell("echo a; sleep 0.1; exit 4"), lambda _, d: heard.append(d)
    )
    assert (outcome.exit_code, heard) == (4, [b"a\n"])


class _Endless:
    """A command that runs until it is killed."""

    def __init__(self) -> None:
        self._killed = threading.Event()

    def kill(self) -> None:
        self._killed.set()

    def wait(self, timeout_seconds: float | None = None) -> Outcome:
        assert self._killed.wait(150), "nothing ended it"
        return Outcome(exit_code=255, cancelled=True)

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def close_stdin(self) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("moment", ["before the start", "after the start", "told", "running"])
def test_an_interrupt_at_any_moment_ends_the_command(moment: str) -> None:
    command = _Endless()

    def interrupt(now: str) -> None:
        if now == moment:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def start() -> Running:
        interrupt("before the start")
        interrupt("after the start")
        return command

    def told(_: Running) -> None:
        interrupt("told")
        threading.Timer(0.05, interrupt, ["running"]).start()

    with pytest.raises(KeyboardInterrupt):
        run_to_end(start, told)
    assert command._killed.is_set()


def test_what_a_start_raises_is_raised() -> None:
    def start() -> Running:
        raise SandboxUnavailable("no sandbox")

    with pytest.raises(SandboxUnavailable, match="no sandbox"):
        run_to_end(start)
