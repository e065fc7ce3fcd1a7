"""The report on search measures what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import search
from benchmarks.search import Row

from tests.tree import Tree


@pytest.fixture
def pool(tree: Tree) -> str:
    for n in range(12):
        text = f"# Part {n}\n\nWork on topic{n} with tool{n}.\n" + "More words. " * 60
        tree.skill(f"pool/skill{n}", description=f"Does topic{n}.", text=text)
    return str(tree.path("pool"))


def test_every_bar_is_measured(tree: Tree, pool: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"query": f"please do topic{n}", "relevant": [f"skill{n}"]} for n in range(12)]
    rows.append({"query": "how are you today", "relevant": []})
    rows.append({"query": "bake bread", "relevant": [], "kind": "other fields", "near": ["skill3"]})
    labelled = tree.write("set.jsonl", "\n".join(map(json.dumps, rows)))
    figures = tree.path("figures.json")
    search.main(["--pool", pool, "--labelled", str(labelled), "--json", str(figures)])
    found = {row["name"]: row["figure"] for row in json.loads(figures.read_text())}
    assert found.keys() == {
        "build / read and tokenise",
        "index size / text",
        "request, median ms",
        "request, p95 ms",
        "Hit@1",
        "Recall@10",
        "area under the curve, right skill taken out",
        "area under the curve, no skill fits",
        "area under the curve, other fields",
        "area under the curve, every kind",
        "a change is found after s",
    }
    assert found["Hit@1"] == found["Recall@10"] == 1.0
    assert found["area under the curve, no skill fits"] == 1.0
    assert all(figure > 0 for figure in found.values())
    printed = capsys.readouterr().out
    assert "| Hit@1 | at least 0.84 | 1 | pass |" in printed
    assert "Hit@1: 1.000 (1.000 to 1.000), 12 requests" in printed


def test_without_a_labelled_set_only_speed_is_measured(tree: Tree, pool: str) -> None:
    rows, report = search.measure(pool, [], str(tree.path("home")))
    assert report is None
    assert "Hit@1" not in {row.name for row in rows}


def test_a_missed_bar_fails() -> None:
    assert Row("quick", 1.0, 2.0).passed
    assert not Row("slow", 3.0, 2.0).passed
    assert Row("good", 0.8, 0.76, at_least=True).passed
    assert not Row("bad", 0.7, 0.76, at_least=True).passed
    assert "FAIL" in search.table([Row("bad", 0.7, 0.76, at_least=True)])


def test_the_file_that_is_changed_is_put_back(tree: Tree, pool: str) -> None:
    before = {path: path.read_bytes() for path in Path(pool).rglob("SKILL.md")}
    made = search.catalog(pool, str(tree.path("home")))
    assert search.changed(made).figure > 0
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.long
def test_the_made_up_skills_are_found_and_nothing_else(tree: Tree) -> None:
    rows, report = search.judge_made_up(tree.path("made-up"))
    assert [row.name for row in rows if not row.passed] == []
    assert len(rows) == 5
    assert report is not None
    assert report.requests == 100
