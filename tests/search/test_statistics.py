from __future__ import annotations

import pytest

from skillbelt.search.document import Parts, document
from skillbelt.search.idf import UNSEEN, rarity
from skillbelt.search.statistics import USUAL_LENGTH, facts, impacts, saturated
from skillbelt.search.words import ids, number


def test_sums_are_over_each_word_once() -> None:
    made = document(Parts("pdf", "", "", "pdf pdf qzxv"))
    sums = facts(made)
    pdf = rarity().anywhere[number("pdf")]
    assert sums.named == pytest.approx(pdf)
    assert sums.text == pytest.approx(pdf + UNSEEN)
    assert sums.told == pytest.approx(pdf)


def test_long_texts_must_say_a_word_more_often() -> None:
    usual = int(USUAL_LENGTH)
    assert saturated(usual, USUAL_LENGTH, 2.0, 0.9) == pytest.approx(2.0)
    assert saturated(2 * usual, USUAL_LENGTH, 2.0, 0.9) > 2.0


def test_a_name_says_more_than_a_description_and_that_more_than_a_text() -> None:
    made = document(Parts("alpha", "beta", "", "gamma " + "filler " * 2000))
    by_term = dict(zip(made.terms, impacts(made), strict=True))
    alpha, beta, gamma = (by_term[ids(word)[0]] for word in ("alpha", "beta", "gamma"))
    assert alpha > beta > gamma > 0
