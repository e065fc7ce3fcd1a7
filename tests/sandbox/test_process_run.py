"""Every run leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.sandbox.linux import bubblewrap
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.landlock import LandlockSandbox
from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.process import spawn
from skillbelt.sandbox.process.run import LaunchPlan, ProcessRun
from skillbelt.sandbox.process.spawn import Ends, children, descendants
from skillbelt.sandbox.process.watch import Guard
from skillbelt.sandbox.protocol import Outcome, Sandbox, run
from skillbelt.testing.sandbox_suite import DAEMON, Place
from tests.examples import MANY
from tests.handles import no_handle_left

KILLS = 12 if MANY else 4
SANDBOXES: dict[str, type[Sandbox]] = {
    "bubblewrap": LinuxSandbox,
    "landlock": LandlockSandbox,
    "none": NoSandbox,
}
# Starts a daemon that leaves its session, again and again, until it is killed.
RUNTIME = """
import sys
from skillbelt.testing.sandbox_suite import DAEMON, Place
from skillbelt.sandbox.registry import choose
from skillbelt.sandbox.protocol import Job, Mount
name, folder, mark = sys.argv[1:]
sandbox = choose(name)
place = Place.__new__(Place)
place.folder = place.target = folder
print("ready", flush=True)
for _ in range(40):
    sandbox.start(place.python(DAEMON + "time.sleep(1000)  # " + mark))
"""


@pytest.fixture(params=SANDBOXES)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return SANDBOXES[request.param]()


def marked(mark: str) -> list[int]:
    """The processes that carry the mark in their command line."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if mark.encode() in Path("/proc", name, "cmdline").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
    return found


def none_left(mark: str) -> bool:
    """Whether all are gone, or go within a moment."""
    until = time.monotonic() + 150
    while marked(mark):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.property
def test_nothing_survives_a_runtime_that_is_killed(sandbox: Sandbox, place: Place) -> None:
    """Attack 30, at any moment of a start."""
    for number in range(KILLS):
        mark = f"mark-{os.getpid()}-{number}"
        runtime = subprocess.Popen(
            [sys.executable, "-c", RUNTIME, sandbox.name, place.folder, mark],
            stdout=subprocess.PIPE,
        )
        assert runtime.stdout is not None
        with runtime.stdout:
            runtime.stdout.readline()
            time.sleep(random.uniform(0, 0.15))
            runtime.kill()
            runtime.wait()
        assert none_left(mark)


@pytest.mark.property
def test_nothing_is_alive_when_a_killed_run_returns(sandbox: Sandbox, place: Place) -> None:
    """Not a moment later: then."""
    for number in range(KILLS):
        mark = f"mark-{os.getpid()}-{number}"
        running = sandbox.start(place.python(DAEMON + f"time.sleep(1000)  # {mark}"))
        time.sleep(random.uniform(0, 0.1))
        running.kill()
        running.wait()
        assert marked(mark) == []


def test_a_sandbox_that_can_not_start_is_refused(place: Place) -> None:
    """Its output is in the message, and nothing stays open."""
    job = place.job("true")
    plan = LaunchPlan(
        ("/bin/sh", "-c", "echo broken >&2; exit 3"),
        {},
        Guard(job.limits, job.workspace),
        lambda said: f"because {said}",
    )
    missing = plan._replace(argv=("/no/such/program",))
    with no_handle_left():
        with pytest.raises(SandboxUnavailable, match="because broken"):
            ProcessRun(plan, job, None)
        with pytest.raises(SandboxUnavailable, match="No such file"):
            ProcessRun(missing, job, None)


def test_a_command_that_is_too_long_is_refused(sandbox: Sandbox, place: Place) -> None:
    if sandbox.level != 2:
        outcome = run(sandbox, place.job("true", "x" * 2**18))
        assert outcome.exit_code == 126
        assert b"too long" in outcome.stderr.data
        return
    with no_handle_left(), pytest.raises(RunRefused, match="too long"):
        run(sandbox, place.job("true", "x" * 2**18))


@pytest.mark.parametrize(
    ("words", "reason"),
    [(("true", "a\0b"), "NUL"), ((), "NUL"), (("true", "\ud800"), "encode")],
)
def test_words_that_can_not_be_given_are_refused(
    sandbox: Sandbox, place: Place, words: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(RunRefused, match=reason):
        run(sandbox, place.job(*words))


def test_bytes_that_are_no_text_are_given(sandbox: Sandbox, place: Place) -> None:
    """Surrogates stand for them in Python: the name of a file may hold any byte."""
    outcome = run(sandbox, place.job("printf", "%s", os.fsdecode(b"\xff\xfe")))
    assert outcome.stdout.data == b"\xff\xfe"


def test_a_workspace_that_is_not_there_is_refused(sandbox: Sandbox, place: Place) -> None:
    os.rmdir(place.folder)
    with pytest.raises(RunRefused, match="there is no workspace"):
        run(sandbox, place.job("true"))


def test_the_answer_is_not_part_of_the_output(sandbox: Sandbox, place: Place) -> None:
    """Attack 64: a command that says the same is only a command that says the same."""
    outcome = run(sandbox, place.shell("printf 1; read -r line; echo go $line", stdin=b"go\ngo\n"))
    assert outcome.stdout.data == b"1go go\n"


def test_a_signal_from_the_terminal_does_not_reach_a_run(place: Place) -> None:
    """Ctrl-C goes to all of a terminal's processes; a run is not one of them."""
    others = set(descendants(os.getpid()))  # of earlier tests
    running = LinuxSandbox().start(place.job("sleep", "60"))
    below = set(descendants(os.getpid())) - others
    assert below
    assert os.getpgrp() not in {os.getpgid(pid) for pid in below}
    assert os.getsid(0) not in {os.getsid(pid) for pid in below}
    running.kill()
    running.wait()


def test_a_command_starts_only_when_all_would_end_with_the_runtime(place: Place) -> None:
    """Bubblewrap puts the filter on after it has asked to end with the process above it."""
    found: list[bool] = []

    def start(_: int) -> None:
        running = ProcessRun(bubblewrap._plan(place.job("true")), place.job("true"), None)
        with suppress(OSError, IndexError):  # it may be over already
            status = Path(f"/proc/{children(running._pid)[0]}/status").read_text()
            found.append("\nSeccomp:\t2\n" in status)
        running.wait()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(start, range(80)))
    assert found and all(found)


