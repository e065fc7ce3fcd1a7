"""The script that fits the trees of search learns what separates right from wrong."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

from skillbelt.search.trees import FEATURES, gain
from tests.tree import Tree

_SCRIPT = Path(__file__).parents[1] / "scripts" / "fit_ranking.py"
_VALUES = 2 * len(FEATURES) + 3


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fit_ranking", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def examples(script: ModuleType) -> list[object]:
    """Return requests whose right candidate has the highest fifth value, not the best score."""
    draw, made = random.Random(3), []
    for n in range(120):
        rows = [[draw.random() for _ in range(_VALUES)] for _ in range(6)]
        best = max(range(6), key=lambda place: rows[place][4])
        made.append(
            script.Example(
                group=f"publisher {n % 7}",
                long=False,
                wanted=1,
                scores=[1.0 - place / 100 for place in range(6)],
                right=[int(place == best) for place in range(6)],
                same=list(range(6)),
                rows=rows,
            )
        )
    return made


def test_the_trees_learn_the_value_that_matters(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "TREES", 10)
    trees = script.fit(examples(script))
    high, low = [0.5] * _VALUES, [0.5] * _VALUES
    high[4], low[4] = 0.95, 0.05
    assert gain(high, trees) > gain(low, trees)
    assert min(gain(high, [tree]) for tree in trees) >= 0.0


def test_the_same_input_gives_the_same_trees(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "TREES", 3)
    assert script.fit(examples(script)) == script.fit(examples(script))


@pytest.mark.long
def test_groups_are_measured_with_what_was_learnt_from_others(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "TREES", 10)
    asked = examples(script)
    script.report("made up", asked, script.held_out(asked, 1))
    printed = capsys.readouterr().out
    assert "made up, prompts, 120 requests of 7 groups: Hit@1 0." in printed
    assert "tasks" not in printed


def test_a_pool_is_asked_and_the_trees_are_written(
    script: ModuleType, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "TREES", 2)
    for n in range(12):
        tree.skill(f"pool/skill{n}", description=f"Does topic{n} and files.", text="Open files.")
    rows = [
        {"query": f"topic{n} of my files", "relevant": [f"skill{n}"], "group": f"g{n % 6}"}
        for n in range(12)
    ]
    labelled = tree.write("set.jsonl", "\n".join(map(json.dumps, rows)))
    written = tree.path("trees.json")
    pool = str(tree.path("pool"))
    given = ["--pool", pool, "--labelled", str(labelled)]
    assert script.main([*given, "--source", "made up", "--write", str(written)]) == 0
    found = json.loads(written.read_text())
    assert found["learnt from"] == "made up"
    assert len(found["trees"]) == 2
