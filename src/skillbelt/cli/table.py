"""Print a table on a terminal with rich."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_GAP = 2  # spaces between two columns
_MIN_LAST_WIDTH = 10


def print_on_terminal(head: Sequence[str], rows: Sequence[Sequence[str]], wrap: bool) -> None:
    """Print a table; the last column takes the remaining width, cut to one line or wrapped."""
    console = Console(no_color=bool(os.environ.get("NO_COLOR")) or None)
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(head))
    left = console.width
    for place, title in enumerate(head[:-1]):
        longest = max(cell_len(text) for text in (title, *(row[place] for row in rows)))
        width = min(longest, console.width // 2)
        table.add_column(title, overflow="fold", width=width)
        left -= width + _GAP
    overflow: Literal["fold", "ellipsis"] = "fold" if wrap else "ellipsis"
    last_width = max(left, _MIN_LAST_WIDTH)
    table.add_column(head[-1], overflow=overflow, no_wrap=not wrap, max_width=last_width)
    for row in rows:
        table.add_row(*(Text(cell, style="cyan" if n == 0 else "") for n, cell in enumerate(row)))
    console.print(table)
