"""Raise the best candidates whose text has words side by side as the request has them.

The index knows which words a skill has, not where. "route leak" means more in a text than "route"
here and "leak" there, so the texts of the few best candidates are read again.
design/search.md describes the gain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from skillbelt.search.lexical import EXCLUDED, is_excluded
from skillbelt.search.protocol import Ranked
from skillbelt.search.query import Query
from skillbelt.search.stem import stem
from skillbelt.search.text import text_of
from skillbelt.search.words import numbers, runs

_HEAD = 5  # candidates that are read
_MOST_CHARS = 40_000  # of a text
_MOST_RARITY = 5.0  # of two words together: that they stand side by side is rare enough
_WEIGHT = 3.5
# What may follow a stem. A form that is no word does no harm.
_ENDINGS = ("", "e", "s", "es", "ed", "ing", "ion", "ions", "ation", "y", "ies")
# Maps all but letters and digits to blanks. What is not ASCII stays as it is.
_TO_WORDS = bytes(
    n | 0x20 if chr(n).isupper() and n < 128 else n if n > 127 or chr(n).isalnum() else 0x20
    for n in range(256)
)


def raise_phrases(asked: Query, ranked: Sequence[Ranked]) -> list[Ranked]:
    """Return the candidates in their new order; only the best few may change places."""
    found, tail = list(ranked[:_HEAD]), ranked[_HEAD:]
    phrases = _phrases(asked) if len(found) > 1 else {}
    if phrases:
        forms, factor = _forms(asked, phrases), _WEIGHT / asked.scale
        for place, one in enumerate(found):
            said = _said(one, forms).intersection(phrases)
            more = factor * sum(map(phrases.__getitem__, said))
            if is_excluded(asked, one.candidate):
                more *= EXCLUDED
            found[place] = one._replace(score=one.score + more, gained=one.gained + more)
        found.sort(key=lambda one: -one.score)
    return [*found, *tail]


def _phrases(asked: Query) -> dict[tuple[int, int], float]:
    """Return the words that follow each other in the request, with what they weigh."""
    words = asked.words
    terms = [(*numbers(run), 0)[0] for run in runs(asked.text)]
    return {
        pair: min(words[pair[0]].rarity + words[pair[1]].rarity, _MOST_RARITY)
        for pair in pairwise(terms)
        if pair[0] in words and pair[1] in words and pair[0] != pair[1]
    }


def _forms(asked: Query, phrases: Mapping[tuple[int, int], float]) -> dict[bytes, int]:
    """Return the number of each form of the words in the phrases."""
    found: dict[bytes, int] = {}
    for term in {term for pair in phrases for term in pair}:
        spelt = asked.spelt[term].lower()
        found[spelt.encode()] = term
        if spelt.isascii() and spelt.isalpha():
            for form in _inflected(stem(spelt)):
                found.setdefault(form.encode(), term)
    return found


def _inflected(stemmed: str) -> Iterator[str]:
    left = stemmed[:-1] if stemmed.endswith("i") else stemmed
    for ending in _ENDINGS:
        yield left + ending


def _said(one: Ranked, forms: Mapping[bytes, int]) -> set[tuple[int | None, int | None]]:
    """Return the words that follow each other in the skill's text; None stands for others."""
    text = text_of(one.skill)[:_MOST_CHARS].encode("utf-8", "replace")
    return set(pairwise(map(forms.get, text.translate(_TO_WORDS).split())))
