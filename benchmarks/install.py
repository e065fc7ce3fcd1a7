"""What installing costs beside git, `skills` and plain reading: `python -m benchmarks.install`.

One skill of a local bare repository of 1,000 is added, by whole processes, in turn with what a
person types to get the same files: a shallow and sparse clone, and a copy. Each round has an empty
home, so that nothing is scanned or kept already; `again` has the home of the round. Beside them
stand what Python needs to start, with the modules of its own that any such program imports, and
with those of the command: no work can take less. The bar is on the processor time of all of them,
the least of several rounds: wall time says how busy the machine is. It stands beside it, since it
is what a person waits for. `--skills "node
.../skills/bin/cli.mjs"` compares with `skills` too, where it is installed. Then 200 skills are
installed, and the processor time of `verify` and `sync --frozen` is compared with that of reading
their files, in this process: without the start of Python. Exit code 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from skillbelt.cli import main as run_command

SKILLS, ROUNDS = 1_000, 9
GIT_BAR, SKILLS_BAR = 1.5, 0.5
UNCHANGED, READ_ROUNDS, READ_BAR = 200, 40, 2.0
COMMAND = "skillbelt.cli.add"
MODULES = "argparse, hashlib, json, re, sqlite3, subprocess, typing, urllib.parse"
WANTED = f"skill-{SKILLS // 2}"
TEXT = "---\nname: {0}\ndescription: Test skill {0}. Use when testing it.\n---\n\n# {0}\n\n{1}\n"
IDENTITY = ("-c", "user.name=bench", "-c", "user.email=bench@example.com")


class Cost(NamedTuple):
    """The seconds of processor time and of wall time."""

    processor: float
    wall: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skills", default="", help="the command that starts `skills`")
    parser.add_argument("--count", type=int, default=SKILLS, help="skills of the repository")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        url = make_repository(top, options.count)
        ways = {
            "git": git_commands(url),
            "skillbelt": [ours(url)],
            "again": [["rm", "-r", ".agents", "skills-lock.json"], ours(url)],
            "python": [[sys.executable, "-c", "pass"]],
            "its modules": [[sys.executable, "-c", f"import {MODULES}"]],
            "our modules": [[sys.executable, "-c", f"import gc; gc.disable(); import {COMMAND}"]],
        }
        if options.skills:
            words = shlex.split(options.skills)
            ways["skills"] = [[*words, "add", url, "--skill", WANTED, "-y"]]
        found: dict[str, list[Cost]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, commands in ways.items():
                found[name].append(run(commands, top, fresh=name != "again"))
        missed = report({name: least(costs) for name, costs in found.items()}) | report_unchanged(
            measure_unchanged(top)
        )
    return int(missed)


def make_repository(top: Path, count: int) -> str:
    """Write a bare repository with so many skills; return its address."""
    work = top / "work"
    for number in range(1, count + 1):
        skill = work / "skills" / f"skill-{number}"
        (skill / "scripts").mkdir(parents=True)
        (skill / "SKILL.md").write_text(TEXT.format(skill.name, "A line of text.\n" * 200))
        (skill / "scripts" / "a.py").write_text(f"print({number})\n")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run(["git", *IDENTITY, *words], cwd=work, check=True)
    subprocess.run(
        ["git", "clone", "-q", "--bare", "--no-local", str(work), str(top / "source.git")],
        check=True,
    )
    return (top / "source.git").as_uri()


def git_commands(url: str) -> list[list[str]]:
    """Return the commands that fetch one skill, shallow and sparse, and copy it."""
    return [
        ["git", "clone", "-q", "--depth=1", "--filter=blob:none", "--sparse", url, "clone"],
        ["git", "-C", "clone", "sparse-checkout", "set", f"skills/{WANTED}"],
        ["mkdir", "-p", ".agents/skills"],
        ["cp", "-r", f"clone/skills/{WANTED}", ".agents/skills"],
    ]


def ours(url: str) -> list[str]:
    """Return our command."""
    return [sys.executable, "-m", "skillbelt", "add", url, "--skill", WANTED, "--yes", "-q"]


def run(commands: Sequence[Sequence[str]], top: Path, *, fresh: bool = True) -> Cost:
    """Run the commands in a project; return what they cost.

    A fresh project is empty, and so is the home.
    """
    project, home = top / "project", top / "home"
    if fresh:
        for folder in (project, home):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
    environment = {**os.environ, "HOME": str(home), "DISABLE_TELEMETRY": "1"}
    # An installed package has bytecode: without it Python would compile all modules each time.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    for words in commands:
        subprocess.run(words, cwd=project, env=environment, check=True, capture_output=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Cost(processor, wall)


def least(costs: Sequence[Cost]) -> Cost:
    """Return the least of each."""
    return Cost(min(one.processor for one in costs), min(one.wall for one in costs))


def measure_unchanged(top: Path) -> dict[str, list[float]]:
    """Install skills; return the seconds of reading, verifying and syncing them, in turn."""
    project, source = top / "unchanged", top / "some"
    project.mkdir()
    for number in range(1, UNCHANGED + 1):
        name = f"skills/skill-{number}"
        shutil.copytree(top / "work" / name, source / name)
        (source / name / "references").mkdir()
        for page in ("a", "b", "c"):
            text = f"{number} {page}: a line of text.\n" * 300
            (source / name / "references" / f"{page}.md").write_text(text)
    os.environ["HOME"] = str(top)
    here = ["--project", str(project), "-q"]
    in_silence(["add", str(source), "--all", "--yes", *here])
    ways: dict[str, Callable[[], object]] = {
        "reading": lambda: read_all(project / ".agents"),
        "verify": lambda: in_silence(["verify", *here]),
        "sync --frozen": lambda: in_silence(["sync", "--frozen", *here]),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # imports what it needs
    for _ in range(READ_ROUNDS):
        for name, way in ways.items():
            start = time.process_time()
            way()
            found[name].append(time.process_time() - start)
    return found


def read_all(top: Path) -> None:
    """Find and read every file below a folder, as a plain program does."""
    for folder, _, names in os.walk(top):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                file.read()


def in_silence(words: list[str]) -> None:
    """Run a command in this process; it must succeed."""
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = run_command(words)
    if code:
        raise SystemExit(f"skillbelt {words[0]} ended with {code}: {said.getvalue()}")


def report_unchanged(found: dict[str, list[float]]) -> bool:
    """Print the figures; return whether a bar is missed."""
    missed = False
    base = statistics.median(found["reading"])
    for name, times in found.items():
        median, least = statistics.median(times), min(times)
        print(f"{name:<14} {median * 1000:6.1f} ms of processor time, at least {least * 1000:.1f}")
        if name != "reading":
            missed |= median / base > READ_BAR
            print(f"{name} / reading: {median / base:.2f} (at most {READ_BAR})")
    return missed


def report(costs: dict[str, Cost]) -> bool:
    """Print the figures; return whether a bar is missed."""
    for name, one in costs.items():
        processor, wall = one.processor * 1000, one.wall * 1000
        print(f"{name:<11} {processor:8.0f} ms of processor time, {wall:.0f} ms of wall time")
    missed = False
    for name, bar in (("git", GIT_BAR), ("skills", SKILLS_BAR)):
        if name in costs:
            ratio = costs["skillbelt"].processor / costs[name].processor
            waited = costs["skillbelt"].wall / costs[name].wall
            missed |= ratio > bar
            print(f"skillbelt / {name}: {ratio:.2f} (at most {bar}), of wall time {waited:.2f}")
    for name in ("again", "python", "its modules", "our modules"):
        print(f"{name} / git: {costs[name].processor / costs['git'].processor:.2f}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
