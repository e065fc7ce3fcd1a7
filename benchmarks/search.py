"""How good and how quick search is: `python -m benchmarks.search --pool DIR --labelled FILE`.

The pool is a folder of skills, the labelled set JSON lines of `query` and `relevant`, a list of
names, which is empty for a request that no skill answers. Such a request may have a `kind` and a
list `near` of skills that it may be mistaken for. Both are the caller's own: what is measured
should never be what the ranking was fitted on.

Hit@1 and Recall@10 are of the whole pool. The area under the curve of the first result's confidence
is of samples of 400 skills: requests with their right skills in the sample stand against the same
requests without them, and against each kind of request that no skill answers, with the skills that
it is near. Without a pool and a set speed and size are measured
with the skills of `benchmarks.tree`, and quality with the fifty made-up skills of
`benchmarks/data/search.json`, which nothing was learnt from. The time to build stands beside the
time to read and tokenise the same files, in the same run; times are of the processor. Exit code 1
when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import NamedTuple

from benchmarks.tree import ensure
from skillbelt.discovery.catalog import Catalog
from skillbelt.search.evaluate import (
    DEPTH,
    Labelled,
    SearchReport,
    area_under_curve,
    as_named,
    evaluate,
    read_labelled,
)
from skillbelt.search.words import forget, ids

SKILLS = 10_000
QUERIES = 60
HIT_BAR, RECALL_BAR, AREA_BAR = 0.84, 0.75, 0.80
MADE_UP_BAR = 0.95  # they are easy: a lower figure says that something broke
MADE_UP = Path(__file__).parent / "data" / "search.json"
MEDIAN_MS_BAR, P95_MS_BAR = 15.0, 50.0
BUILD_BAR, SIZE_BAR, CHANGE_SECONDS_BAR = 3.0, 0.5, 1.0
BUILDS = 3  # one alone is a fifth off on a busy machine
LONG_CHARS = 1_200  # of a request that is made of a skill's own text
PAGE_WORDS = 80  # of a request that is a task, not a sentence
SAMPLE = 400  # skills of the pool that the areas are measured with
SEED = 4


class Row(NamedTuple):
    """A figure and its bar: at most, or for measures of quality at least."""

    name: str
    figure: float
    bar: float
    at_least: bool = False

    @property
    def passed(self) -> bool:
        return self.figure >= self.bar if self.at_least else self.figure <= self.bar


def catalog(pool: str, cache: str) -> Catalog:
    """The catalogue of the pool alone."""
    made = Catalog(
        cache,
        paths=[pool],
        cache_dir=cache,
        project_roots=False,
        user_roots=False,
        rescan_seconds=3600.0,
        max_directories=1_000_000,
    )
    made.discover()
    return made


def tokenised(files: Sequence[str]) -> float:
    """The CPU seconds to read the files and to take them apart into words."""
    forget()
    began = time.process_time()
    for path in files:
        ids(Path(path).read_bytes().decode("utf-8", "replace"))
    return time.process_time() - began


def _built(made: Catalog) -> float:
    """What building the index takes beside reading the same files just before."""
    floor = tokenised([skill.location for skill in made.values()])
    forget()
    began = time.process_time()
    made.index_for_search()
    return (time.process_time() - began) / floor


def build(made: Catalog, pool: str, cache: str) -> list[Row]:
    """What building the index takes beside reading, and its size beside the text's."""
    ratios = [_built(made)]
    for _ in range(BUILDS - 1):
        with tempfile.TemporaryDirectory() as other:
            again = catalog(pool, other)
            ratios.append(_built(again))
            again.close()
    files = [skill.location for skill in made.values()]
    text = sum(os.path.getsize(path) for path in files)
    size = sum(map(os.path.getsize, glob(os.path.join(cache, "search-*"))))
    return [
        Row("build / read and tokenise", statistics.median(ratios), BUILD_BAR),
        Row("index size / text", size / text, SIZE_BAR),
    ]


def latencies(made: Catalog, texts: Sequence[str]) -> list[Row]:
    """How long a request takes, in milliseconds."""
    made.search("warm up", DEPTH)
    timed = [(text, _timed(made, text)) for text in texts]
    taken = sorted(seconds for _, seconds in timed)
    p95 = taken[min(int(0.95 * len(taken)), len(taken) - 1)]
    rows = [
        Row("request, median ms", 1e3 * statistics.median(taken), MEDIAN_MS_BAR),
        Row("request, p95 ms", 1e3 * p95, P95_MS_BAR),
    ]
    pages = [seconds for text, seconds in timed if len(text.split()) >= PAGE_WORDS]
    sentences = [seconds for text, seconds in timed if len(text.split()) < PAGE_WORDS]
    if pages and sentences:
        for name, some in (("page", pages), ("sentence", sentences)):
            median = 1e3 * statistics.median(some)
            rows.append(Row(f"request of a {name}, median ms", median, MEDIAN_MS_BAR))
    return rows


def _timed(made: Catalog, text: str) -> float:
    began = time.process_time()
    made.search(text)
    return time.process_time() - began


def changed(made: Catalog) -> Row:
    """How long it takes to find a change that was noticed; the file is put back."""
    skill = next(iter(made.values()))
    before = Path(skill.location).read_bytes()
    try:
        Path(skill.location).write_bytes(before + b"\nQuxozymandias.\n")
        made.refresh()
        began = time.process_time()
        found = made.search("quxozymandias")
        taken = time.process_time() - began
        assert [one.skill.location for one in found] == [skill.location]
    finally:
        Path(skill.location).write_bytes(before)
    return Row("a change is found after s", taken, CHANGE_SECONDS_BAR)


