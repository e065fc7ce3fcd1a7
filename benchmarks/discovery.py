"""Run the speed figures: `python -m benchmarks.discovery`. Exit code 1 when a bar is missed.

Every figure is a ratio to the floor (`benchmarks/floor.py`), which runs in a fresh process right
before every single measurement.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks import peers, report, tree
from benchmarks.measure import Pair, Series, Stopped, Subject, alternating, once, series
from benchmarks.report import Bar, PeerRow, Report, SizeRow

SIZES = (100, 1_000, 10_000, 100_000)
PEER_SIZES = (1_000, 10_000)
PEER_SECONDS = 60.0
BASE, LARGE = 10_000, 100_000

COLD_BAR = 2.0
WARM_BAR = 0.7
CHANGED_BAR = 1.05
GROWTH_BAR = 1.10
MEMORY_BAR_MB = 200.0
LIST_BAR = 4.0
LIST_SKILLS = 20
# A start takes a few milliseconds and two figures 5 % apart must be told from each other, so
# these two rows take more rounds than the rest.
LIST_ROUNDS = 31
CHANGED_ROUNDS = 15
# A round takes a minute there, and is as long as ten of the next smaller size.
LARGE_ROUNDS = 3

# Other readers import their YAML library at the top; here it is loaded on first use. Import is
# left out of every figure, so what is loaded late is loaded before.
SETUP = """
import sqlite3, yaml
import skillbelt.format.frontmatter, skillbelt.format.yaml_repair
from skillbelt import Catalog
"""
CALL = "found = len(Catalog(paths=[root], project_roots=False, user_roots=False).discover())"


class Home:
    """An empty home for the measured process; what it caches can be thrown away."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": folder,
            "XDG_CACHE_HOME": os.path.join(folder, ".cache"),
            "XDG_CONFIG_HOME": os.path.join(folder, ".config"),
            "XDG_DATA_HOME": os.path.join(folder, ".local", "share"),
            "XDG_STATE_HOME": os.path.join(folder, ".local", "state"),
        }
        os.makedirs(folder, exist_ok=True)

    def forget(self) -> None:
        """Remove everything that an earlier run left."""
        shutil.rmtree(self.folder)
        os.makedirs(self.folder)


class Changer:
    """Changes one SKILL.md of a tree, and puts it back."""

    def __init__(self, root: str) -> None:
        self._path = os.path.join(root, sorted(os.listdir(root))[0], "SKILL.md")
        with open(self._path, "rb") as file:
            self._original = file.read()
        self._count = 0

    def change(self) -> None:
        self._count += 1
        self._write(self._original + b"\n" * self._count)

    def restore(self) -> None:
        self._write(self._original)

    def _write(self, data: bytes) -> None:
        with open(self._path, "wb") as file:
            file.write(data)


class Options(NamedTuple):
    """The sizes to measure, and how often."""

    sizes: tuple[int, ...] = SIZES
    rounds: int = 5
    bars: bool = True
    peers: bool = True
    peer: tuple[str, ...] = ()
    quick: bool = False


class Progress:
    """Says what runs now: on one line of a terminal, elsewhere on a line for each step."""

    def __init__(self) -> None:
        self._one_line = sys.stderr.isatty()
        self._started = time.monotonic()

    def __call__(self, text: str) -> None:
        start, end = ("\r\x1b[2K", "") if self._one_line else ("", "\n")
        seconds = time.monotonic() - self._started
        print(f"{start}{seconds:6.0f} s  {text}", end=end, file=sys.stderr, flush=True)

    def done(self) -> None:
        if self._one_line:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def run(options: Options, progress: Progress) -> Report:
    """Measure everything the options ask for."""
    with tempfile.TemporaryDirectory(prefix="skillbelt-bench-") as scratch:
        result = Report(rounds=options.rounds)
        if options.bars:
            result = _own(options, scratch, progress)
        progress.done()
        print(report.text(result), flush=True)  # others may take as long as all that
        if options.peers:
            result = result._replace(peers=tuple(_peers(options, progress)))
    return result


