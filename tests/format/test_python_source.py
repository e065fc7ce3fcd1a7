"""What is parsed as Python, and what is too long to be."""

from __future__ import annotations

import pytest

from skillbelt.format.python_source import parse_python

DOTTED = "a" + ".b" * 1_500


@pytest.mark.parametrize("name", [DOTTED, f"x = {DOTTED}", f"ä{DOTTED}"])
def test_a_name_with_thousands_of_dots_is_not_parsed(name: str) -> None:
    with pytest.raises(ValueError, match="too long"):
        parse_python(name)


@pytest.mark.parametrize("text", [f"x = '{'a' * 5_000}'", f"x = '{'a.b—' * 2_000}'", "x = 1"])
def test_long_texts_are_no_names(text: str) -> None:
    assert parse_python(text).body
