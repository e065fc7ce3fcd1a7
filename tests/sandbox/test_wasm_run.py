"""Runs of the WASM sandbox beside and after each other: nothing is shared, nothing waits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from skillbelt.sandbox.process.spawn import descendants
from skillbelt.sandbox.protocol import Outcome, Running, run
from skillbelt.sandbox.wasm import engine as wasm_engine
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.settings import Settings
from skillbelt.testing.sandbox_suite import HANG_SECONDS, Place
from tests.bounds import bounds
from tests.handles import no_handle_left
from tests.sandbox import guests
from tests.sandbox.guests import ECHO, SLEEP, SPIN


@pytest.fixture(autouse=True)
def two_workers() -> None:
    bounds(max_wasm_workers=2)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[WasmSandbox]:
    made = WasmSandbox(Settings())
    yield made
    made.close()


def ended(running: Running) -> Outcome:
    outcome = running.wait(HANG_SECONDS)
    assert outcome is not None
    return outcome


def spoken(place: Place, name: str, **fields: object) -> tuple[object, threading.Event]:
    """A job that says something at once and then waits for its input to end."""
    body = guests.saying("ready") + ECHO
    data = guests.module(body, guests.text_at(1024, "ready"))
    return guests.job(place, data, name=name, stdin=None, **fields), threading.Event()


def begun(sandbox: WasmSandbox, place: Place, name: str = "guest.wasm") -> Running:
    """A run that is known to have its turn."""
    job, said = spoken(place, name)
    running = sandbox.start(job, lambda *_: said.set())  # type: ignore[arg-type]
    assert said.wait(HANG_SECONDS)
    return running


def test_the_next_call_does_not_wait_for_one_that_was_killed(
    sandbox: WasmSandbox, place: Place
) -> None:
    """The same process of the engine goes on."""
    run(sandbox, guests.job(place, guests.hello(), name="a.wasm"))
    before = engine(sandbox)
    for body in (SLEEP, SPIN):
        job = guests.job(place, guests.module(body), name="b.wasm", timeout_seconds=0.2)
        assert run(sandbox, job).timed_out
        assert run(sandbox, guests.job(place, guests.hello(), name="a.wasm")).exit_code == 0
    assert engine(sandbox) == before


def engine(sandbox: WasmSandbox) -> int:
    return sandbox._pool.engine().pid


def test_more_runs_than_workers_wait_their_turn(sandbox: WasmSandbox, place: Place) -> None:
    """In the order they came; what the time of a run is counts from its turn.

    On a busy machine what takes a moment may take longer than it has: then it gets more.
    """
    assert not all(wait_turns(sandbox, place, seconds) for seconds in (1.0, 8.0, 64.0))


def wait_turns(sandbox: WasmSandbox, place: Place, seconds: float) -> bool:
    """Let two runs wait for longer than they have; return whether one used its time up."""
    first, second = begun(sandbox, place, "1.wasm"), begun(sandbox, place, "2.wasm")
    job = guests.job(place, guests.hello(), name="3.wasm", timeout_seconds=seconds)
    third, fourth = sandbox.start(job), sandbox.start(job)
    assert third.wait(1.25 * seconds) is None
    first.close_stdin()
    outcomes = [ended(third), ended(fourth)]
    second.close_stdin()
    assert ended(second).stdout.data == b"ready"
    timed_out = any(one.timed_out for one in outcomes)
    assert timed_out or [one.exit_code for one in outcomes] == [0, 0]
    return timed_out


def test_one_that_waits_can_be_ended(sandbox: WasmSandbox, place: Place) -> None:
    """And does not keep its place in the line."""
    held = [begun(sandbox, place, f"{n}.wasm") for n in range(2)]
    waiting = sandbox.start(guests.job(place, guests.hello(), name="3.wasm"))
    last = sandbox.start(guests.job(place, guests.hello(), name="3.wasm"))
    waiting.kill()
    assert ended(waiting).cancelled
    for each in held:
        each.close_stdin()
    assert ended(last).exit_code == 0


def test_runs_side_by_side_have_workers_of_their_own(sandbox: WasmSandbox, place: Place) -> None:
    runs = [begun(sandbox, place, "same.wasm") for _ in range(2)]
    for number, each in enumerate(runs):
        each.write(str(number).encode())
        each.close_stdin()
    assert [ended(each).stdout.data for each in runs] == [b"ready0", b"ready1"]


def test_nothing_is_left_for_the_next_run(sandbox: WasmSandbox, place: Place) -> None:
    """Neither in memory nor in /tmp; the module is the same and so is the engine."""
    data = guests.module(
        """(call $number (i32.load8_u (i32.const 90000)))
        (i32.store8 (i32.const 90000) (i32.const 7))
        (call $number (global.get $count)) (global.set $count (i32.const 7))
        (drop (call $path_open (i32.const 5) (i32.const 0) (i32.const 1024) (i32.const 4)
          (i32.const 5) (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 36)))
        (call $number (call $path_open (i32.const 5) (i32.const 0) (i32.const 1024) (i32.const 4)
          (i32.const 5) (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 36)))""",
        guests.text_at(1024, "mine"),
        "(global $count (mut i32) (i32.const 0))",
    )
    for _ in range(3):
        outcome = run(sandbox, guests.job(place, data))
        # The second attempt to make the file finds the first one's: it was not there before.
        assert outcome.stdout.data == b"00\n00\n20\n", outcome


def test_a_thread_that_ends_does_not_end_its_run(sandbox: WasmSandbox, place: Place) -> None:
    """Attack 31."""
    found: list[Running] = []
    job, _ = spoken(place, "guest.wasm")
    thread = threading.Thread(target=lambda: found.append(sandbox.start(job)))  # type: ignore[arg-type]
    thread.start()
    thread.join()
    time.sleep(0.2)
    found[0].close_stdin()
    assert ended(found[0]).stdout.data == b"ready"


def test_an_engine_that_dies_takes_its_runs_along_and_comes_back(
    sandbox: WasmSandbox, place: Place
) -> None:
    """With an outcome that says so."""
    running = begun(sandbox, place)
    os.kill(engine(sandbox), signal.SIGKILL)
    outcome = ended(running)
    assert outcome.exit_code == 125
    assert outcome.stderr.data == b"the engine failed: its process ended\n"
    assert run(sandbox, guests.job(place, guests.hello())).exit_code == 0


def test_a_worker_that_was_ended_while_it_waited_is_not_missed(
    sandbox: WasmSandbox, place: Place
) -> None:
    job = guests.job(place, guests.hello())
    before = engine(sandbox)
    for _ in range(3):
        assert run(sandbox, job).exit_code == 0
        waiting = descendants(engine(sandbox))
        for pid in waiting:
            with suppress(ProcessLookupError):  # the one that was just used
                os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + HANG_SECONDS
        while any(map(alive, waiting)) and time.monotonic() < until:
            time.sleep(0.01)
    assert engine(sandbox) == before


# The system has no room for another process, as far as one engine process is concerned.
_NO_ROOM = """
_plain = EngineServer._fork
def _failing(self, keep, work):
    with suppress(FileNotFoundError), open(os.path.dirname(__file__) + "/full") as file:
        if int(file.read()) == os.getpid():
            raise OSError(11, "no room")
    return _plain(self, keep, work)
