from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.search.query import query
from skillbelt.search.words import number
from tests.bounds import bounds


def test_each_word_counts_once() -> None:
    once, often = query("merge pdf files"), query("merge pdf files merge PDF file")
    assert once.words == often.words
    assert once.total == pytest.approx(often.total)


def test_words_in_a_block_of_code_count_half() -> None:
    asked = query("sort the rows\n```json\n{seismic: 1}\n```")
    word = asked.words[number("seismic")]
    assert word.weight == pytest.approx(word.rarity / 2)
    assert asked.words[number("sort")].weight == asked.words[number("sort")].rarity


def test_common_words_are_left_out_of_long_requests_only() -> None:
    assert number("the") in query("the skill").words
    long = query("the " + " ".join(f"word{n}" for n in range(30)))
    assert number("the") not in long.words
    assert number("word7") in long.words


def test_the_rarest_words_are_sought_first() -> None:
    asked = query("the file seismic")
    assert asked.sought()[0] == number("seismic")


def test_words_are_kept_as_they_are_spelt() -> None:
    assert query("Parsing PDFs").spelt == {number("pars"): "Parsing", number("pdf"): "PDFs"}


def test_nothing_is_asked_by_nothing() -> None:
    assert query(" \n...").words == {}
    assert query("").scale > 0.0


def test_endless_requests_are_cut() -> None:
    bounds(max_query_chars=500, max_query_words=50)
    asked = query(" ".join(f"w{n}x" for n in range(100_000)))
    assert 50 <= len(asked.words) <= 54
    assert len(asked.text) == 500


@given(st.text(max_size=300))
def test_any_text_is_a_request(text: str) -> None:
    asked = query(text)
    assert asked.words.keys() <= asked.spelt.keys()


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("read `/root/in/sales.xlsx` and write out.pdf", {"xlsx", "pdf"}),
        ("读取.docx文件", {"docx"}),
        ("see docs.python.org, e.g. v1.2, ask github.com", set()),
        ("call frame.head() ... now", set()),
        ("a pack.tar.gz", {"gz"}),
        ("write /root/out.json, notes.md and run.py", set()),
    ],
)
def test_the_kinds_of_files_that_a_request_names(text: str, kinds: set[str]) -> None:
    assert query(text).kinds == {number(kind) for kind in kinds}


def test_the_first_words_have_most_of_the_beginning() -> None:
    words = list(query("merge " + " ".join(f"word{n}" for n in range(30))).words.values())
    assert sum(word.early for word in words) == pytest.approx(1.0)
    assert words[1].early > words[-1].early > 0.0


def test_words_that_follow_each_other_are_pairs() -> None:
    asked = query("merge pdf files")
    assert asked.pairs == {(number("merg"), number("pdf")), (number("pdf"), number("file"))}


@pytest.mark.parametrize(
    "text",
    [
        "why is pdf-merge not used here",
        "why did the pdf-merge skill not start",
        "why don't you use pdf-merge",
        "please do not use pdf-merge",
        "instead of pdf-merge do it by hand",
    ],
)
def test_a_skill_that_the_request_rules_out(text: str) -> None:
    assert frozenset((number("pdf"), number("merg"))) in query(text).excluded


def test_what_does_not_work_is_not_ruled_out() -> None:
    assert number("pod") in query("why is the pod not starting").words
