"""Plots: figures that a person can read, at any width."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from skillbelt.console.plots import (
    PlotBar,
    Point,
    TimeSpan,
    draw_bars,
    draw_curve,
    draw_share,
    draw_timeline,
    list_ticks,
)
from skillbelt.console.render import show_duration


@given(st.integers(min_value=0, max_value=10**12))
def test_a_scale_is_round_begins_at_nothing_and_holds_the_highest(most: int) -> None:
    ticks = list_ticks(most)
    assert ticks[0] == 0
    assert ticks[-1] >= most
    assert 2 <= len(ticks) <= 6
    assert all(one == int(one) for one in ticks)
    steps = {after - before for before, after in pairwise(ticks)}
    assert len(steps) == 1
    assert str(int(steps.pop())).rstrip("0") in ("1", "2", "25", "5")


def test_bars_have_figures_labels_and_what_each_says() -> None:
    bars = [PlotBar(f"{day} May", (day, 1), f"{day} May: {day} runs") for day in range(1, 31)]
    drawn = draw_bars(bars, "Runs of May", ("f2", "fb"))
    assert 'aria-label="Runs of May"' in drawn
    for text in (">1 May<", ">0<", ">40<", "<title>30 May: 30 runs</title>", 'class="fb"'):
        assert text in drawn


def test_no_place_from_left_to_right_is_in_pixels() -> None:
    """Then texts of a narrow page are as large as those of a wide one."""
    bars = [PlotBar("a", (1.0,)), PlotBar("b", (2.0,))]
    points = [Point("1", 5, ""), Point("2", 9, "")]
    for drawn in (draw_bars(bars, "x", ("f1",)), draw_curve(points, "x"),
                  draw_share((1, 2), ("f1", "f2"), 4, "x")):  # fmt: skip
        for place in re.findall(r'(?:cx|x1|x2|[ ]x|<rect[^>]* width)="([^"]*)"', drawn):
            assert place.endswith("%") or place == "0", drawn


def test_a_timeline_says_how_long_each_step_took() -> None:
    steps = [TimeSpan("ask", 0, 1_912, "t", "asks"), TimeSpan("run", 1_912, 61_000, "t", "runs")]
    drawn = draw_timeline(steps, "Steps", show_duration)
    for text in ("1.9 s", "1 min 1 s", ">0<", ">1 min 0 s<", 'class="span asks"'):
        assert text in drawn


def test_nothing_makes_plots_fail() -> None:
    assert "<svg" in draw_bars([], "x", ("f1",))
    assert "<svg" in draw_curve([], "x")
    assert "<svg" in draw_share((0, 0), ("f1", "f2"), 0, "x")
    assert "<ol" in draw_timeline([TimeSpan("run", 0, 0, "")], "x", show_duration)


def test_hostile_names_stay_text() -> None:
    name = '"><script>x</script>'
    drawn = draw_bars([PlotBar(name, (1,), name)], name, ("f1",)) + draw_timeline(
        [TimeSpan(name, 0, 1, name)], name, show_duration
    )
    assert "<script>" not in drawn
