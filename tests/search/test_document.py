from __future__ import annotations

import pytest

from skillbelt.search.document import (
    DESCRIBED,
    HEADED,
    LEVELS,
    NAMED,
    TEXT,
    Document,
    Parts,
    document,
    headings,
)
from skillbelt.search.words import ids


def code(made: Document, word: str) -> int:
    (number,) = ids(word)
    return made.codes[made.terms.index(number)] if number in made.terms else 0


def test_a_word_is_known_by_where_it_stands() -> None:
    made = document(
        Parts(
            name="csv-report",
            description="Makes charts.",
            head="",
            body="# Usage\n\nOpen the table.",
            files="plot",
        )
    )
    assert code(made, "csv") == 1 << NAMED
    assert code(made, "charts") == 1 << DESCRIBED
    assert code(made, "usage") == 1 << HEADED | 1
    assert code(made, "table") == 1
    assert code(made, "plot") == 1
    assert code(made, "absent") == 0


@pytest.mark.parametrize(("times", "level"), [(1, 1), (6, 6), (8, 7), (12, 8), (40, 12), (999, 15)])
def test_counts_grow_coarser(times: int, level: int) -> None:
    made = document(Parts("x", "", "", "table " * times))
    assert code(made, "table") & TEXT == level
    assert LEVELS[level] <= times


def test_a_description_counts_to_three() -> None:
    made = document(Parts("x", "chart " * 9, "", ""))
    assert code(made, "chart") >> DESCRIBED & 3 == 3


@pytest.mark.parametrize(
    "head",
    [
        "name: x\ntags: [finance, audit]\n",
        "name: x\nmetadata:\n  tags:\n    - finance\n    - audit\n",
        "name: x\nkeywords: finance, audit\n",
    ],
)
def test_tags_count_as_description(head: str) -> None:
    made = document(Parts("x", "", head, ""))
    assert code(made, "finance") >> DESCRIBED & 3
    assert code(made, "audit") >> DESCRIBED & 3


def test_words_are_sorted_and_lengths_are_of_all_words() -> None:
    made = document(Parts("a", "one two two", "", "three three four"))
    assert list(made.terms) == sorted(made.terms)
    assert len(made.codes) == len(made.terms)
    assert (made.described, made.length) == (3, 3)


def test_what_is_fenced_is_no_heading() -> None:
    assert headings("# One\n```sh\n# not one\n```\n## Two\n~~~\n# nor this") == ["One", "Two"]


@pytest.mark.parametrize(
    "text",
    [
        "`" * 500_000,
        "```\n" * 100_000,
        "````\n" + "```\n" * 100_000,
        "~~~" + "`" * 200_000 + "\n" + "# a\n" * 50_000,
        "#" + " " * 500_000,
        "# " * 200_000,
        "x" * 1_000_000,
        "数" * 300_000,
        "tags:" + "\n  -" * 100_000,
        " " * 500_000 + "tags",
        "\u0130" * 100_000,
    ],
)
def test_hostile_texts_cost_time_in_proportion_to_their_size(text: str) -> None:
    made = document(Parts(text[:1000], text, text, text))
    assert len(made.terms) == len(made.codes)
