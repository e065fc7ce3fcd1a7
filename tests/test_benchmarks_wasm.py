"""The benchmark of the WASM sandbox measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox import guests

pytestmark = pytest.mark.long  # it measures; what it measures has tests of its own

ROOT = Path(__file__).parents[1]


@pytest.mark.long
def test_it_measures_every_bar() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.wasm", "--json", "--runs=2", "--many=5",
         f"--cache={guests.hosts().cache_dir}"],
        cwd=ROOT, capture_output=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert set(rows) == {
        "python", "compiled", "deadline", "next", "memory", "handles", "files", "processes",
    }  # fmt: skip
    assert rows["python"]["value"] > 0
    assert rows["compiled"]["value"] > 0
    assert 1 <= rows["deadline"]["value"] < 30
    assert rows["handles"]["value"] == rows["processes"]["value"] == 0
