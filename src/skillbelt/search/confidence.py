"""How likely the skill that was found is the one that is meant.

The score orders the results of one request and says nothing by itself: the best of many wrong
skills has one too. The confidence is a logistic function of four figures, which
`scripts/fit_confidence.py` fits; design/search.md has the data and how good it is. It is calibrated
for requests of which every second one is answered by a skill of the catalogue.
"""

from __future__ import annotations

from math import exp, log1p
from operator import mul
from typing import Literal, NamedTuple

# `noise`: no skill fits the request, or others fit far better.
Strength = Literal["strong", "fair", "weak", "noise"]

# Of the figures, in their order. Long requests share less with any skill.
_COEFFICIENTS = (0.394, 4.48, 0.81, 1.08)
_RULED_OUT = -1.5  # if the request names a skill in order to rule it out: it asks about scope
_OFFSET = -7.39
_MOST_LEAD = 20.0
_STRONG, _FAIR = 0.6, 0.3
_LEAST = 0.045  # of the best result; below it no skill fits the request
_KEYWORDS = 3  # so few words name what is sought, and say little more
_LEAST_RATIO = 0.5  # of the best score
_LEAST_SHARE = 0.1


class Certainty(NamedTuple):
    """What the confidence of a result depends on."""

    lead: float  # of its score before the best other one's
    share: float  # of the request that the skill has, by the weight of the words
    named: float  # of the skill's name that the request has
    words: int  # of the request


def inputs(figures: Certainty) -> tuple[float, float, float, float]:
    """Return the figures as they enter the function, each for one coefficient."""
    lead = max(-_MOST_LEAD, min(figures.lead, _MOST_LEAD))
    return lead, figures.share, figures.named, log1p(figures.words)


def confidence(figures: Certainty, *, ruled_out: bool = False) -> float:
    """Return the probability, from 0 to 1, that the skill is meant.

    `ruled_out`: the request names a skill that is not meant.
    """
    weighted = sum(map(mul, _COEFFICIENTS, inputs(figures)))
    return 1.0 / (1.0 + exp(-(_OFFSET + weighted + _RULED_OUT * ruled_out)))


def any_fits(best: float, words: int) -> bool:
    """Whether a skill fits the request, by the confidence of the best one."""
    return best >= _LEAST or words <= _KEYWORDS


def strength_of(confidence: float, ratio: float, share: float) -> Strength:
    """Return the word for a result; `ratio` is its score to the best one's."""
    if ratio < _LEAST_RATIO or share < _LEAST_SHARE:
        return "noise"
    if confidence >= _STRONG:
        return "strong"
    return "fair" if confidence >= _FAIR else "weak"
