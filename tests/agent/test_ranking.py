"""Which skills fit a question."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from skillbelt import Runtime, Skill
from skillbelt.agent.ranking import overlapping, ranked

SKILLS = [
    Skill("pdf-text", "pdf-text", "Takes the text out of PDF files.", ""),
    Skill("csv-report", "csv-report", "Sums up the columns of CSV files.", ""),
    Skill("notes", "notes", "Writes notes.", "", when_to_use="When the user dictates."),
]


def names(question: str) -> list[str]:
    return [one.skill.name for one in overlapping(SKILLS, question)]


def test_the_skill_whose_words_fit_best_is_first() -> None:
    assert names("Which columns has this csv?")[0] == "csv-report"


def test_a_word_of_the_name_counts_more() -> None:
    assert names("text of csv columns, pdf")[0] == "pdf-text"


def test_a_word_of_when_to_use_counts() -> None:
    assert names("I want to dictate; it dictates") == ["notes"]


def test_one_and_many_are_the_same_word() -> None:
    assert names("a note") == ["notes"]


@pytest.mark.parametrize("question", ["", "xyzzy", "what is the use of this", "?!"])
def test_what_shares_no_word_fits_no_skill(question: str) -> None:
    assert names(question) == []


def test_equal_ones_come_by_name() -> None:
    twins = [Skill(name, name, "Does a thing.", "") for name in ("b", "a")]
    assert [one.skill.name for one in overlapping(twins, "thing")] == ["a", "b"]


def test_skills_that_are_hidden_do_not_count(belt: Runtime) -> None:
    session = belt.session("ada", "chat", visible=lambda skill: skill.name != "greet")
    assert ranked(session, "greet people by name") == []


class Hit(NamedTuple):
    name: str
    score: float


def test_the_search_of_the_catalogue_is_used_where_there_is_one(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Hit("hidden", 3), Hit("count", 2), Hit("greet", 1)]
    monkeypatch.setattr(type(belt.catalog), "search", lambda *_: found, raising=False)
    order = [one.skill.name for one in ranked(belt.session("ada", "chat"), "anything")]
    assert order == ["count", "greet"]
