from __future__ import annotations

from skillbelt.search.rarity import STEP, UNSEEN, UNSEEN_DESCRIBED, rarity
from skillbelt.search.words import number


def rare(word: str) -> float:
    return rarity().anywhere.get(number(word), UNSEEN)


def test_common_words_tell_little_and_rare_ones_much() -> None:
    assert rare("the") < rare("file") < rare("pdf") < rare("seismic") <= UNSEEN


def test_a_word_is_rarer_in_descriptions_than_anywhere() -> None:
    known = rarity()
    assert all(known.described[term] >= known.anywhere[term] for term in known.anywhere)


def test_the_figures_lie_in_their_bounds() -> None:
    known = rarity()
    assert len(known.anywhere) > 10_000
    assert all(1 / STEP <= value <= UNSEEN for value in known.anywhere.values())
    assert max(known.described.values()) <= UNSEEN_DESCRIBED


def test_words_of_other_scripts_are_known() -> None:
    assert rare("数据") < UNSEEN
