from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skillbelt.disclosure.excerpt import (
    cut_body,
    head,
    key_area,
    line_count,
    pages,
    without_last_heading,
)
from skillbelt.format.sections import lines, sections
from tests.format.test_sections import documents

NOTE = "[Cut to fit the limit."


def body(*titles: str, rows: int = 20, top: str = "# Tool\n\nWhat it is.\n\n") -> str:
    return top + "".join(f"## {title}\n\n" + f"{title} text\n" * rows + "\n" for title in titles)


def kept(text: str, max_lines: int = 500, max_chars: int = 40_000) -> list[str]:
    return [one.title for one in sections(cut_body(text, max_lines, max_chars).text)]


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n", 1), ("a\n\n", 2)]
)
def test_lines_are_counted_with_or_without_the_last_newline(text: str, count: int) -> None:
    assert line_count(text) == count


def test_the_head_ends_with_a_line_where_one_ends_near() -> None:
    assert head("aaa\nbbb\nccc\n", 10) == "aaa\nbbb\n"
    assert head("aaa\nbbb\n", 8) == "aaa\nbbb\n"
    assert head("a\nbbbbbbbbbbbbb", 10) == "a\nbbbbbbbb"
    assert head("日本語のテキスト", 3) == "日本語"
    assert head("abc", 0) == ""


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [
        (1, None, "a\nb\nc\n"),
        (1, 2, "a\nb\n"),
        (2, 1, "b\n"),
        (3, 9, "c\n"),
        (4, 1, ""),
        (99, 1, ""),
        (0, 1, "a\n"),
        (-5, 1, "a\n"),
        (1, 0, ""),
        (1, -1, ""),
    ],
)
def test_pages_are_whole_lines(start: int, count: int | None, expected: str) -> None:
    assert pages("a\nb\nc\n", start, count) == expected


@given(st.text(alphabet="ab\r\n"), st.integers(1, 5))
def test_pages_one_after_the_other_are_the_text(text: str, count: int) -> None:
    starts = range(1, line_count(text) + 1, count)
    assert "".join(pages(text, start, count) for start in starts) == text


@pytest.mark.parametrize("title", ["Contents", "Table of Contents", "OVERVIEW:", "目录"])
def test_the_key_area_is_the_table_of_contents(title: str) -> None:
    area = key_area(f"# A\n\n## {title}\n\n- b\n\n## Else\n")
    assert area is not None
    assert area.line == 3


def test_a_text_without_a_key_area() -> None:
    assert key_area("# A\n\n## Contents of the box\n") is None


def test_background_goes_before_anything_else() -> None:
    text = body("Background", "Notes", "Steps", "Acceptance")
    assert kept(text, 80) == ["Tool", "Notes", "Steps", "Acceptance"]


@pytest.mark.parametrize(
    "title",
    [
        "When to use",
        "Triggers",
        "Steps",
        "Step-by-step workflow",
        "Instructions",
        "Acceptance criteria",
        "Verification",
        "Self-check",
        "Self check",
        "Resources",
        "References",
        "Table of contents",
        "何时使用",
        "触发条件",
        "操作步骤",
        "验收标准",
        "自检",
        "资源索引",
    ],
)
def test_what_a_reader_needs_is_kept(title: str) -> None:
    text = body("Notes", "More", title)
    assert title in kept(text, 40)
    assert "More" not in kept(text, 40)


@pytest.mark.parametrize("title", ["Background", "History", "Rationale", "背景", "更新日志"])
def test_what_a_reader_can_do_without_goes_first(title: str) -> None:
    assert kept(body(title, "Notes"), 40) == ["Tool", "Notes"]


def test_the_first_examples_stay_longer_than_the_repeated_ones() -> None:
    text = body("Example", "Example two", "示例", "Notes")
    assert kept(text, 60) == ["Tool", "Example", "Notes"]


def test_what_stands_before_the_first_heading_is_kept() -> None:
    text = body("Notes", "Other", top="Read this first.\n\n")
    assert cut_body(text, 30, 40_000).text.startswith("Read this first.\n\n")


def test_sections_below_a_kept_one_are_kept_with_it() -> None:
    steps = "## Steps\n\n### Alpha\n\n" + "a\n" * 20 + "\n### Beta\n\n" + "b\n" * 20
    assert kept(body("Notes", top=f"# T\n\n{steps}\n"), 60) == ["T", "Steps", "Alpha", "Beta"]


def test_a_title_over_all_does_not_make_all_of_it_important() -> None:
    text = body("Notes", "Workflow", top="# How to use it\n\n")
    assert kept(text, 30) == ["How to use it", "Workflow"]


def test_what_was_left_out_is_named_in_a_last_line() -> None:
    cut = cut_body(body("Background", "Steps"), 30, 40_000, "More: there.")
    assert cut.strategy == "sections"
    assert cut.text.endswith(f"\n\n{NOTE} Left out: Background. More: there.]\n")


def test_many_that_were_left_out_are_counted() -> None:
    text = body(*(f"Background {n}" for n in range(30)))
    assert "Background 7 and 22 more." in cut_body(text, 15, 40_000).text


