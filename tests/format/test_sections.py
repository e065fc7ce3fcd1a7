from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillbelt import Section
from skillbelt.format.sections import MAX_LINES, MAX_SECTIONS, find, lines, plain, sections, slug_of

# Texts made of the marks that matter, so that most of them mean something.
PIECES = [
    "# A", "## B", "### B1", "###### deep", "#no", "####### seven", "# C #", "##", "Title", "===",
    "---", "--", "-", "```", "~~~", "````md", "``` a ` b", "    # code", "\t# code", "<!--", "-->",
    "<!-- one -->", "<pre>", "</pre>", "- item", "  ```", "> quote", "| a | b |", "* * *", "", " ",
    "text", "name: x", "\r", "日本", "# \u2028", "\x0b",
]  # fmt: skip
documents = st.lists(st.sampled_from(PIECES), max_size=30).flatmap(
    lambda rows: st.sampled_from(["\n", "\r\n"]).map(lambda end: end.join(rows))
)


def titles(text: str) -> list[tuple[int, str]]:
    return [(section.level, section.title) for section in sections(text)]


def section(text: str, hint: str) -> str:
    found = find(text, hint)
    assert found is not None, hint
    return text[found.start : found.end]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("# A", (1, "A")),
        ("###### A", (6, "A")),
        ("   ## A", (2, "A")),
        ("## A ##", (2, "A")),
        ("## A #b", (2, "A #b")),
        ("## C#", (2, "C#")),
        ("##\tA", (2, "A")),
        ("##", (2, "")),
        ("## ##", (2, "")),
        ("## A\r", (2, "A")),
    ],
)
def test_a_line_of_hashes_is_a_heading(line: str, expected: tuple[int, str]) -> None:
    assert titles(f"{line}\ntext\n") == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "#A",
        "####### A",
        "    # A",
        "\t# A",
        "\\# A",
        "text # A",
        "```\n# A\n```",
        "~~~sh\n# A\n~~~~",
        "````\n```\n# A\n```\n````",
        "```\n# never closed",
        "- item\n\n      ```\n# A\n      ```",
        "<!-- # A -->",
        "<!--\n# A\n-->",
        "<pre>\n# A\n</pre>",
        "<SCRIPT>\n# A\n</SCRIPT>",
        "> # A",
        "- # A",
    ],
)
def test_what_is_no_heading(text: str) -> None:
    assert titles(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "``` a ` b\n# A",
        "```\ncode\n```\n# A",
        "```\n~~~\n```\n# A",
        "    ```\n\n# A",
        "<!-- b -->\n# A",
        "text <!--\n# A",
        "<prefix>\n# A",
        "- item\n# A",
    ],
)
def test_a_heading_after_what_ends(text: str) -> None:
    assert titles(text) == [(1, "A")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A\n=", [(1, "A")]),
        ("A\n---", [(2, "A")]),
        ("A\n  ----  \n", [(2, "A")]),
        ("A\r\n===\r\n", [(1, "A")]),
        ("Two\nlines\n===", [(1, "Two lines")]),
        ("\n---\n", []),
        ("A\n\n---", []),
        ("- A\n---", []),
        ("- A\nlazy\n---", []),
        ("> A\n---", []),
        ("| A |\n---", []),
        ("* * *\n---", []),
        ("A\n--- b", []),
        ("    A\n---", []),
        ("# A\n---", [(1, "A")]),
        ("```\nA\n---\n```", []),
    ],
)
def test_underlined_headings(text: str, expected: list[tuple[int, str]]) -> None:
    assert titles(text) == expected


def test_an_underlined_section_starts_with_its_words() -> None:
    text = "before\n\nSet up\n======\n\nDo it.\n"
    assert section(text, "set up") == "Set up\n======\n\nDo it.\n"
    assert sections(text)[0].line == 3


def test_frontmatter_is_no_heading() -> None:
    assert titles("---\nname: a\n---\n# A\n") == [(1, "A")]
    assert titles("---\r\nname: a\r\n---\r\n# A\r\n") == [(1, "A")]
    assert titles("---\n# A\n---\n") == [(1, "A")]


def test_no_more_sections_than_the_bound() -> None:
    found = sections("# a\n" * (MAX_SECTIONS + 5))
    assert len(found) == MAX_SECTIONS
    assert found[-1].end == 4 * MAX_SECTIONS


def test_no_more_lines_than_the_bound() -> None:
    text = "# A\n" + "\n" * (MAX_LINES - 2) + "# B\n# C\n"
    assert titles(text) == [(1, "A"), (1, "B")]


TEXT = """# Tool

## Usage

Words.

### Set up

One.

### Example

First.

## Options

### Set up

Two.

### Example

Second.

## Input/Output

Both.

## **Bold** and `code` [link](x.md):

End.
"""


