from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillbelt.text import one_line, shorten, tokens, tokens_of_bytes

BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
TEXT = st.text(st.characters(codec=None))


@given(TEXT)
@example("\x1b[2J\x9b31m")
@example("safe\u202egnp.exe")
@example("a\r\nb\u2028c\x85d")
@example("\udcff\U000e0041")
def test_one_line_holds_no_control_bidi_or_surrogate_character(text: str) -> None:
    made = one_line(text)
    assert {unicodedata.category(char) for char in made} & {"Cc", "Cs", "Zl", "Zp"} == set()
    assert {unicodedata.bidirectional(char) for char in made} & BIDI == set()
    assert len(made.splitlines()) <= 1


@given(TEXT)
def test_one_line_can_be_written_anywhere(text: str) -> None:
    one_line(text).encode("utf-8")


@given(TEXT)
def test_one_line_of_one_line_is_the_same(text: str) -> None:
    assert one_line(one_line(text)) == one_line(text)


def test_one_line_folds_white_space() -> None:
    assert one_line("  a\n\n  b\t c ") == "a b c"


def test_one_line_keeps_ordinary_text_of_any_script() -> None:
    text = "Résumé 日本語 עברית العربية 🙂 <b>&amp;"
    assert one_line(text) == text


@pytest.mark.parametrize(
    ("char", "shown"),
    [
        ("\x1b", "\\x1b"),
        ("\x9b", "\\x9b"),
        ("\u202e", "\\u202e"),
        ("\u200b", "\\u200b"),
        ("\ufeff", "\\ufeff"),
        ("\U000e0041", "\\ue0041"),
    ],
)
def test_one_line_shows_what_it_takes_away(char: str, shown: str) -> None:
    assert one_line(f"a{char}b") == f"a{shown}b"


@given(TEXT, st.integers(0, 60))
def test_shorten_keeps_the_width(text: str, width: int) -> None:
    short = shorten(text, width)
    assert len(short) <= width
    assert short == text or short.endswith("…") or not width


def test_shorten_cuts_at_a_word() -> None:
    assert shorten("one two three", 9) == "one two…"
    assert shorten("one two three", 13) == "one two three"


def test_shorten_cuts_inside_a_word_that_has_no_end_near() -> None:
    assert shorten("a " + "b" * 20, 10) == "a bbbbbbb…"


def test_tokens_are_a_quarter_of_the_bytes_rounded_up() -> None:
    assert [tokens_of_bytes(size) for size in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert tokens("日本") == 2
    assert tokens("\udcff") == 1


@pytest.mark.parametrize("char", ["\u180e", "\U000e0100", "\U000e01ef", "\u200b", "\u00ad"])
def test_one_line_shows_what_can_carry_hidden_text(char: str) -> None:
    assert char not in one_line(f"a{char}b")


def test_one_line_leaves_emoji_and_accents_alone() -> None:
    assert one_line("café ❤\ufe0f 日本") == "café ❤\ufe0f 日本"
