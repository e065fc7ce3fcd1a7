"""Runs when there are few handles."""

from __future__ import annotations

import pytest

from skillbelt.errors import RunRefused
from skillbelt.running import slots
from skillbelt.running.slots import RunSlots
from tests.benches import GUARDING, Bench, need
from tests.sandbox.guests import copy_hosts

# Runs the command with ever more handles, from none to enough, and counts those that stay open.
_STEPS = """
import resource
def held():
    return len(os.listdir("/proc/self/fd"))
def attempt():
    return run("{command}", **{options})
attempt()  # what is made once
attempt()
before, (soft, hard) = held(), resource.getrlimit(resource.RLIMIT_NOFILE)
results, left = [], []
# The handle of the listing itself is gone again.
for most in range(before - 1, before + 60, {step}):
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        done = attempt()
        results.append("done" if done.exit_code == 0 else done.stderr)
    except Exception as error:
        results.append(f"{{type(error).__name__}}: {{error}}")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    left.append(held() - before)
    if results[-1] == "done":
        break
belt.close()
json.dump([results, left], sys.stdout)
"""
_BUSY = "busy: there are no file handles for this now (see ulimit -n); try again later"


@pytest.mark.parametrize("sandbox", GUARDING)
def test_handles_are_closed_wherever_they_run_out(bench: Bench, sandbox: str) -> None:
    need(sandbox)
    step = 1 if sandbox == GUARDING[0] else 3  # up to the sandbox all are the same
    bench.write("in.txt", "x")
    bench.tree.setenv("SKILLBELT_SANDBOX", sandbox)
    options = "{'inputs': ['skill://kit/in.txt'], 'outputs': ['out/*'], 'save_as_artifacts': True}"
    code = _STEPS.format(command="cat in.txt > out/made", options=options, step=step)
    results, left = bench.as_user(code)
    assert set(left) == {0}
    assert set(results) == {f"RunRefused: {_BUSY}", "done"}
    assert results[-1] == "done"


@pytest.mark.long
def test_handles_of_the_wasm_sandbox_are_closed_wherever_they_run_out(bench: Bench) -> None:
    need("wasm")
    cache = bench.tree.path("home/prepared")  # to compile the interpreter takes long
    copy_hosts(str(cache))
    bench.tree.setenv("SKILLBELT_CACHE_DIR", str(cache))
    bench.write("a.py", "print(1)")
    bench.tree.setenv("SKILLBELT_SANDBOX", "wasm")
    results, left = bench.as_user(_STEPS.format(command="python a.py", options="{}", step=3))
    assert set(left) == {0}
    assert {one for one in results if _BUSY not in one} == {"done"}
    assert results[-1] == "done"


def test_runs_are_bounded_by_the_handles_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "spare_handles", lambda: 4 * slots.HANDLES_OF_A_RUN)
    found = RunSlots()
    with found.hold(0):
        with found.hold(0), pytest.raises(RunRefused, match="try again later"), found.hold(0):
            pass
        with found.hold(0):
            pass


def test_one_command_always_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "spare_handles", lambda: 1)
    with RunSlots().hold(0):
        pass