EngineServer._fork = _failing
"""


def test_an_engine_that_can_not_fork_is_replaced(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it runs goes on."""
    here = Path(place.beside("here"))
    for name in ("inside/command.py", "wasm/worker.py", "wasm/guest.py"):
        (here / name).parent.mkdir(exist_ok=True)
        shutil.copy(Path(wasm_engine.__file__).parents[1] / name, here / name)
    with (here / "wasm" / "worker.py").open("a") as file:
        file.write(_NO_ROOM)
    monkeypatch.setattr(wasm_engine, "_HERE", str(here))
    made = WasmSandbox()
    running = begun(made, place, "1.wasm")
    before = engine(made)
    (here / "wasm" / "full").write_text(str(before))
    outcome = run(made, guests.job(place, guests.hello("fresh"), name="2.wasm"))
    assert outcome.exit_code == 0, outcome
    assert engine(made) != before
    running.close_stdin()
    assert ended(running).stdout.data == b"ready"
    made.close()


def test_a_stopped_worker_is_ended(sandbox: WasmSandbox, place: Place) -> None:
    """Attack 28, by a process that can stop it from outside."""
    job, said = spoken(place, "guest.wasm", timeout_seconds=1.0)
    running = sandbox.start(job, lambda *_: said.set())  # type: ignore[arg-type]
    assert said.wait(HANG_SECONDS)
    for pid in descendants(engine(sandbox)):
        os.kill(pid, signal.SIGSTOP)
    assert ended(running).timed_out
    # One that nothing was kept ready for: what waited was stopped as well.
    assert run(sandbox, guests.job(place, guests.hello("new"), name="b.wasm")).exit_code == 0


def test_closing_leaves_nothing(place: Place) -> None:
    """No process, no handle, no folder; afterwards it can be used again."""
    made = WasmSandbox()
    job = guests.job(place, guests.hello())
    with no_handle_left():
        assert run(made, job).exit_code == 0
        pids = [engine(made), *descendants(engine(made))]
        folder = made._pool.root()
        made.close()
        made.close()
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    assert not os.path.exists(folder)
    assert run(made, job).exit_code == 0
    made.close()


