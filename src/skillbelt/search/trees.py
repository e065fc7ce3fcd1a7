"""Refine the order of the best candidates with a few decision trees.

The score of `lexical.py` is a weighted sum, in which each feature counts by itself. The trees
correct it for the best candidates. They also compare a candidate with the others: how far is it
behind the best one in each feature? `scripts/fit_ranking.py` fits the trees and writes
`trees.json`; design/search.md describes the data and the gain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache
from heapq import nlargest
from importlib.resources import files
from math import log1p
from operator import sub
from typing import TypeAlias

from skillbelt.search.lexical import (
    EXCLUDED,
    RARE_TEXT,
    RARE_TOLD,
    Candidate,
    add_up,
    is_excluded,
    weigh_pairs,
)
from skillbelt.search.protocol import Ranked
from skillbelt.search.query import Query
from skillbelt.untrusted_json import read_json

HEAD = 20  # candidates that are refined, and the least number
# What `describe` returns, in order. Each is followed by its distance to the best candidate's, then
# come the distance of the score, the score, and the number of words of the request.
FEATURES = (
    "description", "text", "text covered", "description covered", "beginning", "name pairs",
    "rarest told", "rarest", "beginning told", "name covered", "text length", "told",
    "name missing",
)  # fmt: skip
_RAREST = 3  # words of the description

# A leaf, or a feature, a threshold, and the nodes for values up to it and above it.
Node: TypeAlias = "float | tuple[int, float, Node, Node]"


def refine(asked: Query, ranked: list[Ranked]) -> list[Ranked]:
    """Return the candidates with the best ones in a better order.

    A score only grows, so the others stay behind. A few candidates stay as they are: the trees were
    learnt where there were many, and with few the distances to the best one mean something else.
    """
    if len(ranked) < HEAD:
        return ranked
    head = []
    for one, values in zip(ranked, describe_all(asked, ranked[:HEAD]), strict=False):
        more = gain(values) * (EXCLUDED if is_excluded(asked, one.candidate) else 1.0)
        head.append(one._replace(score=one.score + more, gained=more))
    head.sort(key=lambda one: (-one.score, one.skill.name))
    return head + ranked[HEAD:]


def gain(values: Sequence[float], trees: Iterable[Node] | None = None) -> float:
    """Return what the trees add to the score of a candidate."""
    total = 0.0
    for node in shipped() if trees is None else trees:
        while type(node) is tuple:
            feature, threshold, low, high = node
            node = low if values[feature] <= threshold else high
        total += node  # type: ignore[operator]  # a leaf
    return total


def describe_all(asked: Query, ranked: Sequence[Ranked]) -> list[list[float]]:
    """Return the values that the trees look at, for each candidate."""
    words = asked.words
    rarest = sorted(words, key=lambda term: -words[term].rarity)
    rows = [describe(asked, one, rarest) for one in ranked]
    best = list(map(max, zip(*rows, strict=True)))
    highest = max((one.score for one in ranked), default=0.0)
    count = float(len(words))
    return [
        [*row, *map(sub, row, best), one.score - highest, one.score, count]
        for row, one in zip(rows, ranked, strict=True)
    ]


def describe(asked: Query, one: Ranked, rarest: Iterable[int]) -> tuple[float, ...]:
    """Return the features of one candidate. `rarest`: the words of the request, rarest first."""
    candidate, facts = one.candidate, one.candidate.facts
    sums = one.sums or add_up(asked, candidate)
    shared = next((term for term in rarest if _has(candidate, term)), None)
    scale = asked.scale
    return (
        sums.said / scale,
        sums.text / scale,
        sums.covered / (facts.text + RARE_TEXT),
        sums.about / (facts.told + RARE_TOLD),
        sums.begun,
        weigh_pairs(asked, one.skill.name, sums.names),
        sum(nlargest(_RAREST, sums.told)),
        0.0 if shared is None else asked.words[shared].rarity,
        sums.begun_told,
        sums.named / (facts.named + 1.0),
        log1p(candidate.length),
        log1p(facts.told),
        facts.named - sums.named,
    )


def _has(candidate: Candidate, term: int) -> bool:
    place = bisect_left(candidate.terms, term)
    return place < len(candidate.terms) and candidate.terms[place] == term


@cache
def shipped() -> tuple[Node, ...]:
    """Return the trees that ship with the package."""
    data = read_json(files("skillbelt.search").joinpath("trees.json").read_bytes())
    return tuple(map(_node, data["trees"]))


def _node(data: object) -> Node:
    if isinstance(data, list):
        feature, threshold, low, high = data
        return int(feature), float(threshold), _node(low), _node(high)
    return float(str(data))