def _own(options: Options, scratch: str, progress: Progress) -> Report:
    sizes = [_size(size, "full", options.rounds, scratch, progress) for size in options.sizes]
    bars = [_found(row) for row in sizes]
    by_size = {row.size: row for row in sizes}
    if BASE in by_size:
        base = by_size[BASE]
        bars += [
            Bar(f"cold discovery of {BASE:,}", base.cold_ratio, COLD_BAR, "x floor"),
            Bar(f"warm discovery of {BASE:,}", base.warm_ratio, WARM_BAR, "x floor"),
            _changed(BASE, scratch, progress),
        ]
        sizes.append(_size(BASE, "bare", options.rounds, scratch, progress))
    if BASE in by_size and LARGE in by_size:
        bars += _growth(by_size[BASE], by_size[LARGE])
    if LARGE in by_size:
        bars += _memory(by_size[LARGE])
    bars.append(_list(scratch, 5 if options.quick else LIST_ROUNDS, progress))
    return Report(tuple(bars), tuple(sizes), (), options.rounds)


def _size(size: int, kind: tree.Kind, rounds: int, scratch: str, progress: Progress) -> SizeRow:
    progress(f"writing the {kind} tree of {size:,}")
    root = tree.ensure(kind, size)
    home = Home(os.path.join(scratch, f"{kind}-{size}"))
    subject = _skillbelt(home)
    if size >= LARGE:
        rounds = min(rounds, LARGE_ROUNDS)
    cold, warm = alternating(
        [(subject, home.forget), (subject, _nothing)],
        root,
        rounds,
        progress=lambda text: progress(f"cold and warm, {kind} tree of {size:,}, {text}"),
    )
    return SizeRow(size, kind, cold, warm)


def _skillbelt(home: Home) -> Subject:
    return Subject("skillbelt", SETUP, CALL, env=home.env)


def _nothing() -> None:
    """No preparation: the index of the run before is there, and nothing changed."""


def _found(row: SizeRow) -> Bar:
    missing = row.size - min(row.cold.found, row.warm.found)
    return Bar(f"skills of {row.size:,} not found", float(missing), 0.0, "")


def _changed(size: int, scratch: str, progress: Progress) -> Bar:
    progress(f"one file changed among {size:,}")
    root = tree.ensure("full", size)
    home = Home(os.path.join(scratch, "changed"))
    subject = _skillbelt(home)
    changer = Changer(root)
    once(subject, root)
    try:
        warm, changed = alternating(
            [(subject, _nothing), (subject, changer.change)], root, CHANGED_ROUNDS
        )
    finally:
        changer.restore()
    ratio = changed.median(_cpu) / warm.median(_cpu)
    return Bar(f"one file changed among {size:,}", ratio, CHANGED_BAR, "x warm")


def _cpu(pair: Pair) -> float:
    return pair.cpu_ratio


def _growth(base: SizeRow, large: SizeRow) -> list[Bar]:
    what = f"growth from {base.size:,} to {large.size:,}"
    return [
        Bar(f"{what}, cold", large.cold_ratio / base.cold_ratio, GROWTH_BAR, "x linear"),
        Bar(f"{what}, warm", large.warm_ratio / base.warm_ratio, GROWTH_BAR, "x linear"),
    ]


def _memory(large: SizeRow) -> list[Bar]:
    what = f"peak memory at {large.size:,}"
    return [
        Bar(f"{what}, cold", large.cold.peak_mb, MEMORY_BAR_MB, "MB"),
        Bar(f"{what}, warm", large.warm.peak_mb, MEMORY_BAR_MB, "MB"),
    ]


def _list(scratch: str, rounds: int, progress: Progress) -> Bar:
    progress("skillbelt list, whole process")
    home = Home(os.path.join(scratch, "list"))
    root = os.path.join(home.folder, ".agents", "skills")
    os.makedirs(os.path.dirname(root))
    tree.write(root, LIST_SKILLS, "full")
    time.sleep(tree.SETTLE_SECONDS)
    project = os.path.join(scratch, "project")
    os.mkdir(project)
    listing = [os.path.join(os.path.dirname(sys.executable), "skillbelt"), "list"]
    _check_listing(listing, home, project, os.listdir(root))
    ratio = _wall_ratio(listing, [sys.executable, "-c", "pass"], home, project, rounds)
    return Bar(f"skillbelt list with {LIST_SKILLS}, warm", ratio, LIST_BAR, "x python -c pass")


