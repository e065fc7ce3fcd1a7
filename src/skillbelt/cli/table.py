"""Print a table on a terminal with rich. No word is broken that fits on a line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_GAP = 2  # spaces between two columns
_INDENT = 4
# A last column that is cut needs this much to say anything; one that is wrapped needs more, or a
# few words fill the screen.
_MIN_CUT_WIDTH = 10
_MIN_WRAPPED_WIDTH = 40


def print_on_terminal(head: Sequence[str], rows: Sequence[Sequence[str]], wrap: bool) -> None:
    """Print a table; the last column takes the remaining width, cut to one line or wrapped.

    On a terminal that is too narrow for the columns, each row is a line with the rest below it.
    """
    console = Console(no_color=bool(os.environ.get("NO_COLOR")) or None)
    widths = _fit_columns(head, rows, console.width, wrap)
    if widths:
        console.print(_build_table(head, rows, widths, wrap))
        return
    aligned = _align_first(head, rows, console.width)
    for row in rows:
        _print_stacked(console, head, row, wrap, aligned)


def _fit_columns(
    head: Sequence[str], rows: Sequence[Sequence[str]], room: int, wrap: bool
) -> list[int]:
    """Return the width of each column; none when the last one would have too little."""
    columns = [[title, *(row[n] for row in rows)] for n, title in enumerate(head)]
    *first, last = (max(map(cell_len, cells)) for cells in columns)
    left = room - sum(first) - _GAP * len(first)
    least = _MIN_CUT_WIDTH
    if wrap and any(head):  # facts without a head stay beside their names
        least = max(min(_MIN_WRAPPED_WIDTH, room // 2), *map(_longest_word, columns[-1]))
    return [*first, min(last, left)] if left >= min(last, least) else []


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
    return max(map(cell_len, text.split()), default=0)


def _build_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], wrap: bool
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(head))
    for title, width in zip(head[:-1], widths[:-1], strict=True):
        table.add_column(title, overflow="fold", width=width)
    overflow: Literal["fold", "ellipsis"] = "fold" if wrap else "ellipsis"
    table.add_column(head[-1], overflow=overflow, no_wrap=not wrap, max_width=widths[-1])
    for row in rows:
        table.add_row(*(Text(cell, style="cyan" if n == 0 else "") for n, cell in enumerate(row)))
    return table


def _print_stacked(
    console: Console, head: Sequence[str], row: Sequence[str], wrap: bool, aligned: Sequence[int]
) -> None:
    """Print the cells that fit on one line, and each of the others below it with its title."""
    line, place = Text(row[0], style="cyan"), 1
    while place < len(row) and _end(line, aligned[:place]) + cell_len(row[place]) <= console.width:
        if row[place]:
            line.pad_right(_end(line, aligned[:place]) - line.cell_len)
            line = Text.assemble(line, row[place])
        place += 1
    console.print(line)
    for number in range(place, len(row)):
        title = f"{head[number]}: " if head[number] else ""
        cut = not wrap and number == len(row) - 1
        text = Text(f"{title}{row[number]}", overflow="ellipsis" if cut else "fold", no_wrap=cut)
        if row[number]:
            console.print(Padding(text, (0, 0, 0, _INDENT)))


def _end(line: Text, widths: Sequence[int]) -> int:
    """Return where the next cell of a line begins: below those of other rows if it can."""
    return max(line.cell_len + _GAP, sum(widths) + _GAP * len(widths))
