"""The report on permission measures what it says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from benchmarks import permission
from benchmarks.permission import Row

from skillbelt.permission.rules import DEFAULT_RULES, TYPES, RuleSet


def kind(pattern: str) -> str:
    inner = pattern.removesuffix("*") if not pattern.startswith("*") else pattern.removeprefix("*")
    if "*" in inner or "?" in inner:
        return "other"
    return "literal" if inner == pattern else "end"


def test_the_rules_are_mixed_as_described() -> None:
    rules = permission.rules()
    assert len(rules) == permission.RULES
    assert rules[: len(DEFAULT_RULES)] == list(DEFAULT_RULES)
    kinds = Counter(kind(rule.pattern) for rule in rules[len(DEFAULT_RULES) :])
    for name, share in (("literal", 0.7), ("end", 0.25), ("other", 0.05)):
        assert kinds[name] / kinds.total() == pytest.approx(share, abs=0.01)
    assert {rule.type for rule in rules} == {*TYPES, "*"}
    general = permission.rules(50, ["other"])[len(DEFAULT_RULES) :]
    assert {kind(rule.pattern) for rule in general} == {"other"}


def test_most_requests_are_decided_by_no_rule_but_the_built_in_ones() -> None:
    stack = RuleSet(permission.rules())
    sources = Counter(stack.decide(one)[1].source for one in permission.requests())
    assert sources["default"] > sources["session"] > 0


@pytest.mark.long
def test_every_figure_stands_beside_its_floor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("benchmarks.tree.SETTLE_SECONDS", 0.0)
    for row in (
        permission.decision("x", permission.rules(20), rounds=1),
        permission.listing(200, rounds=1),
    ):
        assert row.taken > 0
        assert row.floor > 0


@pytest.mark.parametrize(("taken", "code"), [(1.0, 0), (3.0, 1)])
def test_a_missed_bar_is_the_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, taken: float, code: int
) -> None:
    rows = [Row("told", 9.0, 1.0), Row("barred", taken, 1.0, 2.0)]
    monkeypatch.setattr(permission, "measured", lambda _: rows)
    assert permission.main([]) == code
    assert ("MISSED" in capsys.readouterr().out) == bool(code)
    assert permission.main(["--json"]) == code
    assert json.loads(capsys.readouterr().out)["rows"][1]["ratio"] == taken
