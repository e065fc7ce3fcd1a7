from __future__ import annotations

from benchmarks.fleet_store import measure_appends, measure_pages


def test_appends_stand_beside_a_bare_loop(postgres_url: str) -> None:
    found = measure_appends(postgres_url, rounds=2, count=2, writers=2)
    assert found.keys() == {"bare_per_second", "appends_per_second", "ratio"}
    assert min(found.values()) > 0


def test_pages_are_measured(postgres_url: str) -> None:
    small = measure_pages(postgres_url, 3000)
    assert small["sessions"] == 3000
    assert small["peak_mb"] < 16
