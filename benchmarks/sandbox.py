"""The cost of the sandbox, as an ordinary user: `python -m benchmarks.sandbox`.

A command in the sandbox is measured beside a bare one and beside bubblewrap alone, in turns, so
that whatever else the machine does weighs on all of them; as it only ever adds, the time that one
run in ten stays below is taken. Exit code 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from skillbelt.files.handles import Handles
from skillbelt.sandbox.linux import bubblewrap
from skillbelt.sandbox.linux.identity import trusted_program
from skillbelt.sandbox.protocol import Job, Mount, run

COMMAND = ("python3", "-c", "pass")
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
RUNS, ROUNDS, ROUND_RUNS, STREAM_BYTES = 100, 10, 20, 2**30
USER = 65534


class Row(NamedTuple):
    """One bar: what was measured, in which unit, and the worst value that still passes."""

    name: str
    value: float
    bar: float
    unit: str
    detail: str

    @property
    def passed(self) -> bool:
        """Throughput must be at least its bar, everything else at most."""
        return self.value >= self.bar if self.name == "throughput" else self.value <= self.bar


def job(folder: str, *argv: str) -> Job:
    """A job with one mount, as small as a real one gets."""
    return Job(
        argv=argv,
        env=ENVIRONMENT,
        cwd=folder,
        mounts=(Mount(folder, folder, True),),
        workspace=folder,
    )


def overhead(folder: str, runs: int) -> Row:
    """A start of Python in the sandbox over a bare one."""
    sandbox, work = bubblewrap.LinuxSandbox(), job(folder, *COMMAND)
    bare, inside = _interleaved(
        runs, lambda: _bare(list(COMMAND)), lambda: _checked(run(sandbox, work).exit_code)
    )
    detail = f"{inside * 1000:.1f} ms, bare {bare * 1000:.1f} ms"
    return Row(name="overhead", value=inside / bare, bar=1.6, unit="times bare", detail=detail)


def throughput(folder: str, rounds: int, runs: int) -> Row:
    """Runs a second, two at a time, over those of bubblewrap alone with the same flags."""
    sandbox, work = bubblewrap.LinuxSandbox(), job(folder, *COMMAND)
    alone, ours = _interleaved(
        rounds,
        lambda: _two_at_a_time(runs, lambda: _bubblewrap(work)),
        lambda: _two_at_a_time(runs, lambda: _checked(run(sandbox, work).exit_code)),
    )
    detail = f"{runs / ours:.0f} a second, bubblewrap alone {runs / alone:.0f}"
    return Row(
        name="throughput", value=alone / ours, bar=0.9, unit="times bubblewrap alone", detail=detail
    )


def growth(folder: str, size: int) -> Row:
    """Measure the memory of the runtime while a command writes a lot."""
    sandbox = bubblewrap.LinuxSandbox()
    run(sandbox, job(folder, "true"))
    before = _peak_bytes()
    outcome = run(sandbox, job(folder, "head", "-c", str(size), "/dev/zero"))
    assert outcome.stdout.total_bytes == size
    value = (_peak_bytes() - before) / 10**6
    return Row(
        name="growth", value=value, bar=32.0, unit="MB", detail=f"{size / 2**20:.0f} MiB on stdout"
    )


def _interleaved(count: int, *calls: Callable[[], None]) -> list[float]:
    """The first decile of the times of each call; they take turns."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(count):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return [statistics.quantiles(taken, n=10, method="inclusive")[0] for taken in times]


def _two_at_a_time(runs: int, call: Callable[[], None]) -> None:
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(call) for _ in range(runs)]:
            done.result()


def _bare(argv: list[str], fds: Sequence[int] = ()) -> None:
    subprocess.run(argv, env=ENVIRONMENT, capture_output=True, check=True, pass_fds=fds)


def _bubblewrap(work: Job) -> None:
    handles = Handles()
    arguments = bubblewrap.bubblewrap_arguments(work, handles)
    try:
        _bare([str(trusted_program("bwrap")), *arguments, "--", *work.argv], handles.all)
    finally:
        for fd in handles.all:
            os.close(fd)


def _checked(exit_code: int) -> None:
    assert exit_code == 0, exit_code


def _peak_bytes() -> int:
    with open("/proc/self/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def leave_root() -> None:
    """Be somebody else from here on; everything must be imported already."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)
        os.environ["HOME"] = "/"  # the settings of root cannot be read


def table(rows: Sequence[Row]) -> str:
    """The rows for people."""
    return "\n".join(
        f"{'ok  ' if row.passed else 'MISS'} {row.name:<11} {row.value:6.2f} {row.unit} "
        f"(bar {row.bar:g}; {row.detail})"
        for row in rows
    )


def as_json(rows: Sequence[Row]) -> str:
    """The rows for programs."""
    return json.dumps([{**row._asdict(), "passed": row.passed} for row in rows])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sandbox", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--stream-bytes", type=int, default=STREAM_BYTES)
    parser.add_argument("--json", action="store_true", help="every figure, for programs")
    options = parser.parse_args(argv)
    leave_root()
    os.chdir("/")
    with tempfile.TemporaryDirectory(prefix="skillbelt-") as folder:
        rows = [
            overhead(folder, options.runs),
            throughput(folder, options.rounds, ROUND_RUNS),
            growth(folder, options.stream_bytes),
        ]
    print(as_json(rows) if options.json else table(rows))
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
