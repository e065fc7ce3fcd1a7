"""The benchmark of the sandbox measures what it says, as somebody who is not root."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.sandbox import Row, as_json, table

pytestmark = pytest.mark.long  # it measures; what it measures has tests of its own

ROOT = Path(__file__).parents[1]


def test_it_measures_all_three_bars() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sandbox", "--json", "--runs=3", "--rounds=2",
         "--stream-bytes=1000000"],
        cwd=ROOT, capture_output=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert set(rows) == {"overhead", "throughput", "growth"}
    assert rows["overhead"]["value"] > 0.1
    assert rows["throughput"]["value"] > 0.1
    assert 0 <= rows["growth"]["value"] < 32


def test_more_is_better_for_throughput_alone() -> None:
    rows = [Row("throughput", 1.0, 0.9, "x", ""), Row("overhead", 1.7, 1.6, "x", "")]
    assert [row.passed for row in rows] == [True, False]
    assert [row["passed"] for row in json.loads(as_json(rows))] == [True, False]
    assert table(rows).splitlines()[1].startswith("MISS overhead")
