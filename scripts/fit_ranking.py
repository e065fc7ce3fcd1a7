"""Fit the trees of search: `python -m scripts.fit_ranking --pool DIR --labelled FILE`.

The labelled set is JSON lines of `query`, `relevant` (a list of names) and `group`: who wrote the
request, such as the publisher of the skill. Boosted trees learn which of the best candidates of a
request are right, with the logistic loss. Rows of a group with many requests weigh less.

Prints Hit@1 and Recall@10 without and with the trees. Each group is measured with trees that were
learnt from other groups, and the intervals are those of a paired bootstrap over the groups.
`--test FILE` measures a set that nothing is learnt from. `--write FILE` writes the trees that are
learnt from all groups, for `src/skillbelt/search/trees.json`. The same input gives the same trees.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from typing import NamedTuple

from benchmarks.search import catalog

from skillbelt import Catalog
from skillbelt.search.evaluate import read_labelled
from skillbelt.search.near_copies import alike
from skillbelt.search.trees import HEAD, Node, describe_all, gain

TREES, LEAVES, RATE = 40, 8, 0.1
_LEAST_ROWS = 60  # of a leaf
_RIDGE = 5.0
_BINS = 63
_PARTS = 5  # in which the groups are divided
_LONG = 80  # words of a request that is a task
_DAMPING = -0.6  # exponent of a group's number of requests
_DEPTH = 10
_COMPARED = 40  # candidates in which near copies are folded
_DRAWS = 1_000


class Example(NamedTuple):
    """A request: its candidates in the order of the lexical score.

    `right` has the number of the right skill or zero, `same` the place of the first near copy, and
    `rows` the values of the head.
    """

    group: str
    long: bool
    wanted: int
    scores: list[float]
    right: list[int]
    same: list[int]
    rows: list[list[float]]


class Split(NamedTuple):
    """The best division of a leaf's rows."""

    gain: float
    feature: int
    bin: int


class Leaf(NamedTuple):
    """A leaf that may be divided; `path` is its place in the tree."""

    rows: list[int]
    path: tuple[int, ...]
    split: Split


def gather(made: Catalog, path: str) -> list[Example]:
    """Ask every request of a pool of skills."""
    lines = Path(path).read_text("utf-8").splitlines()
    groups = [str(json.loads(line).get("group", "")) for line in lines if line.strip()]
    skills = made.current()
    found = []
    for one, group in zip(read_labelled(path), groups, strict=True):
        asked, ranked = made.searcher.candidates(one.query, skills)
        ranked = ranked[:_COMPARED]
        names = sorted(one.relevant)
        answers = [
            (names.index(item.skill.name) + 1, item)
            for item in ranked
            if item.skill.name in one.relevant
        ]
        right, same = [], list[int]()
        for place, item in enumerate(ranked):
            copies = (n for n, answer in answers if alike(item.candidate, answer.candidate))
            right.append(next(copies, 0))
            near = (n for n in same if alike(item.candidate, ranked[n].candidate))
            same.append(next(near, place))
        found.append(
            Example(
                group=group,
                long=len(one.query.split()) >= _LONG,
                wanted=len(names),
                scores=[item.score for item in ranked],
                right=right,
                same=same,
                rows=describe_all(asked, ranked[:HEAD]),
            )
        )
    return found


def fit(examples: Sequence[Example]) -> list[Node]:
    """Return the trees."""
    sizes = Counter((one.group, one.long) for one in examples)
    rows: list[list[float]] = []
    right: list[bool] = []
    weights: list[float] = []
    for one in examples:
        labels = [bool(n) for n in one.right[:HEAD]]
        if any(labels) and not all(labels):
            rows += one.rows
            right += labels
            weights += [sizes[one.group, one.long] ** _DAMPING] * len(labels)
    mean = sum(weights) / len(weights)
    weights = [weight / mean for weight in weights]
    cuts = [_cuts(sorted({row[n] for row in rows})) for n in range(len(rows[0]))]
    bins = [bytes(bisect_left(edges, row[n]) for row in rows) for n, edges in enumerate(cuts)]
    share = sum(w for w, is_right in zip(weights, right, strict=True) if is_right) / len(weights)
    margins = [log(share / (1.0 - share))] * len(rows)
    trees = []
    for _ in range(TREES):
        guesses = [1.0 / (1.0 + exp(-margin)) for margin in margins]
        slopes = [w * (p - y) for w, p, y in zip(weights, guesses, right, strict=True)]
        curves = [w * p * (1.0 - p) for w, p in zip(weights, guesses, strict=True)]
        trees.append(_grow(bins, cuts, slopes, curves, margins))
    return trees


