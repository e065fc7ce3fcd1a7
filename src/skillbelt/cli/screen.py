"""The screen of a conversation: finished lines, and below them a part that changes.

Text of a model or a skill is escaped, and indented from the left edge. Only the product's own lines
begin there, so that no text can imitate a question or an outcome.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self, TextIO

from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import Heading, Markdown
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text
from rich.theme import Theme

from skillbelt.cli.keyboard import is_dumb
from skillbelt.cli.words import width
from skillbelt.conversation.transcript import plain

if TYPE_CHECKING:
    from markdown_it.token import Token

MARGIN = 2
# The shortest time between two redraws of growing text.
FRAME_SECONDS = 0.04
# A longer block is shown without highlighting: repeating that would take too long.
_MAX_BLOCK_CHARS = 20_000
# No fixed colours, so that they can be read on light and dark terminals.
_CODE_THEME = "ansi_dark"
_THEME = Theme({"markdown.code": "cyan", "markdown.h1": "bold underline"})
_LEAST_COLUMNS = 20
_SPARE_ROWS = 3  # below a live part that is taller than the screen


def can_draw() -> bool:
    """Whether the output is a terminal that can move the cursor."""
    return sys.stdout.isatty() and sys.stderr.isatty() and not is_dumb()


class _Safe:
    """Renders something without the control codes in it.

    Markdown turns `&#x202e;` into the character after the text was escaped.
    """

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._inner, options):
            if not segment.control:
                yield Segment(plain(segment.text), segment.style)


class Screen:
    """Draws on a terminal. Thread-safe: a clock may draw while an answer comes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._lock = threading.RLock()
        self._live: list[str] = []
        self._widths: list[int] = []

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        return max(width(self._stream), _LEAST_COLUMNS)

    @property
    def rows(self) -> int:
        """The height of the terminal."""
        try:
            return os.get_terminal_size(self._stream.fileno()).lines or 24
        except (OSError, ValueError):
            return 24

    def print(self, *lines: str) -> None:
        """Print finished lines above the live part."""
        with self._lock:
            self.update(lines, self._live)

    def update(self, finished: Sequence[str], live: Sequence[str]) -> None:
        """Print finished lines and replace the live part below them, in one step.

        If a live part is taller than the screen, only its end is shown.
        """
        live = list(live[-max(self.rows - _SPARE_ROWS, 1) :])
        with self._lock:
            if not finished and live == self._live:
                return
            erased = self._erase()
            self._live = live
            self._widths = [Text.from_ansi(line).cell_len for line in live]
            text = erased + "".join(f"{line}\n" for line in finished) + "\n".join(live)
            self._stream.write(text)
            self._stream.flush()

    def clear(self) -> None:
        """Clear the terminal; the scrollback stays."""
        with self._lock:
            self._live = []
            self._stream.write("\x1b[H\x1b[2J")
            self._stream.flush()

    def _erase(self) -> str:
        """Return the codes that erase the live part, also after the terminal got narrower."""
        if not self._live:
            return ""
        rows = sum(max(1, -(-wide // self.columns)) for wide in self._widths)
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"\r{up}\x1b[J"

    # Rendering

    def render(self, what: RenderableType, margin: int = MARGIN) -> list[str]:
        """Render something to lines that fit the terminal, without foreign control codes."""
        console = Console(
            file=io.StringIO(),
            force_terminal=True,
            no_color=bool(os.environ.get("NO_COLOR")) or None,
            width=self.columns - 1,  # no line wraps by itself
            highlight=False,
            legacy_windows=False,
            theme=_THEME,
        )
        with console.capture() as captured:
            console.print(Padding(_Safe(what), (0, 0, 0, margin)))
        return [line.rstrip() for line in captured.get().split("\n")[:-1]]

    def render_markdown(self, text: str) -> list[str]:
        """Return a text in Markdown as lines."""
        text, lines = plain(text), list[str]()
        for block in _split_blocks(text):
            long = len(block) > _MAX_BLOCK_CHARS
            shown = self.render(Text(block) if long else _parse_markdown(block))
            lines += [""] if lines else []
            lines += _strip_empty(shown)
        return lines

    def render_own(self, text: str, style: str = "") -> list[str]:
        """Return one of our lines, with its first word in a style.

        If it is too long, it continues indented on the next line.
        """
        whole = Text(text)
        whole.stylize(style, 0, len(text) - len(text.lstrip().partition(" ")[2]))
        room = self.columns - 1
        first, *rest = whole.wrap(Console(width=room), room) or [Text("")]
        below = len(text) - len(text[len(first.plain) :].lstrip())
        left = whole[below:]
        return [
            *self.render(first, margin=0),
            *(self.render(left, margin=2 * MARGIN) if rest else ()),
        ]

    def style(self, text: str, style: str) -> str:
        """Return a line in a style; the text is escaped already, and fits."""
        made = self.render(Text(text, style=style, no_wrap=True, overflow="ellipsis"), margin=0)
        return made[0] if made else ""


class _LeftHeading(Heading):
    """A heading at the left, as all other text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _LeftMarkdown(Markdown):
    elements = {**Markdown.elements, "heading_open": _LeftHeading}  # noqa: RUF012


def _strip_empty(lines: list[str]) -> list[str]:
    """Return the lines without empty ones at both ends; each block adds its own."""
    full = [number for number, line in enumerate(lines) if Text.from_ansi(line).plain.strip()]
    return lines[full[0] : full[-1] + 1] if full else []


def _parse_markdown(text: str) -> Markdown:
    """Parse Markdown so that nothing is hidden: tags are text, links show their targets."""
    made = _LeftMarkdown("", code_theme=_CODE_THEME, hyperlinks=False)
    made.markup, made.parsed = text, _parser().parse(text)
    return made


def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


class MarkdownStream:
    """An answer that comes in pieces: finished blocks are printed, the last one is live."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._begun = False
        self._open = ""

    def __bool__(self) -> bool:
        return bool(self._begun or self._open.strip())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def add(self, text: str) -> None:
        """Take the next piece."""
        self._open += plain(text)

    def draw(self, *below: str) -> None:
        """Print the finished blocks; show the block that may still grow, with lines below it."""
        finished = self._lines(self._take_finished())
        self._screen.update(finished, [*self._lines(self._open, finished=False), *below])

    def end(self) -> None:
        """Print the rest; the next piece begins another answer."""
        rest, self._open = self._open, ""
        self._screen.update(self._lines(rest), [])
        self._begun = False

    def drop(self) -> None:
        """Discard the unfinished block."""
        self._open, self._begun = "", False
        self._screen.update([], [])

    def _take_finished(self) -> str:
        """Cut off the blocks before the last one: no later text changes them."""
        if "\n" not in self._open:
            return ""
        *finished, self._open = _split_blocks(self._open)
        return "".join(finished)

    def _lines(self, text: str, *, finished: bool = True) -> list[str]:
        """Return the lines of a part, after an empty one if another part is above it."""
        if not text.strip():
            return []
        above = [""] if self._begun else []
        self._begun = self._begun or finished
        return [*above, *self._screen.render_markdown(text)]


def _split_blocks(text: str) -> list[str]:
    """Return the blocks of a text in Markdown: paragraphs, lists, tables, code."""
    lines = text.splitlines(keepends=True)
    tokens: Iterable[Token] = _parser().parse(text)
    starts = [
        token.map[0] for token in tokens if token.level == 0 and token.map and token.nesting >= 0
    ]
    ends = [*starts[1:], len(lines)]
    return (
        ["".join(lines[start:end]) for start, end in zip([0, *starts[1:]], ends, strict=True)]
        if starts
        else [text]
    )


def fit(text: str, columns: int) -> str:
    """Cut one of our lines to that many columns, with an ellipsis."""
    if cell_len(text) <= columns:
        return text
    cut = Text(text)
    cut.truncate(max(columns, 1), overflow="ellipsis")
    return cut.plain
