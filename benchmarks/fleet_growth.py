"""Measure how throughput grows with servers and nodes: `python -m benchmarks.fleet_growth`.

Measures on this machine what a run costs a processor of a node, what it costs a server, and what an
append to PostgreSQL costs; then simulates fleets of many nodes with these figures, event by event,
and names what is saturated first. `--figures FILE` takes the figures from a file in place of
measuring, `--save FILE` writes them.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.postgres import SMALL, Server

from skillbelt import NewEvent, Rule, Runtime
from skillbelt.store import SessionKey
from skillbelt.store.postgres.store import PostgresStore

NODES = (1, 2, 3, 10, 100, 1_000)
PROCESSORS = 4  # of a node of the table
# What a run appends to its session: its beginning and its end.
APPENDS = 2
JOBS_OF_PLACE = 12
_SPREAD = 0.5  # times vary by half around their mean


class Figures(NamedTuple):
    """The measurements, in seconds of one processor, or of one connection of the store."""

    run_seconds: float
    server_seconds: float
    append_seconds: float
    appends_a_second: float

    @property
    def store_places(self) -> int:
        """Return how many appends the store carries out in parallel."""
        return max(1, round(self.appends_a_second * self.append_seconds))


class Station(NamedTuple):
    """A stage that work passes through: a number of places, each for some time."""

    name: str
    places: int
    seconds: float


class Grown(NamedTuple):
    """A simulated fleet: runs a second, the median and 99th percentile of a run, what is used."""

    throughput: float
    median: float
    late: float
    use: dict[str, float]

    @property
    def limit(self) -> str:
        """The station that is used most."""
        return max(self.use, key=lambda name: self.use[name])


def simulate(way: Sequence[Station], in_flight: int, jobs: int, seed: int = 17) -> Grown:
    """Pass jobs through the stations, so many at once; a station that repeats shares its places."""
    draw = random.Random(seed)
    free = {one.name: one.places for one in way}
    waiting: dict[str, deque[tuple[int, int]]] = {one.name: deque() for one in way}
    busy = dict.fromkeys(free, 0.0)
    events: list[tuple[float, int, int]] = []
    began: dict[int, float] = {}
    taken: list[float] = []
    now, started = 0.0, 0

    def enter(job: int, visit: int) -> None:
        station = way[visit]
        if free[station.name]:
            free[station.name] -= 1
            seconds = station.seconds * draw.uniform(1 - _SPREAD, 1 + _SPREAD)
            busy[station.name] += seconds
            heapq.heappush(events, (now + seconds, job, visit))
        else:
            waiting[station.name].append((job, visit))

    while started < min(in_flight, jobs):
        began[started] = now
        enter(started, 0)
        started += 1
    while events:
        now, job, visit = heapq.heappop(events)
        name = way[visit].name
        free[name] += 1
        if waiting[name]:
            enter(*waiting[name].popleft())
        if visit + 1 < len(way):
            enter(job, visit + 1)
            continue
        taken.append(now - began.pop(job))
        if started < jobs:
            began[started] = now
            enter(started, 0)
            started += 1
    places = {one.name: one.places for one in way}
    use = {name: busy[name] / (now * places[name]) for name in busy}
    late = statistics.quantiles(taken, n=100)[98] if len(taken) > 1 else taken[0]
    return Grown(len(taken) / now, statistics.median(taken), late, use)


def fleet(figures: Figures, nodes: int, servers: int) -> list[Station]:
    """Return the way of a run through a fleet: server, store, node, store, server."""
    server = Station("servers", servers, figures.server_seconds / 2)
    store = Station("store", figures.store_places, figures.append_seconds * APPENDS / 2)
    node = Station("nodes", nodes * PROCESSORS, figures.run_seconds)
    return [server, store, node, store, server]


def grow(figures: Figures, nodes: int, servers: int) -> Grown:
    """Simulate a fleet that always has enough to do, and no more than it can hold at once.

    By Little's law that is its throughput times what a run takes when nothing waits; half as much
    again keeps the slowest station busy.
    """
    way = fleet(figures, nodes, servers)
    visits = {one.name: sum(two.name == one.name for two in way) for one in way}
    most = min(one.places / (one.seconds * visits[one.name]) for one in way)
    in_flight = math.ceil(1.5 * most * sum(one.seconds for one in way))
    return simulate(way, in_flight, max(2_000, in_flight * JOBS_OF_PLACE))


def servers_for(figures: Figures, nodes: int) -> int:
    """Return how many processes of servers keep that many nodes busy, with a fifth to spare."""
    wanted = nodes * PROCESSORS / figures.run_seconds
    most = figures.appends_a_second / APPENDS
    return max(1, math.ceil(1.2 * min(wanted, most) * figures.server_seconds))


# Measuring


def measure() -> Figures:
    """Measure on this machine, alone; nothing else should run."""
    with tempfile.TemporaryDirectory(prefix="sbg-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = Server(folder / "pg", *SMALL)
        server.create()
        server.start()
        try:
            append, rate = _measure_appends(server.url("postgres"))
        finally:
            server.stop()
        run, own = _measure_runs(folder)
    return Figures(run, own, append, rate)


def _measure_appends(url: str) -> tuple[float, float]:
    """Return the seconds of one append alone, and the appends of eight threads in a second."""
    store = PostgresStore(url)
    try:
        times = []
        for number in range(150):
            start = time.perf_counter()
            store.append(SessionKey("growth", "one", str(number % 5)), [NewEvent("run_started")])
            times.append(time.perf_counter() - start)

        def append_many(thread: int) -> None:
            for _ in range(100):
                store.append(SessionKey("growth", str(thread), "one"), [NewEvent("run_started")])

        start = time.perf_counter()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(append_many, range(8)))
        return statistics.median(times), 800 / (time.perf_counter() - start)
    finally:
        store.close()


def _measure_runs(folder: Path, runs: int = 60) -> tuple[float, float]:
    """Return the processor seconds of a run outside and inside the process that asks for it."""
    skill = folder / "project" / ".agents" / "skills" / "echo"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: echo\ndescription: Says something.\n---\n# Echo\n")
    with Runtime(
        folder / "project",
        rules=[Rule("*", "*", "allow")],
        user_roots=False,
        state_dir=str(folder / "state"),
        cache_dir=str(folder / "cache"),
    ) as belt:
        command = ["python3", "-c", "print(sum(range(1000)))"]
        for _ in range(3):
            belt.run_sync("echo", command)
        before = os.times()
        for _ in range(runs):
            assert belt.run_sync("echo", command).exit_code == 0
        after = os.times()
    inside = (after.user + after.system - before.user - before.system) / runs
    children = after.children_user + after.children_system
    outside = (children - before.children_user - before.children_system) / runs
    return inside + outside, inside


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures and the tables."""
    parser = argparse.ArgumentParser(prog="benchmarks.fleet_growth", description=__doc__)
    parser.add_argument("--figures", metavar="FILE")
    parser.add_argument("--save", metavar="FILE")
    args = parser.parse_args(arguments)
    if args.figures:
        figures = Figures(**json.loads(Path(args.figures).read_text("utf-8")))
    else:
        figures = measure()
    if args.save:
        Path(args.save).write_text(json.dumps(figures._asdict(), indent=1), "utf-8")
    for name, value in figures._asdict().items():
        print(f"{name:<18} {value:.5f}" if value < 10 else f"{name:<18} {value:.0f}")
    print(f"\nnodes of {PROCESSORS} processors, as many servers as needed, one PostgreSQL")
    print("| nodes | server processes | runs/s | median | p99 | limit | its use |")
    print("| --: | --: | --: | --: | --: | --- | --: |")
    for nodes in NODES:
        servers = servers_for(figures, nodes)
        made = grow(figures, nodes, servers)
        print(
            f"| {nodes:,} | {servers:,} | {made.throughput:,.0f} | {made.median * 1000:,.0f} ms "
            f"| {made.late * 1000:,.0f} ms | {made.limit} | {made.use[made.limit]:.0%} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
