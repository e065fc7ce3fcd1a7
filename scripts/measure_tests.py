"""Prints the processor time that tests take, by module and by test.

`python scripts/measure_tests.py -m "not long"` gives its arguments to pytest. Wall time says how
busy a machine is; processor time much less so. What a test takes beyond it is waiting, also for a
processor. `build/measured_tests.json` has both times of all tests. With `--record` later runs begin
with what was slowest in this one (`tests/module_seconds.json`); with MANY_EXAMPLES it counts for
`make test-all`.

Each worker gets a cgroup of its own, so that all counts which its tests start, also what outlives
them. Needs root and `cpuacct` of cgroups.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

GROUPS = Path("/sys/fs/cgroup/cpuacct")
FOLDER = "MEASURED_TESTS"  # where workers write, in the environment
GROUP = "MEASURED_GROUP"  # where a process that the shared server forks counts
RECORD = Path(__file__).parents[1] / "tests" / "module_seconds.json"
RECORDED_SECONDS = 2.0  # what takes less may come in any order
RESULT = Path("build/measured_tests.json")  # every test: its processor time and its wall time
SHOWN = 60


class Worker:
    """A pytest plugin that notes what everything below this process took since the last note."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._process = folder, os.getpid()
        name = f"{os.environ.get('PYTEST_XDIST_WORKER', 'controller')}-{os.getpid()}"
        group = GROUPS / f"{folder.name}-{name}"
        group.mkdir()
        (group / "cgroup.procs").write_text(str(self._process))
        times = os.times()
        self._usage, self._last = group / "cpuacct.usage", -times.user - times.system
        self._clock = time.monotonic()
        os.environ[GROUP] = str(group)
        self._notes = folder / name
        self._note("start")

    def _note(self, name: str) -> None:
        now, clock = int(self._usage.read_text()) / 1e9, time.monotonic()
        with self._notes.open("a") as file:
            file.write(json.dumps([name, now - self._last, clock - self._clock]) + "\n")
        self._last, self._clock = now, clock

    def pytest_collection_finish(self) -> None:
        """Note what collecting took."""
        self._note("collect")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Begin anew in a process that was forked."""
        if os.getpid() != self._process:
            self.__init__(self._folder)  # type: ignore[misc]

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note what a test took, with the fixtures that it was the first or last to need."""
        self._note(nodeid)

    def pytest_unconfigure(self) -> None:
        """Note what came after the last test."""
        self._note("end")


def pytest_configure(config: object) -> None:
    """Measure this process; pytest calls this because of `-p measure_tests`."""
    config.pluginmanager.register(Worker(Path(os.environ[FOLDER])))  # type: ignore[attr-defined]


def read_notes(folder: Path) -> Iterator[tuple[str, float, float]]:
    """Give the name and both times of every note; what the controller does is one thing."""
    for file in folder.iterdir():
        for line in file.read_text().splitlines():
            name, seconds, wall = json.loads(line)
            of_all = file.name.startswith("controller") and name != "collect"
            yield "controller" if of_all else name, seconds, 0.0 if of_all else wall


def show(title: str, found: dict[str, float]) -> None:
    """Print the greatest."""
    print(f"\n{title}")
    for name, seconds in sorted(found.items(), key=lambda each: -each[1])[:SHOWN]:
        print(f"{seconds:8.2f}  {name}")


def record(notes: list[tuple[str, float, float]]) -> None:
    """Write the wall time of each slow module: a worker is busy that long."""
    taken = defaultdict[str, float](float)
    for name, _, wall in notes:
        if "::" in name:
            taken[name.partition("::")[0]] += wall
    slow = {name: round(wall, 1) for name, wall in taken.items() if wall >= RECORDED_SECONDS}
    kind = "long" if "MANY_EXAMPLES" in os.environ else "short"
    recorded = json.loads(RECORD.read_text())
    recorded[kind] = dict(sorted(slow.items(), key=lambda each: -each[1]))
    RECORD.write_text(json.dumps(recorded, indent=1) + "\n")


def main(arguments: list[str]) -> int:
    """Run pytest and print what it took."""
    recorded = "--record" in arguments
    arguments = [one for one in arguments if one != "--record"]
    with tempfile.TemporaryDirectory(prefix="skillbelt-times-") as folder:
        env = {**os.environ, FOLDER: folder, "PYTHONPATH": str(Path(__file__).parent)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # as the Makefile does
        command = [sys.executable, "-m", "pytest", "-p", Path(__file__).stem, *arguments]
        code = subprocess.run(command, env=env, check=False).returncode
        tests, modules, waits = (defaultdict[str, float](float) for _ in range(3))
        notes = list(read_notes(Path(folder)))
        for name, seconds, wall in notes:
            modules[name.partition("::")[0]] += seconds
            if "::" in name:
                tests[name] += seconds
                waits[name] += wall - seconds
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps(notes))
        if recorded:
            record(notes)
        for group in GROUPS.glob(f"{Path(folder).name}-*"):
            with suppress(OSError):  # something that a test started is still ending
                group.rmdir()
    show("modules, and what is no test", modules)
    show("tests", tests)
    show("tests, by the time in which they took no processor", waits)
    print(f"\n{sum(modules.values()):.0f} seconds of a processor, {len(tests)} tests")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
