"""Fold near copies of a skill into one result: the same skill from ten forks is one answer."""

from __future__ import annotations

from collections.abc import Iterable

from skillbelt.search.lexical import Candidate
from skillbelt.search.protocol import Ranked

# Two skills that share so much of their words are one.
ALIKE = 0.8
# The words with the smallest numbers are a random sample, the same for every skill: if two skills
# share few of them, they share few of all.
_LOTS = 32
_LOTS_ALIKE = 0.5


def fold(ranked: Iterable[Ranked], limit: int) -> list[tuple[Ranked, list[Ranked]]]:
    """Return the best `limit` skills in order, each with its near copies."""
    groups: list[tuple[Ranked, list[Ranked]]] = []
    drawn: list[frozenset[int]] = []
    for one in ranked:
        lots = frozenset(one.candidate.terms[:_LOTS])
        near = (group for group, others in zip(groups, drawn, strict=True) if _near(lots, others))
        same = next((g for g in near if alike(one.candidate, g[0].candidate)), None)
        if same is not None:
            same[1].append(one)
        elif len(groups) < limit:
            groups.append((one, []))
            drawn.append(lots)
    return groups


def _near(one: frozenset[int], other: frozenset[int]) -> bool:
    return len(one & other) >= _LOTS_ALIKE * len(one)


def alike(one: Candidate, other: Candidate) -> bool:
    """Whether two documents are nearly the same."""
    smaller, larger = sorted((len(one.terms), len(other.terms)))
    if smaller < ALIKE * larger:
        return False
    shared = len(set(one.terms).intersection(other.terms))
    return shared >= ALIKE * (smaller + larger - shared)
