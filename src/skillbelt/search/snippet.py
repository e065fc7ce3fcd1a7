"""Explain why a skill was found: the best matching field, and the words there."""

from __future__ import annotations

import re
from collections.abc import Iterable

from skillbelt.search.document import DESCRIBED, HEADED, NAMED, TEXT
from skillbelt.search.lexical import Candidate, hits
from skillbelt.search.protocol import Field, Strength
from skillbelt.search.query import Query
from skillbelt.text import one_line, shorten

SNIPPET_CHARS = 160
_NAMED_SHARE = 0.6  # of a name's weight that must be asked for
_DESCRIBED_SHARE = 0.4  # of what the text has of the request
_MOST_WORDS = 8  # of the request that are looked for
_MOST_PLACES = 4  # where each is looked for
# Chosen by looking at the results of requests whose right skill was known; no probability.
_LEAST_RATIO = 0.5
_LEAST_SHARE = 0.1
_USUAL_SHARE = 0.3  # of a result that is not near the best one
_SHORT_REQUEST = 12  # words; a page has many that no skill has
_NEAR_THE_BEST = 0.8
_WELL_DESCRIBED = 0.3
_NEARLY_ALL = 0.75
_HALF = 0.5
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")


class Reason:
    """Where a candidate has the words of a request."""

    def __init__(self, asked: Query, candidate: Candidate) -> None:
        self._asked, self._candidate = asked, candidate
        self._hits = hits(asked, candidate)

    def field(self) -> Field:
        """Return the field that matches best."""
        words = self._asked.words
        named = sum(words[term].rarity for term, code in self._hits if code >> NAMED & 1)
        if named and named >= _NAMED_SHARE * self._candidate.facts.named:
            return "name"
        described = self._weight(3 << DESCRIBED)
        text = self._weight(TEXT)
        if described and described >= _DESCRIBED_SHARE * text:
            return "description"
        return "heading" if self._weight(1 << HEADED) >= _DESCRIBED_SHARE * text > 0 else "text"

    def _weight(self, mask: int) -> float:
        return sum(self._asked.words[term].weight for term, code in self._hits if code & mask)

    def strength(self, ratio: float) -> Strength:
        """Return how much of the request the candidate has; `ratio` is its score to the best one's.

        Shares are of the words of the request, weighted by how rare they are.
        """
        total = self._asked.total + 1e-9
        share = sum(self._asked.words[term].weight for term, _ in self._hits) / total
        described = self._weight(3 << DESCRIBED | 1 << NAMED) / total
        near = ratio >= _NEAR_THE_BEST
        least = _LEAST_SHARE if near or len(self._asked.words) > _SHORT_REQUEST else _USUAL_SHARE
        if ratio < _LEAST_RATIO or share < least:
            return "noise"
        near = near and described >= _WELL_DESCRIBED
        if near and share >= _NEARLY_ALL:
            return "strong"
        return "fair" if near or share >= _HALF else "weak"

    def words(self) -> list[str]:
        """Return the rarest matching words, as they are spelt in the request."""
        words, spelt = self._asked.words, self._asked.spelt
        ordered = sorted((term for term, _ in self._hits), key=lambda term: -words[term].weight)
        return list(dict.fromkeys(spelt[term].lower() for term in ordered[:_MOST_WORDS]))


def snippet(text: str, wanted: Iterable[str]) -> str:
    """Return the sentence or line with most of the words; the first one if none has any."""
    beginnings = [_beginning(word) for word in wanted]
    small = text.lower()
    best, most = _SENTENCE.split(text.strip(), maxsplit=1)[0] if text.strip() else "", 0
    for start, end in _places(small, beginnings):
        count = sum(word in small[start:end] for word in beginnings)
        if count > most:
            best, most = text[start:end], count
    return shorten(one_line(best.strip(" \t#>*-|")), SNIPPET_CHARS)


def _beginning(word: str) -> str:
    """Return the prefix that a word shares with its other forms."""
    return word[: max(4, len(word) - 3)]


def _places(text: str, beginnings: Iterable[str]) -> Iterable[tuple[int, int]]:
    """Return the lines with one of the words, or the part of a long line around it."""
    for word in beginnings:
        at = -1
        for _ in range(_MOST_PLACES):
            at = text.find(word, at + 1)
            if at < 0:
                break
            yield _around(text, at)


def _around(text: str, at: int) -> tuple[int, int]:
    """Return the line there; of a long line the part around the place, cut between words."""
    first, last = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    last = len(text) if last < 0 else last
    if last - first <= SNIPPET_CHARS:
        return first, last
    start = max(first, at - SNIPPET_CHARS // 2)
    if start > first:
        start = text.find(" ", start, at) + 1 or at
    end = min(last, start + SNIPPET_CHARS)
    if end < last:
        end = max(text.rfind(" ", at, end), at + 1)
    return start, end
