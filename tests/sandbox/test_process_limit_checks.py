"""A run cannot delay its end by keeping the limit checks busy."""

from __future__ import annotations

import os
import threading
from itertools import count
from unittest.mock import Mock

import pytest

from skillbelt.sandbox.linux import bubblewrap, landlock
from skillbelt.sandbox.process import watch
from skillbelt.sandbox.process.limit_checks import LimitChecks
from skillbelt.sandbox.process.spawn import descendants
from skillbelt.sandbox.process.watch import Guard
from skillbelt.sandbox.protocol import Sandbox, run
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Limits
from tests.sandbox.ordinary import as_user

# Processes that start another one and end, for longer than the command that started them is there.
HOPS = """
import os, signal, time
until = time.monotonic() + 40
for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
go, tell = os.pipe()
for _ in range(30):
    if os.fork() == 0:
        os.close(tell)
        os.read(go, 1)
        os.setsid()
        os.closerange(0, 9)
        while time.monotonic() < until:
            try:
                if os.fork():
                    os._exit(0)
            except OSError:
                time.sleep(0.001)
        os._exit(0)
os.close(tell)
open("started", "w").close()
{then}
"""
WAITS = HOPS.format(then="time.sleep(30)\nprint('not ended')")
FILLS = HOPS.format(
    then="for n in range(64): open(str(n), 'wb').write(os.urandom(2**20))\n"
    "time.sleep(30)\nprint('not ended')"
)


@pytest.fixture(
    params=[
        bubblewrap.LinuxSandbox,
        pytest.param(landlock.LandlockSandbox, marks=pytest.mark.long),
    ]
)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    made: Sandbox = request.param()
    return made


def test_the_deadline_holds(sandbox: Sandbox, place: Place) -> None:
    outcome = run(sandbox, place.python(WAITS, timeout_seconds=1))
    assert (outcome.timed_out, outcome.stdout.data, outcome.left) == (True, b"", False)


@pytest.mark.long
def test_the_deadline_holds_for_an_ordinary_user() -> None:
    code = f"""
found = []
for made in (linux.LinuxSandbox(), landlock.LandlockSandbox()):
    place = Place(tempfile.mkdtemp(prefix="skillbelt-"), identity.current_identity())
    outcome = run(made, place.python({WAITS!r}, timeout_seconds=1))
    found.append([outcome.timed_out, outcome.stdout.data.decode(), outcome.left])
json.dump(found, sys.stdout)
"""
    assert as_user(code) == [[True, "", False]] * 2


@pytest.mark.long
def test_the_disk_is_looked_at(sandbox: Sandbox, place: Place) -> None:
    limits = Limits(max_workspace_bytes=16 * 2**20)
    outcome = run(sandbox, place.python(FILLS, limits=limits))
    assert "max_workspace_bytes" in outcome.limits_hit
    assert outcome.stdout.data == b""


def test_a_cancelled_run_ends(sandbox: Sandbox, place: Place) -> None:
    running = sandbox.start(place.python(WAITS))
    while not os.path.exists(os.path.join(place.folder, "started")):
        assert running.wait(0.05) is None
    running.kill()
    outcome = running.wait()
    assert outcome is not None
    assert (outcome.cancelled, outcome.stdout.data, outcome.left) == (True, b"", False)


def test_a_look_that_takes_its_time_puts_nothing_off(
    sandbox: Sandbox, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for once everything has ended."""
    begun, halted = threading.Event(), threading.Event()

    def look(_guard: Guard, _pid: int) -> None:
        begun.set()
        halted.wait(150)

    monkeypatch.setattr(Guard, "look", look)
    monkeypatch.setattr(Guard, "halt", lambda _guard: halted.set(), raising=False)
    outcome = run(sandbox, place.job("sleep", "40", timeout_seconds=1))
    assert begun.is_set()
    assert outcome.timed_out


def test_a_look_does_not_chase_who_starts_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were born in a group meanwhile are new each time, and there already."""
    numbers = count(2**22 + 1)  # beyond all that there can be

    def members(_pid: int) -> list[int]:
        found = next(numbers)
        assert found < 2**22 + 50
        return [found]

    monkeypatch.setattr(watch, "open_group", lambda _limits: Mock(hits=lambda: ()))
    assert Guard(Limits(), place.folder, members=members).look(os.getpid()) is None


def test_what_a_look_raises_is_raised_for_who_asks() -> None:
    told = threading.Event()

    def look() -> str | None:
        raise ValueError("broken")

    looks = LimitChecks(look, told.set)
    looks.begin()
    assert told.wait(150)
    with pytest.raises(ValueError, match="broken"):
        looks.limit()
    looks.end()


def test_who_starts_others_is_not_followed_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillbelt.sandbox.process.spawn._MOST_FOLLOWED", 5)
    own = os.getpid()
    monkeypatch.setattr("skillbelt.sandbox.process.spawn.children", lambda *_: [own])
    assert set(descendants(own)) == {own}
