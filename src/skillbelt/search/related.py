"""Raise the candidates that share the subject of the best ones.

A task of a page often needs several skills, and says little about each. They resemble each other:
the rare words of the best candidates' texts lead to them although the request lacks those words.
design/search.md describes the gain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import nlargest
from math import exp

from skillbelt.search.document import TEXT
from skillbelt.search.idf import UNSEEN, rarity
from skillbelt.search.lexical import EXCLUDED, Candidate, is_excluded, look_up, weigh_count
from skillbelt.search.protocol import Ranked
from skillbelt.search.query import Query

_LEAST_WORDS = 25  # of a request; a shorter one has one subject, and says it
_BEST = 3  # candidates that the subject is taken from
_DECAY = 2.0  # of the score, after which one of them counts less by a factor of e
_WORDS = 20  # of the subject
_LEAST_RARITY = 1.5
_HEAD = 40  # candidates that may rise
_WEIGHT = 3.0


def relate(asked: Query, ranked: Sequence[Ranked]) -> list[Ranked]:
    """Return the candidates with the related ones in front of others; the first stays first."""
    if len(asked.words) < _LEAST_WORDS or len(ranked) <= _BEST:
        return list(ranked)
    subject = _subject(asked, ranked[:_BEST])
    if not subject:
        return list(ranked)
    weight, order = _WEIGHT / sum(subject.values()), sorted(subject)
    gains = [
        weight * _covered(subject, order, one.candidate)
        * (EXCLUDED if is_excluded(asked, one.candidate) else 1.0)
        for one in ranked[:_HEAD]
    ]  # fmt: skip
    gains[0] = max(gains)
    found = [
        one._replace(score=one.score + more, gained=one.gained + more)
        for one, more in zip(ranked, gains, strict=False)
    ]
    found += ranked[_HEAD:]
    found.sort(key=lambda one: -one.score)
    return found


def _subject(asked: Query, best: Sequence[Ranked]) -> dict[int, float]:
    """Return the words that are rare and frequent in the best candidates, with their weights."""
    known, words = rarity().anywhere, asked.words
    found: defaultdict[int, float] = defaultdict(float)
    for one in best:
        candidate = one.candidate
        share, counted = exp((one.score - best[0].score) / _DECAY), weigh_count(candidate.length)
        for term, code in zip(candidate.terms, candidate.codes, strict=True):
            if code & TEXT and term not in words:
                rare = known.get(term, UNSEEN)
                if rare > _LEAST_RARITY:
                    found[term] += share * rare * counted[code & TEXT]
    return dict(nlargest(_WORDS, found.items(), key=lambda item: (item[1], item[0])))


def _covered(subject: Mapping[int, float], order: Sequence[int], candidate: Candidate) -> float:
    """Return how often a candidate has the words of the subject, weighted."""
    counted = weigh_count(candidate.length)
    shared = look_up(subject, order, candidate)
    return sum(subject[term] * counted[code & TEXT] for term, code in shared)
