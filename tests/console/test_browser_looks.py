"""Every page of the console in light and dark: accessibility, the focus, and the pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

from skillbelt import Runtime
from skillbelt.console.people import AccessRules, OidcProvider
from tests import needs
from tests.console.browsers import (
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
    begin_installs,
    describe_requests,
    list_pages,
    make_scene,
    wait_for_requests,
    write_skills,
)

# A browser that opens every page takes minutes on a busy machine.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900), needs.chromium]

GRAVE = ("serious", "critical")
MOST_STOPS = 400  # of the Tab key on a page


# Rows that look like those before them.
CONTEXT = {"exclude": [[f"{one}:nth-child(n+13)"] for one in
                       (".log tbody tr", ".rows.skills > li", ".turns > li")]}  # fmt: skip
ALL = {"resultTypes": ["violations"], "preload": False}
# Dark pages have the elements of the light ones: only colours can be wrong with them alone.
COLOURS = {**ALL, "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
EXAMINE = "([context, options]) => axe.run(context, options)"
OPEN = "document.querySelectorAll('details').forEach(one => one.open = true)"


class Place(NamedTuple):
    """Every page of a console, and a browser."""

    pages: dict[str, str]
    served: ServedConsole
    browser: Any


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with made_tree() as tree:
        write_skills(tree)
        with Runtime(tree.project) as belt:
            scene = make_scene(belt, tree)
            provider = AccessRules(oidc=OidcProvider("https://id.example", "skillbelt"))
            with serve_console(belt, lambda: provider) as served, open_chromium() as browser:
                ask(belt, describe_requests(belt))
                wait_for_requests(belt, 3)
                pages = {**list_pages(scene), **begin_installs(belt, tree)}
                yield Place(pages, served, browser)
                refuse_all(belt)


def find_grave(page: Any, size: Any, theme: str) -> list[tuple[str, str, str]]:
    """What axe finds on a page in which it is loaded."""
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=theme)
    options = ALL if theme == "light" else COLOURS
    found = page.evaluate(EXAMINE, [CONTEXT, options])["violations"]
    return [
        (one["id"], one["nodes"][0]["html"][:200], one["nodes"][0]["failureSummary"][:300])
        for one in found
        if one["impact"] in GRAVE
    ]


def test_no_page_has_a_grave_fault_at_any_size_in_any_colours(place: Place) -> None:
    window, axe = Window(place.browser, place.served), Axe().axe_script
    grave = {}
    for name, path in {**place.pages, "sign-in": "/sign-in"}.items():
        page = window.open(path)
        page.evaluate(OPEN)  # closed parts are looked at, too
        page.evaluate(axe)
        for size in (NARROW, WIDE):
            for theme in ("light", "dark"):
                if wrong := find_grave(page, size, theme):
                    grave[name, size["width"], theme] = wrong
    window.close()
    assert grave == {}


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["phone", "desk"])
def test_the_focus_is_seen_wherever_it_goes(place: Place, size: Any) -> None:
    window = Window(place.browser, place.served, viewport=size)
    lost = []
    for name, path in place.pages.items():
        page = window.open(path)
        stops: list[Any] = []
        while len(stops) < MOST_STOPS and not (stops and stops[-1]["end"]):
            page.keyboard.press("Tab")
            stops.append(page.evaluate(FOCUS))
        lost += [(name, one) for one in stops[:-1] if not (one["marked"] and one["seen"])]
        assert len(stops) > 8, name
    window.close()
    assert lost == []
