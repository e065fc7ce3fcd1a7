"""The page about use: which skills, how often, with what success, how long."""

from __future__ import annotations

from datetime import datetime, timedelta

from skillbelt.console.plots import PlotBar, draw_bars, draw_rows
from skillbelt.console.usage_book import UsageBook
from skillbelt.console.visit import ShownPage, Visit
from skillbelt.text import tokens

DAYS = 30
_TOP = 12
_WAIT_SECONDS = 3.0


def show(visit: Visit) -> ShownPage:
    """Show the figures and the plots."""
    book = visit.parts.usage
    book.start()
    ready = book.wait(_WAIT_SECONDS)
    used = book.skills()
    top = [
        PlotBar(one.name, (one.loads, one.runs - one.failed, one.failed), _tell(one.document()))
        for one in used[:_TOP]
    ]
    cost = {
        name: tokens(f"- {skill.name}: {skill.description}\n")
        for name, skill in visit.parts.belt.catalog.snapshot.items()
    }
    return ShownPage(
        "usage.html",
        {
            "ready": ready,
            "used": [one.document() for one in used[:200]],
            "totals": {
                "loads": sum(one.loads for one in used),
                "runs": sum(one.runs for one in used),
                "failed": sum(one.failed for one in used),
                "never": sum(name not in {one.name for one in used} for name in cost),
                "tokens": sum(cost.values()),
            },
            "days": draw_bars(list_days(book), f"Loads and runs of the last {DAYS} days"),
            "top": draw_rows(top, "The skills that are used most"),
            "cost": cost,
        },
    )


def list_days(book: UsageBook) -> list[PlotBar]:
    """Return the last days as bars: loads, runs and failed runs."""
    now = datetime.now()
    bars = []
    for back in range(DAYS - 1, -1, -1):
        day = (now - timedelta(days=back)).strftime("%Y-%m-%d")
        loads, runs, failed = book.day(day)
        told = f"{day}: {loads} loads, {runs} runs, {failed} failed"
        bars.append(PlotBar(day[5:], (loads, runs - failed, failed), told))
    return bars


def _tell(one: dict[str, object]) -> str:
    return f"{one['skill']}: {one['loads']} loads, {one['runs']} runs, {one['failed']} failed"
