"""The cost of PostgreSQL as a store: `python -m benchmarks.fleet_store`.

Appends stand beside a bare loop of psycopg that inserts the same rows, with the same durability, in
turn in the same run. Listing 100,000 sessions by page stands beside the memory before it. Starts a
PostgreSQL of its own on the disk of the temporary folder. Exit code 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
from tests.postgres import SMALL, Server

from skillbelt.events import NewEvent
from skillbelt.store.postgres.store import PostgresStore
from skillbelt.store.protocol import SessionKey, list_sessions

ROUNDS, APPENDS, SESSIONS, WRITERS = 9, 200, 100_000, 4
APPEND_BAR = 0.5
PAGES_BAR_MB = 16.0
DATA = {"role": "user", "text": "word " * 40}
_INSERT = "INSERT INTO bare VALUES (%s, %s, %s, %s, %s, %s)"
_FILL = """
INSERT INTO skillbelt.session (digest, app, "user", name, created, updated, last)
SELECT sha256(n::text::bytea), 'app', 'user' || n %% 1000, 'session' || n, n, n, 0
FROM generate_series(1, %s) n
"""


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of a durable server that lasts as long as the block."""
    with tempfile.TemporaryDirectory(prefix="skillbelt-pg-") as folder:
        server = Server(Path(folder), *SMALL)
        server.create()
        server.start()
        try:
            yield server.url("postgres")
        finally:
            server.stop()


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def insert_bare(db: psycopg.Connection[tuple[object, ...]], number: int, count: int) -> None:
    """Insert rows as one would without a store; each is a transaction."""
    data = json.dumps(DATA)
    for seq in range(count):
        db.execute(_INSERT, (number, seq, time.time(), "message", "", data))


def append_events(store: PostgresStore, number: int, count: int) -> None:
    key = SessionKey("app", "ada", f"chat-{number}")
    for _ in range(count):
        store.append(key, [NewEvent("message", "", DATA)])


def in_threads(work: Callable[[int], object], count: int) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure_appends(url: str, rounds: int, count: int, writers: int) -> dict[str, float]:
    """Rows a second of both, and the median of the ratios of neighbours."""
    bare: list[float] = []
    ours: list[float] = []
    links = [psycopg.connect(url, autocommit=True) for _ in range(writers)]
    with closing(PostgresStore(url)) as store:
        links[0].execute(
            "CREATE TABLE IF NOT EXISTS bare (session bigint, seq bigint, time float8, type text,"
            " agent text, data text)"
        )
        in_threads(lambda number: append_events(store, number, 10), writers)
        for turn in range(rounds):
            pair = [
                (bare, lambda n: insert_bare(links[n], n, count)),
                (ours, lambda n: append_events(store, n, count)),
            ]
            for taken, work in pair if turn % 2 else pair[::-1]:
                taken.append(seconds(lambda work=work: in_threads(work, writers)))  # type: ignore[misc]
    for link in links:
        link.close()
    return {
        "bare_per_second": writers * count / statistics.median(bare),
        "appends_per_second": writers * count / statistics.median(ours),
        "ratio": statistics.median(b / o for b, o in zip(bare, ours, strict=True)),
    }


def measure_pages(url: str, sessions: int) -> dict[str, float]:
    """The cost of listing all sessions, and the memory it takes at most."""
    with closing(PostgresStore(url)) as store:
        store.sessions(limit=1)
        with psycopg.connect(url) as db:
            db.execute(_FILL, [sessions])
            db.execute("ANALYZE skillbelt.session")
        tracemalloc.start()
        found = 0

        def count() -> None:
            nonlocal found
            found = sum(1 for _ in list_sessions(store))

        taken = seconds(count)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert found >= sessions
    return {"sessions": found, "seconds": taken, "peak_mb": peak / 2**20}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--appends", type=int, default=APPENDS)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    args = parser.parse_args(arguments)
    with running_server() as url:
        one = measure_appends(url, args.rounds, args.appends, 1)
        many = measure_appends(url, args.rounds, args.appends, WRITERS)
        pages = measure_pages(url, args.sessions)
    for writers, found in ((1, one), (WRITERS, many)):
        print(
            f"appends, {writers} writing: {found['appends_per_second']:.0f}/s beside"
            f" {found['bare_per_second']:.0f}/s of a bare loop: {found['ratio']:.2f} x"
            f" (bar {APPEND_BAR})"
        )
    print(
        f"{pages['sessions']:.0f} sessions by page: {pages['seconds']:.1f} s, at most"
        f" {pages['peak_mb']:.1f} MB (bar {PAGES_BAR_MB:.0f})"
    )
    passed = min(one["ratio"], many["ratio"]) >= APPEND_BAR and pages["peak_mb"] <= PAGES_BAR_MB
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