def _cuts(values: Sequence[float]) -> list[float]:
    """Return thresholds between the values, at most one less than there are bins."""
    step = max(len(values) / _BINS, 1.0)
    places = [int(step * n) for n in range(1, _BINS) if int(step * n) < len(values)]
    return sorted({float(f"{(values[n - 1] + values[n]) / 2:.5g}") for n in places})


def _grow(
    bins: Sequence[bytes],
    cuts: Sequence[Sequence[float]],
    slopes: Sequence[float],
    curves: Sequence[float],
    margins: list[float],
) -> Node:
    """Return one tree, grown at the best leaf first, and add it to the margins."""

    def leaf(rows: list[int], path: tuple[int, ...]) -> Leaf:
        return Leaf(rows, path, _best_split(bins, cuts, rows, slopes, curves))

    open_leaves = [leaf(list(range(len(margins))), ())]
    splits: dict[tuple[int, ...], Split] = {}
    while len(open_leaves) < LEAVES:
        best = max(open_leaves, key=lambda one: one.split.gain)
        if best.split.gain <= 0.0:
            break
        open_leaves.remove(best)
        splits[best.path] = best.split
        column, edge = bins[best.split.feature], best.split.bin
        for side in (0, 1):
            rows = [row for row in best.rows if (column[row] > edge) == bool(side)]
            open_leaves.append(leaf(rows, (*best.path, side)))
    values: dict[tuple[int, ...], float] = {}
    for one in open_leaves:
        slope, curve = sum(slopes[n] for n in one.rows), sum(curves[n] for n in one.rows)
        values[one.path] = -RATE * slope / (curve + _RIDGE)
        for row in one.rows:
            margins[row] += values[one.path]
    least = min(values.values())  # so that a score only grows

    def node(path: tuple[int, ...]) -> Node:
        split = splits.get(path)
        if split is None:
            return round(values[path] - least, 4)
        threshold = cuts[split.feature][split.bin]
        return split.feature, threshold, node((*path, 0)), node((*path, 1))

    return node(())


def _best_split(
    bins: Sequence[bytes],
    cuts: Sequence[Sequence[float]],
    rows: Sequence[int],
    slopes: Sequence[float],
    curves: Sequence[float],
) -> Split:
    best = Split(0.0, 0, 0)
    if len(rows) < 2 * _LEAST_ROWS:
        return best
    some_slopes, some_curves = [slopes[row] for row in rows], [curves[row] for row in rows]
    slope, curve = sum(some_slopes), sum(some_curves)
    before = slope * slope / (curve + _RIDGE)
    for feature, column in enumerate(bins):
        size = len(cuts[feature]) + 1
        by_slope, by_curve, by_count = [0.0] * size, [0.0] * size, [0] * size
        for row, one_slope, one_curve in zip(rows, some_slopes, some_curves, strict=True):
            place = column[row]
            by_slope[place] += one_slope
            by_curve[place] += one_curve
            by_count[place] += 1
        low_slope = low_curve = 0.0
        low_count = 0
        for edge in range(size - 1):
            low_slope += by_slope[edge]
            low_curve += by_curve[edge]
            low_count += by_count[edge]
            if not _LEAST_ROWS <= low_count <= len(rows) - _LEAST_ROWS:
                continue
            high_slope, high_curve = slope - low_slope, curve - low_curve
            gained = (
                low_slope * low_slope / (low_curve + _RIDGE)
                + high_slope * high_slope / (high_curve + _RIDGE)
                - before
            )
            if gained > best.gain:
                best = Split(gained, feature, edge)
    return best


