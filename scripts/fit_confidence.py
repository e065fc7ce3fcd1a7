"""Fit how sure a search is: `python -m scripts.fit_confidence --pool DIR --labelled FILE`.

The labelled set is JSON lines of `query` and `relevant`, a list of names that may be empty. Each
query is asked twice: of the whole pool, and of the pool without the right skills, where no result
is right. Prints the coefficients for `search/confidence.py` and the area under the curve, with what
was fitted and with what ships. Fit on the skills of some publishers and measure on those of others:
`--holdout TEXT` leaves out queries whose right skill lies in a folder with that text, and measures
on them. Without a pool the made-up skills of `benchmarks/data/search.json` are used: enough to see
that fitting works, too few to ship what comes out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from math import exp
from pathlib import Path
from typing import NamedTuple

from benchmarks.search import catalog, made_up

from skillbelt.format.skill import Skill
from skillbelt.search.confidence import SHIPPED, inputs
from skillbelt.search.engine import Searcher
from skillbelt.search.evaluate import Labelled, area_under_curve, read_labelled

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
            yield Row(inputs(figures), skill.name in right, not place, held)


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


def gather(pool: Path, labelled: Sequence[Labelled], holdout: str = "") -> list[Row]:
    """Ask every request of a pool of skills."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as cache:
        made = catalog(str(pool.resolve()), cache)
        made.index_for_search()
        skills = dict(made.current())
        for one in labelled:
            places = [skills[name].location for name in one.relevant if name in skills]
            held = bool(holdout) and any(holdout in place for place in places)
            rows += rows_of(made.searcher, skills, one.query, one.relevant, held)
        made.close()
    return rows


def area(rows: Iterable[Row], weights: Sequence[float]) -> float:
    """Return the area under the curve of the first results."""
    first = [(probability(weights, row.values), row.right) for row in rows if row.first]
    return area_under_curve(first)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--pool", help="a folder of skills; the made-up ones if there is none")
    parser.add_argument("--labelled", help="JSON lines of query and relevant")
    parser.add_argument("--holdout", default="", help="measure on skills in folders with this text")
    args = parser.parse_args(arguments)
    if bool(args.pool) != bool(args.labelled):
        parser.error("--pool and --labelled belong together")
    if args.pool:
        rows = gather(Path(args.pool), read_labelled(args.labelled, allow_none=True), args.holdout)
    else:
        with tempfile.TemporaryDirectory() as folder:
            rows = gather(Path(folder), made_up(Path(folder)), args.holdout)
    learnt = [row for row in rows if not row.held_out]
    weights = fit(learnt)
    print(
        "offset, lead, share, named, words, begun, excluded:",
        *(f"{weight:.3f}" for weight in weights),
    )
    for name, some in (("learnt", learnt), ("held out", [row for row in rows if row.held_out])):
        if some:
            print(f"area under the curve, {name}: {area(some, weights):.3f}")
            print(f"area under the curve, {name}, as it ships: {area(some, SHIPPED):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
