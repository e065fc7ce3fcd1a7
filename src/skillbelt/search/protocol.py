"""The contracts of search: what a search gives, and what a ranker is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from skillbelt.format.skill import Skill
from skillbelt.search.lexical import Candidate
from skillbelt.search.query import Query

Field = Literal["name", "description", "heading", "text"]


class Result(NamedTuple):
    """A skill that was found: how well it fits, where that shows, and who says nearly the same.

    Scores compare within one search only. `variants` are the locations of near copies, and of
    skills of the same name that this one stands before.
    """

    skill: Skill
    score: float
    field: Field = "description"
    snippet: str = ""
    variants: tuple[str, ...] = ()


class Ranked(NamedTuple):
    """A candidate with the skill it stands for and its score so far."""

    score: float
    candidate: Candidate
    skill: Skill


class Ranker(Protocol):
    """A second look at the best candidates. What it gives is added to the score, times `weight`.

    `most` is how many candidates it is shown.
    """

    weight: float
    most: int

    def scores(self, asked: Query, ranked: Sequence[Ranked]) -> Sequence[float]:
        """How well each of the candidates fits, in their order."""
