"""Each limit of a process holds inside, and is named when it is hit."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable

import pytest

from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.landlock import LandlockSandbox
from skillbelt.sandbox.process.hidden_usage import HiddenUsage
from skillbelt.sandbox.process.limits import process_limits
from skillbelt.sandbox.process.watch import ProcessWatch
from skillbelt.sandbox.protocol import Job, Outcome, Sandbox, run
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Limits
from tests.bounds import bounds
from tests.sandbox.ordinary import as_user

HANG_SECONDS = 500


@pytest.fixture(params=[LinuxSandbox, LandlockSandbox])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    made: Sandbox = request.param()
    return made


def test_what_the_runtime_itself_may_not_have_is_not_asked_for() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = dict(process_limits(bounds(max_open_files=hard * 2), 0))
    assert wanted[resource.RLIMIT_NOFILE] == (hard, hard)


def test_processor_time(sandbox: Sandbox, place: Place) -> None:
    outcome = run(sandbox, place.shell("while :; do :; done", limits=Limits(max_cpu_seconds=1)))
    assert outcome.exit_code == 152  # SIGXCPU, so that a program could have tidied up
    assert "max_cpu_seconds" in outcome.limits_hit


def test_the_size_of_a_file(sandbox: Sandbox, place: Place) -> None:
    limits = Limits(max_written_file_bytes=2**20)
    outcome = run(sandbox, place.job("dd", "if=/dev/zero", "of=big", "bs=1k", limits=limits))
    assert outcome.exit_code == 153
    assert outcome.limits_hit == ("max_written_file_bytes",)


@pytest.fixture
def until_seen(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sandbox, Job], Outcome]:
    """Runs a job, and ends its input once its processes were looked at after it said something."""
    looks = threading.Semaphore(0)
    measure = ProcessWatch._measure

    def look(self: ProcessWatch, pids: list[int], held: HiddenUsage) -> str | None:
        limit = measure(self, pids, held)
        looks.release()
        return limit

    monkeypatch.setattr(ProcessWatch, "_measure", look)

    def run_it(sandbox: Sandbox, job: Job) -> Outcome:
        said = threading.Event()
        running = sandbox.start(job, lambda *_: said.set())
        assert said.wait(HANG_SECONDS)
        while looks.acquire(blocking=False):
            pass
        for _ in range(2):  # one may have begun before
            assert looks.acquire(timeout=HANG_SECONDS)
        running.close_stdin()
        outcome = running.wait(HANG_SECONDS)
        assert outcome is not None
        return outcome

    return run_it


def test_open_files(
    sandbox: Sandbox, place: Place, until_seen: Callable[[Sandbox, Job], Outcome]
) -> None:
    code = """
import os, sys
try:
    while True:
        last = os.open("/dev/null", os.O_RDONLY)
except OSError:
    print(last, flush=True)
    sys.stdin.read()
"""
    job = place.python(code, limits=bounds(max_open_files=50), stdin=None)
    outcome = until_seen(sandbox, job)
    assert outcome.stdout.data == b"49\n"
    assert outcome.limits_hit == ("max_open_files",)


def test_processes(
    sandbox: Sandbox, place: Place, until_seen: Callable[[Sandbox, Job], Outcome]
) -> None:
    """The count is of this run alone where it has a namespace of its own."""
    code = """
import os, sys, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(1000)
        made += 1
except OSError:
    print(made, flush=True)
    sys.stdin.read()
"""
    job = place.python(code, limits=Limits(max_processes=20), stdin=None)
    outcome = until_seen(sandbox, job)
    if sandbox.remaps:
        assert outcome.stdout.data == b"19\n"
        assert outcome.limits_hit == ("max_processes",)
    else:  # what else the user starts and ends meanwhile moves the bound
        assert int(outcome.stdout.data) < 500


def test_processes_of_the_user_elsewhere_do_not_count() -> None:
    """With more of them than the limit, a run still has all of its own."""
    code = """
import subprocess
others = [subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) for _ in range(30)]
folder = tempfile.mkdtemp(prefix="skillbelt-")
place = Place(folder, identity.current_identity())
job = place.shell("for n in 1 2 3 4 5 6 7; do sleep 0.3 & done; wait; echo fine",
                  limits=Limits(max_processes=10))
outcome = run(linux.LinuxSandbox(), job)
for other in others:
    other.kill()
    other.wait()
shutil.rmtree(folder)
json.dump([outcome.exit_code, outcome.stdout.data.decode()], sys.stdout)
"""
    assert as_user(code) == [0, "fine\n"]


def test_no_core_is_dumped(sandbox: Sandbox, place: Place) -> None:
    assert run(sandbox, place.shell("ulimit -H -c")).stdout.data == b"0\n"
