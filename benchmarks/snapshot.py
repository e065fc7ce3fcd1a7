"""Compare snapshots of a workspace with tar: `python -m benchmarks.snapshot`.

A workspace of small and large files is put into an object store in a folder, changed in one file
and put again, and restored; beside it tar packs and unpacks the same folder. Both take turns, and
the least processor time of each counts, since other work only ever adds. The bytes are random:
neither compresses.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from skillbelt.objects.space import Objects
from skillbelt.running.snapshots import restore, snapshot
from skillbelt.running.workspace import open_workspace
from skillbelt.store.protocol import SessionKey

KEY = SessionKey("bench", "user", "session")


def fill(folder: Path, megabytes: int) -> None:
    """Write a quarter in small files of 8 KiB, the rest in files of 4 MiB."""
    small, large = megabytes * 2**20 // 4 // 8192, megabytes * 3 // 16
    for number in range(small):
        place = folder / f"{number % 50}"
        place.mkdir(exist_ok=True)
        (place / str(number)).write_bytes(os.urandom(8192))
    for number in range(large):
        (folder / f"large-{number}").write_bytes(os.urandom(4 * 2**20))


def taken(action: Callable[[], object]) -> float:
    """Return the processor seconds of this process and its children."""
    before = _processor()
    action()
    return _processor() - before


def _processor() -> float:
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(one) for one in whose]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(place: Path, megabytes: int, rounds: int) -> dict[str, float]:
    """Return the least seconds of each step."""
    least: dict[str, float] = {}
    for number in range(rounds):
        for name, seconds in _measure_once(place / str(number), megabytes).items():
            least[name] = min(least.get(name, seconds), seconds)
        shutil.rmtree(place / str(number))
    return least


def _measure_once(folder: Path, megabytes: int) -> dict[str, float]:
    packed, back = str(folder / "packed.tar"), folder / "back"
    with (
        open_workspace(str(folder / "one"), KEY) as one,
        open_workspace(str(folder / "two"), KEY) as two,
    ):
        objects = Objects.from_url(f"file://{folder / 'objects'}")
        work = Path(one.path) / "work"
        fill(work, megabytes)
        back.mkdir()
        seconds = {
            "tar": taken(lambda: _tar("-cf", packed, "-C", work, ".")),
            "snapshot": taken(lambda: snapshot(one, objects, KEY)),
            "untar": taken(lambda: _tar("-xf", packed, "-C", back)),
            "restore": taken(lambda: restore(two, objects, KEY)),
        }
        snapshot(one, objects, KEY)  # so that no file is too young to be known by its time
        (work / "large-0").write_bytes(os.urandom(4 * 2**20))
        seconds["again"] = taken(lambda: snapshot(one, objects, KEY))
    return seconds


def _tar(*words: str | Path) -> None:
    subprocess.run(["tar", *words], check=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as place:
        least = measure(Path(place), args.megabytes, args.rounds)
    for name, seconds in least.items():
        print(f"{name:9} {seconds:6.2f} s  {args.megabytes / seconds:7.0f} MiB/s")
    for ours, other in (("snapshot", "tar"), ("restore", "untar"), ("again", "snapshot")):
        print(f"{ours} / {other}: {least[ours] / least[other]:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
