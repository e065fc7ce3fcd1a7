"""The ranking by words: how much of the request a skill speaks of, and how much of the skill the
request speaks of.

The second half is what long requests need. A page about a task has a few words of every long
skill; a skill whose name and description are nearly all in the request is meant. A request begins
with what it is about, so its first words count most. The weights were fitted on tasks and test
prompts of public skills, see design/search.md.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from itertools import compress, pairwise
from math import log1p
from typing import NamedTuple

from skillbelt.search.document import DESCRIBED, LEVELS, NAMED, TEXT
from skillbelt.search.query import Query
from skillbelt.search.statistics import USUAL_DESCRIPTION, USUAL_LENGTH, Facts, saturated
from skillbelt.search.words import ids


class Weights(NamedTuple):
    """The weight of each feature. Fitted; see design/search.md."""

    description: float = 0.386
    text: float = 0.595
    text_covered: float = 52.2
    told_covered: float = 6.90
    begun: float = 5.10
    whole_name: float = 1.06
    name_words: float = 0.576
    name_pairs: float = 0.384
    kind_named: float = 2.95
    long_description: float = 1.49


class Candidate(NamedTuple):
    """A document that may answer a request."""

    id: int
    terms: array[int]
    codes: bytes
    described: int
    length: int
    facts: Facts


WEIGHTS = Weights()
_TOLD = 3 << DESCRIBED | 1 << NAMED
_TEXT_K, _TEXT_B = 4.0, 0.95
_TOLD_K, _TOLD_B = 1.2, 0.75
_RARE_TEXT, _RARE_TOLD = 200.0, 40.0  # added to a text's weight, so that a few words are no text
_WHOLE = 0.99
_SHORT_DESCRIPTION, _LONG_DESCRIPTION = 5, 200  # words; more than the second add nothing
_EXCLUDED = 0.1
_IS_NAMED = bytes(code >> NAMED & 1 for code in range(256))
UNRELATED = 3.0  # the score of a usual skill that has hardly a word of the request


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


def score(asked: Query, candidate: Candidate, name: str = "", weights: Weights = WEIGHTS) -> float:
    """Score a document for the request; comparable within one request only.

    A skill that the request names in order to rule it out comes last.
    """
    found = _score(asked, candidate, weights)
    if not found:
        return 0.0
    if asked.pairs and name:
        found += weights.name_pairs * _paired(asked, name)
    return found * _EXCLUDED if is_excluded(asked, candidate) else found


@lru_cache(maxsize=4096)
def _name_pairs(name: str) -> tuple[tuple[int, int], ...]:
    return tuple(pairwise(ids(name)))


def _paired(asked: Query, name: str) -> float:
    """Weigh the words of a name that follow each other in the request too."""
    words, found = asked.words, 0.0
    for pair in filter(asked.pairs.__contains__, _name_pairs(name)):
        low, high = sorted(words[term].rarity for term in pair)
        found += low + high / 2.0
    return found


def is_excluded(asked: Query, candidate: Candidate) -> bool:
    """Whether the request names the skill in order to rule it out."""
    if not asked.excluded:
        return False
    named = frozenset(compress(candidate.terms, candidate.codes.translate(_IS_NAMED)))
    return named in asked.excluded


def _score(asked: Query, candidate: Candidate, weights: Weights) -> float:
    words, kinds = asked.words, asked.kinds
    terms, facts = candidate.terms.tolist(), candidate.facts
    counted, told = _weigh_count(candidate.length), _weigh_description(candidate.described)
    text = covered = named = said = about = begun = kind = 0.0
    names = 0
    shared = compress(zip(terms, candidate.codes, strict=True), map(words.__contains__, terms))
    for term, code in shared:
        rare, weight, in_description, early = words[term]
        begun += early
        level = code & TEXT
        if level:
            text += weight * counted[level]
            covered += rare
        if code & _TOLD:
            about += rare
            said += in_description * told[code >> DESCRIBED & 3]
            if code >> NAMED & 1:
                named += rare
                names += 1
                if term in kinds:
                    kind += rare
    if not begun:
        return 0.0
    length = min(candidate.described, _LONG_DESCRIPTION)
    return (
        (weights.text * text + weights.description * said) / asked.scale
        + weights.text_covered * covered / (facts.text + _RARE_TEXT)
        + weights.told_covered * about / (facts.told + _RARE_TOLD)
        + weights.begun * begun
        + weights.whole_name * (named >= _WHOLE * facts.named > 0.0)
        + weights.name_words * log1p(names)
        + weights.kind_named * kind / (facts.named + 1.0)
        + weights.long_description * log1p(length / _SHORT_DESCRIPTION)
    )
