"""Near copies of one skill folded into one result: the same skill from ten forks is one answer."""

from __future__ import annotations

from collections.abc import Iterable

from skillbelt.search.lexical import Candidate
from skillbelt.search.protocol import Ranked

# Two skills that share so much of their words are one.
ALIKE = 0.8
# The words with the smallest numbers are as good as drawn by lot, the same lot for every skill.
_SKETCH = 32
_SKETCH_ALIKE = 0.6


def fold(ranked: Iterable[Ranked], limit: int) -> list[tuple[Ranked, list[Ranked]]]:
    """The best `limit` skills in order, each with its near copies among those given."""
    groups: list[tuple[Ranked, list[Ranked]]] = []
    sketches: list[frozenset[int]] = []
    for one in ranked:
        sketch = frozenset(one.candidate.terms[:_SKETCH])
        for place, other in enumerate(sketches):
            if _sketches_alike(sketch, other) and alike(one.candidate, groups[place][0].candidate):
                groups[place][1].append(one)
                break
        else:
            if len(groups) < limit:
                groups.append((one, []))
                sketches.append(sketch)
    return groups


def _sketches_alike(one: frozenset[int], other: frozenset[int]) -> bool:
    return len(one & other) >= _SKETCH_ALIKE * max(len(one), len(other))


def alike(one: Candidate, other: Candidate) -> bool:
    """Whether two documents say nearly the same."""
    smaller, larger = sorted((len(one.terms), len(other.terms)))
    if smaller < ALIKE * larger:
        return False
    shared = len(set(one.terms).intersection(other.terms))
    return shared >= ALIKE * (smaller + larger - shared)
