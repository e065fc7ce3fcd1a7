"""The benchmark of whole runs measures what it says, as somebody who is not root."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long  # it measures; what it measures has tests of its own

ROOT = Path(__file__).parents[1]


def test_it_measures_a_whole_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--json", "--runs=5"],
        cwd=ROOT, capture_output=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["name"], row["bar"]) == ("whole run", 2.0)
    assert row["value"] > 0.1
