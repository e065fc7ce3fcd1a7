"""Every attack is carried out for real; none may succeed, for every kind of user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.landlock import LandlockSandbox
from skillbelt.sandbox.none import NoSandbox
from skillbelt.testing.attacks import AttackResult, open_scene, run_attacks
from skillbelt.testing.probes import PROBES
from tests.sandbox.ordinary import as_user

# Each kind of user meets many attacks on each sandbox here, and all of them in `make test-all`.
ALL = pytest.param(1, marks=pytest.mark.long)


def by_user(make: str, step: int = 1) -> list[AttackResult]:
    """Return the attacks on a sandbox that an ordinary user starts, or each of so many."""
    found = as_user(f"json.dump(attacks.run_attacks({make}, probes.PROBES[::{step}]), sys.stdout)")
    assert isinstance(found, list)
    return [AttackResult(*each) for each in found]


def open_doors(results: list[AttackResult], step: int = 1) -> dict[str, str]:
    """Return what each attack did that was not stopped; every one must have been carried out."""
    assert {result.attack for result in results} == {probe.name for probe in PROBES[::step]}
    return {
        result.attack: f"{result.outcome}: {result.detail}"
        for result in results
        if result.outcome != "stopped"
    }


@pytest.mark.parametrize("step", [3, ALL])
def test_bubblewrap_stops_every_attack(step: int) -> None:
    assert open_doors(run_attacks(LinuxSandbox(), PROBES[::step]), step) == {}


@pytest.mark.parametrize("step", [6, ALL])
def test_bubblewrap_of_an_ordinary_user_stops_every_attack(step: int) -> None:
    assert open_doors(by_user("linux.LinuxSandbox()", step), step) == {}


@pytest.mark.parametrize("step", [6, ALL])
def test_landlock_stops_every_attack_but_on_what_it_does_not_claim(step: int) -> None:
    found = open_doors(run_attacks(LandlockSandbox(), PROBES[::step]), step)
    assert set(found) == NOT_CLAIMED_BY_LANDLOCK & {probe.name for probe in PROBES[::step]}


@pytest.mark.parametrize("step", [6, ALL])
def test_landlock_of_an_ordinary_user_stops_the_same(step: int) -> None:
    found = open_doors(by_user("landlock.LandlockSandbox()", step), step)
    assert set(found) == NOT_CLAIMED_BY_LANDLOCK & {probe.name for probe in PROBES[::step]}


def test_without_a_sandbox_the_same_attacks_succeed() -> None:
    """This proves that a stopped attack was really tried."""
    tried = [probe for probe in PROBES if probe.name in WITHOUT]
    results = run_attacks(NoSandbox(), tried, claimed_only=False)
    assert {result.attack for result in results if result.outcome == "succeeded"} == WITHOUT


NOT_CLAIMED_BY_LANDLOCK = {
    "change the modes of files",
    "fill what is in memory",
    "leave something where all can find it",
}
WITHOUT = {
    "leave something where all can find it",
    "read credentials",
    "list the home of the user",
    "read another session",
    "write outside the workspace",
    "write to the skill",
    "change the modes of files",
    "read through a link",
    "hard link a secret",
    "move a file out",
    "leave a set-id file",
    "kill others",
    "hold others back",
    "leave a queue of messages behind",
    "run a program from memory",
    "become another program without the right to",
}


def test_the_scene_is_gone_afterwards() -> None:
    with open_scene() as scene:
        assert os.path.exists(scene.secret)
        victim = scene.victim.pid
    assert not os.path.exists(scene.root)
    assert not os.path.exists(f"/proc/{victim}")


def test_the_victim_ends_with_whoever_made_it() -> None:
    """Also if that process was killed."""
    code = (
        "import time\n"
        "from skillbelt.testing.attacks import open_scene\n"
        "with open_scene() as scene:\n"
        "    print(scene.victim.pid, scene.root, flush=True)\n"
        "    time.sleep(600)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout
        victim, root = child.stdout.readline().split()
        child.kill()
    with suppress(OSError):
        while Path(f"/proc/{victim}/cmdline").read_bytes():  # a zombie has none
            time.sleep(0.01)
    shutil.rmtree(root)
