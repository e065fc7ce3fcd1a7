"""Summarise a CSV file as a Markdown report."""

from __future__ import annotations

import argparse
import csv
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

GAPS = frozenset({"", "na", "n/a", "null", "none", "-"})
MAX_DISTINCT = 10_000
DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
INTEGER = re.compile(r"[+-]?\d{1,300}")
BOOLEANS = frozenset({"true", "false", "yes", "no"})


class Column:
    """What was seen of one column."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.gaps = 0
        self.counts: Counter[str] = Counter()
        self.overflow = False
        self.fits = {"integer": True, "number": True, "date": True, "boolean": True}
        self.total = 0.0
        self.seen = 0
        self.low: str | float | None = None
        self.high: str | float | None = None

    def add(self, value: str) -> None:
        value = value.strip()
        if value.lower() in GAPS:
            self.gaps += 1
            return
        self.seen += 1
        if value in self.counts or len(self.counts) < MAX_DISTINCT:
            self.counts[value] += 1
        else:
            self.overflow = True
        self._narrow(value)

    def _narrow(self, value: str) -> None:
        number = as_number(value)
        self.fits["integer"] &= INTEGER.fullmatch(value) is not None
        self.fits["number"] &= number is not None
        self.fits["date"] &= DATE.fullmatch(value) is not None
        self.fits["boolean"] &= value.lower() in BOOLEANS
        if self.fits["number"] and number is not None:
            self.total += number
            self._range(number)
        elif self.fits["date"]:
            self._range(value)

    def _range(self, value: str | float) -> None:
        if self.low is None or self.high is None:
            self.low = self.high = value
        elif isinstance(value, str):
            self.low, self.high = min(str(self.low), value), max(str(self.high), value)
        else:
            self.low, self.high = min(float(self.low), value), max(float(self.high), value)

    @property
    def type(self) -> str:
        if not self.seen:
            return "empty"
        return next((name for name, fits in self.fits.items() if fits), "text")

    @property
    def distinct(self) -> str:
        return f"{len(self.counts)}{'+' if self.overflow else ''}"

    def detail(self, top: int) -> str:
        if self.type in ("integer", "number"):
            mean = self.total / self.seen
            return f"{show(self.low)} to {show(self.high)}, mean {mean:.6g}"
        if self.type == "date":
            return f"{self.low} to {self.high}"
        return ", ".join(f"{cell(value)} ({n})" for value, n in self.counts.most_common(top))


def as_number(value: str) -> float | None:
    """The value as a finite number, or None."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def show(value: str | float | None) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def cell(text: str) -> str:
    """Text that cannot break out of a table cell."""
    flat = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return f"`{flat if len(flat) <= 40 else flat[:39] + '…'}`"


def delimiter(sample: str) -> str:
    """The delimiter that splits the header into the most columns."""
    header = sample.split("\n", 1)[0]
    return max(",;\t|", key=header.count)


def read(lines: Iterable[str], max_rows: int) -> tuple[list[Column], int, int, bool]:
    """The columns, how many rows, how many of the wrong length, and whether rows were left out."""
    lines = iter(lines)
    first = next(lines, "")
    reader: Iterator[list[str]] = csv.reader(chain(first, lines), delimiter=delimiter(first))
    header = next(reader, [])
    if not any(name.strip() for name in header):
        raise ValueError("no header row")
    columns = [Column(name.strip() or f"column {n}") for n, name in enumerate(header, 1)]
    rows = ragged = 0
    for row in islice((row for row in reader if row), max_rows):
        rows += 1
        ragged += len(row) != len(columns)
        for n, column in enumerate(columns):
            column.add(row[n] if n < len(row) else "")
    return columns, rows, ragged, next(reader, None) is not None


def chain(first: str, rest: Iterable[str]) -> Iterator[str]:
    yield first
    yield from rest


def report(title: str, lines: Iterable[str], *, top: int, max_rows: int) -> str:
    columns, rows, ragged, cut = read(lines, max_rows)
    text = [
        f"# {title}",
        "",
        f"{rows} rows{' (more were left out)' if cut else ''}, {len(columns)} columns, "
        f"{ragged} short or long rows.",
        "",
        "| column | type | gaps | distinct | range or commonest |",
        "| --- | --- | --- | --- | --- |",
    ]
    for column in columns:
        text.append(
            f"| {cell(column.name)} | {column.type} | {column.gaps} | {column.distinct} "
            f"| {column.detail(top)} |"
        )
    return "\n".join(text) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="the CSV or TSV file, with a header row")
    parser.add_argument("--output", help="write the report to this file")
    parser.add_argument("--top", type=int, default=3, help="common values to show")
    parser.add_argument("--max-rows", type=int, default=1_000_000, help="rows to read at most")
    options = parser.parse_args()
    try:
        with open(options.file, encoding="utf-8-sig", newline="") as file:
            name = options.file.replace("\\", "/").rsplit("/", 1)[-1]
            text = report(name, file, top=options.top, max_rows=options.max_rows)
    except (OSError, ValueError, csv.Error) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
