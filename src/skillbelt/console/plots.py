"""Plots, drawn here as SVG: no script, no style of their own, colours by class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

# Of the picture in its own units: a text in it is about as large as one of the page.
_WIDTH = 960.0
_NARROW = 640.0
_CLASSES = ("f1", "f2", "f3", "f4", "f5", "f6")


class PlotBar(NamedTuple):
    """A bar: its label, its parts one upon the other, and what it says when it is pointed at."""

    label: str
    parts: tuple[float, ...]
    title: str = ""


class TimeSpan(NamedTuple):
    """A part of a timeline, in any unit."""

    name: str
    start: float
    length: float
    title: str


class Point(NamedTuple):
    """A point of a curve."""

    label: str
    value: float
    title: str


def draw_bars(bars: Sequence[PlotBar], name: str, height: float = 150.0) -> Markup:
    """Return upright bars, side by side; the last part of each is drawn as failures are."""
    most = max((sum(bar.parts) for bar in bars), default=0) or 1
    step, floor = _WIDTH / max(len(bars), 1), height - 22
    drawn = [_grid(floor, most)]
    for at, bar in enumerate(bars):
        top = floor
        for number, value in enumerate(bar.parts):
            size = value / most * (floor - 14)
            top -= size
            kind = "fb" if number and number == len(bar.parts) - 1 else _CLASSES[number]
            if value:
                drawn.append(
                    f'<rect class="{kind}" x="{at * step + step * 0.14:.1f}" y="{top:.1f}" '
                    f'width="{step * 0.72:.1f}" height="{size:.1f}" rx="1.5">{_title(bar.title)}'
                    "</rect>"
                )
        if len(bars) <= 10 or at % (len(bars) // 7 + 1) == 0:
            drawn.append(
                f'<text x="{at * step + step / 2:.1f}" y="{height - 4:.1f}" '
                f'text-anchor="middle">{escape(bar.label)}</text>'
            )
    return _picture(drawn, name, height)


def _grid(floor: float, most: float) -> str:
    lines = [
        f'<line class="grid" x1="0" x2="{_WIDTH:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        for y in (14.0, (floor + 14) / 2)
    ]
    axis = f'<line class="axis" x1="0" x2="{_WIDTH:.0f}" y1="{floor:.1f}" y2="{floor:.1f}"/>'
    return "".join(lines) + axis + f'<text x="0" y="10">{_short(most)}</text>'


def draw_rows(bars: Sequence[PlotBar], name: str) -> Markup:
    """Return bars that lie, one below the other, with their labels at the left."""
    most = max((sum(bar.parts) for bar in bars), default=0) or 1
    drawn, row = [], 26.0
    for at, bar in enumerate(bars):
        top, left = at * row, 190.0
        drawn.append(
            f'<text class="label" x="182" y="{top + 16:.1f}" text-anchor="end">'
            f"{escape(_cut(bar.label))}</text>"
        )
        for number, value in enumerate(bar.parts):
            size = value / most * (_WIDTH - 260)
            kind = "fb" if number and number == len(bar.parts) - 1 else _CLASSES[number]
            if value:
                drawn.append(
                    f'<rect class="{kind}" x="{left:.1f}" y="{top + 5:.1f}" width="{size:.1f}" '
                    f'height="15" rx="2">{_title(bar.title)}</rect>'
                )
            left += size
        drawn.append(f'<text x="{left + 7:.1f}" y="{top + 16:.1f}">{_short(sum(bar.parts))}</text>')
    return _picture(drawn, name, max(len(bars), 1) * row)


def draw_timeline(spans: Sequence[TimeSpan], name: str, unit: str = "ms") -> Markup:
    """Return spans in time, each on a line of its own, as flames are drawn."""
    end = max((one.start + one.length for one in spans), default=0) or 1
    drawn, row, room = [], 26.0, _NARROW - 170
    for part in range(5):
        x = 90 + room * part / 4
        drawn.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{len(spans) * row:.1f}"/>'
            f'<text x="{x:.1f}" y="{len(spans) * row + 15:.1f}" text-anchor="middle">'
            f"{_short(end * part / 4)} {unit}</text>"
        )
    for at, one in enumerate(spans):
        x, width = 90 + one.start / end * room, max(one.length / end * room, 1.5)
        drawn.append(
            f'<text class="label" x="82" y="{at * row + 17:.1f}" text-anchor="end">'
            f"{escape(one.name)}</text>"
            f'<rect class="{_CLASSES[at % 6]}" x="{x:.1f}" y="{at * row + 4:.1f}" '
            f'width="{width:.1f}" height="18" rx="2">{_title(one.title)}</rect>'
            f'<text x="{min(x + width + 6, _NARROW - 60):.1f}" y="{at * row + 17:.1f}">'
            f"{_short(one.length)} {unit}</text>"
        )
    return _picture(drawn, name, len(spans) * row + 20, _NARROW)


def draw_curve(points: Sequence[Point], name: str, height: float = 170.0) -> Markup:
    """Return a curve over the points, from left to right."""
    most = max((one.value for one in points), default=0) or 1
    floor, step = height - 22, (_WIDTH - 40) / max(len(points) - 1, 1)
    places = [(20 + at * step, floor - one.value / most * (floor - 18))
              for at, one in enumerate(points)]  # fmt: skip
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    drawn = [_grid(floor, most)]
    if places:
        last = places[-1][0]
        drawn.append(
            f'<polygon class="wash" points="20,{floor:.1f} {line} {last:.1f},{floor:.1f}"/>'
        )
        drawn.append(f'<polyline class="curve" points="{line}"/>')
    for at, ((x, y), one) in enumerate(zip(places, points, strict=True)):
        drawn.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.2">{_title(one.title)}'
                     "</circle>")  # fmt: skip
        if len(points) <= 12 or at % (len(points) // 8 + 1) == 0:
            drawn.append(
                f'<text x="{x:.1f}" y="{height - 4:.1f}" text-anchor="middle">'
                f"{escape(one.label)}</text>"
            )
    return _picture(drawn, name, height)


def _picture(drawn: Sequence[str], name: str, height: float, width: float = _WIDTH) -> Markup:
    return Markup(
        f'<svg class="plot" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(name)}">{"".join(drawn)}</svg>'
    )


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _short(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f}".rstrip("0").rstrip(".") + unit
    return f"{value:.1f}".rstrip("0").rstrip(".") if value < 10 else f"{value:.0f}"


def _cut(label: str) -> str:
    return label if len(label) <= 26 else f"{label[:25]}…"