class Quality(NamedTuple):
    """Whether the first result is right, and the share of the right skills among the first ten."""

    hit: float
    recall: float


def judge(one: Example, trees: Sequence[Node]) -> Quality:
    """Rank the candidates of a request with these trees; near copies count once."""
    scores = list(one.scores)
    for place, row in enumerate(one.rows):
        scores[place] += gain(row, trees)
    order = sorted(range(len(scores)), key=lambda n: -scores[n])
    shown = list(dict.fromkeys(one.same[n] for n in order))[:_DEPTH]
    numbers = [one.right[n] for n in shown]
    return Quality(float(bool(numbers and numbers[0])), len({*numbers} - {0}) / one.wanted)


def held_out(examples: Sequence[Example], seed: int) -> list[Quality]:
    """Measure each group with trees that are learnt from others."""
    groups = sorted({one.group for one in examples})
    random.Random(seed).shuffle(groups)
    part = {group: n % _PARTS for n, group in enumerate(groups)}
    trees = [fit([one for one in examples if part[one.group] != n]) for n in range(_PARTS)]
    return [judge(one, trees[part[one.group]]) for one in examples]


def compare(name: str, examples: Sequence[Example], after: Sequence[Quality]) -> None:
    """Print the means and the differences with their intervals over groups."""
    if not examples:
        return
    before = [judge(one, ()) for one in examples]
    groups = sorted({one.group for one in examples})
    places: dict[str, list[int]] = {}
    for n, one in enumerate(examples):
        places.setdefault(one.group if len(groups) > 1 else str(n), []).append(n)
    for title, field in (("Hit@1", 0), ("Recall@10", 1)):
        changes = [b[field] - a[field] for a, b in zip(before, after, strict=True)]
        draw, means = random.Random(0), []
        kept = list(places.values())
        for _ in range(_DRAWS):
            some = [changes[n] for group in draw.choices(kept, k=len(kept)) for n in group]
            means.append(sum(some) / len(some))
        means.sort()
        low, high = means[int(0.025 * _DRAWS)], means[int(0.975 * _DRAWS) - 1]
        old, new = (sum(q[field] for q in some) / len(examples) for some in (before, after))
        print(
            f"{name}, {len(examples)} requests of {len(groups)} groups: {title} {old:.3f} -> "
            f"{new:.3f}, {100 * (new - old):+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})",
            flush=True,
        )


def report(name: str, examples: Sequence[Example], after: Sequence[Quality]) -> None:
    """Print the figures of tasks and of short requests."""
    for long, kind in ((True, "tasks"), (False, "prompts")):
        some = [n for n, one in enumerate(examples) if one.long == long]
        compare(f"{name}, {kind}", [examples[n] for n in some], [after[n] for n in some])


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--pool", required=True, help="a folder of skills")
    parser.add_argument("--labelled", required=True, help="JSON lines of query, relevant, group")
    parser.add_argument("--test", help="a labelled set that nothing is learnt from")
    parser.add_argument("--seeds", type=int, default=1, help="divisions of the groups to measure")
    parser.add_argument("--source", default="", help="what the data is, for the written file")
    parser.add_argument("--cache", help="a folder with the index of the pool, to use it again")
    parser.add_argument("--write", metavar="FILE", help="write the trees of all groups")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        made = catalog(str(Path(args.pool).resolve()), args.cache or folder)
        made.index_for_search()
        examples = gather(made, args.labelled)
        tested = gather(made, args.test) if args.test else []
        made.close()
    for seed in range(args.seeds):
        report(f"division {seed + 1}", examples, held_out(examples, seed))
    trees = fit(examples)
    compare("test set", tested, [judge(one, trees) for one in tested])
    if args.write:
        about = {"made by": "scripts/fit_ranking.py", "learnt from": args.source}
        lines = ",\n".join(json.dumps(tree) for tree in trees)
        head = json.dumps(about)[:-1]
        Path(args.write).write_text(f'{head}, "trees": [\n{lines}\n]}}\n', "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
