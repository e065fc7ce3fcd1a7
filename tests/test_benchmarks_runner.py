"""The report on runners measures what it says."""

from __future__ import annotations

import json

import pytest
from benchmarks import runner

pytestmark = pytest.mark.long  # it measures; what it measures has tests of its own


def row(name: str, ratio: float) -> runner.Row:
    return runner.Row(name, 0.001, 0.001, ratio)


def test_the_bar_is_about_our_turns_alone() -> None:
    assert runner.passed([row(runner.PEERS[0], 9.0), row(runner.OURS[0], 1.5)])
    assert not runner.passed([row(runner.OURS[0], 1.0), row(runner.OURS[1], 1.6)])


def test_a_miss_is_told() -> None:
    assert "MISSED" in runner.table([row(runner.OURS[0], 1.6)])
    assert "(ok)" in runner.table([row(runner.OURS[0], 1.4)])


def test_every_way_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    runner.main(["--rounds", "3", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in rows] == [*runner.PEERS, *runner.OURS]
    assert all(one["cpu"] > 0 for one in rows)
