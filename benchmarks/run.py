"""The cost of a whole run, as an ordinary user: `python -m benchmarks.run`.

A run of `true`, from permission to the line in the audit log, beside bubblewrap alone with the very
same flags, in turns; as whatever else the machine does only ever adds, the time that one run in ten
stays below is taken. Exit code 1 when the bar is missed.

`--endurance` instead does thousands of mixed runs and counts what they leave behind, and ends the
runtime at random moments and counts what goes on; every figure must be 0.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from benchmarks import endurance
from benchmarks.sandbox import Row, as_json, table
from skillbelt import Rule, Runtime
from skillbelt.files.handles import Handles
from skillbelt.files.remove import remove_tree
from skillbelt.format.skill import Skill
from skillbelt.running.call import Asker, RunCall
from skillbelt.running.workbench import Workbench
from skillbelt.sandbox.linux import bubblewrap
from skillbelt.sandbox.linux.identity import trusted_program
from skillbelt.sandbox.protocol import Job
from skillbelt.store import SessionKey

RUNS, MIXED_RUNS, TRIES = 200, 2_000, 200
USER = 61_998  # used by no other process, so that leftovers are seen
WHO = Asker(SessionKey("benchmark", "me", "one"), "user")


def workbench(folder: str) -> tuple[Workbench, Skill]:
    """A workbench and a skill in a project of its own, where everything is allowed and recorded."""
    place = os.path.join(folder, "project", ".agents", "skills", "echo")
    os.makedirs(place)
    with open(os.path.join(place, "SKILL.md"), "w", encoding="utf-8") as file:
        file.write("---\nname: echo\ndescription: Says something.\n---\n# Echo\n")
    belt = Runtime(
        os.path.join(folder, "project"),
        rules=[Rule("*", "*", "allow")],
        user_roots=False,
        state_dir=os.path.join(folder, "state"),
        cache_dir=os.path.join(folder, "cache"),
    )
    return Workbench(belt.settings, belt.gate, belt.get_skill), belt.get_skill("echo")


def become_user(kinds: int = 2 * len(endurance.KINDS)) -> None:
    """Be an ordinary user from here on.

    The interpreter may lie where only root can read, so all that is ever imported is imported by a
    run before; what that run found out about root is forgotten.
    """
    if os.getuid() != 0:
        return
    with scratch() as folder:
        endurance.each_kind(endurance.Bench(*workbench(folder), folder, "warm"), kinds)
    for name, module in list(sys.modules.items()):
        for found in vars(module).values() if name.startswith("skillbelt") else ():
            if hasattr(found, "cache_clear"):
                found.cache_clear()
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)
    os.environ["HOME"] = "/"  # the settings of root cannot be read


def whole_run(folder: str, runs: int) -> Row:
    """A run of `true` over bubblewrap alone with the flags of that run."""
    bench, skill = workbench(folder)
    call = RunCall(("true",))
    time.sleep(0.2)  # a skill that was just written is not staged for good
    with bench.prepare(skill, call, WHO) as run:
        job = run.job
        alone, whole = interleaved(
            runs, lambda: _bubblewrap(job), lambda: _checked(bench.run(skill, call, WHO).exit_code)
        )
    detail = f"{whole * 1000:.1f} ms, bubblewrap alone {alone * 1000:.1f} ms"
    return Row("whole run", whole / alone, 2.0, "times bubblewrap alone", detail)


def interleaved(count: int, *calls: Callable[[], None]) -> list[float]:
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


def _bubblewrap(job: Job) -> None:
    handles = Handles()
    arguments = bubblewrap.bubblewrap_arguments(job, handles)
    argv = [str(trusted_program("bwrap")), *arguments, "--", "/bin/true"]
    try:
        subprocess.run(argv, env={}, capture_output=True, check=True, pass_fds=handles.all)
    finally:
        for fd in handles.all:
            os.close(fd)


def _checked(exit_code: int) -> None:
    assert exit_code == 0, exit_code


def measure(runs: int, root: bool) -> list[Row]:
    """The bars of this page."""
    if not root:
        become_user()
    with scratch() as folder:
        return [whole_run(folder, runs)]


def endure(runs: int, tries: int, root: bool) -> list[Row]:
    """The leftovers after many runs, and after their ends."""
    endurance.unshare_mounts()
    mark = f"mark-{os.urandom(8).hex()}"
    child = [sys.executable, "-m", "benchmarks.run", *(["--root"] if root else []), "--work"]
    with scratch(0o1777) as folder:
        figures = endurance.shot(child, mark, folder, tries)
    if not root:
        become_user()
    with scratch() as folder:
        bench = endurance.Bench(*workbench(folder), folder, mark)
        figures += endurance.ended(bench, tries)
        figures += endurance.mixed(bench, runs)
    return [
        Row(one.name, one.value, 0, "left", f"{one.of} tries {one.detail}".strip())
        for one in figures
    ]


def work(mark: str, root: bool) -> None:
    """Be the runtime that is shot."""
    if not root:
        become_user(4)
    with scratch() as folder:
        endurance.work_until_shot(endurance.Bench(*workbench(folder), folder, mark))


@contextmanager
def scratch(mode: int = 0o755) -> Iterator[str]:
    """A folder that every user can reach; it is removed afterwards with its content."""
    folder = tempfile.mkdtemp(prefix="skillbelt-")
    os.chmod(folder, mode)
    try:
        yield folder
    finally:
        remove_tree(folder)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--runs", type=int, default=0, help=f"{RUNS}, or {MIXED_RUNS} to endure")
    parser.add_argument("--tries", type=int, default=TRIES, help="how often runs are ended early")
    parser.add_argument("--endurance", action="store_true", help="count what runs leave behind")
    parser.add_argument("--root", action="store_true", help="stay root")
    parser.add_argument("--json", action="store_true", help="every figure, for programs")
    parser.add_argument("--work", metavar="MARK", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.work:
        work(options.work, options.root)
    if options.endurance:
        rows = endure(options.runs or MIXED_RUNS, options.tries, options.root)
    else:
        rows = measure(options.runs or RUNS, options.root)
    print(as_json(rows) if options.json else table(rows))
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
