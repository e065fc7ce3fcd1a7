"""Faults among runs, once each with twenty runs; `make bench-fleet` has more, and a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import fleet_faults
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


def test_rounds_that_are_in_the_file_are_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the missing one is made, with its own seed, and is added."""
    made: list[str] = []

    def make(plan: fleet_faults.Plan, done: set[str]) -> Iterator[tuple[str, fleet_faults.Round]]:
        seeds = [plan.seed_of(number, fault) for number in plan.numbers for fault in plan.faults]
        made.extend(seed for seed in seeds if seed not in done)
        for seed in seeds:
            if seed not in done:
                yield seed, fleet_faults.Round("server", 190, 0, 10, 0, 0, 0, 0, 0, 0)

    monkeypatch.setattr(fleet_faults, "run_rounds", make)
    words = ["--faults", "server", "--results", str(tmp_path / "results.json")]
    assert main([*words, "--times", "2"]) == 0
    assert main([*words, "--times", "3"]) == 0
    assert made == [f"local 200 17 {number} server" for number in range(3)]
    assert "| local: server | 3 | 600 | 570 | 0 | 30 | 3 |" in capsys.readouterr().out