def _check_listing(command: list[str], home: Home, cwd: str, names: Sequence[str]) -> None:
    """The command must have done its work, or its time means nothing."""
    done = subprocess.run(
        command, env=home.env, cwd=cwd, capture_output=True, text=True, check=False
    )
    missing = [name for name in names if name not in done.stdout]
    if done.returncode or missing:
        raise SystemExit(f"skillbelt list left out {missing}: {done.stderr or done.stdout}")


def _wall_ratio(one: list[str], other: list[str], home: Home, cwd: str, rounds: int) -> float:
    """The median wall time of one command over the other's, run in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for command, taken in zip((one, other), times, strict=True):
            start = time.perf_counter()
            subprocess.run(command, env=home.env, cwd=cwd, stdout=subprocess.DEVNULL, check=True)
            if number:
                taken.append(time.perf_counter() - start)
    return statistics.median(times[0]) / statistics.median(times[1])


def _peers(options: Options, progress: Progress) -> list[PeerRow]:
    sizes = [size for size in PEER_SIZES if size in options.sizes]
    rows = []
    for peer in peers.chosen(options.peer):
        progress(f"installing {peer.requirements[0]}")
        try:
            subject = peers.install(peer)
        except Stopped as error:
            rows.append(PeerRow(peer.label, peer.version, (), "", str(error)))
            continue
        rows.append(_peer(peer, subject, sizes, options.rounds, progress))
    return rows


def _peer(
    peer: peers.Peer, subject: Subject, sizes: Sequence[int], rounds: int, progress: Progress
) -> PeerRow:
    """The peer on the real-shaped tree; on the strict one if that makes it stop."""
    said = ""
    for kind in ("full", "strict"):
        measured: list[tuple[int, Series]] = []
        note = ""
        try:
            for size in sizes:
                progress(f"{peer.label}, {kind} tree of {size:,}")
                some = min(rounds, LARGE_ROUNDS) if size >= BASE else rounds
                taken = series(subject, tree.ensure(kind, size), some, cpu_seconds=PEER_SECONDS)
                measured.append((size, taken))
        except Stopped as error:
            note = f"{kind} tree of {size:,}: {_short(str(error))}"
        if measured:
            said = "; ".join(part for part in (said, note) if part)
            return PeerRow(peer.label, peer.version, tuple(measured), kind, said)
        said = "; ".join(part for part in (said, note) if part)
    return PeerRow(peer.label, peer.version, (), "", said)


def _short(reason: str) -> str:
    """A reason that is the same on every machine and fits into a table."""
    reason = re.sub(r"\S*/skills/", "", reason)
    reason = re.sub(r"^(\w+\.)+(?=\w+:)", "", reason)
    return reason if len(reason) <= 140 else reason[:139] + "…"


def _options(arguments: Sequence[str] | None) -> tuple[Options, argparse.Namespace]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.discovery", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="N")
    parser.add_argument("--rounds", type=int, default=5, help="measurements a figure")
    parser.add_argument("--bars", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME", help="only these")
    parser.add_argument("--quick", action="store_true", help="small trees, three rounds, no peers")
    parser.add_argument("--json", metavar="FILE", help="write every figure there")
    parser.add_argument(
        "--markdown", metavar="FILE", nargs="+", help="renew the tables of these pages"
    )
    given = parser.parse_args(arguments)
    options = Options(
        sizes=tuple(given.sizes),
        rounds=given.rounds,
        bars=given.bars,
        peers=given.peers,
        peer=tuple(given.peer),
        quick=given.quick,
    )
    if given.quick:
        options = options._replace(sizes=(100, 1_000), rounds=3, peers=False)
    return options, given


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write what was asked for; 1 when a bar is missed."""
    options, given = _options(arguments)
    progress = Progress()
    try:
        result = run(options, progress)
    finally:
        progress.done()
    if result.peers:
        print("\n" + report.text(result, only_peers=True))
    if given.json:
        report.write_json(result, given.json)
    if given.markdown:
        report.write_markdown(result, *given.markdown)
    return 0 if all(bar.passed for bar in result.bars) else 1


if __name__ == "__main__":
    sys.exit(main())
