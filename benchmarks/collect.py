"""The cost of collecting the outputs of a run beside a copy: `python -m benchmarks.collect`.

A hundred files of 1 MiB are collected and copied in turn. The copy is `shutil.copyfile`, which lets
the kernel do the work. Some figures are shown without a bar: what it takes to have the same text in
memory without collecting it, and what is mostly something else: text full of letters beyond ASCII,
which Python decodes one by one, and artifacts on the disk, which are hashed and flushed. Exit code
1 when the bar is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from skillbelt.artifacts.disk import DiskArtifacts
from skillbelt.running import outputs
from skillbelt.running.outputs import Collected, Save, Wanted, collect
from skillbelt.store import SessionKey
from skillbelt.values import Limits

FILES, SIZE = 100, 2**20
BAR = 2.0
ROUNDS = 15
LIMITS = Limits()
outputs.MAX_OUTPUT_BYTES = 2 * FILES * SIZE
KEY = SessionKey("bench", "bench", "bench")
KINDS = {
    "txt": b"2026-11-15 06:58:54 INFO worker-3 read 1,024 rows of sales.csv in 12 ms\n" * 9
    + "2026-11-15 06:58:55 WARN worker-3 row 7: 'Zürich' is not a known city\n".encode(),
    "csv": "Füße;Öl;Größe;grün;übermütig;123,45\n".encode(),
    "bin": b"",
}


class Way(NamedTuple):
    """A way to collect. Only one that does no more than a copy does has a bar."""

    name: str
    kind: str
    save: Save | None = None
    barred: bool = True
    collects: bool = True


class Row(NamedTuple):
    """The median seconds of one way to collect, and over those of the copies made in turn."""

    name: str
    seconds: float
    ratio: float
    barred: bool = True


def fill(workspace: str, files: int = FILES, size: int = SIZE) -> None:
    """A workspace with so many files of each kind."""
    for kind, line in KINDS.items():
        data = _text(line, size) if line else os.urandom(size)
        os.makedirs(f"{workspace}/out/{kind}")
        for number in range(files):
            with open(f"{workspace}/out/{kind}/{number:03}.{kind}", "wb") as file:
                file.write(data)


def _text(line: bytes, size: int) -> bytes:
    """So many bytes of the line, without half a letter at the end."""
    data = (line * (size // len(line) + 1))[:size]
    return data.decode("utf-8", "ignore").encode().ljust(size)


def copied(source: str, target: str) -> None:
    os.mkdir(target)
    for name in sorted(os.listdir(source)):
        shutil.copyfile(f"{source}/{name}", f"{target}/{name}")


def collected(workspace: str, kind: str, files: int, save: Save | None = None) -> Collected:
    wanted = Wanted((f"out/{kind}/**",), inline=True, save=save is not None, max_files=files)
    found = collect(workspace, wanted, LIMITS, save=save)
    assert len(found.files) == files and not found.limits_hit, found.warnings
    assert all(bool(file.content) == (kind != "bin") for file in found.files)
    return found


def read(source: str) -> list[str]:
    """All of it as text in memory, with nothing looked at: no way to collect does less."""
    found = []
    for name in sorted(os.listdir(source)):
        with open(f"{source}/{name}", "rb", buffering=0) as file:
            found.append(file.read().decode())
    return found


def rows(rounds: int = ROUNDS, files: int = FILES, size: int = SIZE) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        workspace = f"{folder}/workspace"
        fill(workspace, files, size)
        store = DiskArtifacts(f"{folder}/artifacts")

        def save(name: str, data: bytes, mime: str) -> int:
            # Other bytes each time, or nothing would be written.
            return store.save(KEY, name, data + os.urandom(8), mime).version

        ways = [
            Way("text, with its content", "txt"),
            Way("the same text, only read", "txt", barred=False, collects=False),
            Way("text beyond ASCII", "csv", barred=False),
            Way("binary, handed on", "bin", lambda name, data, mime: 0),
            Way("binary, kept on the disk", "bin", save, barred=False),
        ]
        return [_row(folder, way, rounds, files) for way in ways]


def _row(folder: str, way: Way, rounds: int, files: int) -> Row:
    name, kind, save, barred, collects = way
    workspace, copy = f"{folder}/workspace", f"{folder}/copy"
    source = f"{workspace}/out/{kind}"
    ours, theirs = [], []
    for _ in range(rounds + 1):
        theirs.append(_seconds(lambda: copied(source, copy)))
        shutil.rmtree(copy)
        ours.append(
            _seconds(lambda: collected(workspace, kind, files, save))
            if collects
            else _seconds(lambda: read(source))
        )
    # The first round warms up.
    ratio = statistics.median(one / other for one, other in zip(ours[1:], theirs[1:], strict=True))
    return Row(name, statistics.median(ours[1:]), ratio, barred)


def _seconds(call: Callable[[], object]) -> float:
    """The time to make something; the time to remove it is not counted."""
    gc.collect()
    started = time.perf_counter()
    made = call()
    taken = time.perf_counter() - started
    del made
    return taken


def missed(found: Sequence[Row]) -> bool:
    return any(row.barred and row.ratio > BAR for row in found)


def table(found: Sequence[Row]) -> str:
    lines = [f"{f'{FILES} files of 1 MiB':<28}  {'time':>9}  {'to a copy':>9}"]
    for row in found:
        verdict = ("MISSED" if row.ratio > BAR else "ok") if row.barred else "no bar"
        lines.append(
            f"{row.name:<28}  {row.seconds * 1e3:>6.1f} ms  {row.ratio:>7.2f} x  ({verdict})"
        )
    return "\n".join([*lines, "", f"at most {BAR:g} x a copy of the same files, in the same run"])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collect", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="every figure, for programs")
    options = parser.parse_args(argv)
    found = rows(options.rounds)
    if options.json:
        print(json.dumps({"rows": [row._asdict() for row in found], "bar": BAR}, indent=2))
    else:
        print(table(found))
    return int(missed(found))


if __name__ == "__main__":
    sys.exit(main())
