"""Fold near copies of a skill into one result: the same skill from ten forks is one result."""

from __future__ import annotations

from collections.abc import Iterable, Set

from skillbelt.search.lexical import Candidate
from skillbelt.search.protocol import Ranked

# Two skills that share this part of their words are near copies.
ALIKE = 0.8
# The words with the smallest numbers are a random sample, the same for every skill: if two skills
# share few of them, they share few of all.
_SAMPLE = 32
_SAMPLES_ALIKE = 0.5


def fold(ranked: Iterable[Ranked], limit: int) -> list[tuple[Ranked, list[Ranked]]]:
    """Return the best `limit` skills in order, each with its near copies."""
    groups: list[tuple[Ranked, list[Ranked]]] = []
    samples: list[frozenset[int]] = []
    seen: set[int] = set()  # the words of all samples
    for one in ranked:
        sample = frozenset(one.candidate.terms[:_SAMPLE])
        same = None
        if _near(sample, seen):
            near = (
                group
                for group, others in zip(groups, samples, strict=True)
                if _near(sample, others)
            )
            same = next((g for g in near if alike(one.candidate, g[0].candidate)), None)
        if same is not None:
            same[1].append(one)
        elif len(groups) < limit:
            groups.append((one, []))
            samples.append(sample)
            seen |= sample
    return groups


def _near(one: frozenset[int], other: Set[int]) -> bool:
    return len(one & other) >= _SAMPLES_ALIKE * len(one)


def alike(one: Candidate, other: Candidate) -> bool:
    """Whether two documents are nearly the same."""
    smaller, larger = sorted((len(one.terms), len(other.terms)))
    if smaller < ALIKE * larger:
        return False
    shared = len(set(one.terms).intersection(other.terms))
    return shared >= ALIKE * (smaller + larger - shared)
