from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.evals.statistics import paired_difference, rate_of, spread_of
from tests.examples import examples


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    # From Wilson's formula, by hand.
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (1, 1, 0.2065, 1.0)],
)
def test_the_interval_of_wilson(hits: int, total: int, low: float, high: float) -> None:
    rate = rate_of(hits, total)
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=1e-4)


@settings(max_examples=examples(200))
@given(st.integers(0, 500), st.integers(1, 500))
def test_an_interval_holds_its_rate_and_stays_a_share(hits: int, total: int) -> None:
    rate = rate_of(min(hits, total), total)
    assert rate.rate is not None
    assert 0.0 <= rate.low <= rate.rate <= rate.high <= 1.0


def test_nothing_measured_is_no_rate() -> None:
    assert rate_of(0, 0).rate is None
    assert str(rate_of(0, 0)) == "-"


def test_a_difference_of_pairs_is_the_same_each_time() -> None:
    pairs = [(1.0, 0.0), (1.0, 1.0), (0.5, 0.0), (0.0, 0.5)]
    first = paired_difference(pairs)
    assert first is not None
    assert first == paired_difference(pairs)
    assert first.mean == 0.25
    assert first.low < 0.25 < first.high
    assert paired_difference([]) is None


def test_a_difference_without_doubt() -> None:
    assert paired_difference([(1.0, 0.0)] * 5) == (1.0, 1.0, 1.0)


def test_the_spread_of_a_sample() -> None:
    assert spread_of([1.0, 3.0]) == (2.0, 1.4142, 1.0, 3.0)
    assert spread_of([]) == (0.0, 0.0, 0.0, 0.0)
