"""A list with check marks at the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import Output, create_output

from skillbelt.text import one_line

_KEYS = "arrows move, space marks, a marks all, Enter takes the marked, q leaves"
_MOST_ROWS = 16


class _CheckList:
    def __init__(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        self.rows, self.title = rows, title
        self.at = 0
        self.marked: set[int] = set()

    def text(self) -> StyleAndTextTuples:
        shown: StyleAndTextTuples = [("bold", f"{one_line(self.title)}\n"), ("", f"{_KEYS}\n")]
        first = max(0, min(self.at - _MOST_ROWS // 2, len(self.rows) - _MOST_ROWS))
        wide = max(len(one_line(name)) for name, _ in self.rows)
        for number, (name, about) in enumerate(self.rows[first : first + _MOST_ROWS], first):
            mark = "[x]" if number in self.marked else "[ ]"
            style = "reverse" if number == self.at else ""
            cut = one_line(about)[: max(0, 70 - wide)]
            shown.append((style, f"{mark} {one_line(name):<{wide}}"))
            shown.append(("", f"  {cut}\n"))
        shown.append(("", f"{len(self.marked)} of {len(self.rows)} marked"))
        return shown

    def move(self, by: int) -> None:
        self.at = (self.at + by) % len(self.rows)

    def toggle(self) -> None:
        self.marked ^= {self.at}

    def toggle_all(self) -> None:
        every = set(range(len(self.rows)))
        self.marked = set() if self.marked == every else every


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

    @keys.add("up")
    @keys.add("k")
    def _up(_: KeyPressEvent) -> None:
        state.move(-1)

    @keys.add("down")
    @keys.add("j")
    def _down(_: KeyPressEvent) -> None:
        state.move(1)

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
