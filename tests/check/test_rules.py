from __future__ import annotations

import re
from pathlib import Path

from skillbelt.check.rules import RULES, SEVERITIES, finding, harden
from skillbelt.values import Diagnostic

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "check-rules.md"


def test_codes_are_words_with_hyphens_and_keys_of_their_rows() -> None:
    assert all(re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", code) for code in RULES)
    assert all(code == rule.code for code, rule in RULES.items())


def test_strict_mode_never_lowers_a_level() -> None:
    assert [
        code
        for code, rule in RULES.items()
        if SEVERITIES.index(rule.strict) < SEVERITIES.index(rule.severity)
    ] == []


def test_every_rule_is_in_the_documentation_word_for_word() -> None:
    page = PAGE.read_text("utf-8")
    rows = [
        f"- `{code}` ({levels}): {rule.what}\n"
        for code, rule in RULES.items()
        for levels in ("/".join(dict.fromkeys((rule.severity, rule.strict))),)
    ]
    assert [row for row in rows if row not in page] == []
    documented = re.findall(r"^- `([a-z0-9-]+)` \(", page, re.MULTILINE)
    assert sorted(documented) == sorted(RULES)


def test_a_finding_takes_the_words_of_its_rule() -> None:
    said = finding("name-folder", "/x", 2, "differs")
    assert said == Diagnostic(
        code="name-folder",
        severity="warning",
        path="/x",
        line=2,
        message="differs",
        remedy=RULES["name-folder"].fix,
    )
    assert finding("name-folder", "/x", 2, "differs", "do this").remedy == "do this"


def test_harden_raises_known_codes_and_leaves_others() -> None:
    said = [
        finding("name-folder", "/x", 1, "m"),
        finding("body-long", "/x", 1, "m"),
        finding("broken-link", "/x", 1, "m")._replace(severity="error"),
        Diagnostic(code="of-somebody-else", severity="info", path="/x", line=1, message="m"),
    ]
    assert [each.severity for each in harden(said)] == ["error", "warning", "error", "info"]
