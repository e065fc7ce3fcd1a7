"""A list with check marks at the terminal."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import Output, create_output

from skillbelt.cli.words import height, width
from skillbelt.text import one_line, shorten

_KEYS = "arrows move, space marks, a marks all, Enter takes the marked, q leaves"
_MOST_ROWS = 16
_OTHER_LINES = 4  # the title, the keys, which may take two, and the last line


class _CheckList:
    def __init__(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        self.rows, self.title = rows, title
        self.at = 0
        self.marked: set[int] = set()

    def text(self) -> StyleAndTextTuples:
        columns = width(sys.stderr)
        title = shorten(one_line(self.title), columns - 1)
        keys = "\n".join(textwrap.wrap(_KEYS, columns - 1))
        shown: StyleAndTextTuples = [("bold", f"{title}\n"), ("", f"{keys}\n")]
        fit = self.visible()
        first = max(0, min(self.at - fit // 2, len(self.rows) - fit))
        wide = min(max(len(one_line(name)) for name, _ in self.rows), columns // 2)
        for number, (name, about) in enumerate(self.rows[first : first + fit], first):
            mark = "[x]" if number in self.marked else "[ ]"
            style = "reverse" if number == self.at else ""
            cut = shorten(one_line(about), max(8, columns - wide - 7))
            shown.append((style, f"{mark} {shorten(one_line(name), wide):<{wide}}"))
            shown.append(("", f"  {cut}\n"))
        part = f", {first + 1} to {first + fit} shown" if fit < len(self.rows) else ""
        shown.append(("", f"{len(self.marked)} of {len(self.rows)} marked{part}"))
        return shown

    def visible(self) -> int:
        """Return how many rows the terminal has room for."""
        return max(1, min(_MOST_ROWS, height(sys.stderr) - _OTHER_LINES, len(self.rows)))

    def move(self, by: int) -> None:
        self.at = (self.at + by) % len(self.rows)

    def jump(self, by: int) -> None:
        """Move without going round at an end."""
        self.at = min(max(self.at + by, 0), len(self.rows) - 1)

    def toggle(self) -> None:
        self.marked ^= {self.at}

    def toggle_all(self) -> None:
        every = set(range(len(self.rows)))
        self.marked = set() if self.marked == every else every


def _add_moves(keys: KeyBindings, state: _CheckList) -> None:
    @keys.add("up")
    @keys.add("k")
    def _up(_: KeyPressEvent) -> None:
        state.move(-1)

    @keys.add("down")
    @keys.add("j")
    def _down(_: KeyPressEvent) -> None:
        state.move(1)

    @keys.add("pageup")
    def _page_up(_: KeyPressEvent) -> None:
        state.jump(-state.visible())

    @keys.add("pagedown")
    def _page_down(_: KeyPressEvent) -> None:
        state.jump(state.visible())

    @keys.add("home")
    def _first(_: KeyPressEvent) -> None:
        state.jump(-len(state.rows))

    @keys.add("end")
    def _last(_: KeyPressEvent) -> None:
        state.jump(len(state.rows))


def choose_many(
    title: str,
    rows: Sequence[tuple[str, str]],
    *,
    input: Input | None = None,
    output: Output | None = None,
) -> list[int]:
    """Show names with descriptions and return the numbers of those that were marked.

    KeyboardInterrupt when the list is left without an answer.
    """
    state = _CheckList(title, rows)
    keys = KeyBindings()

    _add_moves(keys, state)

    @keys.add("space")
    def _toggle(_: KeyPressEvent) -> None:
        state.toggle()

    @keys.add("a")
    def _all(_: KeyPressEvent) -> None:
        state.toggle_all()

    @keys.add("enter")
    def _take(event: KeyPressEvent) -> None:
        event.app.exit(result=sorted(state.marked))

    @keys.add("q")
    @keys.add("escape", eager=True)
    @keys.add("c-c")
    @keys.add("c-d")
    def _leave(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt())

    window = Window(FormattedTextControl(state.text, show_cursor=False), wrap_lines=False)
    app: Application[list[int]] = Application(
        layout=Layout(HSplit([window])),
        key_bindings=keys,
        input=input,
        output=output or create_output(stdout=sys.stderr),
        erase_when_done=True,
    )
    return app.run()
