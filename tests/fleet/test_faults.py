"""Faults among runs, once each with twenty runs; `make bench-fleet` has more of both."""

from __future__ import annotations

import os

import pytest
from benchmarks.fleet_faults import LOCAL_FAULTS, RAY_FAULTS, main, run_rounds

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.getuid() != 0, reason="a small disk is mounted by root alone"),
]


def test_runs_on_one_machine_survive_every_fault() -> None:
    for one in run_rounds("local", LOCAL_FAULTS, times=1, runs=20, seed=1):
        assert one.holds, (one.fault, one.details)
        assert one.results > 0, (one.fault, one.details)


def test_runs_on_two_nodes_survive_every_fault() -> None:
    for one in run_rounds("ray", RAY_FAULTS, times=1, runs=20, seed=1):
        assert one.holds, (one.fault, one.details)
        assert one.results > 0, (one.fault, one.details)


def test_an_unknown_fault_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--executor", "local", "--faults", "node"])
    assert "no such fault: node" in capsys.readouterr().err
