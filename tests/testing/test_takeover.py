"""The first process of a run is ours, whoever starts the sandbox; nothing outlives the result."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.linux import bubblewrap
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.identity import trusted_program
from skillbelt.sandbox.linux.landlock import LandlockSandbox
from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.process import run as process
from skillbelt.sandbox.process.run import StartHangs
from skillbelt.sandbox.process.spawn import children, descendants
from skillbelt.sandbox.protocol import Job, run
from skillbelt.testing.attacks import run_attacks
from skillbelt.testing.sandbox_suite import PROCESSES, Place
from skillbelt.testing.takeover import TAKEOVER
from skillbelt.values import Capabilities
from tests.benches import Bench
from tests.handles import no_handle_left
from tests.sandbox.ordinary import as_user
from tests.unprivileged import open_folder

ALONE = Capabilities()
# What the command sees of the first process and of itself.
LOOK = """
import json, os
def told(pid, name):
    try:
        return open(f"/proc/{pid}/{name}").read()
    except OSError as error:
        return type(error).__name__
status = dict(line.split(":\\t") for line in told(1, "status").splitlines() if ":\\t" in line)
def opened(name, flags):
    try:
        os.close(os.open(f"/proc/1/{name}", flags))
        return "opened"
    except OSError as error:
        return type(error).__name__
for number in (9, 15, 19):
    os.kill(1, number)
print(json.dumps({
    "mine": os.getpid() == 1, "limits": told(1, "limits") == told("self", "limits"),
    "mem": [opened("mem", os.O_RDWR), opened("mem", os.O_RDONLY)],
    "others": [told(1, name) for name in ("maps", "environ", "auxv")],
    "fd": opened("fd", os.O_RDONLY), "filter": status["Seccomp"].strip(),
    "state": status["State"].split()[0],
}))
"""
HELD = {
    "mine": False,
    "limits": True,
    "mem": ["PermissionError"] * 2,
    "others": ["PermissionError"] * 3,
    "fd": "PermissionError",
    "filter": "2",
    "state": "S",
}
_BY_USER = f"""
folder = tempfile.mkdtemp(prefix="skillbelt-")
place = Place(folder, identity.current_identity())
found = []
for granted in (Capabilities(processes=True), Capabilities()):
    job = place.python({LOOK!r}, capabilities=granted)
    found.append(json.loads(run(linux.LinuxSandbox(), job).stdout.data))
shutil.rmtree(folder)
json.dump(found, sys.stdout)
"""


def look(place: Place, capabilities: Capabilities, **fields: object) -> object:
    job = place.python(LOOK, capabilities=capabilities, **fields)
    return json.loads(run(LinuxSandbox(), job).stdout.data)


@pytest.mark.parametrize("capabilities", [PROCESSES, ALONE])
@pytest.mark.parametrize("terminal", [False, True])
def test_the_first_process_can_not_be_read_or_changed(
    place: Place, capabilities: Capabilities, terminal: bool
) -> None:
    """Attacks 73 and 75: and it has the limits of the command."""
    assert look(place, capabilities, terminal=terminal) == HELD


def test_nor_by_a_command_of_an_ordinary_user() -> None:
    assert as_user(_BY_USER) == [HELD, HELD]


@pytest.mark.long
def test_the_attacks_are_held_by_every_sandbox_of_an_ordinary_user() -> None:
    code = """
from skillbelt.testing.takeover import TAKEOVER
made = (linux.LinuxSandbox(), landlock.LandlockSandbox())
json.dump([attacks.run_attacks(each, TAKEOVER) for each in made], sys.stdout)
"""
    found = as_user(code)
    assert isinstance(found, list)
    results = [tuple(result) for each in found for result in each]
    assert [outcome for _, _, outcome, _ in results] == ["stopped"] * 2 * len(TAKEOVER), results


def test_without_a_sandbox_they_succeed() -> None:
    """As an ordinary user; so a door that is found shut was tried."""
    code = """
from skillbelt.testing.takeover import TAKEOVER
json.dump(attacks.run_attacks(none.NoSandbox(), TAKEOVER, claimed_only=False), sys.stdout)
"""
    found = as_user(code)
    assert isinstance(found, list)
    assert {result[0] for result in found if result[2] == "succeeded"} == {
        "hold PID 1 back",
        "outlive the run",
        "raise limits through PID 1",
        "become another program through PID 1",
    }


@pytest.mark.parametrize("sandbox", [LinuxSandbox(), LandlockSandbox()], ids=lambda one: one.name)
def test_the_attacks_are_held(sandbox: LinuxSandbox | LandlockSandbox) -> None:
    results = run_attacks(sandbox, TAKEOVER)
    assert {result.outcome for result in results} == {"stopped"}, results


def test_who_may_start_no_process_has_threads_and_stays_itself(place: Place) -> None:
    """Attack 76: the command is a child of the first process all the same."""
    code = """
import os, threading
thread = threading.Thread(target=print, args=("thread",))
thread.start()
thread.join()
for way in (os.fork, lambda: os.posix_spawn("/bin/true", ["true"], {}),
            lambda: os.execv("/bin/true", ["true"])):
    try:
        way()
    except PermissionError:
        print("refused")
