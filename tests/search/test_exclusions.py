"""What a skill says that it is not for."""

from __future__ import annotations

import pytest

from skillbelt.search.exclusions import excluded_words
from skillbelt.search.words import ids


@pytest.mark.parametrize(
    "rest",
    [
        "Do NOT use for invoices or payroll.",
        "Not for invoices or payroll.",
        "Don't trigger this skill when the user asks about invoices or payroll.",
        "Never use it for invoices, payroll.",
        "Skip it for invoices and payroll.",
        "Invoices are read by others; excludes invoices and payroll.",
    ],
)
def test_words_behind_a_not_are_excluded(rest: str) -> None:
    found = excluded_words("tables", f"Reads tables. {rest}")
    assert found.issuperset(ids("payroll"))
    assert found.isdisjoint(ids("reads tables"))


def test_words_that_the_skill_is_also_for_are_not_excluded() -> None:
    found = excluded_words("pdf-forms", "Fills tables. Do not use for forms without tables.")
    assert found.isdisjoint(ids("forms tables"))
    assert excluded_words("pdf-forms", "Fills forms.") == frozenset()


def test_not_only_excludes_nothing() -> None:
    found = excluded_words("tables", "Not only for spreadsheets: reads tables")
    assert found.isdisjoint(ids("spreadsheets"))