def test_no_zombie_is_left_where_the_runtime_stands_in_for_init() -> None:
    """The only process of a container is such a runtime."""
    code = """
import ctypes, os, sys, tempfile
from skillbelt.testing.sandbox_suite import Place
from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.sandbox.registry import choose
from skillbelt.sandbox.protocol import run
from skillbelt.sandbox.process.spawn import children
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
with tempfile.TemporaryDirectory(prefix="skillbelt-") as folder:
    os.chmod(folder, 0o755)
    place = Place(folder, current_identity())
    for name in ("bubblewrap", "landlock", "none"):
        for _ in range(5):
            run(choose(name), place.shell("sleep 60 & true"))
            run(choose(name), place.job("sleep", "60", timeout_seconds=0.1))
print(children(os.getpid()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=500, check=True, text=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("waited", [False, True])
def test_a_process_that_is_quicker_than_whoever_notes_it_is_looked_after(
    sandbox: Sandbox, place: Place, waited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    popen = spawn._popen

    def slow(argv: Sequence[str], ends: Ends) -> int:
        pid = popen(argv, ends)
        time.sleep(0.3)
        return pid

    run(sandbox, place.job("true"))
    monkeypatch.setattr(spawn, "_popen", slow)
    job = place.shell("sleep 0.5; exit 3", waited=waited)
    outcome = apart(lambda: sandbox.start(job).wait())
    assert (outcome.exit_code, outcome.cancelled) == (3, False)


# Who looks after it


def apart(call: Callable[[], Outcome | None]) -> Outcome:
    """The outcome of the call in a thread that may supervise a run."""
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(call).result(150)
    assert outcome is not None
    return outcome


def test_who_waits_at_once_looks_after_the_run(sandbox: Sandbox, place: Place) -> None:
    job = place.shell("cat; echo b >&2; exit 3", stdin=b"a" * 200_000)
    outcome = apart(lambda: run(sandbox, job))
    assert (outcome.exit_code, outcome.stdout.total_bytes) == (3, 200_000)
    assert outcome.stderr.data == b"b\n"


def test_its_deadline_holds_there_too(sandbox: Sandbox, place: Place) -> None:
    outcome = apart(lambda: run(sandbox, place.job("sleep", "60", timeout_seconds=0.3)))
    assert (outcome.exit_code, outcome.timed_out) == (124, True)


def test_another_thread_can_end_it_there(sandbox: Sandbox, place: Place) -> None:
    def begun() -> Outcome | None:
        running = sandbox.start(place.job("sleep", "60", waited=True))
        threading.Timer(0.2, running.kill).start()
        return running.wait()

    assert apart(begun).cancelled


def test_it_can_be_ended_before_anybody_waits(sandbox: Sandbox, place: Place) -> None:
    def ended() -> Outcome | None:
        running = sandbox.start(place.job("sleep", "60", waited=True))
        running.kill()
        return running.wait()

    assert apart(ended).cancelled


def test_who_waits_for_a_while_gets_somebody_to_look_after_it(
    sandbox: Sandbox, place: Place
) -> None:
    def looked() -> Outcome | None:
        running = sandbox.start(place.job("sleep", "0.3", waited=True))
        assert running.wait(0.01) is None
        return running.wait()

    assert apart(looked).exit_code == 0


def test_a_run_that_nobody_waits_for_after_all_ends_with_its_thread(
    sandbox: Sandbox, place: Place
) -> None:
    mark = f"mark-{os.getpid()}-left"
    job = place.python(DAEMON + f"time.sleep(1000)  # {mark}", waited=True)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sandbox.start, job).result(150)
    assert none_left(mark)
    outcome = running.wait(150)
    assert outcome is not None and outcome.exit_code != 0


def test_others_outlive_the_thread_that_started_them(sandbox: Sandbox, place: Place) -> None:
    """Attack 31."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sandbox.start, place.shell("sleep 0.5; exit 3")).result(150)
    outcome = running.wait(150)
    assert outcome is not None and outcome.exit_code == 3


def test_the_main_thread_is_never_the_one(place: Place) -> None:
    """It may be interrupted anywhere; the run goes on, and can be waited for again."""
    assert threading.current_thread() is threading.main_thread()
    running = LinuxSandbox().start(place.job("sleep", "0.5", waited=True))
    handler = signal.signal(signal.SIGALRM, _interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            running.wait()
    finally:
        signal.signal(signal.SIGALRM, handler)
    outcome = running.wait(150)
    assert outcome is not None and outcome.exit_code == 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
