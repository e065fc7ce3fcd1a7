"""Statistics of a document that are computed once, when it is indexed."""

from __future__ import annotations

from functools import lru_cache
from math import expm1, log1p

from skillbelt.records import NamedTuple
from skillbelt.search.document import DESCRIBED, LEVELS, NAMED, TEXT, Document
from skillbelt.search.idf import UNSEEN, rarity

# Typical lengths in words; a longer text must repeat a word more often for the same weight.
USUAL_LENGTH = 1100.0
USUAL_DESCRIPTION = 31.0
_TOLD = 3 << DESCRIBED | 1 << NAMED
_IMPACT_K, _IMPACT_B = 3.0, 0.9
_IMPACT_DESCRIBED, _IMPACT_NAMED = 2.0, 3.0
# The greatest impact just fits a byte.
_IMPACT_SCALE = 255 / (_IMPACT_K + 1.0 + _IMPACT_DESCRIBED + _IMPACT_NAMED)
_BUCKETS = 16  # of lengths between one doubling and the next


class Facts(NamedTuple):
    """Sums of the rarity of a document's words, by field.

    `told`: of the name and the description together.
    """

    named: float
    text: float
    told: float


def facts(made: Document) -> Facts:
    """Compute the sums over all words of a document."""
    weights = rarity().anywhere
    named = text = told = 0.0
    for term, code in zip(made.terms, made.codes, strict=True):
        weight = weights.get(term, UNSEEN)
        if code & TEXT:
            text += weight
        if code & _TOLD:
            told += weight
            if code >> NAMED & 1:
                named += weight
    return Facts(named, text, told)


def saturated(length: int, usual: float, k: float, b: float) -> float:
    """Return the BM25 length term: long texts and high counts gain less."""
    return k * (1.0 - b + b * length / usual)


def impacts(made: Document) -> bytes:
    """Return the impact of each word as a byte: precise enough to choose candidates."""
    return made.codes.translate(_table(round(_BUCKETS * log1p(made.length))))


@lru_cache(maxsize=512)
def _table(bucket: int) -> bytes:
    below = saturated(int(expm1(bucket / _BUCKETS)), USUAL_LENGTH, _IMPACT_K, _IMPACT_B)
    most = _IMPACT_K + 1.0
    counted = [level * most / (level + below) for level in LEVELS]
    return bytes(
        min(255, round(_IMPACT_SCALE * (counted[code & TEXT] + _bonus(code))))
        for code in range(256)
    )


def _bonus(code: int) -> float:
    described = _IMPACT_DESCRIBED if code >> DESCRIBED & 3 else 0.0
    return described + (_IMPACT_NAMED if code >> NAMED & 1 else 0.0)
