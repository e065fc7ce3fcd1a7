from __future__ import annotations

from skillbelt.console.limits import AllowedRate, Buckets


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def test_a_bucket_is_empty_after_its_burst_and_fills_again() -> None:
    clock = Clock()
    buckets = Buckets(AllowedRate(3, 60), clock)
    assert [buckets.take("ada") for _ in range(4)] == [True, True, True, False]
    clock.time = 1.0
    assert [buckets.take("ada") for _ in range(2)] == [True, False]


def test_each_person_has_a_bucket() -> None:
    buckets = Buckets(AllowedRate(1, 1), Clock())
    assert buckets.take("ada")
    assert buckets.take("bob")
    assert not buckets.take("ada")


def test_a_bucket_holds_no_more_than_a_burst() -> None:
    clock = Clock()
    buckets = Buckets(AllowedRate(2, 60), clock)
    buckets.take("ada")
    clock.time = 1e6
    assert [buckets.take("ada") for _ in range(3)] == [True, True, False]
