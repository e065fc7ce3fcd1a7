"""The screen of a conversation, drawn into a text."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.cli.screen import MarkdownStream, Screen, fit

STYLE = re.compile(r"\x1b\[[0-9;]*m")
MOVES = re.compile(r"\r(?:\x1b\[\d+A)?\x1b\[J")


def drawn(*pieces: str) -> tuple[str, str]:
    """What a stream of pieces wrote in all, and what is left of it on the screen."""
    stream = io.StringIO()
    with MarkdownStream(Screen(stream)) as answer:
        for piece in pieces:
            answer.add(piece)
            answer.draw("busy")
    written = STYLE.sub("", stream.getvalue())
    return written, shown(written)


def shown(written: str) -> str:
    """Apply the moves that erase the live part."""
    lines = [""]
    for part in re.split(r"(\r(?:\x1b\[\d+A)?\x1b\[J|\n)", written):
        if part == "\n":
            lines.append("")
        elif part.startswith("\r"):
            up = re.search(r"\x1b\[(\d+)A", part)
            del lines[len(lines) - 1 - (int(up[1]) if up else 0) :]
            lines.append("")
        else:
            lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


TEXT = "# Title\n\nSome **bold** words.\n\n- one\n- two\n\n```python\nx = 1\n```\n\nThe end."


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_answer_looks_the_same_in_any_pieces(size: int) -> None:
    pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
    _, left = drawn(*pieces)
    assert left.split("\n") == [
        "  Title", "", "  Some bold words.", "", "   • one", "   • two", "", "   x = 1", "",
        "  The end.", "",
    ]  # fmt: skip


def test_nothing_of_an_answer_is_hidden() -> None:
    _, left = drawn("A List<String>, <!-- note --> and [here](https://evil.example/x).\n")
    for text in ("List<String>", "<!-- note -->", "https://evil.example/x"):
        assert text in left


@given(st.text(st.characters() | st.sampled_from("\x1b\x9b\u202e\r\n&#;x0123456789[]J")))
def test_no_text_moves_the_cursor_or_turns_the_line_around(text: str) -> None:
    written, _ = drawn(text)
    plain = MOVES.sub("", written)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", plain)


@given(st.text(st.characters(categories=["L", "N", "P", "Zs"])))
def test_no_text_begins_at_the_edge(text: str) -> None:
    _, left = drawn(text)
    assert all(not line or line.startswith("  ") for line in left.split("\n"))


def test_a_block_that_is_not_finished_is_dropped() -> None:
    stream = io.StringIO()
    answer = MarkdownStream(Screen(stream))
    answer.add("half an ans")
    answer.draw()
    answer.drop()
    answer.end()
    assert shown(STYLE.sub("", stream.getvalue())).strip() == ""


def test_a_wide_line_is_cut_by_columns() -> None:
    assert fit("日本語日本語", 5) == "日本…"
    assert fit("short", 5) == "short"


def test_a_line_of_ours_goes_on_to_the_right_of_the_edge() -> None:
    lines = [STYLE.sub("", line) for line in Screen(io.StringIO()).render_own("x " * 60, "green")]
    assert len(lines) == 2
    assert lines[1].startswith("    x")
