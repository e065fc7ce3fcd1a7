"""The cost of packages for a run: `python -m benchmarks.packages`.

The first run of a skill that imports one small package, beside `uv run --with` for the same with an
equally cold cache; and a second run, beside one of a script that needs no packages and imports the
same modules of the standard library. A third line shows the second run beside a script that only
prints: that ratio depends on what the package imports, so it has no bar. Both sides take turns, so
that whatever else the machine does weighs on both; the least of each counts, since other work only
ever adds. Processor time is shown too, which other work changes less. Each first run begins with an
empty cache folder of its own: no page of the index, no package, and nothing known of the
interpreter. It needs a package index. Exit code 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from skillbelt.running.packages.installers import find_uv
from skillbelt.sandbox.linux.identity import interpreter

PACKAGE = "tabulate"  # small, pure Python, and seldom among the packages of a system
MANIFEST = "---\nname: bench\ndescription: Measures. Use it to measure.\n---\nRun scripts/a.py.\n"
WITH = f"import {PACKAGE}\nprint('started')\n"
# The same modules of the standard library, which are no cost of packages.
WITHOUT = (
    "import dataclasses, html, importlib.metadata, io, math, re, textwrap, unicodedata, warnings\n"
    "print('started')\n"
)
PRINTS = "print('started')\n"
BARS = {"first": 1.5, "second": 1.2}


class _Taken(NamedTuple):
    wall: float
    processor: float


class PackageBar(NamedTuple):
    """One bar: the two least times in seconds, and the most that their ratio may be; 0: no bar.

    The processor times are for the reader; the bar is for what a user waits.
    """

    name: str
    ours: float
    other: float
    bar: float
    ours_processor: float = 0.0
    other_processor: float = 0.0

    @property
    def ratio(self) -> float:
        """Return the ratio of our time to the other."""
        return self.ours / self.other

    @property
    def passed(self) -> bool:
        """Whether the ratio is within its bar."""
        return not self.bar or self.ratio <= self.bar


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(words)
    folder = tempfile.mkdtemp(prefix="skillbelt-bench-")
    try:
        bars = measure(Path(folder), args.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(as_json(bars) if args.json else table(bars))
    return 0 if all(bar.passed for bar in bars) else 1


def measure(folder: Path, rounds: int) -> list[PackageBar]:
    """Take turns between both sides of both bars."""
    skill = folder / "project" / ".agents" / "skills" / "bench"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text(MANIFEST)
    (skill / "scripts" / "a.py").write_text(WITH)
    (skill / "scripts" / "b.py").write_text(WITHOUT)
    (skill / "scripts" / "c.py").write_text(PRINTS)
    uv, python = find_uv("", os.environ), interpreter()
    assert python is not None, "there is no Python that runs can use"
    times: dict[str, list[_Taken]] = {
        name: [] for name in ("first", "uv", "second", "without", "prints")
    }
    for turn in range(rounds):
        ours, theirs = folder / f"ours-{turn}", folder / f"uv-{turn}"
        times["first"].append(_run(folder, ours, "scripts/a.py"))
        bare = {**os.environ, "UV_CACHE_DIR": str(theirs)}
        started = (uv, "run", "--quiet", "--no-project", "--python", python.path,
                   "--with", PACKAGE, "python", str(skill / "scripts" / "a.py"))  # fmt: skip
        times["uv"].append(_timed(started, folder, bare))
        times["second"].append(_run(folder, ours, "scripts/a.py"))
        times["without"].append(_run(folder, ours, "scripts/b.py"))
        times["prints"].append(_run(folder, ours, "scripts/c.py"))
    pairs = (
        ("first", "first", "uv"),
        ("second", "second", "without"),
        ("prints", "second", "prints"),
    )
    return [_compare(name, times[ours], times[other]) for name, ours, other in pairs]


def _compare(name: str, ours: Sequence[_Taken], other: Sequence[_Taken]) -> PackageBar:
    return PackageBar(
        name=name,
        ours=min(one.wall for one in ours),
        other=min(one.wall for one in other),
        bar=BARS.get(name, 0.0),
        ours_processor=min(one.processor for one in ours),
        other_processor=min(one.processor for one in other),
    )


def _run(folder: Path, cache: Path, script: str) -> _Taken:
    env = {**os.environ, "SKILLBELT_CACHE_DIR": str(cache),
           "SKILLBELT_STATE_DIR": str(folder / "state")}  # fmt: skip
    words = (sys.executable, "-m", "skillbelt", "run", "bench", "--yes", "-q", "--",
             "python3", script)  # fmt: skip
    return _timed(words, folder / "project", env)


def _timed(words: Sequence[str], folder: Path, env: Mapping[str, str]) -> _Taken:
    used, began = _children_time(), time.perf_counter()
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, check=False, text=True)
    taken = time.perf_counter() - began
    if done.returncode or "started" not in done.stdout:
        raise SystemExit(f"{' '.join(words)} failed: {done.stdout}{done.stderr}")
    return _Taken(taken, _children_time() - used)


def _children_time() -> float:
    """Return the processor time of all that was started and has ended, theirs included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def as_json(bars: Sequence[PackageBar]) -> str:
    """Return the bars as one JSON document."""
    return json.dumps(
        [{**bar._asdict(), "ratio": bar.ratio, "passed": bar.passed} for bar in bars], indent=1
    )


def table(bars: Sequence[PackageBar]) -> str:
    """Return one line for each bar."""
    lines = ["     what    ours      other     ratio  at most   processor time"]
    for bar in bars:
        mark = "    " if not bar.bar else "ok  " if bar.passed else "MISS"
        most = f"{bar.bar:5.2f}" if bar.bar else "     "
        lines.append(f"{mark} {bar.name:<7} {bar.ours:6.2f} s  {bar.other:6.2f} s  "
                     f"{bar.ratio:5.2f}  {most}     "
                     f"{bar.ours_processor:6.2f} s  {bar.other_processor:6.2f} s")  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