def quality(made: Catalog, labelled: Sequence[Labelled]) -> SearchReport:
    """The measures over a labelled set."""
    names = {skill.location: skill.name for skill in (*made.values(), *made.shadowed)}

    def find(text: str) -> list[frozenset[str]]:
        return [
            frozenset((one.skill.name, *(names[at] for at in one.variants if at in names)))
            for one in made.search(text, DEPTH)
        ]

    return evaluate(labelled, find)


def areas(made: Catalog, labelled: Sequence[Labelled]) -> list[Row]:
    """The area under the curve of the first result's confidence, by kind of negative.

    Each request is asked of a sample of the skills: those for a skill with it and without it.
    """
    skills, draw = made.current(), random.Random(SEED)
    names = sorted(skills)
    sure: dict[str, list[float]] = {}
    for one in labelled:
        some = frozenset(draw.sample(names, min(SAMPLE, len(names)))) - one.relevant
        kinds = {"right": some | one.relevant, "right skill taken out": some}
        for kind, shown in kinds.items() if one.relevant else [(one.kind, some | one.near)]:
            pool = {name: skills[name] for name in sorted(shown) if name in skills}
            found = made.searcher.search(one.query, pool, 1)
            sure.setdefault(kind, []).append(found[0].confidence if found else 0.0)
    right = [(value, True) for value in sure.pop("right", [])]
    if len(sure) > 1:
        sure["every kind"] = [value for wrong in sure.values() for value in wrong]
    return [
        Row(
            f"area under the curve, {kind or 'no skill fits'}",
            area_under_curve([*right, *((value, False) for value in wrong)]),
            AREA_BAR,
            True,
        )
        for kind, wrong in sure.items()
    ]


def judge(made: Catalog, labelled: Sequence[Labelled]) -> tuple[list[Row], SearchReport | None]:
    """The measures of quality with their bars."""
    asked = [one for one in labelled if one.relevant]
    if not asked:
        return [], None
    report = quality(made, asked)
    hit, recall = report.measures["Hit@1"].mean, report.measures["Recall@10"].mean
    rows = [
        Row("Hit@1", hit, HIT_BAR, True),
        Row("Recall@10", recall, RECALL_BAR, True),
    ]
    return rows + areas(made, labelled), report


def made_up(folder: Path) -> list[Labelled]:
    """Write the made-up skills into a folder; return the requests for them and for none."""
    data = json.loads(MADE_UP.read_text("utf-8"))
    labelled = []
    for skill in data["skills"]:
        path = folder / skill["name"] / "SKILL.md"
        path.parent.mkdir(parents=True)
        head = json.dumps(skill["description"])
        path.write_text(
            f"---\nname: {skill['name']}\ndescription: {head}\n---\n{skill['text']}\n", "utf-8"
        )
        labelled += [Labelled(query, frozenset((skill["name"],))) for query in skill["queries"]]
    return labelled + [Labelled(one["query"], frozenset()) for one in data["none"]]


def judge_made_up(folder: Path) -> tuple[list[Row], SearchReport | None]:
    """The measures of quality with the made-up skills."""
    labelled = made_up(folder / "skills")
    (folder / "cache").mkdir()
    made = catalog(str(folder / "skills"), str(folder / "cache"))
    made.index_for_search()
    rows, report = judge(made, labelled)
    made.close()
    return [Row(f"made up: {row.name}", row.figure, MADE_UP_BAR, True) for row in rows], report


def own_texts(made: Catalog, count: int) -> list[str]:
    """Requests made of the skills' own texts, for want of others: as long as a task's."""
    step = max(len(made) // count, 1)
    some = list(made.values())[::step][:count]
    return [Path(one.location).read_text("utf-8", "replace")[:LONG_CHARS] for one in some]


def measure(
    pool: str, labelled: Sequence[Labelled], cache: str
) -> tuple[list[Row], SearchReport | None]:
    """Every figure, and the measures of quality if there is a labelled set."""
    made = catalog(pool, cache)
    if not made:
        sys.exit(f"there are no skills in {pool}")
    rows = build(made, pool, cache)
    rows += latencies(made, [one.query for one in labelled] or own_texts(made, QUERIES))
    judged, report = judge(made, as_named(labelled, made.current()))
    rows += judged
    rows.append(changed(made))
    made.close()
    return rows, report


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| what | bar | measured |  |", "| --- | ---: | ---: | --- |"]
    for row in rows:
        bar = f"{'at least' if row.at_least else 'at most'} {row.bar:g}"
        verdict = "pass" if row.passed else "FAIL"
        lines.append(f"| {row.name} | {bar} | {row.figure:.3g} | {verdict} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every bar holds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--pool", help="a folder of skills")
    parser.add_argument("--labelled", help="requests with the names of the right skills")
    parser.add_argument("--skills", type=int, default=SKILLS, help="without a pool: how many")
    parser.add_argument("--json", metavar="FILE", help="write every figure")
    args = parser.parse_args(arguments)
    pool = args.pool or ensure("full", args.skills)
    with tempfile.TemporaryDirectory() as cache:
        labelled = read_labelled(args.labelled, allow_none=True) if args.labelled else []
        rows, report = measure(os.path.abspath(pool), labelled, cache)
        if not args.pool:
            more, report = judge_made_up(Path(cache) / "made-up")
            rows += more
    print(table(rows))
    if report:
        for name, (mean, low, high) in report.measures.items():
            print(f"{name}: {mean:.3f} ({low:.3f} to {high:.3f}), {report.requests} requests")
    if args.json:
        Path(args.json).write_text(json.dumps([row._asdict() for row in rows], indent=2), "utf-8")
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
