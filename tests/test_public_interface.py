from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import warm

_SCRIPT = Path(__file__).parents[1] / "scripts" / "public_interface.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script that lists the interface, as a module."""
    spec = importlib.util.spec_from_file_location("public_interface", _SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def recorded(script: ModuleType) -> dict[str, Any]:
    """What was recorded."""
    found: dict[str, Any] = json.loads(script.RECORD.read_text("utf-8"))
    return found


@pytest.mark.parametrize("part", ["names", "commands", "settings", "documents"])
def test_what_users_rely_on_is_as_recorded(
    part: str, script: ModuleType, recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script.subprocess, "run", warm.run)  # a start of Python less for each
    assert json.loads(json.dumps(getattr(script, part)())) == recorded[part], (
        "run `python scripts/public_interface.py --write` if the change is meant"
    )
