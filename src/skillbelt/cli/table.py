"""Print a table on a terminal with rich. No word is broken that fits on a line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_GAP = 2  # spaces between two columns
_INDENT = 4
# The least width of a last column that is cut; one that is wrapped needs more, or a few words fill
# the screen.
_MIN_CUT_WIDTH = 10
_MIN_WRAPPED_WIDTH = 40
# One of this many rows may be longer than its column, and continues below.
_ROWS_PER_LONG_ONE = 4


class TableLook(NamedTuple):
    """The look of a table: whether the last column is wrapped, what goes below, and colours.

    `below` is how many columns at the end go below a row that has no room for them. `colours` are
    the styles of words, by the title of their column.
    """

    wrap: bool
    below: int
    colours: Mapping[str, Mapping[str, str]]


def print_on_terminal(head: Sequence[str], rows: Sequence[Sequence[str]], look: TableLook) -> None:
    """Print a table; the last column takes the remaining width, cut to one line or wrapped.

    On a terminal that is too narrow for the columns, each row is a line with the rest below it.
    """
    console = Console(no_color=bool(os.environ.get("NO_COLOR")) or None)
    table = _Table(console, head, rows, look)
    for line in table.lines():
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


class _Table:
    """The lines of one table on one terminal."""

    def __init__(
        self, console: Console, head: Sequence[str], rows: Sequence[Sequence[str]], look: TableLook
    ) -> None:
        self._console, self._room, self._look = console, console.width, look
        self._head, self._rows = head, rows
        shown = len(head)
        if look.below and not _fits(head, rows, self._room):
            shown -= look.below
        self._shown = shown
        self._widths = _fit_columns(
            head[:shown], [row[:shown] for row in rows], self._room, look.wrap
        )
        self._starts = [sum(self._widths[:n]) + _GAP * n for n in range(len(self._widths))]
        # One column for all rows.
        self._below = min((self._start_of(self._detail(row)) for row in rows), default=0)

    def lines(self) -> Iterator[Text]:
        """Yield every line: a head, then each row."""
        if not self._widths:
            aligned = _align_first(self._head, self._rows, self._room)
            for row in self._rows:
                yield from self._stack(row, aligned)
            return
        if any(map(str.strip, self._head)):
            titles = [Text(title, style="bold") for title in self._head[: self._shown]]
            yield from self._lay_out(titles)
        for row in self._rows:
            *above, last = self._lay_out([self._paint(n, row[n]) for n in range(self._shown)])
            yield from above
            yield from self._add_details(last, row)

    def _paint(self, number: int, text: str) -> Text:
        known = self._look.colours.get(self._head[number])
        if known is None:
            return Text(text, style="cyan" if number == 0 else "")
        return Text(text, style=next((known[one] for one in text.split(", ") if one in known), ""))

    def _lay_out(self, cells: Sequence[Text]) -> Iterator[Text]:
        """Yield a row.

        A cell that is longer than its column stays whole, and the row continues below.
        """
        line = Text()
        for start, cell in zip(self._starts[:-1], cells[:-1], strict=True):
            if start + cell.cell_len > self._room:
                start = min(start, _INDENT)
            if line and cell and line.cell_len + _GAP > start:
                yield line
                line = Text()
            *above, last = self._fold(cell, start)
            yield from (Text.assemble(" " * start, part) for part in above)
            if cell:
                line = Text.assemble(line, " " * (start - line.cell_len), last)
        yield from self._lay_out_last(line, cells[-1])

    def _lay_out_last(self, line: Text, cell: Text) -> Iterator[Text]:
        start = self._starts[-1]
        if not self._look.wrap:
            cell.truncate(self._room - start, overflow="ellipsis")
            parts = [cell]
        else:
            start = self._start_of(cell.plain)
            parts = self._fold(cell, start)
        if line and cell and line.cell_len + _GAP > start:
            yield line
            line = Text()
        for part in parts:
            yield Text.assemble(line, " " * (start - line.cell_len), part) if part else line
            line = Text()

    def _start_of(self, text: str) -> int:
        """Return where a wrapped text begins: further to the left if that keeps a word whole."""
        start = self._starts[-1] if self._starts else 0
        return start if _longest_word(text) <= self._room - start else min(start, _INDENT)

    def _fold(self, cell: Text, start: int) -> list[Text]:
        lines = cell.wrap(self._console, self._room - start, overflow="fold")
        return [*lines] or [cell]

    def _add_details(self, line: Text, row: Sequence[str]) -> Iterator[Text]:
        """Yield the last line of a row and the columns that go below, as one text."""
        text = self._detail(row)
        details = Text(text, style="dim")
        if text and line.cell_len + _GAP + details.cell_len <= self._room:
            yield Text.assemble(line, " " * _GAP, details)
            return
        yield line
        if text:
            for part in self._fold(details, self._below):
                yield Text.assemble(" " * self._below, part)

    def _detail(self, row: Sequence[str]) -> str:
        return " · ".join(one for one in row[self._shown :] if one not in ("", "-"))

    def _stack(self, row: Sequence[str], aligned: Sequence[int]) -> Iterator[Text]:
        """Yield the cells that fit on one line, and each of the others below it with its title."""
        line, place = self._paint(0, row[0]), 1
        while place < len(row) and _end(line, aligned[:place]) + cell_len(row[place]) <= self._room:
            if row[place]:
                line.pad_right(_end(line, aligned[:place]) - line.cell_len)
                line = Text.assemble(line, self._paint(place, row[place]))
            place += 1
        yield line
        for number in range(place, len(row)):
            title = f"{self._head[number]}: " if self._head[number] else ""
            cut = not self._look.wrap and number == len(row) - 1
            text = Text(f"{title}{row[number]}")
            if cut:
                text.truncate(self._room - _INDENT, overflow="ellipsis")
            for part in self._fold(text, _INDENT) if row[number] else []:
                yield Text.assemble(" " * _INDENT, part)


def _fits(head: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> bool:
    """Whether every row is one line."""
    widths = [max(map(cell_len, column)) for column in zip(head, *rows, strict=True)]
    return sum(widths) + _GAP * (len(widths) - 1) <= room


def _fit_columns(
    head: Sequence[str], rows: Sequence[Sequence[str]], room: int, wrap: bool
) -> list[int]:
    """Return the width of each column; none when the last one would have too little.

    A few cells may be longer than their column: their rows continue below.
    """
    sizes = [sorted({cell_len(row[n]) for row in rows} | {0}) for n in range(len(head))]
    *first, last = (max(each[-1], cell_len(title)) for each, title in zip(sizes, head, strict=True))
    least = _MIN_CUT_WIDTH
    if wrap and any(head):  # facts without a header stay beside their names
        least = min(_MIN_WRAPPED_WIDTH, room // 2)
    while (left := room - sum(first) - _GAP * len(first)) < min(last, room // 2):
        narrower = [_narrow(first, n, head, sizes[n]) for n in range(len(first))]
        # One long row is acceptable if there is no table otherwise.
        most = max(len(rows) // _ROWS_PER_LONG_ONE, left < min(last, least) and len(rows) > 1)
        possible = [one for one in narrower if one and _count_longer(rows, one) <= most]
        if not possible:
            break
        first = min(possible, key=sum)
    return [*first, min(last, left)] if left >= min(last, least) else []


def _narrow(
    widths: Sequence[int], number: int, head: Sequence[str], sizes: Sequence[int]
) -> list[int]:
    """Return the widths with that column as wide as its next shorter cell; none if it has none."""
    shorter = max(one for one in (0, *sizes) if one < max(widths[number], 1))
    width = max(shorter, cell_len(head[number]))
    return [*widths[:number], width, *widths[number + 1 :]] if width < widths[number] else []


def _count_longer(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> int:
    """Return how many rows have a cell that is longer than its column."""
    return sum(
        any(cell_len(cell) > width for cell, width in zip(row, widths, strict=False))
        for row in rows
    )


def _align_first(head: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the widths of the first columns that fit on a line together, half of it at most."""
    widths: list[int] = []
    for n in range(len(head)):
        width = max(cell_len(row[n]) for row in rows)
        if sum(widths) + width + _GAP * len(widths) > room // 2:
            break
        widths.append(width)
    return widths


def _longest_word(text: str) -> int:
    """Return the width of the longest word; a text in wide characters may be broken anywhere."""
    sizes = ((cell_len(word), len(word)) for word in text.split())
    return max((cells for cells, chars in sizes if cells < 1.5 * chars), default=0)


def _end(line: Text, widths: Sequence[int]) -> int:
    """Return where the next cell of a line begins: below those of other rows if it can."""
    return max(line.cell_len + _GAP, sum(widths) + _GAP * len(widths))
