"""How long a scan takes, how much memory, and what it tells of labelled shapes.

python -m benchmarks.scan FOLDER              cold and warm, levels, peak memory
python -m benchmarks.scan --shapes            by family, over the shapes and cases of the tests
python -m benchmarks.scan --labelled FOLDER   levels of the skills below malicious/ and benign/
python -m benchmarks.scan --shapes --against PYTHON, --labelled FOLDER --against PYTHON
                                              the same for cisco-ai-skill-scanner, offline, by the
                                              Python that has it installed

Each skill of a folder is scanned twice, by two processes that share a cache folder: cold and warm.
The warm one computes the digest of the content, and reads the result. Times are processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from skillbelt.format.skill import Skill
from skillbelt.scan.rules import RULES
from skillbelt.scan.scanner import scan_skill
from skillbelt.values import SKILL_FILE

_TESTS = Path(__file__).parents[1] / "tests" / "scan"
_HEAD = "---\nname: notes\ndescription: Keeps notes.\n---\n# Notes\n\n"
# What the other scanner calls the levels.
_PEER_LEVELS = {"CRITICAL": "block", "HIGH": "block", "MEDIUM": "ask"}


def find_folders(root: str) -> Iterator[str]:
    """Yield every folder with a SKILL.md."""
    for folder, _, files in os.walk(root):
        if SKILL_FILE in files:
            yield folder


class Measured(NamedTuple):
    """The milliseconds of each scan, sorted, the levels, and the most memory in MiB."""

    times: list[float]
    levels: dict[str, int]
    peak: int


def measure(root: str, cache_dir: str = "") -> Measured:
    """Scan every skill once."""
    times: list[float] = []
    levels: Counter[str] = Counter()
    for folder in find_folders(root):
        skill = Skill.from_folder(folder)
        start = time.process_time()
        levels[scan_skill(skill, cache_dir=cache_dir).level] += 1
        times.append((time.process_time() - start) * 1000)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Measured(sorted(times), dict(levels), peak)


def measure_elsewhere(root: str, cache_dir: str) -> Measured:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scan", root, "--cache", cache_dir]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return Measured(*json.loads(printed))


def describe(found: Measured) -> str:
    """Return the median, the 99th percentile, the longest, and the memory."""
    times = found.times
    middle, late = times[len(times) // 2], times[len(times) * 99 // 100]
    spread = f"median {middle:.1f} ms, 99 % {late:.0f} ms, most {times[-1]:.0f} ms"
    return f"{spread}, peak {found.peak} MiB"


class Shape(NamedTuple):
    """A labelled text: the family of its rule, whether it is malicious, and the text."""

    family: str
    is_malicious: bool
    text: str


def list_shapes() -> list[Shape]:
    """Return the labelled texts of the tests."""
    shapes: list[Shape] = []
    for rule, rows in tomllib.loads((_TESTS / "shapes.toml").read_text("utf-8")).items():
        for row in rows:
            shapes += [Shape(RULES[rule].family, key == "shape", row[key]) for key in row]
    for rule, forms in tomllib.loads((_TESTS / "cases.toml").read_text("utf-8")).items():
        family = RULES[rule].family
        shapes += [Shape(family, key != "negative", text) for key, text in forms.items()]
    return shapes


def scan_by_peer(python: str, root: str) -> dict[str, str]:
    """Return the level of each folder, by cisco-ai-skill-scanner without a network."""
    output = Path(root) / "peer.json"
    command = [str(Path(python).with_name("skill-scanner")), "scan-all", root, "--format", "json"]
    subprocess.run(
        [*command, "--output", str(output)], check=False, stdout=subprocess.DEVNULL, timeout=3_600
    )
    document: dict[str, Any] = json.loads(output.read_text("utf-8"))
    return {
        Path(one["skill_path"]).name: _PEER_LEVELS.get(one["max_severity"], "note")
        for one in document["results"]
    }


def print_shapes(peer: str) -> None:
    """Print how many shapes of a family are told, and how many twins are, at each level."""
    shapes = list_shapes()
    told: dict[tuple[str, bool], Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as root:
        for number, one in enumerate(shapes):
            folder = Path(root) / f"s{number}" / "notes"
            folder.mkdir(parents=True)
            (folder / SKILL_FILE).write_text(_HEAD + one.text, "utf-8", "surrogateescape")
            level = scan_skill(Skill.from_folder(str(folder))).level
            told[one.family, one.is_malicious][level] += 1
            folder.rename(folder.parent.parent / f"n{number}")
        levels = scan_by_peer(peer, root) if peer else {}
    for number, one in enumerate(shapes):
        told[one.family, one.is_malicious][f"peer {levels.get(f'n{number}', 'none')}"] += 1
    columns = ("block", "ask", *(("peer block", "peer ask") if peer else ()))
    print("| family | label | texts |", " | ".join(columns), "|")
    print("| --- | --- | --: |" + " --: |" * len(columns))
    total: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for family, label in sorted(told):
        row = told[family, label]
        total[label] += row
        print_row(family, label, row, columns)
    for label, row in total.items():
        print_row("all", label, row, columns)


def print_labelled(root: str, peer: str) -> None:
    """Print how many of the skills below `malicious` and `benign` have which level."""
    columns = ("block", "ask", *(("peer block", "peer ask") if peer else ()))
    print("| family | label | texts |", " | ".join(columns), "|")
    print("| --- | --- | --: |" + " --: |" * len(columns))
    for label in ("malicious", "benign"):
        row: Counter[str] = Counter()
        with tempfile.TemporaryDirectory() as copies:
            for number, folder in enumerate(find_folders(str(Path(root) / label))):
                row[scan_skill(Skill.from_folder(folder)).level] += 1
                if peer:  # which calls a skill by the name of its folder
                    shutil.copytree(folder, Path(copies) / f"n{number}", symlinks=True)
            levels = scan_by_peer(peer, copies) if peer and row else {}
        if not row:
            continue
        row.update(f"peer {level}" for level in levels.values())
        print_row(Path(root).name, label == "malicious", row, columns)


def print_row(family: str, label: bool, row: Counter[str], columns: tuple[str, ...]) -> None:
    """Print the counts of a family."""
    texts = sum(number for name, number in row.items() if not name.startswith("peer"))
    counts = " | ".join(str(row[name]) for name in columns)
    print(f"| {family} | {'malicious' if label else 'benign'} | {texts} | {counts} |")


def main() -> int:
    """Print what was measured."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder", nargs="?", default="")
    parser.add_argument("--shapes", action="store_true")
    parser.add_argument("--labelled", default="")
    parser.add_argument("--against", default="")
    parser.add_argument("--cache", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.cache:  # one of the two processes
        print(json.dumps(measure(chosen.folder, chosen.cache)))
        return 0
    if chosen.shapes:
        print_shapes(chosen.against)
        return 0
    if chosen.labelled:
        print_labelled(chosen.labelled, chosen.against)
        return 0
    if not chosen.folder:
        parser.error("name a folder, or give --shapes or --labelled")
    with tempfile.TemporaryDirectory() as cache_dir:
        cold = measure_elsewhere(chosen.folder, cache_dir)
        if not cold.times:
            print("there is no skill below that folder")
            return 1
        warm = measure_elsewhere(chosen.folder, cache_dir)
    print(f"{len(cold.times):,} skills, cold: {describe(cold)}")
    print(f"{len(warm.times):,} skills, warm: {describe(warm)}")
    print("levels:", ", ".join(f"{name} {number}" for name, number in cold.levels.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
