"""The page about security lists the attacks that there are."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from skillbelt.sandbox.registry import sandboxes
from skillbelt.testing.probes import PROBES

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "security_matrix.py"
PAGE = (ROOT / "design" / "attacks.md").read_text("utf-8")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("security_matrix", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_lists_the_attacks_of_the_code() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=500, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_attack_of_the_page_succeeded(script: ModuleType) -> None:
    rows = [line for line in script.generated(PAGE).splitlines() if line.startswith("| ")]
    outcomes = {cell.strip() for row in rows[2:] for cell in row.split("|")[3:-1]}
    assert outcomes == {"stopped", "not claimed"}


def test_a_page_without_an_attack_is_told(script: ModuleType) -> None:
    name = PROBES[0].name
    assert script.faults(PAGE.replace(f"| {name} |", "| another |")) == [
        f"the matrix lacks {name!r}"
    ]


def test_a_page_with_a_gap_is_told(script: ModuleType) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| 44 |"))
    assert script.faults(PAGE.replace(f"{row}\n", "")) == [
        "the list has no attack 44",
        "the numbers of the list have gaps",
    ]


def test_every_sandbox_is_explained() -> None:
    page = (ROOT / "docs" / "security.md").read_text("utf-8")
    for sandbox in sandboxes():
        assert f"| `{sandbox.name}` |" in page
