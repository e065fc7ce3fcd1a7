"""Compare two ways to bring packages to another machine: wheels by hash, or a built environment.

    python -m benchmarks.environments FOLDER [--rounds 3] REQUIREMENT...

FOLDER holds the wheels of the requirements (`pip download -d FOLDER pandas openpyxl`); no index is
asked. Both ways begin with an object store in a folder that has everything, and with nothing on the
machine. Seconds are of the wall and of the processor, programs in sandboxes included. The bytes are
what would come over the network.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from skillbelt.objects.space import Objects
from skillbelt.objects.tree import TreeLimits
from skillbelt.permission.packages import Lock
from skillbelt.running.packages.declared import Needs
from skillbelt.running.packages.environments import plan, provide
from skillbelt.running.packages.install_sandbox import NativeSandboxes
from skillbelt.running.packages.installation import EnvironmentPlan, remove


def measure(work: Callable[[], object]) -> tuple[float, float]:
    """The seconds of the wall and of the processor."""
    began, spent = time.perf_counter(), _processor()
    work()
    return time.perf_counter() - began, _processor() - spent


def _processor() -> float:
    every = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in every)


def plan_for(
    root: Path, name: str, wheels: str, requirements: list[str], lock: Lock | None = None
) -> EnvironmentPlan:
    """The plan of a machine of that name; with a lock, as a node gets it from a server."""
    environ = {
        **os.environ,
        "UV_FIND_LINKS": wheels,
        "UV_NO_INDEX": "1",
        "UV_NO_CONFIG": "1",
    }
    needs = Needs("python", tuple(requirements), "listed")
    return plan(
        needs,
        str(root / name),
        sandboxes=NativeSandboxes(),
        environ=environ,
        objects=f"file://{root}/objects",
        locked=lock,
    )


def total(folder: str) -> int:
    """Return the bytes of all files in a folder."""
    found = (os.lstat(os.path.join(at, one)) for at, _, names in os.walk(folder) for one in names)
    return sum(one.st_size for one in found)


def main() -> None:
    """Measure both ways in turn, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("requirements", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="sb-environments-"))
    root.chmod(0o755)
    wheels = os.path.abspath(args.folder)
    first = plan_for(root, "one", wheels, args.requirements)
    made = provide(first)
    objects = Objects.from_url(f"file://{root}/objects")
    limits = TreeLimits(max_entries=100_000)
    kept = measure(lambda: objects.packages.put_tree(made.path, limits=limits))
    digest = objects.packages.put_tree(made.path, limits=limits)
    rounds = []
    for number in range(args.rounds):
        there = root / f"two-{number}"
        planned = plan_for(root, there.name, wheels, args.requirements, first.lock)
        by_wheels = measure(lambda: provide(planned))  # noqa: B023
        for one in (there / "environments").iterdir():
            remove(str(one))
        shutil.rmtree(there, ignore_errors=True)
        into = root / f"tree-{number}"
        by_tree = measure(lambda: objects.packages.get_tree(digest, str(into), limits=limits))  # noqa: B023
        remove(str(into))
        rounds.append((*by_wheels, *by_tree))
    medians = [round(statistics.median(column), 2) for column in zip(*rounds, strict=True)]
    names = ("wheels_wall", "wheels_processor", "environment_wall", "environment_processor")
    found = {
        **dict(zip(names, medians, strict=True)),
        "keeping_wall": round(kept[0], 2),
        "wheels_bytes": total(str(root / "objects" / "packages" / "wheels")),
        "environment_bytes": total(made.path),
    }
    print(json.dumps(found, indent=2))
    shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
