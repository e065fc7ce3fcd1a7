"""The report on collecting measures what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import collect


def test_the_files_are_as_described(tmp_path: Path) -> None:
    collect.fill(str(tmp_path), files=2, size=1000)
    made = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert [path.stat().st_size for path in made] == [1000] * 6
    assert [path.suffix for path in made[::2]] == [".bin", ".csv", ".txt"]
    assert "übermütig" in made[2].read_text("utf-8")
    assert "Zürich" in made[4].read_text("utf-8")


@pytest.mark.long
def test_every_way_is_measured_beside_a_copy() -> None:
    found = collect.rows(rounds=1, files=3, size=1000)
    assert [row.barred for row in found] == [True, False, False, True, False]
    assert all(row.seconds > 0 and row.ratio > 0 for row in found)


@pytest.mark.parametrize(("ratio", "code"), [(1.0, 0), (collect.BAR + 0.1, 1)])
def test_a_missed_bar_is_told(
    ratio: float, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = collect.Row("some", 0.1, ratio)
    dear = collect.Row("other", 0.1, 100.0, barred=False)
    monkeypatch.setattr(collect, "rows", lambda _: [row, dear])
    assert collect.main([]) == code
    assert ("MISSED" in capsys.readouterr().out) == bool(code)
    assert collect.main(["--json"]) == code
    assert json.loads(capsys.readouterr().out)["rows"][0]["ratio"] == ratio
