"""Explain why a skill was found: the best matching field, and the words there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

from skillbelt.search.confidence import Certainty
from skillbelt.search.document import DESCRIBED, HEADED, NAMED, TEXT
from skillbelt.search.lexical import TOLD, Candidate, hits
from skillbelt.search.protocol import Field
from skillbelt.search.query import Query
from skillbelt.text import one_line, shorten

SNIPPET_CHARS = 160
_NAMED_SHARE = 0.6  # share of a name's weight that the request must have
_DESCRIBED_SHARE = 0.4  # share of the text's weight that a description or heading must have
_MOST_WORDS = 8  # words of the request that are searched for
_MOST_PLACES = 4  # places where each is searched for
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")


class Reason:
    """The lines of a candidate that have words of a request."""

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

    def figures(self, lead: float, excluded: Set[int] = frozenset()) -> Certainty:
        """Return what the confidence depends on; `lead`: before the best other score.

        `excluded`: the words of what the skill says that it is not for.
        """
        words, total = self._asked.words, self._asked.total + 1e-9
        named = sum(words[term].rarity for term, code in self._hits if code >> NAMED & 1)
        begun = sum(words[term].early for term, code in self._hits if code & TOLD)
        return Certainty(
            lead=lead,
            share=sum(words[term].weight for term, _ in self._hits) / total,
            named=named / (self._candidate.facts.named + 1.0),
            words=len(words),
            begun=begun,
            excluded=sum(words[term].weight for term in words.keys() & excluded) / total,
        )

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
        count = sum(map(small[start:end].__contains__, beginnings))
        if count > most:
            best, most = text[start:end], count
    return shorten(one_line(best.strip(" \t#>*-|")), SNIPPET_CHARS)


def _beginning(word: str) -> str:
    """Return the prefix that a word shares with its other forms."""
    return word[: max(4, len(word) - 3)]


def _places(text: str, beginnings: Iterable[str]) -> Iterable[tuple[int, int]]:
    """Yield each line with one of the words once, or the part of a long line around it."""
    seen: set[tuple[int, int]] = set()
    for word in beginnings:
        at = -1
        for _ in range(_MOST_PLACES):
            at = text.find(word, at + 1)
            if at < 0:
                break
            place = _around(text, at)
            if place not in seen:
                seen.add(place)
                yield place


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
