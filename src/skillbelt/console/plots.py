"""Plots as SVG, without scripts and inline styles; colours are CSS classes.

Horizontal positions are percentages and heights are pixels, so that a plot fills the width of the
page and its text keeps the size of the page's text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

_TOP = 8.0  # above the highest line, for its figure
_FOOT = 24.0  # below the axis, for its labels
_MOST_LABELS = 6
_ROUND = (1, 2, 2.5, 5, 10)
_TIMES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1.5e4, 3e4, 6e4, 12e4, 3e5, 6e5,
          9e5, 18e5, 36e5)  # fmt: skip


class PlotBar(NamedTuple):
    """A bar: its label, its stacked parts, and its tooltip."""

    label: str
    parts: tuple[float, ...]
    title: str = ""


class TimeSpan(NamedTuple):
    """A part of a timeline, in milliseconds; `kind` is the class of its colour."""

    name: str
    start: float
    length: float
    title: str
    kind: str = ""


class Point(NamedTuple):
    """A point of a curve."""

    label: str
    value: float
    title: str


def draw_bars(
    bars: Sequence[PlotBar], name: str, kinds: Sequence[str], height: float = 168.0
) -> Markup:
    """Return vertical bars; `kinds` are the classes of their stacked parts."""
    most = max((sum(bar.parts) for bar in bars), default=0)
    ticks = list_ticks(most)
    step, floor = 100 / max(len(bars), 1), height - _FOOT
    drawn = [_grid(ticks, floor)]
    for at, bar in enumerate(bars):
        top = floor
        for value, kind in zip(bar.parts, kinds, strict=True):
            size = value / ticks[-1] * (floor - _TOP)
            top -= size
            if value:
                drawn.append(
                    f'<rect class="{kind}" x="{at * step + step * 0.13:.2f}%" y="{top:.1f}" '
                    f'width="{step * 0.74:.2f}%" height="{max(size - 0.5, 0.5):.1f}"/>'
                )
        # The tooltip belongs to the whole column: a bar may be one pixel high.
        drawn.append(
            f'<rect class="day" x="{at * step:.2f}%" y="{_TOP}" width="{step:.2f}%" '
            f'height="{floor - _TOP:.1f}">{_title(bar.title)}</rect>'
        )
    drawn.append(_labels([bar.label for bar in bars], height, centred=True))
    return _with_scale(ticks, floor, _picture(drawn, name, height))


def draw_share(parts: Sequence[float], kinds: Sequence[str], most: float, name: str) -> Markup:
    """Return one horizontal bar for a row of a table; `most` is the length of the longest."""
    drawn, left = [], 0.0
    for value, kind in zip(parts, kinds, strict=True):
        size = value / (most or 1) * 100
        if value:
            drawn.append(
                f'<rect class="{kind}" x="{left:.2f}%" y="0" width="{size:.2f}%" height="8"/>'
            )
        left += size
    return _picture(drawn, name, 8, "share")


def draw_timeline(spans: Sequence[TimeSpan], name: str, tell: Callable[[float], str]) -> Markup:
    """Return time spans as a list, one per line; `tell` formats a duration."""
    end = max((one.start + one.length for one in spans), default=0) or 1
    step = next((one for one in _TIMES if end / one <= 5), end / 4)
    marks = [at * step for at in range(int(end / step) + 1)]
    lines = "".join(
        f'<line class="grid" x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="100%"/>'
        for x in (mark / end * 100 for mark in marks)
    )
    rows = [
        f'<li><span class="step">{escape(one.name)}</span>'
        f'<svg class="plot lane" aria-hidden="true">{lines}'
        f'<rect class="span {escape(one.kind)}" x="{one.start / end * 100:.2f}%" y="5" '
        f'width="{one.length / end * 100:.2f}%" height="16">{_title(one.title)}</rect></svg>'
        f'<span class="figure">{escape(tell(one.length))}</span></li>'
        for one in spans
    ]
    ends = {0: "start"} | ({len(marks) - 1: "end"} if marks[-1] / end > 0.92 else {})
    scale = "".join(
        f'<text x="{mark / end * 100:.2f}%" y="12" text-anchor="{ends.get(at, "middle")}">'
        f"{escape(tell(mark).replace('.0 ', ' ')) if mark else '0'}</text>"
        for at, mark in enumerate(marks)
    )
    return Markup(
        f'<ol class="timeline" aria-label="{escape(name)}">{"".join(rows)}</ol>'
        f'<div class="timeline axis" aria-hidden="true"><span></span>'
        f'<svg class="plot lane">{scale}</svg><span></span></div>'
    )


def draw_curve(points: Sequence[Point], name: str, height: float = 188.0) -> Markup:
    """Return a curve over the points, from left to right."""
    ticks, floor = list_ticks(max((one.value for one in points), default=0)), height - _FOOT
    step = 96 / max(len(points) - 1, 1)
    places = [(2 + at * step, 1 - one.value / ticks[-1]) for at, one in enumerate(points)]
    drawn = [_grid(ticks, floor)]
    if len(places) > 1:
        line = " ".join(f"{x:.2f},{y * 100:.2f}" for x, y in places)
        drawn.append(
            f'<svg x="0" y="{_TOP}" width="100%" height="{floor - _TOP:.1f}" '
            'viewBox="0 0 100 100" preserveAspectRatio="none">'
            f'<polygon class="wash" points="2,100 {line} {places[-1][0]:.2f},100"/>'
            f'<polyline class="curve" points="{line}"/></svg>'
        )
    for (x, y), one in zip(places, points, strict=True):
        drawn.append(
            f'<circle class="dot" cx="{x:.2f}%" cy="{_TOP + y * (floor - _TOP):.1f}" '
            f'r="{3.5 if len(points) <= 40 else 2}">{_title(one.title)}</circle>'
        )
    drawn.append(_labels([one.label for one in points], height, centred=False))
    return _with_scale(ticks, floor, _picture(drawn, name, height))


def list_ticks(most: float) -> list[float]:
    """Return about four round tick values from 0 to at least `most`; whole numbers for counts."""
    rough = max(most, 1) / 4
    size = 10 ** math.floor(math.log10(rough)) if rough >= 1 else 1
    step = next(one * size for one in _ROUND if one * size >= rough and one * size % 1 == 0)
    return [at * step for at in range(max(math.ceil(most / step), 1) + 1)]


def _height_of(value: float, ticks: Sequence[float], floor: float) -> float:
    return floor - value / ticks[-1] * (floor - _TOP)


def _grid(ticks: Sequence[float], floor: float) -> str:
    return "".join(
        f'<line class="{"grid" if value else "axis"}" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
        for value, y in ((one, _height_of(one, ticks, floor)) for one in ticks)
    )


def _with_scale(ticks: Sequence[float], floor: float, picture: Markup) -> Markup:
    """Return a plot with its scale at the left, where no bar covers it."""
    figures = "".join(
        f'<text x="100%" y="{_height_of(one, ticks, floor) + 4:.1f}" text-anchor="end">'
        f"{show_short(one)}</text>"
        for one in ticks
    )
    return Markup(
        '<div class="plotted"><svg class="plot" width="30" height="{:.0f}" aria-hidden="true">{}'
        "</svg>{}</div>"
    ).format(floor + _FOOT, Markup(figures), picture)


def _labels(labels: Sequence[str], height: float, *, centred: bool) -> str:
    every = math.ceil(len(labels) / _MOST_LABELS) or 1
    room = 100 / max(len(labels), 1) if centred else 96 / max(len(labels) - 1, 1)
    drawn = []
    for at in range(0, len(labels), every):
        x = at * room + room / 2 if centred else 2 + at * room
        anchor = "end" if x > 94 else "middle"
        drawn.append(
            f'<text x="{x:.2f}%" y="{height - 6:.1f}" text-anchor="{anchor}">'
            f"{escape(labels[at])}</text>"
        )
    return "".join(drawn)


def _picture(drawn: Sequence[str], name: str, height: float, kind: str = "") -> Markup:
    return Markup(
        f'<svg class="plot {kind}" width="100%" height="{height:.0f}" role="img" '
        f'aria-label="{escape(name)}">{"".join(drawn)}</svg>'
    )


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def show_short(value: float) -> str:
    """Return a short form of a number, such as 22.4k."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f}".rstrip("0").rstrip(".") + unit
    return f"{value:.1f}".rstrip("0").rstrip(".") if value < 10 else f"{value:.0f}"
