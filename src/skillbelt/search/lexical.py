"""Score documents by the words that they share with a request.

Two directions count: how much of the request a skill covers, and how much of the skill the request
covers. Long requests need the second: a page about a task shares some words with every long skill,
so the right one is a skill whose name and description are nearly all in the request. The first
words of a request count most. The weights were fitted on tasks and test prompts of public skills;
see design/search.md.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container, Sequence
from functools import lru_cache
from itertools import pairwise
from math import log1p

from skillbelt.records import NamedTuple
from skillbelt.search.document import DESCRIBED, LEVELS, NAMED, TEXT
from skillbelt.search.query import Query
from skillbelt.search.statistics import USUAL_DESCRIPTION, USUAL_LENGTH, Facts, saturated
from skillbelt.search.words import ids


class Weights(NamedTuple):
    """The weight of each feature. Fitted, but for that of the pairs; see design/search.md."""

    description: float = 0.386
    text: float = 0.595
    text_covered: float = 52.2
    told_covered: float = 6.90
    begun: float = 5.10
    whole_name: float = 1.06
    name_words: float = 0.576
    name_pairs: float = 0.2
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
TOLD = 3 << DESCRIBED | 1 << NAMED  # bits of a code: the name or the description has the word
_TEXT_K, _TEXT_B = 4.0, 0.95
_TOLD_K, _TOLD_B = 1.2, 0.75
RARE_TEXT, RARE_TOLD = 200.0, 40.0  # added to the sums, so that very short texts gain little
_WHOLE = 0.99
_SHORT_DESCRIPTION, _LONG_DESCRIPTION = 5, 200  # words; more than the second add nothing
EXCLUDED = 0.1  # factor of the score of a skill that is ruled out
_IS_NAMED = bytes(code >> NAMED & 1 for code in range(256))
# Looking up one word costs about as much as reading so many words of a document.
_LOOKUP_COST = 9
UNRELATED = 3.0  # typical score of a skill that shares hardly any word with the request


@lru_cache(maxsize=4096)
def weigh_count(length: int) -> tuple[float, ...]:
    """Return the weight of each level of a count in a text of that length."""
    below = saturated(length, USUAL_LENGTH, _TEXT_K, _TEXT_B)
    return tuple(level * (_TEXT_K + 1.0) / (level + below) for level in LEVELS)


@lru_cache(maxsize=4096)
def _weigh_description(length: int) -> tuple[float, ...]:
    """Return the same for a description, which has only three levels."""
    below = saturated(length, USUAL_DESCRIPTION, _TOLD_K, _TOLD_B)
    return tuple(n * (_TOLD_K + 1.0) / (n + below) for n in range(4))


def hits(asked: Query, candidate: Candidate) -> list[tuple[int, int]]:
    """Return the number and the code of each word that a request and a document share."""
    return look_up(asked.words, asked.by_number, candidate)


def look_up(
    words: Container[int], order: Sequence[int], candidate: Candidate
) -> list[tuple[int, int]]:
    """Return the number and the code of each of these words that a document has, by number.

    A few words are looked up in the document; many are found by reading it once. `order`: the words
    in the order of their numbers.
    """
    terms, codes = candidate.terms, candidate.codes
    if len(order) * _LOOKUP_COST > len(terms):
        return [(term, code) for term, code in zip(terms, codes, strict=True) if term in words]
    places = [(word, bisect_left(terms, word)) for word in order]
    end = len(terms)
    return [(word, codes[at]) for word, at in places if at < end and terms[at] == word]


def compare(
    asked: Query, candidate: Candidate, name: str = "", weights: Weights = WEIGHTS
) -> tuple[float, Sums]:
    """Score a document for the request, and return also the sums that the score is made of.

    Scores compare within one request only. A skill that the request names in order to rule it out
    comes last.
    """
    sums = add_up(asked, candidate)
    found = _score(asked, candidate, name, weights, sums)
    return (found * EXCLUDED if found and is_excluded(asked, candidate) else found), sums


@lru_cache(maxsize=4096)
def _name_pairs(name: str) -> tuple[tuple[int, int], ...]:
    return tuple(pairwise(ids(name)))


def weigh_pairs(asked: Query, name: str, names: int) -> float:
    """Weigh the words of a name that follow each other in the request too.

    `names`: how many words of the name the request has; a name is taken apart only if two can
    follow each other.
    """
    if names < 2 or not asked.pairs:
        return 0.0
    words, found = asked.words, 0.0
    for pair in filter(asked.pairs.__contains__, _name_pairs(name)):
        low, high = sorted(words[term].rarity for term in pair)
        found += low + high / 2.0
    return found


def is_excluded(asked: Query, candidate: Candidate) -> bool:
    """Return whether the request names the skill in order to rule it out."""
    if not asked.excluded:
        return False
    flags = candidate.codes.translate(_IS_NAMED)
    place, named = flags.find(1), list[int]()
    while place >= 0:
        named.append(candidate.terms[place])
        place = flags.find(1, place + 1)
    return frozenset(named) in asked.excluded


class Sums(NamedTuple):
    """Sums over the words that a request and a document share."""

    text: float  # counts in the text, weighted
    covered: float  # rarity of the words in the text
    said: float  # counts in the description, weighted
    about: float  # rarity of the words in the name or the description
    named: float  # rarity of the words in the name
    names: int  # number of words in the name
    begun: float  # share of the beginning of the request
    kind: float  # rarity of the words in the name that are kinds of documents
    begun_told: float  # share of the beginning that the name or the description has
    told: Sequence[float]  # rarity of each word in the name or the description


def add_up(asked: Query, candidate: Candidate) -> Sums:
    """Sum over the shared words."""
    words, kinds = asked.words, asked.kinds
    counted, told = weigh_count(candidate.length), _weigh_description(candidate.described)
    text = covered = named = said = begun = begun_told = kind = 0.0
    names = 0
    rarities: list[float] = []
    for term, code in hits(asked, candidate):
        rare, weight, in_description, early = words[term]
        begun += early
        level = code & TEXT
        if level:
            text += weight * counted[level]
            covered += rare
        if code & TOLD:
            rarities.append(rare)
            begun_told += early
            said += in_description * told[code >> DESCRIBED & 3]
            if code >> NAMED & 1:
                named += rare
                names += 1
                if term in kinds:
                    kind += rare
    about = sum(rarities)
    return Sums(
        text=text,
        covered=covered,
        said=said,
        about=about,
        named=named,
        names=names,
        begun=begun,
        kind=kind,
        begun_told=begun_told,
        told=rarities,
    )


def _score(asked: Query, candidate: Candidate, name: str, weights: Weights, sums: Sums) -> float:
    facts = candidate.facts
    text, covered, said, about, named, names, begun, kind, *_ = sums
    if not begun:
        return 0.0
    paired = weigh_pairs(asked, name, names)
    length = min(candidate.described, _LONG_DESCRIPTION)
    return (
        (weights.text * text + weights.description * said) / asked.scale
        + weights.text_covered * covered / (facts.text + RARE_TEXT)
        + weights.told_covered * about / (facts.told + RARE_TOLD)
        + weights.begun * begun
        + weights.whole_name * (named >= _WHOLE * facts.named > 0.0)
        + weights.name_words * log1p(names)
        + weights.name_pairs * paired
        + weights.kind_named * kind / (facts.named + 1.0)
        + weights.long_description * asked.brevity * log1p(length / _SHORT_DESCRIPTION)
    )
