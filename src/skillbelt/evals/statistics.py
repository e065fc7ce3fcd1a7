"""Rates with intervals: Wilson's for shares, a seeded bootstrap for paired differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt

from skillbelt.records import NamedTuple
from skillbelt.search.evaluate import Measure, mean_with_interval

_Z = 1.959964  # 95 %


class Rate(NamedTuple):
    """Hits of a total, with Wilson's interval of 95 %. `rate` is None if the total is 0."""

    hits: int
    total: int
    rate: float | None
    low: float
    high: float

    def document(self) -> dict[str, object]:
        """Return the JSON document."""
        rounded = {key: round(getattr(self, key), 4) for key in ("low", "high")}
        rate = None if self.rate is None else round(self.rate, 4)
        return {"hits": self.hits, "total": self.total, "rate": rate, **rounded}

    def __str__(self) -> str:
        if self.rate is None:
            return "-"
        return f"{self.rate:.2f} ({self.low:.2f} to {self.high:.2f}, {self.hits} of {self.total})"


def rate_of(hits: int, total: int) -> Rate:
    """Return the share with Wilson's interval; it never leaves 0 to 1, also for few cases."""
    if not total:
        return Rate(hits=0, total=0, rate=None, low=0.0, high=1.0)
    share, square = hits / total, _Z * _Z
    middle = (share + square / (2 * total)) / (1 + square / total)
    half = _Z * sqrt(share * (1 - share) / total + square / (4 * total * total))
    half /= 1 + square / total
    low = 0.0 if hits == 0 else max(middle - half, 0.0)
    high = 1.0 if hits == total else min(middle + half, 1.0)
    return Rate(hits=hits, total=total, rate=share, low=low, high=high)


def count_rate(values: Iterable[bool]) -> Rate:
    """Return the share of those that are true."""
    every = list(values)
    return rate_of(sum(every), len(every))


def paired_difference(pairs: Sequence[tuple[float, float]]) -> Measure | None:
    """Return the mean of first minus second, with a bootstrap interval over the pairs.

    The draws are seeded: the same pairs give the same interval. None without a pair.
    """
    if not pairs:
        return None
    return mean_with_interval([one - other for one, other in pairs])


class Spread(NamedTuple):
    """The mean of some figures, and their spread."""

    mean: float
    stddev: float
    min: float
    max: float


def spread_of(values: Sequence[float]) -> Spread:
    """Return the mean, the deviation of a sample, the least and the most; zeros for none."""
    if not values:
        return Spread(0.0, 0.0, 0.0, 0.0)
    mean = sum(values) / len(values)
    squares = sum((one - mean) ** 2 for one in values)
    deviation = sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0
    return Spread(*(round(one, 4) for one in (mean, deviation, min(values), max(values))))
