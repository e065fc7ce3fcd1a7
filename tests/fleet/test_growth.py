from __future__ import annotations

import pytest
from benchmarks.fleet_growth import Figures, Station, grow, servers_for, simulate

FIGURES = Figures(
    run_seconds=0.04, server_seconds=0.004, append_seconds=0.002, appends_a_second=2_000
)


def test_one_station_is_as_quick_as_its_places() -> None:
    made = simulate([Station("nodes", 4, 0.1)], in_flight=8, jobs=2_000)
    assert made.throughput == pytest.approx(40, rel=0.03)
    assert made.use["nodes"] == pytest.approx(1, abs=0.03)


def test_the_slowest_station_is_the_limit_and_bounds_the_whole() -> None:
    way = [Station("servers", 1, 0.01), Station("nodes", 4, 0.1)]
    made = simulate(way, in_flight=40, jobs=2_000)
    assert made.limit == "nodes"
    assert made.throughput == pytest.approx(40, rel=0.05)
    assert simulate([Station("servers", 1, 0.1), way[1]], 40, 2_000).limit == "servers"


def test_a_station_that_is_passed_twice_shares_its_places() -> None:
    store = Station("store", 1, 0.01)
    made = simulate([store, Station("nodes", 100, 0.01), store], in_flight=50, jobs=2_000)
    assert made.throughput == pytest.approx(50, rel=0.05)


def test_few_nodes_are_the_limit_and_of_many_the_store() -> None:
    assert grow(FIGURES, 1, servers_for(FIGURES, 1)).limit == "nodes"
    many = grow(FIGURES, 100, servers_for(FIGURES, 100))
    assert many.limit == "store"
    assert many.throughput <= 1.05 * FIGURES.appends_a_second / 2


def test_the_same_seed_gives_the_same_fleet() -> None:
    assert grow(FIGURES, 2, 1) == grow(FIGURES, 2, 1)
