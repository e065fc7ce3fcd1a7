"""How long a scan takes: processor time for each skill below a folder, and the levels found.

python -m benchmarks.scan FOLDER
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from skillbelt.format.skill import Skill
from skillbelt.scan.scanner import scan_skill
from skillbelt.values import SKILL_FILE


def find_folders(root: str) -> Iterator[str]:
    """Yield every folder with a SKILL.md."""
    for folder, _, files in os.walk(root):
        if SKILL_FILE in files:
            yield folder


def measure(root: str) -> tuple[list[float], Counter[str]]:
    """Scan every skill once; return the milliseconds of each, sorted, and the levels."""
    times: list[float] = []
    levels: Counter[str] = Counter()
    for folder in find_folders(root):
        skill = Skill.from_folder(folder)
        start = time.process_time()
        levels[scan_skill(skill).level] += 1
        times.append((time.process_time() - start) * 1000)
    return sorted(times), levels


def main() -> int:
    """Print the median, the 99th percentile and the longest."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    times, levels = measure(sys.argv[1])
    if not times:
        print("there is no skill below that folder")
        return 1
    middle, late = times[len(times) // 2], times[len(times) * 99 // 100]
    print(
        f"{len(times):,} skills: median {middle:.1f} ms, 99 % {late:.0f} ms, most {times[-1]:.0f}"
    )
    print("levels:", ", ".join(f"{name} {number}" for name, number in levels.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
