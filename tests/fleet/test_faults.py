"""Faults among runs, once each with twenty runs; `make bench-fleet` has more, and a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.fleet_faults import main

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(1200)
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a small disk: sudo make test-all")
def test_runs_on_one_machine_survive_every_fault() -> None:
    words = ["--executor", "local", "--times", "1", "--runs", "20", "--seed", "1"]
    command = [sys.executable, "-m", "benchmarks.fleet_faults", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_unknown_fault_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--executor", "local", "--faults", "node"])
    assert "no such fault: node" in capsys.readouterr().err
