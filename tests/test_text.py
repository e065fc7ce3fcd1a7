from __future__ import annotations

import json
import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillbelt.text import (
    bytes_of_tokens,
    hidden,
    json_string,
    one_line,
    shorten,
    tokens,
    tokens_of_bytes,
    xml,
)

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


def parsed(text: str) -> tuple[str, str]:
    """What a parser reads from an element and from an attribute."""
    element = ElementTree.fromstring(f'<a b="{xml(text)}">{xml(text)}</a>')
    return element.text or "", element.attrib["b"]


@given(st.text(st.characters(codec="utf-8")).filter(lambda text: not hidden(text)))
@example("</a><a b=\"'>&amp;&#10;]]>")
@example("one\r\ntwo\n\tthree\r")
@example("  blanks  ")
def test_xml_gives_back_what_can_be_seen(text: str) -> None:
    plain = text.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
    assert parsed(text) == (plain, plain)


@given(TEXT)
@example("\x00\x1b[2J\ud800\ufffe\uffff\u202e\U000e0041\x85\u2028")
def test_xml_holds_any_text_on_one_line_and_hides_nothing(text: str) -> None:
    made = xml(text)
    assert len(made.splitlines()) <= 1
    assert not set(made) & set("<>\"'")
    assert hidden(made) == []
    assert parsed(text)[0] == parsed(text)[1]
    made.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("a<b>&\"'", "a&lt;b&gt;&amp;&quot;&#39;"),
        ("a\nb\tc\rd", "a&#10;b&#9;c&#13;d"),
        ("a\x00b\u200bc", "a\\x00b\\u200bc"),
        ("日本 🙂", "日本 🙂"),
    ],
)
def test_xml_escapes(text: str, made: str) -> None:
    assert xml(text) == made


@given(TEXT)
@example("</a>\x00\x7f\u202e\U000e0041\udcff\ud83d\n")
def test_a_json_string_loses_nothing_and_hides_nothing(text: str) -> None:
    made = json_string(text)
    # Two halves of a pair written as escapes are one character to a reader of JSON.
    read, written = (one.encode("utf-16", "surrogatepass") for one in (json.loads(made), text))
    assert read == written
    assert len(made.splitlines()) == 1
    assert hidden(made) == []
    assert "<" not in made


def test_a_json_string_keeps_ordinary_text_of_any_script() -> None:
    assert json_string('日本 "é" 🙂') == '"日本 \\"é\\" 🙂"'


def test_bytes_of_tokens_is_the_most_that_still_counts_as_so_many() -> None:
    assert tokens_of_bytes(bytes_of_tokens(7)) == 7
    assert tokens_of_bytes(bytes_of_tokens(7) + 1) == 8
    assert bytes_of_tokens(-1) == 0


def test_every_control_character_of_ascii_is_hidden_text() -> None:
    controls = [chr(code) for code in (*range(32), 127) if chr(code) not in "\t\n\r"]
    assert [one for one in map(chr, range(128)) if hidden(f"a{one}b")] == controls
