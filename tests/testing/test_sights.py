"""What a command may see and request; each attack works without a sandbox."""

from __future__ import annotations

import os
import select

import pytest

from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.landlock import LandlockSandbox
from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.protocol import Sandbox, run
from skillbelt.testing.attacks import AttackResult, open_scene, run_attacks
from skillbelt.testing.probes import SIGHTS
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Capabilities
from tests.examples import first_one
from tests.sandbox.ordinary import as_user

SANDBOXES: dict[str, Sandbox] = {"bubblewrap": LinuxSandbox(), "landlock": LandlockSandbox()}
MAKERS = {"bubblewrap": "linux.LinuxSandbox()", "landlock": "landlock.LandlockSandbox()"}
both = pytest.mark.parametrize("name", sorted(SANDBOXES))
ordinary = pytest.mark.parametrize("name", first_one(*sorted(SANDBOXES)))


def outcomes(results: list[AttackResult]) -> set[str]:
    assert {result.attack for result in results} == {probe.name for probe in SIGHTS}
    return {result.outcome for result in results}


def test_without_a_sandbox_each_succeeds() -> None:
    """This proves that a stopped attack was really tried."""
    assert outcomes(run_attacks(NoSandbox(), SIGHTS, claimed_only=False)) == {"succeeded"}


@both
def test_each_is_stopped(name: str) -> None:
    assert outcomes(run_attacks(SANDBOXES[name], SIGHTS)) == {"stopped"}


@ordinary
def test_each_is_stopped_for_an_ordinary_user(name: str) -> None:
    code = f"json.dump(attacks.run_attacks({MAKERS[name]}, probes.SIGHTS), sys.stdout)"
    found = as_user(code)
    assert isinstance(found, list)
    assert outcomes([AttackResult(*each) for each in found]) == {"stopped"}


@both
@pytest.mark.parametrize("processes", [True, False])
def test_what_is_typed_stays_in_the_terminal(name: str, processes: bool, place: Place) -> None:
    """Attack 77. Whoever runs commands owns it, as where the user of skillbelt does."""
    with open_scene() as scene:
        terminal = scene.terminal
        code = (
            f"import os; handle = os.open({terminal.path!r}, os.O_RDWR); "
            "os.write(handle, b'password: '); print(os.read(handle, 80))"
        )
        job = place.python(code, capabilities=Capabilities(processes=processes))
        assert run(SANDBOXES[name], job).exit_code == 1
        assert not terminal.touched()
        assert select.select([terminal.handle], [], [], 0)[0]  # it is still there to be read
        assert os.read(terminal.handle, 80).startswith(b"what only the user")


def test_a_command_reads_its_own_files_in_proc_and_no_tables_of_the_host(place: Place) -> None:
    """Landlock has one /proc for all."""
    code = """
import os
open("/proc/self/maps").read(), open("/proc/self/status").read(), open("/proc/cpuinfo").read()
os.listdir("/proc/self/fd"), os.listdir("/proc/self/task")
for path in ("/proc/net/unix", "/proc/self/net/unix", "/proc/thread-self/net/tcp",
             "/proc/self/mountinfo", "/proc/1/cmdline", "/proc/1/stat", "/proc/kallsyms"):
    try:
        open(path).read()
    except PermissionError:
        continue
    raise SystemExit(path)
try:
    os.listdir("/proc")
except PermissionError:
    print("held")
"""
    outcome = run(LandlockSandbox(), place.python(code))
    assert outcome.stdout.data == b"held\n", outcome
