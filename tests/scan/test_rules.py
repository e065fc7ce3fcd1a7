"""Each rule finds what breaks it, in the open and in disguise, and leaves its benign twin alone."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.scan.rules import RULES
from skillbelt.scan.scanner import scan_text
from tests.examples import examples

CASES = tomllib.loads(Path(__file__).with_name("cases.toml").read_text("utf-8"))
HEAD = "---\nname: notes\ndescription: Keeps notes.\n---\n# Notes\n\n"


def rules_of(text: str, *kinds: str) -> set[str]:
    return {one.rule for one in scan_text(HEAD + text).findings if one.kind in kinds}


@pytest.mark.parametrize("rule", CASES)
@pytest.mark.parametrize("form", ["positive", "evasion"])
def test_what_breaks_a_rule_is_found(rule: str, form: str) -> None:
    text = CASES[rule][form]
    text = (
        text.encode("ascii", "backslashreplace").decode("unicode_escape") if "\\u" in text else text
    )
    assert rule in rules_of(text, "block", "ask")


@pytest.mark.parametrize("rule", CASES)
def test_its_benign_twin_is_left_alone(rule: str) -> None:
    assert rules_of(CASES[rule]["negative"], "block", "ask") == set()


def test_every_rule_says_why_and_what_to_do() -> None:
    assert all(row.what and row.why and row.remedy for row in RULES.values())


@settings(max_examples=examples(50), deadline=None)
@given(st.text())
def test_no_text_makes_a_scan_fail(text: str) -> None:
    assert scan_text(f"{HEAD}{text}\n```bash\n{text}\n```\n```python\n{text}\n```").digest
