from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.process.portable import Chain, PortableRun
from skillbelt.sandbox.protocol import Job, Outcome
from skillbelt.testing.sandbox_suite import HANG_SECONDS, Place
from skillbelt.values import Limits


def outcome(job: Job) -> Outcome:
    """How a job ended; told once that it is over."""
    calls: list[int] = []
    run = PortableRun(Chain(job.argv, job.env, {"a": "b"}, lambda: calls.append(1)), job, None)
    found = run.wait(HANG_SECONDS)
    assert found is not None
    assert calls == [1]
    return found


def test_a_command_that_ends(tmp_path: Path) -> None:
    job = Job(
        argv=("/bin/sh", "-c", "cat; exit 4"),
        env={},
        cwd="/",
        mounts=(),
        workspace=str(tmp_path),
        stdin=b"hello",
    )
    found = outcome(job)
    assert (found.exit_code, found.stdout.data, found.limits_hit) == (4, b"hello", ())
    assert found.enforced == {"a": "b"}


def test_the_time_is_over(place: Place) -> None:
    found = outcome(place.job("/bin/sleep", "100", timeout_seconds=0.5))
    assert (found.exit_code, found.timed_out, found.cancelled) == (124, True, False)
    assert found.limits_hit == ("run_timeout_seconds",)


def test_a_full_workspace_ends_it(place: Place) -> None:
    script = "while :; do head -c 1000000 /dev/zero >> file; sleep 0.05; done"
    limits = Limits(max_workspace_bytes=2**20)
    found = outcome(place.job("/bin/sh", "-c", script, limits=limits))
    assert found.limits_hit == ("max_workspace_bytes",)
    assert (found.exit_code, found.timed_out, found.cancelled) == (137, False, False)


def test_a_file_that_is_too_large_is_told(place: Place) -> None:
    limits = Limits(max_written_file_bytes=2**16)
    found = outcome(place.job("/bin/sh", "-c", "exec head -c 1000000 /dev/zero > f", limits=limits))
    assert "max_written_file_bytes" in found.limits_hit


def test_too_much_output_is_told(place: Place) -> None:
    limits = Limits(max_stream_bytes=10)
    found = outcome(place.job("/bin/sh", "-c", "echo 0123456789abc", limits=limits))
    assert (found.stdout.data, found.stdout.total_bytes) == (b"0123456789", 14)
    assert found.limits_hit == ("max_stream_bytes",)


def test_who_asks_meanwhile_gets_no_answer_yet(place: Place) -> None:
    job = place.job("/bin/cat", stdin=None)
    run = PortableRun(Chain(job.argv, job.env, {}), job, None)
    assert run.wait(0.05) is None
    threading.Thread(target=run.write, args=(b"x" * 2**20,)).start()
    run.kill()
    found = run.wait(HANG_SECONDS)
    assert found is not None
    assert found.cancelled
    with pytest.raises(BrokenPipeError):
        run.write(b"late")


def test_a_workspace_that_is_gone_leaves_nothing_behind(place: Place) -> None:
    calls: list[int] = []
    job = place.job("/bin/true")._replace(workspace=os.path.join(place.folder, "gone"))
    with pytest.raises(SandboxUnavailable, match="No such file"):
        PortableRun(Chain(job.argv, {}, {}, lambda: calls.append(1)), job, None)
    assert calls == [1]
