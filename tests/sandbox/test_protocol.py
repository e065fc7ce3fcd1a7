from __future__ import annotations

from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.protocol import Captured, Outcome, run
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
