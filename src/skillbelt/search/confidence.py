"""Estimate the probability that a search result is the skill that the user means.

A score only orders the results of one request; the best of many wrong skills has a score too. The
confidence is a logistic function of six features, fitted by `scripts/fit_confidence.py`. It is
calibrated for a mix in which a skill of the catalogue answers every second request.
design/search.md describes the data and the quality.
"""

from __future__ import annotations

from math import exp, log1p
from operator import mul
from typing import Literal

from skillbelt.records import NamedTuple

# `noise`: no skill fits the request, or others fit far better.
Strength = Literal["strong", "fair", "weak", "noise"]

# The offset, then a coefficient for each feature. The fit balances right and wrong results; the
# offset is 0.2 lower because, with every second request meant for a skill, more first results are
# wrong than right. The last one alone was fitted later, with the others as they are.
SHIPPED = (-4.32, 0.492, 1.033, 0.555, 0.5, 1.494, -14.0)
_RULED_OUT = -1.5  # added if the request names a skill in order to rule it out
_MOST_LEAD = 20.0
_STRONG, _FAIR = 0.6, 0.3
_LEAST = 0.085  # of the best result; below it no skill fits the request
_KEYWORDS = 3  # a request of so few words is a list of keywords
_FAR = -5.0  # behind the best score
_LEAST_SHARE = 0.1


class Certainty(NamedTuple):
    """The features that the confidence of a result depends on."""

    lead: float  # of its score over the best other score, both by the words alone
    share: float  # of the request that the skill has, by the weight of the words
    named: float  # of the skill's name that the request has
    words: int  # of the request
    begun: float  # share of the beginning of the request that the name or description has
    excluded: float = 0.0  # share of the request that the description says it is not for


def inputs(figures: Certainty) -> tuple[float, ...]:
    """Return the inputs of the logistic function, one for each coefficient."""
    lead = max(-_MOST_LEAD, min(figures.lead, _MOST_LEAD))
    _, share, named, words, begun, excluded = figures
    return 1.0, lead, share, named, log1p(words), begun, excluded


def confidence(figures: Certainty, *, ruled_out: bool = False) -> float:
    """Return the probability, from 0 to 1, that the skill is meant.

    `ruled_out`: the request names a skill that is not meant.
    """
    weighted = sum(map(mul, SHIPPED, inputs(figures)))
    return 1.0 / (1.0 + exp(-(weighted + _RULED_OUT * ruled_out)))


def any_fits(best: float, words: int) -> bool:
    """Return whether any skill fits the request, by the confidence of the best one."""
    return best >= _LEAST or words <= _KEYWORDS


def strength_of(confidence: float, figures: Certainty) -> Strength:
    """Return the strength of a result as a word."""
    if figures.lead < _FAR or figures.share < _LEAST_SHARE:
        return "noise"
    if confidence >= _STRONG:
        return "strong"
    return "fair" if confidence >= _FAIR else "weak"
