"""Compare runs through Ray with local ones: throughput, added time, two nodes with one.

    python -m benchmarks.fleet_runs [--runs 60] [--nodes N] [--json FILE]

`--nodes N` measures something else: runs that wait two seconds, on 1 to N nodes of one processor.

Starts a small cluster of its own, with a token. Rounds alternate, so that what else the machine
does falls on both sides; the figures are ratios within one run of this script. Exit code 1 when a
bar is missed; `--nodes` has none.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fleet.cluster import SmallCluster, open_cluster

from skillbelt import Rule, Runtime

ROUNDS = 5
THREADS = 4
WARM_RUNS = 40
# For each node: three times what it carries out at once.
WAITING_RUNS, WAITING_SECONDS = 48, 3
PLACES = 8  # runs that a server sends at once for each processor
# The bars: through Ray beside local, two nodes beside one, and what Ray adds to a run.
LEAST_THROUGHPUT, LEAST_TWO_NODES, MOST_ADDED_MS = 0.90, 1.8, 15.0
SCRIPT = "print(sum(range(1000)))\n"
HEAD = "---\nname: sum\ndescription: Adds numbers. Use it to add numbers.\n---\n"


def make_project(folder: Path) -> Path:
    """A project with one small skill."""
    skill = folder / "project" / ".agents" / "skills" / "sum"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text(HEAD)
    (skill / "scripts" / "sum.py").write_text(SCRIPT)
    return folder / "project"


def time_each(belt: Runtime, runs: int) -> list[float]:
    """The seconds of runs one after the other."""
    found = []
    for _ in range(runs):
        began = time.perf_counter()
        assert belt.run_sync("sum", ["python3", "scripts/sum.py"]).exit_code == 0
        found.append(time.perf_counter() - began)
    return found


def rate(belt: Runtime, runs: int, threads: int, command: list[str]) -> float:
    """Runs in a second, several at once."""

    def run(_: int) -> None:
        assert belt.run_sync("sum", command).exit_code == 0

    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(runs)))
    return runs / (time.perf_counter() - began)


def rate_waiting(belt: Runtime, nodes: int) -> float:
    """Runs in a second that wait, as many for each node, after a warm-up of as many.

    They wait long enough that the processors of this machine, which all nodes share, have time
    left: else these would be measured, and not the nodes.
    """
    runs = nodes * WAITING_RUNS
    rate(belt, runs, runs, ["sleep", "0.1"])
    return rate(belt, runs, runs, ["sleep", str(WAITING_SECONDS)])


def alternate(measures: list[Callable[[], float]]) -> list[float]:
    """The median of each, measured in turn."""
    rounds = [[measure() for measure in measures] for _ in range(ROUNDS)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def measure(cluster: SmallCluster, project: Path, runs: int) -> dict[str, float]:
    """All figures."""
    rules = [Rule("*", "*", "allow")]
    here = Runtime(project, rules=rules)
    there = Runtime(project, rules=rules, executor="ray", ray_address=cluster.address)
    with here, there:
        command = ["python3", "scripts/sum.py"]
        for belt in (here, there):
            rate(belt, WARM_RUNS, THREADS, command)
        local_rate, ray_rate = alternate(
            [
                lambda: rate(here, runs, THREADS, command),
                lambda: rate(there, runs, THREADS, command),
            ]
        )
        singles = [(time_each(here, runs // 4), time_each(there, runs // 4)) for _ in range(ROUNDS)]
        local_ms = statistics.median(x for one, _ in singles for x in one) * 1000
        ray_ms = statistics.median(x for _, one in singles for x in one) * 1000
        one = rate_waiting(there, 1)
        cluster.add()
        time.sleep(6)  # the executor looks at the cluster every few seconds
        two = rate_waiting(there, 2)
    return {
        "local_runs_per_second": round(local_rate, 1),
        "ray_runs_per_second": round(ray_rate, 1),
        "throughput_ratio": round(ray_rate / local_rate, 3),
        "local_median_ms": round(local_ms, 1),
        "ray_median_ms": round(ray_ms, 1),
        "added_median_ms": round(ray_ms - local_ms, 1),
        "one_node_waiting_per_second": round(one, 1),
        "two_nodes_waiting_per_second": round(two, 1),
        "two_nodes_ratio": round(two / one, 2),
    }


def measure_nodes(cluster: SmallCluster, project: Path, nodes: int) -> dict[str, float]:
    """Runs in a second that wait, for each number of nodes."""
    rules = [Rule("*", "*", "allow")]
    found = {}
    with Runtime(project, rules=rules, executor="ray", ray_address=cluster.address) as there:
        for number in range(1, nodes + 1):
            cluster.add(cpus=1)
            time.sleep(6)  # the executor looks at the cluster every few seconds
            places = PLACES * number
            rate(there, 2 * places, 2 * places, ["true"])  # warm
            rates = [rate(there, 4 * places, 2 * places, ["sleep", "2"]) for _ in range(3)]
            found[f"nodes_{number}_waiting_per_second"] = round(statistics.median(rates), 1)
            print(number, [round(one, 1) for one in rates], flush=True)
    return found


def missed(found: dict[str, float]) -> list[str]:
    """Each bar that the figures of `measure` miss, as a sentence."""
    low = [("throughput_ratio", LEAST_THROUGHPUT), ("two_nodes_ratio", LEAST_TWO_NODES)]
    said = [f"{name} is {found[name]} (at least {bar})" for name, bar in low if found[name] < bar]
    if (added := found["added_median_ms"]) > MOST_ADDED_MS:
        said.append(f"added_median_ms is {added} (at most {MOST_ADDED_MS})")
    return said


def main() -> int:
    """Measure and print; the exit code says whether every bar is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sb-bench-") as folder,
        open_cluster(nodes=0 if args.nodes else 1) as cluster,
    ):
        Path(folder).chmod(0o711)
        project = make_project(Path(folder))
        if args.nodes:
            found = measure_nodes(cluster, project, args.nodes)
        else:
            found = measure(cluster, project, args.runs)
    print(json.dumps(found, indent=2))
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))
    below = [] if args.nodes else missed(found)
    for sentence in below:
        print(f"MISSED: {sentence}", file=sys.stderr)
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