@pytest.mark.parametrize(
    ("hint", "line"),
    [
        ("## Usage", 3),
        ("##   Usage", 3),
        ("### Usage", 3),
        ("Usage", 3),
        ("usage", 3),
        (" USAGE ", 3),
        ("Set up", 7),
        ("Set up#1", 7),
        ("Set up#2", 17),
        ("### Set up#2", 17),
        ("Options > Set up", 17),
        ("options > set up", 17),
        ("Options>Set up", 17),
        ("Options/Set up", 17),
        ("## Options > ### Set up", 17),
        ("Tool > Options > Example", 21),
        ("Tool/Example#2", 21),
        ("Tool > Options > Example#1", 21),
        ("Input/Output", 25),
        ("Tool > Input/Output", 25),
        ("Bold and code link", 29),
        ("#set-up", 7),
        ("set-up", 7),
        ("set-up-1", 17),
        ("#inputoutput", 25),
        ("#bold-and-code-link", 29),
    ],
)
def test_a_hint_finds_its_section(hint: str, line: int) -> None:
    found = find(TEXT, hint)
    assert found is not None
    assert found.line == line


@pytest.mark.parametrize(
    "hint",
    ["", "  ", "#", "Nothing", "Set up#3", "Set up#0", "Usage > Options", "set-up-2", "> >", "/"],
)
def test_a_hint_that_means_nothing(hint: str) -> None:
    assert find(TEXT, hint) is None


def test_the_exact_title_comes_before_the_folded_one() -> None:
    text = "# NOTES\n\na\n\n# Notes\n\nb\n"
    assert section(text, "Notes") == "# Notes\n\nb\n"
    assert section(text, "notes") == "# NOTES\n\na\n\n"


def test_a_title_that_ends_like_an_ordinal_is_found_as_it_stands() -> None:
    text = "# Issue\n\na\n\n# Issue #2\n\nb\n\n# Issue\n\nc\n"
    assert section(text, "Issue #2") == "# Issue #2\n\nb\n\n"


def test_the_level_of_a_heading_line_counts() -> None:
    text = "## Notes\n\na\n\n# Notes\n\nb\n"
    assert section(text, "# Notes") == "# Notes\n\nb\n"


def test_slugs_are_those_of_code_hosts() -> None:
    assert slug_of("What's new in 2.0?") == "whats-new-in-20"
    assert slug_of("快速 开始") == "快速-开始"


def test_plain_titles_lose_their_markup() -> None:
    assert plain("**A** `b_c` [d](e) _f_ snake_case") == "A b_c d f snake_case"


@given(documents)
@example("# A\n```")
def test_sections_nest_and_slice_back_to_their_headings(text: str) -> None:
    found = sections(text)
    prose = {line.start for line in lines(text) if not line.verbatim}
    for one in found:
        assert one.start in prose
        assert text.count("\n", 0, one.start) + 1 == one.line
        first = text[one.start :].split("\n", 1)[0]
        assert first.lstrip(" ").startswith("#" * one.level) or one.level < 3
        assert one.title.split(" ")[0] in first
        assert one.start < one.end <= len(text)
    for outer, inner in pairwise(found):
        assert inner.end <= outer.end or inner.start >= outer.end
        assert (inner.level > outer.level) == (inner.start < outer.end)


@given(documents)
def test_the_lines_are_the_text(text: str) -> None:
    for line in lines(text):
        assert text.startswith(line.text, line.start)
    assert len(list(lines(text))) == text.count("\n") + 1


@given(documents)
def test_every_section_can_be_asked_for(text: str) -> None:
    for one in sections(text):
        hint = f"{'#' * one.level} {one.title}"
        if one.title and "#" not in one.title:
            found = find(text, hint)
            assert found is not None
            assert (found.title, found.level) == (one.title, one.level)


@given(st.text(), st.text())
def test_no_text_and_no_hint_raises(text: str, hint: str) -> None:
    found = find(text, hint)
    assert found is None or found in sections(text)


@pytest.mark.long
@pytest.mark.parametrize(
    "piece",
    ["# ", "#", "-", "- ", "*", "* ", "`", "~", "<!--", "<", "[", "](", "a\n", ">", "_", "\t", "/"],
)
def test_a_hostile_text_takes_no_long_time(piece: str) -> None:
    text = piece * 200_000
    sections(text)
    find(text, piece * 500)
    find(f"{text}\n{text}", "a/b > c#2")


def test_a_section_says_where_it_stands_and_how_far_it_reaches() -> None:
    text = "# A\nx\n## B\ny\n# C\n"
    assert sections(text)[0] == Section(title="A", level=1, line=1, start=0, end=text.index("# C"))
