"""The limits that are looked after from outside: seen in time, named, and the run is ended."""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
import time

import pytest

from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.landlock import LandlockSandbox
from skillbelt.sandbox.process import watch
from skillbelt.sandbox.process.usage import Space
from skillbelt.sandbox.process.watch import DiskWatch, Guard
from skillbelt.sandbox.protocol import Mount, Outcome, Sandbox, run
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Limits

MIB = 2**20
LIMITS = Limits(max_workspace_bytes=24 * MIB, max_workspace_files=500)


@pytest.fixture(params=[LinuxSandbox, LandlockSandbox])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    made: Sandbox = request.param()
    return made


def test_a_workspace_that_grows_too_large_ends_the_run(sandbox: Sandbox, place: Place) -> None:
    script = "n=0; while :; do head -c 1000000 /dev/urandom > $n; n=$((n+1)); done"
    outcome = run(sandbox, place.shell(script, limits=LIMITS))
    assert outcome.limits_hit == ("max_workspace_bytes",)
    assert outcome.exit_code == 137


def test_a_workspace_with_too_many_files_ends_the_run(sandbox: Sandbox, place: Place) -> None:
    script = "n=0; while :; do : > $n; n=$((n+1)); done"
    outcome = run(sandbox, place.shell(script, limits=LIMITS))
    assert outcome.limits_hit == ("max_workspace_files",)
    assert outcome.exit_code == 137


def test_what_was_there_before_counts(place: Place) -> None:
    """A run that adds a little to a full workspace is over it."""
    with open(os.path.join(place.folder, "old"), "wb") as file:
        file.write(os.urandom(23 * MIB))
    script = "head -c 3000000 /dev/urandom > new; sync; sleep 5"
    outcome = run(LinuxSandbox(), place.shell(script, limits=LIMITS))
    assert outcome.limits_hit == ("max_workspace_bytes",)


def test_what_is_written_just_before_the_end_is_named_though_others_free_the_disk(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count(1)
    monkeypatch.setattr(watch, "free_space", lambda _path: Space(2**40 + next(looks) * MIB, 2**30))
    limits = Limits(max_workspace_bytes=2 * MIB)
    outcome = run(LinuxSandbox(), place.shell("head -c 9000000 /dev/urandom > x", limits=limits))
    assert outcome.limits_hit == ("max_workspace_bytes",)


def test_a_run_within_its_limits_is_left_alone(sandbox: Sandbox, place: Place) -> None:
    script = "head -c 5000000 /dev/urandom > x; sync; sleep 1.5; cat x x > y; rm x; sleep 0.3"
    outcome = run(sandbox, place.shell(script, limits=LIMITS))
    assert (outcome.exit_code, outcome.limits_hit) == (0, ())


def memory(sandbox: Sandbox, place: Place, code: str) -> Outcome:
    return run(sandbox, place.python(code, limits=Limits(max_memory_bytes=100 * MIB)))


def test_memory_of_one_process(sandbox: Sandbox, place: Place) -> None:
    code = "kept = [bytearray(b'x') * 2**20 for _ in range(1000)]"
    outcome = memory(sandbox, place, code)
    assert (outcome.exit_code, outcome.limits_hit) == (137, ("max_memory_bytes",))


def test_memory_of_many_processes(sandbox: Sandbox, place: Place) -> None:
    code = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        kept = bytearray(b"x") * 2**25
        time.sleep(20)
        os._exit(0)
time.sleep(20)
"""
    assert memory(sandbox, place, code).limits_hit == ("max_memory_bytes",)


def test_memory_that_is_shared_counts_once(sandbox: Sandbox, place: Place) -> None:
    code = """
import mmap, os, time
shared = mmap.mmap(-1, 40 * 2**20)
shared.write(b"x" * len(shared))
children = []
for _ in range(6):
    children.append(os.fork())
    if not children[-1]:
        sum(shared[at] for at in range(0, len(shared), 4096))
        time.sleep(1)
        os._exit(0)
for child in children:
    os.waitpid(child, 0)
"""
    outcome = memory(sandbox, place, code)
    assert (outcome.exit_code, outcome.limits_hit) == (0, ()), outcome


def test_a_full_temporary_folder_is_named(place: Place) -> None:
    limits = Limits(max_temporary_bytes=MIB)
    script = "head -c 5000000 /dev/zero > /tmp/x; sleep 3; exit 0"
    outcome = run(LinuxSandbox(), place.shell(script, limits=limits))
    assert (outcome.exit_code, outcome.limits_hit) == (0, ("max_temporary_bytes",))


def test_empty_files_in_memory_are_files(place: Place) -> None:
    limits = Limits(max_workspace_files=500)
    script = "cd /tmp; n=0; while [ $n -lt 900 ]; do : > $n; n=$((n+1)); done; sleep 30"
    outcome = run(LinuxSandbox(), place.shell(script, limits=limits))
    assert outcome.limits_hit == ("max_workspace_files",)


def test_a_folder_of_the_disk_for_temporary_files_is_not_the_runs_own(place: Place) -> None:
    """It has the files of everybody."""
    job = place.shell("sleep 0.6", limits=Limits(max_workspace_files=500))
    with tempfile.TemporaryDirectory(prefix="skillbelt-") as folder:
        os.chmod(folder, 0o777)
        mounts = (*job.mounts, Mount(folder, "/tmp", True))
        outcome = run(LinuxSandbox(), job._replace(mounts=mounts))
    assert (outcome.exit_code, outcome.limits_hit) == (0, ()), outcome


def test_a_quiet_disk_is_not_measured(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check costs the same for any workspace. Others may use the disk meanwhile."""
    monkeypatch.setattr(watch, "FOLDER_SECONDS", 3600.0)
    looks = DiskWatch(place.folder, Limits(max_workspace_bytes=2**60, max_workspace_files=2**60))
    monkeypatch.setattr(watch, "measure_folder", None)
    for _ in range(100):
        assert looks.look() is None


def test_a_disk_is_measured_now_and_then_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Space that other processes free may hide what the run takes."""
    monkeypatch.setattr(watch, "FOLDER_SECONDS", 0.0)
    looks = DiskWatch(place.folder, Limits(max_workspace_files=3))
    for name in "abcd":
        open(os.path.join(place.folder, name), "w").close()
    time.sleep(0.01)
    assert looks.look() == "max_workspace_files"


def test_a_workspace_that_is_gone_does_not_matter(place: Place) -> None:
    guard = Guard(Limits(), place.folder)
    os.rmdir(place.folder)
    # All processes below the checked one are put into a group of their own.
    with subprocess.Popen(["sleep", "60"]) as alone:
        assert guard.look(alone.pid) is None
        alone.kill()
    assert guard.finish(0, 0.0) == ()
