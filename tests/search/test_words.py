from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.search.words import ids, number, runs, words


def test_words_are_stemmed_in_order() -> None:
    assert words("Parsing the tables of PDFs") == ["pars", "the", "tabl", "of", "pdf"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("DataFrame", ["datafram", "data", "frame"]),
        ("run_id", ["run", "id"]),
        ("csv-report", ["csv", "report"]),
        ("python3", ["python3", "python"]),
        ("mp4", ["mp4"]),
        ("café", ["cafe"]),
        ("naïve Straße", ["naiv", "strass"]),
        ("C++ and c#", ["cpp", "and", "csharp"]),
        ("F# or f++", ["fsharp", "or", "f"]),
        ("２０２４ ＡＰＩ", ["2024", "api"]),
    ],
)
def test_one_thing_spelt_in_many_ways(text: str, parts: list[str]) -> None:
    assert words(text) == parts


def test_a_name_with_capitals_inside_is_found_in_small_letters() -> None:
    assert set(words("javascript github")) <= set(words("JavaScript GitHub"))


def test_scripts_without_blanks_are_cut_into_pairs() -> None:
    assert words("处理数据") == ["处理", "理数", "数据"]
    assert words("表") == ["表"]
    assert words("使用Python处理") == ["使用", "python", "处理"]
    assert words("データ") == ["デー", "ータ"]
    assert "สวั"[:2] in words("สวัสดี")


def test_other_alphabets_are_words() -> None:
    assert words("Отчёт о продажах") == ["отчет", "о", "продажах"]


@pytest.mark.parametrize("noise", ["1234567", "f" * 64, "", "  \n", "!!! ---"])
def test_what_nobody_searches_for_is_no_word(noise: str) -> None:
    assert words(noise) == []


def test_numbers_of_words_are_the_same_everywhere() -> None:
    assert ids("pdf") == [number("pdf")] == [15_784_844]


def test_runs_are_as_they_are_spelt() -> None:
    assert runs("Read the PDF-file.") == ["Read", "the", "PDF", "file"]


@given(st.text(max_size=200))
def test_any_text_has_words(text: str) -> None:
    assert ids(text) == [number(word) for word in words(text)]
    assert all(words(text))
