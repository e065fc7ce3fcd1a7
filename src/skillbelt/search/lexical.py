"""The ranking by words: how much of the request a skill speaks of, and how much of the skill the
request speaks of.

The second half is what long requests need. A page about a task has a few words of every long
skill; a skill whose name and text are nearly all in the request is meant. The weights were fitted
on tasks and test prompts of public skills, see docs/performance.md.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from itertools import compress
from math import log1p
from typing import NamedTuple

from skillbelt.search.document import DESCRIBED, HEADED, LEVELS, NAMED, TEXT
from skillbelt.search.query import Query
from skillbelt.search.statistics import USUAL_DESCRIPTION, USUAL_LENGTH, Facts, saturated


class Weights(NamedTuple):
    """The weight of each feature. Fitted; see docs/performance.md."""

    description: float = -3.43
    description_rare: float = 1.54
    text: float = 0.83
    name_covered: float = 3.82
    text_covered: float = 1.12
    text_alike: float = 1.27
    best_described: float = 2.31
    request_described: float = 3.14
    headings_alike: float = -2.02
    kind_named: float = 2.5


class Candidate(NamedTuple):
    """A document that may answer a request."""

    id: int
    terms: array[int]
    codes: bytes
    described: int
    length: int
    facts: Facts


WEIGHTS = Weights()
_TEXT_K, _TEXT_B = 4.0, 0.95
_TOLD_K, _TOLD_B = 1.2, 0.75
_BEST = 3  # words of a description
_EXCLUDED = 0.1
_LOGS = tuple(log1p(level) for level in LEVELS)


@lru_cache(maxsize=4096)
def _weigh_count(length: int) -> tuple[float, ...]:
    """Return the weight of each level of a count in a text of that length."""
    below = saturated(length, USUAL_LENGTH, _TEXT_K, _TEXT_B)
    return tuple(level * (_TEXT_K + 1.0) / (level + below) for level in LEVELS)


@lru_cache(maxsize=4096)
def _weigh_description(length: int) -> tuple[float, ...]:
    """Return the same for a description, which has only three levels."""
    below = saturated(length, USUAL_DESCRIPTION, _TOLD_K, _TOLD_B)
    return tuple(n * (_TOLD_K + 1.0) / (n + below) for n in range(4))


class Hit(NamedTuple):
    """A word that the request and a document share."""

    term: int
    code: int


def hits(asked: Query, candidate: Candidate) -> list[Hit]:
    """Return the words they share."""
    terms = candidate.terms
    shared = compress(
        zip(terms, candidate.codes, strict=True), map(asked.words.__contains__, terms)
    )
    return list(map(Hit._make, shared))


def score(asked: Query, candidate: Candidate, weights: Weights = WEIGHTS) -> float:
    """Score a document for the request; comparable within one request only.

    A skill that the request names in order to rule it out comes last.
    """
    found = _score(asked, candidate, weights)
    return found * _EXCLUDED if is_excluded(asked, candidate) else found


def is_excluded(asked: Query, candidate: Candidate) -> bool:
    """Whether the request names the skill in order to rule it out."""
    if not asked.excluded:
        return False
    terms, codes = candidate.terms, candidate.codes
    named = frozenset(term for term, code in zip(terms, codes, strict=True) if code >> NAMED & 1)
    return named in asked.excluded


def _score(asked: Query, candidate: Candidate, weights: Weights) -> float:
    words = asked.words
    terms = candidate.terms
    counted, told = _weigh_count(candidate.length), _weigh_description(candidate.described)
    kinds = asked.kinds
    text = covered = alike = named = headed = said = rarely = kind = 0.0
    described: list[float] = []
    shared = compress(zip(terms, candidate.codes, strict=True), map(words.__contains__, terms))
    for term, code in shared:
        rare, weight, in_description = words[term]
        level = code & TEXT
        if level:
            text += weight * counted[level]
            covered += rare
            alike += rare * weight * _LOGS[level]
        if code > TEXT:
            times = code >> DESCRIBED & 3
            if times:
                described.append(weight)
                said += weight * told[times]
                rarely += in_description * told[times]
            if code >> NAMED & 1:
                named += rare
                if term in kinds:
                    kind += rare
            if code >> HEADED:
                headed += rare * weight
    facts, scale, norm = candidate.facts, asked.scale, asked.norm
    described.sort(reverse=True)
    return (
        (weights.text * text + weights.description * said + weights.description_rare * rarely)
        / scale
        + weights.text_covered * covered / (facts.text + 3.0)
        + (weights.name_covered * named + weights.kind_named * kind) / (facts.named + 1.0)
        + weights.text_alike * alike / ((facts.text_norm + 1e-6) * norm)
        + weights.headings_alike * headed / ((facts.headed_norm + 1e-6) * norm)
        + weights.best_described * sum(described[:_BEST]) / 10.0
        + weights.request_described * 3.0 * sum(described) / (asked.total + 1e-9)
    )
