"""Fit how sure a search is: `python -m scripts.fit_confidence --pool DIR --labelled FILE`.

The labelled set is JSON lines of `query` and `relevant`, a list of names that may be empty. Each
query is asked twice: of the whole pool, and of the pool without the right skills, where no result
is right. Prints the coefficients for `search/confidence.py` and the area under the curve. Fit on
the skills of some publishers and measure on those of others: `--holdout TEXT` leaves out queries
whose right skill lies in a folder with that text, and measures on them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from math import exp
from pathlib import Path
from typing import NamedTuple

from benchmarks.search import catalog

from skillbelt.format.skill import Skill
from skillbelt.search.confidence import inputs
from skillbelt.search.engine import Searcher
from skillbelt.untrusted_json import read_json

_ROUNDS = 25
_RIDGE = 1e-3
_SEEN = 3  # results of a query that are learnt from


class Row(NamedTuple):
    """One result: what its confidence depends on, and whether it is right."""

    values: tuple[float, ...]
    right: bool
    first: bool
    held_out: bool


def rows_of(
    searcher: Searcher, skills: Mapping[str, Skill], query: str, right: frozenset[str], held: bool
) -> Iterable[Row]:
    """Yield the first results for a query, with and without the right skills in the pool."""
    for pool in (skills, {name: skills[name] for name in skills if name not in right}):
        for place, (figures, skill) in enumerate(searcher.figures(query, pool, _SEEN)):
            yield Row((1.0, *inputs(figures)), skill.name in right, not place, held)


def probability(weights: Sequence[float], values: Sequence[float]) -> float:
    """Return the logistic function of the weighted sum."""
    return 1.0 / (1.0 + exp(-sum(a * b for a, b in zip(weights, values, strict=True))))


def fit(rows: Sequence[Row]) -> list[float]:
    """Return the weights, by Newton's method; right and wrong results weigh the same in sum."""
    count = len(rows[0].values)
    weights = [0.0] * count
    right = sum(row.right for row in rows)
    shares = {True: 0.5 / max(right, 1), False: 0.5 / max(len(rows) - right, 1)}
    for _ in range(_ROUNDS):
        gradient = [-_RIDGE * weight for weight in weights]
        curve = [[_RIDGE * (i == j) for j in range(count)] for i in range(count)]
        for row in rows:
            guess, share = probability(weights, row.values), shares[row.right]
            for i, value in enumerate(row.values):
                gradient[i] += share * (row.right - guess) * value
                for j, other in enumerate(row.values):
                    curve[i][j] += share * guess * (1.0 - guess) * value * other
        weights = [a + b for a, b in zip(weights, solve(curve, gradient), strict=True)]
    return weights


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve linear equations by elimination."""
    table = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i in range(len(table)):
        best = max(range(i, len(table)), key=lambda j: abs(table[j][i]))
        table[i], table[best] = table[best], table[i]
        for j in range(len(table)):
            if j != i:
                factor = table[j][i] / table[i][i]
                table[j] = [a - factor * b for a, b in zip(table[j], table[i], strict=True)]
    return [line[-1] / line[i] for i, line in enumerate(table)]


def area(scores: Sequence[tuple[float, bool]]) -> float:
    """Return how often a right result has more than a wrong one; a tie counts half."""
    right = [score for score, is_right in scores if is_right]
    wrong = [score for score, is_right in scores if not is_right]
    wins = sum((a > b) + 0.5 * (a == b) for a in right for b in wrong)
    return wins / max(len(right) * len(wrong), 1)


def main() -> int:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--pool", required=True, help="a folder of skills")
    parser.add_argument("--labelled", required=True, help="JSON lines of query and relevant")
    parser.add_argument("--holdout", help="measure on skills in folders with this text")
    args = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as cache:
        made = catalog(str(Path(args.pool).resolve()), cache)
        made.index_for_search()
        skills = dict(made.current())
        for line in Path(args.labelled).read_text("utf-8").splitlines():
            entry = read_json(line)
            right = frozenset(entry["relevant"])
            places = [skills[name].location for name in right if name in skills]
            held = bool(args.holdout) and any(args.holdout in place for place in places)
            rows += rows_of(made.searcher, skills, entry["query"], right, held)
        made.close()
    learnt = [row for row in rows if not row.held_out]
    weights = fit(learnt)
    print("offset, lead, share, named, words:", *(f"{weight:.3f}" for weight in weights))
    for name, some in (("learnt", learnt), ("held out", [row for row in rows if row.held_out])):
        first = [(probability(weights, row.values), row.right) for row in some if row.first]
        if first:
            print(f"area under the curve, {name}: {area(first):.3f} ({len(first)} results)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
