"""Prints the processor time that tests take, by module and by test.

`python scripts/measure_tests.py -m "not long"` gives its arguments to pytest. Wall time says how
busy a machine is; processor time much less so. Each worker gets a cgroup of its own, so that all
counts which its tests start, also what outlives them. Needs root and `cpuacct` of cgroups.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

GROUPS = Path("/sys/fs/cgroup/cpuacct")
FOLDER = "MEASURED_TESTS"  # where workers write, in the environment
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
        self._notes = folder / name
        self._note("start")

    def _note(self, name: str) -> None:
        now = int(self._usage.read_text()) / 1e9
        with self._notes.open("a") as file:
            file.write(json.dumps([name, now - self._last]) + "\n")
        self._last = now

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


def read_notes(folder: Path) -> Iterator[tuple[str, float]]:
    """Give the name and the seconds of every note; what the controller does is one thing."""
    for file in folder.iterdir():
        for line in file.read_text().splitlines():
            name, seconds = json.loads(line)
            of_all = file.name.startswith("controller") and name != "collect"
            yield "controller" if of_all else name, seconds


def show(title: str, found: dict[str, float]) -> None:
    """Print the greatest."""
    print(f"\n{title}")
    for name, seconds in sorted(found.items(), key=lambda each: -each[1])[:SHOWN]:
        print(f"{seconds:8.2f}  {name}")


def main(arguments: list[str]) -> int:
    """Run pytest and print what it took."""
    with tempfile.TemporaryDirectory(prefix="skillbelt-times-") as folder:
        env = {**os.environ, FOLDER: folder, "PYTHONPATH": str(Path(__file__).parent)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # as the Makefile does
        command = [sys.executable, "-m", "pytest", "-p", Path(__file__).stem, *arguments]
        code = subprocess.run(command, env=env, check=False).returncode
        tests, modules = defaultdict[str, float](float), defaultdict[str, float](float)
        for name, seconds in read_notes(Path(folder)):
            modules[name.partition("::")[0]] += seconds
            if "::" in name:
                tests[name] += seconds
        for group in GROUPS.glob(f"{Path(folder).name}-*"):
            with suppress(OSError):  # something that a test started is still ending
                group.rmdir()
    show("modules, and what is no test", modules)
    show("tests", tests)
    print(f"\n{sum(modules.values()):.0f} seconds of a processor, {len(tests)} tests")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
