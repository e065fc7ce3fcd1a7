from __future__ import annotations

import pytest
from benchmarks.fleet_runs import missed

MET = {"throughput_ratio": 0.9, "two_nodes_ratio": 1.8, "added_median_ms": 15.0}


def test_figures_at_their_bars_meet_them() -> None:
    assert missed(MET) == []


@pytest.mark.parametrize(
    ("name", "figure"),
    [("throughput_ratio", 0.899), ("two_nodes_ratio", 1.79), ("added_median_ms", 15.1)],
)
def test_a_figure_beyond_its_bar_is_named(name: str, figure: float) -> None:
    assert [sentence.split()[0] for sentence in missed({**MET, name: figure})] == [name]
