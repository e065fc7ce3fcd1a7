"""The cost of sharing a PostgreSQL between machines: `python -m benchmarks.fleet_shared [URL]`.

Two processes with state folders of their own ask and answer permissions; processes of one and of
many machines append to the audit log. URL is an empty database; without one, a durable server is
started for it. Exit code 1 when an answer takes longer than 300 ms.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.postgres import SMALL, Server

from skillbelt.permission.audit_events import AuditEvent
from skillbelt.permission.postgres_audit import PostgresAuditLog
from skillbelt.permission.rules import Request
from skillbelt.permission.waiting import WaitingRequests
from skillbelt.store import open_postgres

ASKED, WRITERS, SECONDS = 200, 8, 3.0
BAR_SECONDS = 0.3
PROJECT = "benchmark"
REQUEST = Request("run", ("ls",), ("ls",), summary="run ls", skill="pdf", hash="h1", session="s")
ANSWERS = """
import sys, threading
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import WaitingRequests
from skillbelt.store import open_postgres
desk = WaitingRequests(store=open_postgres(sys.argv[1]), project=sys.argv[2])
desk.listen(lambda pending: desk.answer(pending.id, Answer("once")))
print("ready", flush=True)
sys.stdin.read()
desk.close()
"""
WRITES = """
import sys
from benchmarks.fleet_shared import write
write(sys.argv[1], sys.argv[2], float(sys.argv[3]))
"""


def measure_answers(url: str) -> list[float]:
    """Return how long each question took that another process answered."""
    command = [sys.executable, "-c", ANSWERS, url, PROJECT]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout
    other.stdout.readline()
    desk = WaitingRequests(store=open_postgres(url), project=PROJECT)
    taken = []
    for number in range(ASKED + 5):
        began = time.perf_counter()
        settled = desk.ask(REQUEST, 30)
        if number >= 5:
            taken.append(time.perf_counter() - began)
        assert settled.by == "once", settled
    desk.close()
    other.communicate("")
    return taken


def write(url: str, machine: str, seconds: float) -> None:
    """Append to the audit log for a while and print how many events it took."""
    log = PostgresAuditLog(open_postgres(url).database, machine)
    data = {"type": "run", "patterns": ["git add ."], "allowed": True, "by": "rule"}
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        log.append(AuditEvent(time=time.time(), type="decision", session="a/b/c", data=data))
        count += 1
    print(count)


def measure_audit(url: str, name: Callable[[int], str], writers: int) -> float:
    """Return how many events a second the processes append together."""
    commands = [
        [sys.executable, "-c", WRITES, url, name(number), str(SECONDS)] for number in range(writers)
    ]
    started = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for one in commands]
    return sum(int(one.communicate()[0]) for one in started) / SECONDS


def main() -> int:
    """Measure and print; the exit code says whether the bar is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", help="postgresql://USER@HOST/DATABASE")
    url = parser.parse_args().url
    if url is not None:
        return measure(url)
    with tempfile.TemporaryDirectory(prefix="skillbelt-pg-") as folder:
        server = Server(Path(folder), *SMALL)
        server.create()
        server.start()
        try:
            return measure(server.url("postgres"))
        finally:
            server.stop()


def measure(url: str) -> int:
    """Measure in that database and print."""
    taken = sorted(measure_answers(url))
    p50, p99 = statistics.median(taken), taken[int(len(taken) * 0.99) - 1]
    print(
        f"asked on one machine, answered on another, {ASKED} times: p50 {p50 * 1e3:.1f} ms,"
        f" p99 {p99 * 1e3:.1f} ms, most {taken[-1] * 1e3:.1f} ms"
    )
    rates = {
        "one process": measure_audit(url, lambda number: "vm", 1),
        f"{WRITERS} processes of one machine": measure_audit(url, lambda number: "vm", WRITERS),
        f"{WRITERS} machines": measure_audit(url, lambda number: f"vm-{number}", WRITERS),
    }
    for name, rate in rates.items():
        print(f"audit events appended by {name}: {rate:.0f}/s")
    return 0 if p99 < BAR_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
