"""Render the output of a command as HTML: colours become classes, other escapes are dropped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from markupsafe import Markup, escape

from skillbelt.console.render import show_plain

# A CSI sequence, an OSC sequence (title, link), and any other escape.
_SEQUENCE = re.compile(
    r"\x1b\[([0-9;:?<=>]*)([\x40-\x7e])|\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?"
)
_STYLES = {1: "tb", 2: "td", 3: "ti", 4: "tu"}
_ENDS = {22: ("tb", "td"), 23: ("ti",), 24: ("tu",)}


def render_output(parts: Iterable[tuple[str, str]]) -> Markup:
    """Return the output of a run; `parts` are pairs of a stream and a text."""
    return Markup("").join(_render(stream, text) for stream, text in parts)


def _render(stream: str, text: str) -> Markup:
    made = Markup("").join(_render_pieces(_keep_last(text)))
    return Markup('<span class="err">{}</span>').format(made) if stream == "stderr" else made


def _keep_last(text: str) -> str:
    """Return the text after carriage returns, as a terminal shows a progress bar."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _render_pieces(text: str) -> Iterator[Markup]:
    classes: set[str] = set()
    at = 0
    for found in _SEQUENCE.finditer(text):
        yield _render_span(text[at : found.start()], classes)
        at = found.end()
        if found[2] == "m":
            classes = _change(classes, found[1] or "0")
    yield _render_span(text[at:], classes)


def _render_span(text: str, classes: set[str]) -> Markup:
    if not text:
        return Markup("")
    shown = show_plain(text)
    names = " ".join(sorted(classes))
    return Markup('<span class="{}">{}</span>').format(escape(names), shown) if names else shown


def _change(classes: set[str], codes: str) -> set[str]:
    """Return the classes after a sequence; 256-colour codes are ignored."""
    found = set(classes)
    numbers = [int(one) if one.isdecimal() and len(one) < 4 else 0 for one in codes.split(";")]
    while numbers:
        code = numbers.pop(0)
        if code in (38, 48):  # a colour by number or RGB, in the next parameters
            kind = numbers.pop(0) if numbers else 0
            del numbers[: {5: 1, 2: 3}.get(kind, 0)]
        elif code == 0:
            found = set()
        elif code in _STYLES:
            found.add(_STYLES[code])
        elif code in _ENDS:
            found.difference_update(_ENDS[code])
        elif 30 <= code <= 37 or 90 <= code <= 97 or code == 39:
            found = {one for one in found if not re.fullmatch("c[0-7]", one)}
            found |= {f"c{code % 10}"} if code != 39 else set()
    return found
