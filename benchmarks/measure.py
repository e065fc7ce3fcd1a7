"""One measurement in a fresh process, and many of them, each beside its own floor."""

from __future__ import annotations

import math
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.tree import cache_folder

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Runs around every measured call. Import is timed apart; the answer goes to a file of its own,
# since some libraries write to standard output.
_CHILD = """
import os, resource, sys, time
answer, root = os.dup(1), sys.argv[1]
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
start = time.process_time()
{setup}
imported = time.process_time() - start
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cpu, wall = time.process_time(), time.perf_counter()
{call}
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
os.write(answer, f"{{int(found)}} {{cpu}} {{wall}} {{peak}} {{imported}} {{before}}".encode())
os._exit(0)
"""

FLOOR = (
    f"sys.path.insert(0, {REPOSITORY!r})\nfrom benchmarks.floor import floor",
    "found = floor(root)",
)


# Far above every run that goes well, also on a busy machine.
HANG_SECONDS = 600.0


class Run(NamedTuple):
    """The result of one fresh process, and its cost. Sizes are in MB (10**6 bytes)."""

    found: int
    cpu: float
    wall: float
    peak_mb: float
    import_cpu: float
    import_mb: float


class Pair(NamedTuple):
    """A run, and the floor's run just before it."""

    floor: Run
    run: Run

    @property
    def cpu_ratio(self) -> float:
        return self.run.cpu / self.floor.cpu

    @property
    def wall_ratio(self) -> float:
        return self.run.wall / self.floor.wall


class Series(NamedTuple):
    """All pairs of one row; each property is a median over them."""

    pairs: tuple[Pair, ...]

    def median(self, of: Callable[[Pair], float]) -> float:
        return statistics.median(of(pair) for pair in self.pairs)

    @property
    def found(self) -> int:
        return min(pair.run.found for pair in self.pairs)

    @property
    def peak_mb(self) -> float:
        return max(pair.run.peak_mb for pair in self.pairs)

    def summary(self) -> dict[str, float]:
        """The medians, as they go into the JSON report."""
        return {
            "cpu_ratio": round(self.median(lambda pair: pair.cpu_ratio), 3),
            "wall_ratio": round(self.median(lambda pair: pair.wall_ratio), 3),
            "cpu_s": round(self.median(lambda pair: pair.run.cpu), 4),
            "wall_s": round(self.median(lambda pair: pair.run.wall), 4),
            "floor_cpu_s": round(self.median(lambda pair: pair.floor.cpu), 4),
            "found": self.found,
            "peak_mb": round(self.peak_mb, 1),
            "import_cpu_s": round(self.median(lambda pair: pair.run.import_cpu), 4),
            "import_mb": round(self.median(lambda pair: pair.run.import_mb), 1),
            "rounds": len(self.pairs),
        }


class Stopped(Exception):
    """The measured process did not answer; the text says why."""


class Subject(NamedTuple):
    """Something to measure: an interpreter, what to import, and the call that sets `found`."""

    name: str
    setup: str
    call: str
    python: str = sys.executable
    env: Mapping[str, str] | None = None


def once(subject: Subject, root: str, timeout: float = HANG_SECONDS) -> Run:
    """Run the subject on `root` in a fresh process. Raises `Stopped` with the last line said."""
    code = _CHILD.format(setup=subject.setup, call=subject.call)
    try:
        done = subprocess.run(
            [subject.python, "-c", code, root],
            cwd=_nowhere(),
            env=subject.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Stopped(f"over {timeout:.0f} s") from None
    if done.returncode:
        raise Stopped(_reason(done.stderr) or f"exit code {done.returncode}")
    found, cpu, wall, peak, imported, before = done.stdout.split()
    return Run(
        found=int(found),
        cpu=float(cpu),
        wall=float(wall),
        peak_mb=_mb(peak),
        import_cpu=float(imported),
        import_mb=_mb(before),
    )


def _nowhere() -> str:
    """An empty folder to run in: a reader that looks around there finds nothing."""
    folder = os.path.join(cache_folder(), "nowhere")
    os.makedirs(folder, exist_ok=True)
    return folder


def _mb(maxrss: bytes) -> float:
    # Linux counts KiB, macOS bytes.
    return int(maxrss) * (1 if sys.platform == "darwin" else 1024) / 1e6


def _reason(said: bytes) -> str:
    """The text of the exception it ended with, or the last line."""
    lines = said.decode("utf-8", "replace").strip().splitlines() or [""]
    named = [n for n, line in enumerate(lines) if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return " ".join(" ".join(lines[named[-1] if named else -1 :]).split())


def series(
    subject: Subject,
    root: str,
    rounds: int,
    *,
    before: Callable[[], object] = lambda: None,
    cpu_seconds: float = math.inf,
) -> Series:
    """One warm-up, then `rounds` pairs; `before` prepares every run and is not timed.

    Raises `Stopped` when the warm-up takes more than `cpu_seconds`.
    """
    return alternating([(subject, before)], root, rounds, cpu_seconds=cpu_seconds)[0]


def alternating(
    subjects: Sequence[tuple[Subject, Callable[[], object]]],
    root: str,
    rounds: int,
    *,
    cpu_seconds: float = math.inf,
    progress: Callable[[str], object] = lambda _: None,
) -> list[Series]:
    """The same for several subjects in turn, so that drift of the machine meets all alike."""
    floor = Subject("floor", *FLOOR)
    collected: list[list[Pair]] = [[] for _ in subjects]
    for number in range(rounds + 1):
        progress(f"round {number + 1} of {rounds + 1}")
        for (subject, before), pairs in zip(subjects, collected, strict=True):
            below = once(floor, root)
            before()
            run = once(subject, root)
            if run.cpu > cpu_seconds:
                raise Stopped(f"over {cpu_seconds:.0f} s of CPU")
            if number:
                pairs.append(Pair(below, run))
    return [Series(tuple(pairs)) for pairs in collected]