def test_what_runs_while_it_is_closed_comes_to_its_end(place: Place) -> None:
    made = WasmSandbox()
    running = begun(made, place)
    pid, folder = engine(made), made._pool.root()
    made.close()
    running.write(b" still")
    running.close_stdin()
    assert ended(running).stdout.data == b"ready still"
    assert not os.path.exists(folder)
    until = time.monotonic() + HANG_SECONDS
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{pid}")
    made.close()


def test_an_idle_engine_ends_and_is_started_again(place: Place) -> None:
    made = WasmSandbox(Settings(limits=bounds(wasm_idle_seconds=0.3)))
    job = guests.job(place, guests.hello())
    assert run(made, job).exit_code == 0
    pid = engine(made)
    until = time.monotonic() + HANG_SECONDS
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{pid}")
    assert run(made, job).exit_code == 0
    made.close()


_FORGOTTEN = """
import sys
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
sandbox = WasmSandbox()
assert sandbox.unavailable() is None
print(sandbox._pool.engine().pid, sandbox._pool.root())
"""


def test_one_that_was_never_closed_leaves_nothing_either() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORGOTTEN], capture_output=True, text=True, timeout=500, check=True
    )
    pid, folder = done.stdout.split()
    until = time.monotonic() + HANG_SECONDS
    while alive(int(pid)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(int(pid))
    assert not os.path.exists(folder)
    assert done.stderr == ""


_KILLED = """
import os, sys, threading, time
from skillbelt.sandbox.protocol import Job, Mount
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
folder, work = sys.argv[1:]
sandbox = WasmSandbox()
mounts = (Mount(folder, "/guests"), Mount(work, work, True))
said = threading.Event()
job = Job(("/guests/guest.wasm",), {}, work, mounts, work, stdin=None)
running = sandbox.start(job, lambda *_: said.set())
said.wait(150)
print(sandbox._pool.engine().pid, sandbox._pool.root(), flush=True)
time.sleep(60)
"""


def test_workers_die_with_a_runtime_that_is_killed(sandbox: WasmSandbox, place: Place) -> None:
    """Attack 30; what it left on the disk goes with the next one's start."""
    spoken(place, "guest.wasm")
    folder = os.path.join(os.path.dirname(place.folder), "guests")
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, folder, place.folder], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid, left = process.stdout.readline().split()
        pids = [int(pid), *descendants(int(pid))]
        assert len(pids) > 1
        process.kill()
    until = time.monotonic() + HANG_SECONDS
    while any(alive(each) for each in pids) and time.monotonic() < until:
        time.sleep(0.01)
    assert not [each for each in pids if alive(each)]
    assert os.path.isdir(left)
    other = WasmSandbox()
    assert other.unavailable() is None
    other.close()
    assert not os.path.exists(left)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# The engine and the interpreter may lie where only root can read: all is loaded before.
_AS_USER = """
import ctypes, encodings.idna, json, os, random, shutil, sys, tempfile, traceback
import _posixsubprocess, skillbelt.sandbox.wasm.interpreters
from skillbelt.sandbox.wasm import sandbox as wasm
from skillbelt.testing.sandbox_suite import Place
from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.sandbox.protocol import run
modules = json.loads(sys.argv[1])
os.chdir("/")
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(61999)
    os.setuid(61999)
folder = tempfile.mkdtemp(prefix="skillbelt-")
place = Place(folder, current_identity())
for name, data in modules.items():
    with open(os.path.join(place.folder, name), "wb") as file:
        file.write(bytes.fromhex(data))
sandbox = wasm.WasmSandbox()
results = []
for name in modules:
    outcome = run(sandbox, place.job("./" + name, stdin=b"x", timeout_seconds=2.0))
    said = outcome.stdout.data.decode(), outcome.stderr.data.decode()
    results.append([outcome.exit_code, *said, outcome.enforced["user"]])
sandbox.close()
shutil.rmtree(folder)
json.dump(results, sys.stdout)
"""


def test_an_ordinary_user_gets_the_same() -> None:
    modules = {
        "hello.wasm": guests.hello("hi", 3).hex(),
        "echo.wasm": guests.module(ECHO).hex(),
        "sleep.wasm": guests.module(SLEEP).hex(),
        "out.wasm": guests.opening("../../../../../../etc/passwd").hex(),
    }
    done = subprocess.run(
        [sys.executable, "-c", _AS_USER, json.dumps(modules)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert [each[0] for each in found] == [3, 0, 124, 0], found
    assert [each[1] for each in found[:3]] == ["hi", "x", ""]
    assert "root:" not in found[3][1] and "00" not in found[3][1].split()
    assert found[0][3] == f"uid {61999 if os.getuid() == 0 else os.getuid()}"