print(os.getpid(), os.getppid())
"""
    outcome = run(LinuxSandbox(), place.python(code, capabilities=ALONE))
    assert outcome.stdout.data == b"thread\nrefused\nrefused\nrefused\n2 1\n", outcome


@pytest.mark.parametrize("capabilities", [PROCESSES, ALONE])
def test_a_signal_that_ends_the_command_is_told(place: Place, capabilities: Capabilities) -> None:
    """The first process ends as the command does."""
    code = "import os; os.kill(os.getpid(), 15)"
    assert run(LinuxSandbox(), place.python(code, capabilities=capabilities)).exit_code == 143


def test_what_loses_its_parent_is_taken_away(place: Place) -> None:
    """No zombie is left while the command runs."""
    script = """
(true & true)
while grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null; do :; done
echo gone
"""
    assert run(LinuxSandbox(), place.shell(script)).stdout.data.endswith(b"gone\n")


# The end


def test_an_end_that_the_kernel_does_not_bring_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that waits for a device can not be ended; the result comes all the same."""
    running = LinuxSandbox().start(place.job("sleep", "600", timeout_seconds=0.2))
    inner = children(running._pid)  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(process, "END_SECONDS", 0.05)
        patch.setattr(signal, "pidfd_send_signal", lambda *_: None)
        patch.setattr(process, "_kill", lambda pids: None)
        outcome = running.wait()
    assert outcome is not None and (outcome.timed_out, outcome.left) == (True, True)
    for pid in inner:
        with suppress(ProcessLookupError):  # its control group may have ended it meanwhile
            os.kill(pid, signal.SIGKILL)


def test_whoever_ran_it_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run("true")
    before = set(descendants(os.getpid()))
    with monkeypatch.context() as patch:
        patch.setattr(process, "END_SECONDS", 0.05)
        patch.setattr(signal, "pidfd_send_signal", lambda *_: None)
        patch.setattr(process, "_kill", lambda pids: None)
        result = bench.run("sleep 600", timeout_seconds=1)
    for pid in set(descendants(os.getpid())) - before:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    assert result.timed_out
    assert [one for one in result.warnings if "may still be alive" in one]


def test_where_the_first_process_is_not_let_run_the_others_are_ended_first(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack 74: it has to be let run to end them."""
    script = "for n in 1 2 3 4 5; do (while :; do :; done) & done; wait"
    running = LinuxSandbox().start(place.shell(script, timeout_seconds=0.5))
    below = descendants(running._pid)  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(signal, "pidfd_send_signal", lambda *_: None)
        outcome = running.wait()
    assert outcome is not None and (outcome.timed_out, outcome.left) == (True, False)
    assert below and not any(os.path.exists(f"/proc/{pid}") for pid in below)


@pytest.mark.parametrize("sandbox", [LandlockSandbox(), NoSandbox()], ids=lambda one: one.name)
def test_a_launcher_that_was_killed_has_ended_nothing(
    sandbox: LandlockSandbox | NoSandbox, place: Place
) -> None:
    """Then something of the run may be alive, and the result says so."""
    running = sandbox.start(place.job("sleep", "600"))
    os.kill(running._pid, 9)  # type: ignore[attr-defined]
    outcome = running.wait()
    assert outcome is not None and outcome.left


@pytest.mark.parametrize(
    "sandbox", [LinuxSandbox(), LandlockSandbox(), NoSandbox()], ids=lambda one: one.name
)
def test_of_an_ordinary_end_nothing_is_left(
    sandbox: LinuxSandbox | LandlockSandbox | NoSandbox, place: Place
) -> None:
    assert not run(sandbox, place.shell("sleep 600 & exit 3")).left
    assert not run(sandbox, place.job("sleep", "600", timeout_seconds=0.1)).left


# The start


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A bubblewrap that says nothing and does not come to an end; the file tells of its starts."""
    found = trusted_program
    with open_folder() as folder:
        started, fake = folder / "started", folder / "bwrap"
        started.touch()
        started.chmod(0o666)
        fake.write_text(f"#!/bin/sh\necho $$ >> {started}\nsleep 600 & wait\n")
        fake.chmod(0o755)
        monkeypatch.setattr(
            bubblewrap,
            "trusted_program",
            lambda name: str(fake) if name == "bwrap" else found(name),
        )
        monkeypatch.setattr(process, "START_SECONDS", 0.5)
        bubblewrap._preflight.cache_clear()
        yield started


def test_a_start_that_hangs_is_given_up(hanging: Path, place: Place) -> None:
    """With one clear error, tried once, and nothing is left of it."""
    with no_handle_left():
        with pytest.raises(StartHangs, match=r"not ready after 0\.5 seconds and is given up"):
            LinuxSandbox().start(place.job("true"))
        assert "given up" in str(LinuxSandbox().unavailable())
    pids = hanging.read_text().split()
    assert len(pids) <= 2  # at most one for each of the two calls
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_a_process_that_can_not_be_found_is_not_answered(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can not be ended is not started."""
    assert LinuxSandbox().unavailable() is None
    monkeypatch.setattr(process, "children", lambda pid: [])
    job: Job = place.shell("echo > made")
    with pytest.raises(SandboxUnavailable, match="cannot be found"):
        LinuxSandbox().start(job)
    assert os.listdir(place.folder) == []
