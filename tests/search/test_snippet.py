from __future__ import annotations

import pytest

from skillbelt.search.query import query
from skillbelt.search.snippet import SNIPPET_CHARS, Reason, snippet
from tests.search.test_lexical import candidate

MADE = candidate(
    "pdf-merge", "Joins documents.", "# Encryption\n\nUse qpdf with a password and a cipher."
)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("merge pdf", "name"),
        ("join documents", "description"),
        ("encryption", "heading"),
        ("which cipher", "text"),
    ],
)
def test_the_field_that_speaks_for_it(text: str, field: str) -> None:
    assert Reason(query(text), MADE).field() == field


def test_the_words_that_tell_most_come_first() -> None:
    assert Reason(query("a Password for qpdf"), MADE).words()[0] == "qpdf"


def test_the_line_with_most_of_the_words() -> None:
    text = "First of all.\n\n- Reading a table.\n- Drawing charts of the table.\n"
    assert snippet(text, ["charts", "tables"]) == "Drawing charts of the table."


def test_the_beginning_when_no_word_is_there() -> None:
    assert snippet("Reads PDF files. And more.", ["seismic"]) == "Reads PDF files."
    assert snippet("", ["x"]) == ""


def test_what_it_shows_is_short_and_safe() -> None:
    shown = snippet("\x1b[2Jpdf \u202eevil " + "pdf " * 500, ["pdf"])
    assert len(shown) <= SNIPPET_CHARS
    assert "\x1b" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize(
    "text", ["\u0130" * 5000 + " pdf", "a" * 200_000, "pdf\n" * 50_000, "\n" * 9]
)
def test_any_text_has_a_short_snippet(text: str) -> None:
    assert len(snippet(text, ["pdf", "x"] * 4)) <= SNIPPET_CHARS


def test_a_long_line_is_cut_between_words() -> None:
    text = "alpha " * 50 + "the seismic station " + "omega " * 50
    shown = snippet(text, ["seismic"])
    assert "the seismic station" in shown
    assert set(shown.split()) == {"alpha", "the", "seismic", "station", "omega"}
