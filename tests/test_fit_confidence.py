"""The script that fits how sure a search is finds what there is to find."""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

_SCRIPT = Path(__file__).parents[1] / "scripts" / "fit_confidence.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fit_confidence", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_fitting_finds_the_weights_that_made_the_data(script: ModuleType) -> None:
    draw = random.Random(3)
    true = (0.0, 2.0, -1.0)
    rows = []
    for _ in range(1_500):
        values = (1.0, draw.uniform(-2, 2), draw.uniform(-2, 2))
        right = draw.random() < script.probability(true, values)
        rows.append(script.Row(values, right, first=True, held_out=False))
    assert script.fit(rows) == pytest.approx(true, abs=0.35)


@pytest.mark.long
def test_what_ships_is_nearly_as_good_as_a_fit_on_the_made_up_skills(
    script: ModuleType,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert script.main([]) == 0
    printed = capsys.readouterr().out
    fitted, shipped = map(float, re.findall(r"(?:learnt|ships): ([\d.]+)", printed))
    assert shipped >= 0.80
    assert abs(fitted - shipped) < 0.05


def test_half_a_pool_is_refused(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        script.main(["--pool", "skills"])
    assert "belong together" in capsys.readouterr().err
