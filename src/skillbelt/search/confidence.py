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

# The offset, then a coefficient for each figure. Long requests share less with any skill. The
# offset is 0.8 lower than what fits as many right results as wrong ones: three of ten first results
# are right if every second request is for a skill of a large catalogue.
SHIPPED = (-3.96, 0.492, 1.86, 1.81, 0.344)
_RULED_OUT = -1.5  # if the request names a skill in order to rule it out: it asks about scope
_MOST_LEAD = 20.0
_STRONG, _FAIR = 0.6, 0.3
_LEAST = 0.085  # of the best result; below it no skill fits the request
_KEYWORDS = 3  # so few words name what is sought, and say little more
_FAR = -5.0  # behind the best score
_LEAST_SHARE = 0.1


class Certainty(NamedTuple):
    """What the confidence of a result depends on."""

    lead: float  # of its score before the best other one's
    share: float  # of the request that the skill has, by the weight of the words
    named: float  # of the skill's name that the request has
    words: int  # of the request


def inputs(figures: Certainty) -> tuple[float, float, float, float, float]:
    """Return the figures as they enter the function, each for one coefficient."""
    lead = max(-_MOST_LEAD, min(figures.lead, _MOST_LEAD))
    return 1.0, lead, figures.share, figures.named, log1p(figures.words)


def confidence(figures: Certainty, *, ruled_out: bool = False) -> float:
    """Return the probability, from 0 to 1, that the skill is meant.

    `ruled_out`: the request names a skill that is not meant.
    """
    weighted = sum(map(mul, SHIPPED, inputs(figures)))
    return 1.0 / (1.0 + exp(-(weighted + _RULED_OUT * ruled_out)))


def any_fits(best: float, words: int) -> bool:
    """Whether a skill fits the request, by the confidence of the best one."""
    return best >= _LEAST or words <= _KEYWORDS


def strength_of(confidence: float, figures: Certainty) -> Strength:
    """Return the word for a result."""
    if figures.lead < _FAR or figures.share < _LEAST_SHARE:
        return "noise"
    if confidence >= _STRONG:
        return "strong"
    return "fair" if confidence >= _FAIR else "weak"
