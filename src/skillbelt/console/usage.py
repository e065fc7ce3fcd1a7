"""The usage page: which skills are used, how often, with what success, and how long."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from markupsafe import Markup

from skillbelt.console.plots import PlotBar, draw_bars, draw_share
from skillbelt.console.render import show_count
from skillbelt.console.usage_book import UsageBook
from skillbelt.console.visit import ShownPage, Visit
from skillbelt.text import tokens

DAYS = 30
_MOST_SHOWN = 200
_WAIT_SECONDS = 3.0


def show(visit: Visit) -> ShownPage:
    """Show the figures and the plots."""
    book = visit.parts.usage
    book.start()
    ready = book.wait(_WAIT_SECONDS)
    used = book.skills()
    shown, most = used[:_MOST_SHOWN], max((one.loads + one.runs for one in used), default=0)
    cost = {
        name: tokens(f"- {skill.name}: {skill.description}\n")
        for name, skill in visit.parts.belt.catalog.snapshot.items()
    }
    loads, runs = list_days(book)
    return ShownPage(
        "usage.html",
        {
            "ready": ready,
            "used": [one.document() for one in shown],
            "totals": {
                "loads": sum(one.loads for one in used),
                "runs": sum(one.runs for one in used),
                "failed": sum(one.failed for one in used),
                "never": sum(name not in {one.name for one in used} for name in cost),
                "tokens": sum(cost.values()),
            },
            "loads": draw_bars(loads, f"Loads on each of the last {DAYS} days", ("f1",)),
            "runs": draw_bars(runs, f"Runs on each of the last {DAYS} days", ("f2", "fb")),
            "bars": {one.name: _draw(one.document(), most) for one in shown},
            "cost": cost,
        },
    )


def list_days(book: UsageBook) -> tuple[list[PlotBar], list[PlotBar]]:
    """Return the last days as bars: loads, and runs by success."""
    now = datetime.now()
    loaded, ran = [], []
    for back in range(DAYS - 1, -1, -1):
        day = now - timedelta(days=back)
        loads, runs, failed = book.day(day.strftime("%Y-%m-%d"))
        label, date = f"{day.day} {day:%b}", f"{day:%a} {day.day} {day:%b %Y}"
        loaded.append(PlotBar(label, (loads,), f"{date}: {show_count(loads, 'load')}"))
        title = f"{date}: {show_count(runs, 'run')}, {failed} failed"
        ran.append(PlotBar(label, (runs - failed, failed), title))
    return loaded, ran


def _draw(one: Mapping[str, Any], most: float) -> Markup:
    title = f"{one['loads']} loads, {one['runs']} runs, {one['failed']} failed"
    parts = (one["loads"], one["runs"] - one["failed"], one["failed"])
    return draw_share(parts, ("f1", "f2", "fb"), most, title)
