"""A picture of how good a search is, as SVG: nothing is needed to draw it."""

from __future__ import annotations

from collections.abc import Iterator

from skillbelt.search.evaluate import DEPTH, Report
from skillbelt.text import xml

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 760, 300, 50, 40, 60
_INNER = 200  # the height of both pictures
_CURVE = 320  # the width of the left one
_BAR = 40


def svg(report: Report, title: str) -> str:
    """How often a right answer is among the first, and each measure with its interval."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="13">{xml(title)} ({report.requests} requests)</text>',
        *_axis(_LEFT, _CURVE),
        *_curve(report),
        *_axis(_LEFT + _CURVE + _GAP, _WIDTH - _LEFT - _CURVE - _GAP - 20),
        *_bars(report),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _y(value: float) -> float:
    return round(_TOP + _INNER * (1.0 - value), 1)


def _axis(left: int, width: int) -> Iterator[str]:
    for tenth in range(0, 11, 2):
        y = _y(tenth / 10)
        yield f'<line x1="{left}" y1="{y}" x2="{left + width}" y2="{y}" stroke="#ddd"/>'
        yield f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{tenth / 10:.1f}</text>'


def _curve(report: Report) -> Iterator[str]:
    step = _CURVE / DEPTH
    places = [(round(_LEFT + step * (n + 0.5), 1), _y(hit)) for n, hit in enumerate(report.hits)]
    line = " ".join(f"{x},{y}" for x, y in places)
    yield f'<polyline points="{line}" fill="none" stroke="#1f77b4" stroke-width="2"/>'
    for rank, (x, y) in enumerate(places, 1):
        yield f'<circle cx="{x}" cy="{y}" r="2.5" fill="#1f77b4"/>'
        if rank == 1 or rank % 5 == 0:
            yield f'<text x="{x}" y="{_y(0) + 16}" text-anchor="middle">{rank}</text>'
    middle = _LEFT + _CURVE / 2
    about = "a right answer among the first so many"
    yield f'<text x="{middle}" y="{_y(0) + 36}" text-anchor="middle">{about}</text>'


def _bars(report: Report) -> Iterator[str]:
    left = _LEFT + _CURVE + _GAP + 10
    for place, (name, (mean, low, high)) in enumerate(report.measures.items()):
        x = left + place * (_BAR + 20)
        middle = x + _BAR / 2
        height = round(_y(0) - _y(mean), 1)
        yield f'<rect x="{x}" y="{_y(mean)}" width="{_BAR}" height="{height}" fill="#9ecae1"/>'
        yield f'<line x1="{middle}" y1="{_y(low)}" x2="{middle}" y2="{_y(high)}" stroke="black"/>'
        yield f'<text x="{middle}" y="{_y(0) + 16}" text-anchor="middle">{xml(name)}</text>'
        yield f'<text x="{middle}" y="{_y(high) - 5}" text-anchor="middle">{mean:.2f}</text>'
