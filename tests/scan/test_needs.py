"""Patterns run only where their words are: each text that a pattern matches must have them."""

from __future__ import annotations

import pytest

from skillbelt.scan import machine_settings, patterns, prose
from skillbelt.scan.prose_rules import ProsePattern
from tests.scan.worst_texts import matching_texts

_TEXTS = 60


@pytest.mark.parametrize("one", patterns._ANYWHERE, ids=lambda one: one.rule)
def test_a_pattern_of_code_has_the_words_of_all_that_it_matches(
    one: patterns._CodePattern,
) -> None:
    for text in matching_texts(one.form, _TEXTS):
        match = one.form.search(text)
        assert match is not None
        folded = text.lower()
        assert any(word in match[0].lower() for word in one.needs), text
        assert any(word in folded for word in one.also), text
        assert not one.most or len(match[0]) <= one.most, text


# A mount and a hook are found below those words, which the pattern need not have.
_SETTINGS = [one for one in machine_settings._FORMS if {"mount", '"hooks"'}.isdisjoint(one.needs)]


@pytest.mark.parametrize("one", _SETTINGS, ids=lambda one: one.rule)
def test_a_pattern_of_settings_has_the_words_of_all_that_it_matches(
    one: machine_settings._Form,
) -> None:
    for text in matching_texts(one.form, _TEXTS):
        assert any(word in text.lower() for word in one.needs), text


@pytest.mark.parametrize(
    ("one", "needed"), [*prose._PLANS, *prose._WITHOUT_NEEDS], ids=lambda one: str(one)[:40]
)
def test_a_pattern_of_prose_has_the_words_of_all_that_it_matches(
    one: ProsePattern, needed: int
) -> None:
    for text in matching_texts(one.form, _TEXTS):
        if "$" in text:  # the name of a variable may end with the word
            continue
        assert prose._find_bits(text) & needed == needed, text
        assert one.may_match(text), text


def test_texts_are_made_for_nearly_all_patterns() -> None:
    forms = [one.form for one, _ in prose._PLANS] + [one.form for one in patterns._ANYWHERE]
    without = [form.pattern for form in forms if not any(matching_texts(form, _TEXTS))]
    assert len(without) < len(forms) / 5
