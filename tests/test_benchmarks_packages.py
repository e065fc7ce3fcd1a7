"""The benchmark of packages: what counts as missed. It measures with an index, so not here."""

from __future__ import annotations

import json

from benchmarks.packages import PackageBar, as_json, table


def test_a_ratio_above_its_bar_is_a_miss() -> None:
    bars = [
        PackageBar(name="first", ours=1.4, other=1.0, bar=1.5),
        PackageBar(name="second", ours=1.3, other=1.0, bar=1.2),
        PackageBar(name="prints", ours=1.3, other=1.0, bar=0.0),
    ]
    assert [bar.passed for bar in bars] == [True, False, True]
    assert [row["passed"] for row in json.loads(as_json(bars))] == [True, False, True]
    assert [line[:4] for line in table(bars).splitlines()[1:]] == ["ok  ", "MISS", "    "]
