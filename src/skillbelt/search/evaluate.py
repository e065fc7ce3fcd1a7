"""Measure the quality of search with requests whose right answers are known."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from math import log2

from skillbelt.check.folder import UnusableFile, read
from skillbelt.errors import ConfigError
from skillbelt.format.skill import Skill
from skillbelt.records import NamedTuple
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import read_json

DEPTH = 20  # results that a measure considers
_MOST_BYTES = 64 * 2**20
_DRAWS = 1_000
_SEED = 20
_TAIL = 0.025  # of the draws that lie outside the interval, on either side


class Labelled(NamedTuple):
    """A request and the names of the skills that answer it.

    If none does: `kind` says of what kind the request is, and `near` names skills that it may be
    mistaken for.
    """

    query: str
    relevant: frozenset[str]
    kind: str = ""
    near: frozenset[str] = frozenset()


class Measure(NamedTuple):
    """A mean over all requests, and the interval it lies in with a confidence of 95 %."""

    mean: float
    low: float
    high: float


class SearchReport(NamedTuple):
    """Every measure by its name, the hit rate among the first 1 to 20 results, and the misses.

    `misses` lists the requests whose first result was wrong, with that result.
    """

    requests: int
    measures: Mapping[str, Measure]
    hits: Sequence[float]
    misses: Sequence[tuple[str, str]]


def read_labelled(path: str, *, allow_none: bool = False) -> list[Labelled]:
    """Read a labelled set from JSON lines or one JSON list; ConfigError if it is neither.

    Each entry is an object with `query`, a text, and `relevant`, a list of names. `allow_none`: the
    list may be empty, for a request that no skill answers; then `kind`, a text, and `near`, a list
    of names, may describe it.
    """
    try:
        text = read(path, _MOST_BYTES).data.decode("utf-8-sig")
        listed = text.lstrip().startswith("[")
        rows = read_json(text) if listed else [read_json(x) for x in text.splitlines() if x.strip()]
    except (UnusableFile, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as a labelled set: {error}") from None
    made = [
        _labelled(row, f"{path}: entry {place}", allow_none) for place, row in enumerate(rows, 1)
    ]
    if not made:
        raise ConfigError(f"{path}: there is no request in it")
    return made


def _labelled(row: object, where: str, allow_none: bool) -> Labelled:
    wanted = '{"query": "...", "relevant": ["name"]}'
    query = row.get("query") if isinstance(row, dict) else None
    relevant = row.get("relevant") if isinstance(row, dict) else None
    named = isinstance(relevant, list) and (relevant or allow_none)
    if not isinstance(query, str) or not isinstance(relevant, list) or not named:
        raise ConfigError(f"{where} is not of the form {wanted}")
    if not all(isinstance(name, str) for name in relevant):
        raise ConfigError(f"{where}: relevant must be a list of names")
    kind, near = (row.get("kind", ""), row.get("near", [])) if isinstance(row, dict) else ("", [])
    if not isinstance(kind, str):
        raise ConfigError(f"{where}: kind must be a text")
    if not isinstance(near, list) or not all(isinstance(name, str) for name in near):
        raise ConfigError(f"{where}: near must be a list of names")
    return Labelled(query, frozenset(relevant), kind, frozenset(near))


def as_named(labelled: Sequence[Labelled], skills: Mapping[str, Skill]) -> list[Labelled]:
    """Return the set with the names that the catalogue gives the skills.

    A label may also be a skill's folder, or its name as the file spells it, if only one has it.
    """
    others: dict[str, set[str]] = {}
    for skill in skills.values():
        for other in (skill.title, os.path.basename(os.path.dirname(skill.location))):
            others.setdefault(other, set()).add(skill.name)

    def name_of(label: str) -> str:
        found = others.get(label, ())
        return label if label in skills or len(found) != 1 else next(iter(found))

    return [
        one._replace(
            relevant=frozenset(map(name_of, one.relevant)), near=frozenset(map(name_of, one.near))
        )
        for one in labelled
    ]


def evaluate(
    labelled: Sequence[Labelled], find: Callable[[str], Sequence[frozenset[str]]]
) -> SearchReport:
    """Measure what a search returns for each request.

    `find` gives the results in order, each as the names it stands for: its own and its variants'.
    """
    ranks, misses = [], []
    for one in labelled:
        found = find(one.query)[:DEPTH]
        ranks.append(_Ranks(one.relevant, found))
        if not ranks[-1].hit(1):
            given = ", ".join(sorted(found[0])) if found else "nothing"
            misses.append((shorten(one_line(one.query), 80), given))
    measures = {
        name: mean_with_interval([measure(rank) for rank in ranks])
        for name, measure in MEASURES.items()
    }
    hits = [sum(rank.hit(depth) for rank in ranks) / len(ranks) for depth in range(1, DEPTH + 1)]
    return SearchReport(len(ranks), measures, hits, misses)


class _Ranks:
    """The ranks of the relevant skills; each counts once, at its first place."""

    def __init__(self, relevant: frozenset[str], found: Sequence[frozenset[str]]) -> None:
        self._relevant, self._new = len(relevant), list[int]()
        left = set(relevant)
        for names in found:
            self._new.append(len(left & names))
            left -= names

    def hit(self, depth: int) -> float:
        return float(any(self._new[:depth]))

    def recall(self, depth: int) -> float:
        return sum(self._new[:depth]) / self._relevant

    def reciprocal(self, depth: int) -> float:
        return next((1 / rank for rank, new in enumerate(self._new[:depth], 1) if new), 0.0)

    def gain(self, depth: int) -> float:
        got = sum(bool(new) / log2(rank + 1) for rank, new in enumerate(self._new[:depth], 1))
        best = sum(1 / log2(rank + 1) for rank in range(1, min(self._relevant, depth) + 1))
        return got / best


MEASURES: Mapping[str, Callable[[_Ranks], float]] = {
    "Hit@1": lambda ranks: ranks.hit(1),
    "MRR@10": lambda ranks: ranks.reciprocal(10),
    "Recall@10": lambda ranks: ranks.recall(10),
    "Recall@20": lambda ranks: ranks.recall(20),
    "nDCG@10": lambda ranks: ranks.gain(10),
}


def mean_with_interval(values: Sequence[float]) -> Measure:
    """Return the mean with a bootstrap interval; the same values give the same interval."""
    draw = random.Random(_SEED)
    means = sorted(sum(draw.choices(values, k=len(values))) / len(values) for _ in range(_DRAWS))
    low, high = means[int(_TAIL * _DRAWS)], means[int((1 - _TAIL) * _DRAWS) - 1]
    return Measure(sum(values) / len(values), low, high)


def area_under_curve(scores: Sequence[tuple[float, bool]]) -> float:
    """Return how often a right result has a higher score than a wrong one; a tie counts half."""
    ordered = sorted(scores)
    wins = below = 0.0
    for _, tied in groupby(ordered, key=lambda one: one[0]):
        rights = [is_right for _, is_right in tied]
        wrong = rights.count(False)
        wins += rights.count(True) * (below + wrong / 2.0)
        below += wrong
    return wins / max((len(ordered) - below) * below, 1.0)
