"""Raise the best candidates whose text has words side by side as the request has them.

The index knows which words a skill has, not where. "Route leak" says more of a text than "route"
in one place and "leak" in another, so the texts of the few best candidates are read.
design/search.md describes the gain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from skillbelt.search.lexical import EXCLUDED, is_excluded
from skillbelt.search.protocol import Ranked
from skillbelt.search.query import Query
from skillbelt.search.text import text_of
from skillbelt.search.words import numbers, runs

_HEAD = 5  # candidates that are read
_MOST_CHARS = 20_000  # of a text
# Of two words: what has less is common ("how many"), and side by side all others are rare enough.
_LEAST_RARITY, _MOST_RARITY = 2.5, 5.0
_WEIGHT = 6.0
# A form of a word: without its ending, with another one. What is no word does no harm.
_ENDING = re.compile(rb"(?<=...)(?:ies|es|s|ed|ing|e|y)\Z")
_ENDINGS = (b"", b"e", b"s", b"es", b"ed", b"ing", b"y", b"ies")
# Maps letters to small ones and signs to blanks. What is not ASCII stays as it is.
_TO_WORDS = bytes(
    n if n > 127 else ord(chr(n).lower()) if chr(n).isalnum() else 0x20 for n in range(256)
)

# Two words that follow each other, by their numbers. None stands for a word not in the request.
_Phrase: TypeAlias = tuple[int | None, int | None]


def raise_phrases(asked: Query, ranked: Sequence[Ranked]) -> list[Ranked]:
    """Return the candidates in their new order; only the best few may change places."""
    head = ranked[:_HEAD]
    spelt = runs(asked.text) if len(head) > 1 else []
    terms = [(*numbers(run), 0)[0] for run in spelt]
    phrases = _phrases(asked, terms)
    if not phrases:
        return list(ranked)
    forms = _forms(phrases, dict(zip(terms, spelt, strict=True)))
    wanted, factor = frozenset(phrases), _WEIGHT / asked.scale
    found: list[Ranked] = []
    for one in head:
        more = factor * sum(map(phrases.__getitem__, _said(one, forms, wanted)))
        if is_excluded(asked, one.candidate):
            more *= EXCLUDED
        found.append(one._replace(score=one.score + more, gained=one.gained + more))
    found.sort(key=lambda one: -one.score)
    found += ranked[_HEAD:]
    return found


def _phrases(asked: Query, terms: Sequence[int]) -> dict[_Phrase, float]:
    """Return the words that follow each other in the request, with what they weigh."""
    words, found = asked.words, dict[_Phrase, float]()
    for one, other in pairwise(terms):
        if one in words and other in words and one != other:
            rare = words[one].rarity + words[other].rarity
            if rare > _LEAST_RARITY:
                found[one, other] = min(rare, _MOST_RARITY) - _LEAST_RARITY
    return found


def _forms(phrases: Iterable[_Phrase], spelt: Mapping[int, str]) -> dict[bytes, int]:
    """Return the number of each form of the words in the phrases."""
    found: dict[bytes, int] = {}
    for term in {term for pair in phrases for term in pair if term is not None}:
        word = spelt[term].lower().encode("utf-8", "replace")
        found[word] = term
        left = _ENDING.sub(b"", word)
        for ending in _ENDINGS:
            found.setdefault(left + ending, term)
    return found


def _said(
    one: Ranked, forms: Mapping[bytes, int], wanted: frozenset[_Phrase]
) -> frozenset[_Phrase]:
    """Return the phrases that the skill's text has."""
    text = text_of(one.skill)[:_MOST_CHARS].encode("utf-8", "replace")
    return wanted.intersection(pairwise(map(forms.get, text.translate(_TO_WORDS).split())))
