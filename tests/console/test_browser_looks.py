"""Every page of the console in light and dark: accessibility, the focus, and the pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from skillbelt import Runtime
from tests import needs
from tests.console.browsers import (
    FITS,
    FOCUS,
    NARROW,
    WIDE,
    ServedConsole,
    Window,
    made_tree,
    open_chromium,
    refuse_all,
    serve_console,
)
from tests.console.scenes import (
    ask,
    describe_requests,
    list_pages,
    make_scene,
    wait_for_requests,
    write_skills,
)

pytestmark = [pytest.mark.long, needs.chromium]

GRAVE = ("serious", "critical")
MOST_STOPS = 400  # of the Tab key on a page


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[dict[str, str], ServedConsole, Any]]:
    with made_tree() as tree:
        write_skills(tree)
        with Runtime(tree.project) as belt:
            scene = make_scene(belt, tree)
            with serve_console(belt) as served, open_chromium() as browser:
                ask(belt, describe_requests(belt))
                wait_for_requests(belt, 3)
                yield list_pages(scene), served, browser
                refuse_all(belt)


@pytest.mark.parametrize(
    ("theme", "size"), [("light", NARROW), ("dark", WIDE)], ids=["light", "dark"]
)
def test_no_page_has_a_grave_fault(place: Any, theme: str, size: Any) -> None:
    pages, served, browser = place
    window = Window(browser, served, color_scheme=theme, viewport=size)
    axe, grave = Axe(), {}
    for name, path in {**pages, "sign-in": "/sign-in"}.items():
        page = window.open(path)
        assert window.measure() == FITS, name
        # Closed parts are looked at, too.
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        found = axe.run(page).response["violations"]
        if wrong := [
            (one["id"], one["nodes"][0]["html"][:200], one["nodes"][0]["failureSummary"][:300])
            for one in found
            if one["impact"] in GRAVE
        ]:
            grave[name] = wrong
    window.close()
    assert grave == {}


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["phone", "desk"])
def test_the_focus_is_seen_wherever_it_goes(place: Any, size: Any) -> None:
    pages, served, browser = place
    window = Window(browser, served, viewport=size)
    lost = []
    for name, path in pages.items():
        page = window.open(path)
        stops: list[Any] = []
        while len(stops) < MOST_STOPS and not (stops and stops[-1]["end"]):
            page.keyboard.press("Tab")
            stops.append(page.evaluate(FOCUS))
        lost += [(name, one) for one in stops[:-1] if not (one["marked"] and one["seen"])]
        assert len(stops) > 8, name
    window.close()
    assert lost == []
