from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.search.stem import stem


@pytest.mark.parametrize(
    "forms",
    [
        "parse parses parsed parsing",
        "chart charts charted charting",
        "run runs running",
        "query queries",
        "class classes",
        "automate automated automating automation",
        "convert converts converted converting",
        "create created creating",
        "optimize optimized optimizing optimization",
        "pdf pdfs",
        "analyze analyzes analyzed",
    ],
)
def test_the_forms_of_a_word_are_one(forms: str) -> None:
    assert len({stem(word) for word in forms.split()}) == 1


@pytest.mark.parametrize("pair", ["test text", "form format", "port report", "bus bug", "css cs"])
def test_other_words_stay_apart(pair: str) -> None:
    one, other = map(stem, pair.split())
    assert one != other


@pytest.mark.parametrize("word", ["a", "is", "sass", "status", "s3", "aws"])
def test_short_words_and_endings_that_are_none_stay(word: str) -> None:
    assert stem(word) in (word, "aw")


@given(st.text(alphabet="abcdeilnorstuyz", min_size=1, max_size=40))
def test_any_word_has_a_form_that_is_no_longer(word: str) -> None:
    assert 0 < len(stem(word)) <= len(word)
