"""Ranking the skills for a question."""

from __future__ import annotations

import pytest

from skillbelt import Runtime
from skillbelt.agent.offline import rank_skills
from tests.tree import Tree


@pytest.fixture
def three(tree: Tree) -> Runtime:
    for name, about in (
        ("pdf-text", "Takes the text out of PDF files."),
        ("csv-report", "Sums up the columns of CSV files."),
        ("notes", "Writes notes that the user dictates."),
    ):
        tree.skill(f"project/.agents/skills/{name}", description=about)
    return Runtime(tree.project)


def names(belt: Runtime, question: str) -> list[str]:
    return [one.skill.name for one in rank_skills(belt.session("ada", "chat"), question)]


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("Which columns has this csv?", "csv-report"),
        ("Give me the text of the PDF", "pdf-text"),
        ("I want to dictate a note", "notes"),
    ],
)
def test_the_skill_that_fits_best_is_first(three: Runtime, question: str, best: str) -> None:
    assert names(three, question)[0] == best


@pytest.mark.parametrize("question", ["", "xyzzy", "?!"])
def test_what_shares_no_word_fits_no_skill(three: Runtime, question: str) -> None:
    assert names(three, question) == []


def test_skills_that_are_hidden_do_not_count(belt: Runtime) -> None:
    session = belt.session("ada", "chat", visible=lambda skill: skill.name != "greet")
    assert rank_skills(session, "greet people by name") == []
