"""Take the pictures of the console for the documentation, in a real browser.

The project is the one that `tests/console` shows to a browser. `--all FOLDER` takes every page,
light and dark, on a phone and at a desk, to look at. The note beside the pictures says what they
were drawn from; a test finds those that are out of date.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE))

from tests.console import browsers, scenes  # noqa: E402

from skillbelt import Runtime  # noqa: E402

CONSOLE = HERE / "src" / "skillbelt" / "console"
PICTURES = HERE / "docs" / "pictures"
NOTE = PICTURES / "console.json"
SIZE: Any = {"width": 1200, "height": 900}
# Name, page and colours of each picture of the documentation.
SHOWN = (
    ("console-inbox", "inbox", "light"),
    ("console-run", "run", "dark"),
    ("console-usage", "usage", "light"),
)


def find_source() -> str:
    """Return what changes with the look of all pages: the frame, the style and the drawings."""
    mark = hashlib.sha256()
    for name in ("templates/base.html", "static/console.css", "plots.py", "terminal.py"):
        mark.update(name.encode() + (CONSOLE / name).read_bytes())
    return mark.hexdigest()


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="take every page, to look at")
    args = parser.parse_args()
    with browsers.made_tree() as tree:
        scenes.write_skills(tree)
        tree.setenv("HOME", tree.root)  # pages then show a short path
        with Runtime(tree.project) as belt:
            scene = scenes.make_scene(belt, tree)
            with browsers.serve_console(belt) as served, browsers.open_chromium() as browser:
                scenes.ask(belt, scenes.describe_requests(belt))
                scenes.wait_for_requests(belt, 3)
                pages = {**scenes.list_pages(scene), **scenes.begin_installs(belt, tree)}
                if args.all:
                    _take_all(browser, served, pages, args.all)
                else:
                    _take_shown(browser, served, pages)
                browsers.refuse_all(belt)


def _take_shown(browser: Any, served: Any, pages: dict[str, str]) -> None:
    for name, page, theme in SHOWN:
        window = browsers.Window(browser, served, viewport=SIZE, color_scheme=theme)
        _take(window, pages[page], PICTURES / f"{name}.png")
        window.close()
    NOTE.write_text(json.dumps({"drawn_from": find_source()}) + "\n", "utf-8")


def _take_all(browser: Any, served: Any, pages: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for theme in ("light", "dark"):
        for size, viewport in (("phone", browsers.NARROW), ("desk", browsers.WIDE)):
            window = browsers.Window(browser, served, viewport=viewport, color_scheme=theme)
            for name, path in pages.items():
                _take(window, path, folder / f"{name}-{size}-{theme}.png", whole=True)
            window.close()


def _take(window: Any, path: str, picture: Path, *, whole: bool = False) -> None:
    page = window.open(path)
    page.wait_for_load_state("load")
    page.evaluate("document.fonts.ready")
    page.screenshot(path=picture, full_page=whole, animations="disabled")


if __name__ == "__main__":
    main()
