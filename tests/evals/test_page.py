"""The HTML report of `skillbelt eval` in a real browser, opened from disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from skillbelt.evals.outcome import (
    Bar,
    CaseOutcome,
    Confusion,
    EvalReport,
    MeasuredSkill,
    Outcome,
    judge_bars,
)
from skillbelt.evals.reports import write_report
from skillbelt.evals.statistics import count_rate
from tests import needs
from tests.console.browsers import FITS, MEASURE, NARROW, WIDE, open_chromium

pytestmark = [pytest.mark.long, needs.chromium]

MODEL = "a-model-with-a-long-name@http://127.0.0.1:36435/v1"
HOSTILE = "<img src=http://127.0.0.1:1/x onerror=alert(1)>" + "w" * 300
# How many lines the text of each cell takes.
LINES = """all => all.map(one => {
    const words = document.createRange()
    words.selectNodeContents(one.lastChild)
    return words.getClientRects().length
})"""


def make_report() -> EvalReport:
    good, bad = count_rate([True] * 3 + [False]), count_rate([False] * 4)
    cases = [
        CaseOutcome(id=str(number), skill="tally", group="with_skill", text=HOSTILE,
                    outcome=outcome, detail=HOSTILE, model=MODEL, data={"run": 1})
        for number, outcome in enumerate(get_args(Outcome))
    ]  # fmt: skip
    report = EvalReport(
        kind="run",
        skills=(
            MeasuredSkill("tally", {"passed": good}, MODEL),
            MeasuredSkill("tally", {"passed": bad}, MODEL, "without_skill"),
        ),
        overall={"passed": good},
        cases=tuple(cases),
        confusions=(Confusion(HOSTILE, "tally", "books", ("ledger",)),),
        warnings=(HOSTILE,),
        facts={
            "pairs": [
                {"case": HOSTILE, "with": 1.0, "without": 0.0},
                {"case": "worse", "with": 0.25, "without": 0.5},
            ],
            "differences": [{"name": MODEL, "tasks": 2, "mean": 0.4, "low": -0.2, "high": 1.0}],
            "tokens": 1_000,
        },
    )
    return judge_bars(report, [Bar("passed", 0.9)])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_chromium() as opened:
        yield opened


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["narrow", "wide"])
def test_a_report_reads_well_from_disk(
    browser: Any, tmp_path: Path, theme: str, size: dict[str, int]
) -> None:
    path = tmp_path / "report.html"
    write_report(make_report(), str(path))
    page = browser.new_page(viewport=size, color_scheme=theme)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    assert page.evaluate(MEASURE) == FITS
    assert asked == [path.as_uri()]
    lines = page.locator("td[data-head=kind]").evaluate_all(LINES)
    assert max(lines) <= 2, "a word of «with skill» is broken"
    labels = page.locator("[role=img] .row > span:first-child")
    assert labels.first.evaluate("one => parseFloat(getComputedStyle(one).fontSize)") >= 12
    found = Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == []
    page.close()