def test_a_needed_section_that_is_too_long_gives_its_beginning() -> None:
    text = body("Steps", rows=1000)
    cut = cut_body(text, 500, 40_000)
    assert 450 < line_count(cut.text) <= 500


def test_no_fence_stays_open() -> None:
    code = "".join(f"para\n\n```sh\nrun {n}\n\nrun\n```\n\n" for n in range(100))
    text = f"# T\n\n## Steps\n\n{code}"
    cut = cut_body(text, 99, 40_000).text.partition(NOTE)[0]
    assert line_count(cut) > 60
    assert cut.count("```") % 2 == 0


def test_a_fence_longer_than_the_limit_is_closed() -> None:
    text = body("Check", top="# T\n\n## Steps\n\n~~~~sh\n" + "run\n" * 900 + "~~~~\n\n")
    cut = cut_body(text, 100, 40_000).text
    assert "run\n~~~~\n" in cut
    assert line_count(cut) > 95


def test_a_text_without_headings_gives_its_beginning() -> None:
    cut = cut_body("word " * 20_000, 500, 40_000)
    assert cut.strategy == "head"
    assert 39_000 < len(cut.text) <= 40_000
    assert cut.text.endswith(f"{NOTE} The rest is left out.]\n")


@given(documents.map(lambda text: text * 20), st.integers(1, 60), st.integers(1, 2_000))
def test_a_cut_text_keeps_both_limits(text: str, max_lines: int, max_chars: int) -> None:
    cut = cut_body(text, max_lines, max_chars, "hint")
    assert line_count(cut.text) <= max_lines
    assert len(cut.text) <= max_chars


@given(documents.map(lambda text: text * 20), st.integers(10, 100))
def test_a_cut_text_has_the_lines_of_the_text_in_their_order(text: str, max_lines: int) -> None:
    rows = iter([line.text for line in lines(text)])
    given_rows = cut_body(text, max_lines, 40_000).text.partition(f"\n{NOTE}")[0].split("\n")
    # A line that only closes a fence may have been added.
    words = [row.removesuffix("\r") for row in given_rows if row.strip("`~ \r")]
    assert all(any(row == word for row in rows) for word in words)


@given(st.text(), st.integers(-3, 20), st.integers(-3, 20))
def test_no_text_raises(text: str, max_lines: int, max_chars: int) -> None:
    cut_body(text, max_lines, max_chars)
    assert text.startswith(head(text, max_chars))


def test_the_steps_stay_where_a_long_narrative_comes_first() -> None:
    story = "Once upon a time there was a tool.\n\n" * 300
    text = body("Steps", "Acceptance", "Notes", top=f"# Tool\n\n{story}")
    cut = cut_body(text, 100, 40_000).text
    assert [one.title for one in sections(cut)] == ["Tool", "Steps", "Acceptance", "Notes"]
    assert cut.count("Steps text\n") == 20
    assert "Cut short: Tool." in cut


@pytest.mark.parametrize("title", ["Overview", "Usage story", "概述"])
def test_the_steps_stay_where_a_long_section_comes_before_them(title: str) -> None:
    text = f"# Tool\n\n## {title}\n\n" + "Long ago.\n" * 600 + body("Steps", "Self-check", top="")
    cut = cut_body(text, 100, 40_000).text
    assert cut.count("Steps text\n") == cut.count("Self-check text\n") == 20
    assert f"Cut short: {title}." in cut


def test_two_long_sections_share_the_room() -> None:
    text = body("Usage", "Steps", rows=1000, top="# Tool\n\n")
    cut = cut_body(text, 100, 40_000).text
    assert cut.count("Usage text\n") > 30
    assert cut.count("Steps text\n") > 30


def test_a_heading_whose_text_is_cut_off_is_left_out_and_named() -> None:
    text = "".join(f"## Step {n}\n\nDo thing {n}.\n\n" for n in range(300))
    cut, _, note = cut_body(text, 500, 40_000).text.partition(NOTE)
    assert cut.rstrip().endswith("Do thing 123.")
    assert note.startswith(" Left out: Step 124, Step 125,")


def test_a_heading_of_which_no_part_is_kept_is_left_out() -> None:
    long = "### Part\n\n" + "Long ago.\n" * 600
    text = f"# Tool\n\n## Notes\n\n{long}\n## Steps\n\nDo it.\n"
    assert kept(text) == ["Tool", "Steps"]


def test_a_text_without_headings_says_from_which_line_on_it_is_cut() -> None:
    text = "".join(f"line {n}\n" for n in range(1, 1001))
    cut, _, note = cut_body(text, 500, 40_000).text.partition(f"\n{NOTE}")
    last = cut.rstrip().rpartition(" ")[2]
    assert note == f" The rest is left out, from line {int(last) + 1} on.]\n"


@given(documents.map(lambda text: text * 20), st.integers(10, 60))
def test_no_cut_text_ends_with_a_heading_alone(text: str, max_lines: int) -> None:
    assume(len(sections(text)) > 1)
    cut = cut_body(text, max_lines, 40_000).text.partition(f"\n{NOTE}")[0]
    assert without_last_heading(cut) == cut
