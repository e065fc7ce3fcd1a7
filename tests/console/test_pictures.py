"""The pictures of the console in the documentation show the console as it is."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def load_script() -> Any:
    path = ROOT / "scripts" / "console_pictures.py"
    spec = importlib.util.spec_from_file_location("console_pictures", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pictures_are_of_this_look() -> None:
    script = load_script()
    known = json.loads(script.NOTE.read_text("utf-8"))["drawn_from"]
    assert known == script.find_source(), "renew them: python scripts/console_pictures.py"


def test_every_picture_is_shown_in_the_documentation() -> None:
    text = (ROOT / "docs" / "how-to" / "console.md").read_text("utf-8")
    names = [name for name, _, _ in load_script().SHOWN]
    assert sorted(
        path.stem for path in (ROOT / "docs" / "pictures").glob("console-*.png")
    ) == sorted(names)
    assert [name for name in names if f"../pictures/{name}.png" not in text] == []
