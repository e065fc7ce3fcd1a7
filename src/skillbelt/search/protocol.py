"""The protocols of search: its results and its rankers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from skillbelt.format.skill import Skill
from skillbelt.search.confidence import Strength
from skillbelt.search.lexical import Candidate, Sums
from skillbelt.search.query import Query

Field = Literal["name", "description", "heading", "text"]


class Result(NamedTuple):
    """A skill that was found: its score, the matching text, and its near copies.

    Scores compare within one search only. `confidence` is how likely, from 0 to 1, this skill is
    the one that is meant, and `strength` says it in a word: `noise` is not worth showing.
    `variants` are the locations of near copies, and of skills of the same name that this one
    shadows.
    """

    skill: Skill
    score: float
    field: Field = "description"
    snippet: str = ""
    variants: tuple[str, ...] = ()
    confidence: float = 0.0
    strength: Strength = "fair"


class Ranked(NamedTuple):
    """A candidate with the skill it stands for and its score so far.

    `gained` is the part of the score that compares it with the other candidates, and `sums` what
    it shares with the request.
    """

    score: float
    candidate: Candidate
    skill: Skill
    gained: float = 0.0
    sums: Sums | None = None


class Ranker(Protocol):
    """Scores the best candidates again. Its score, times `weight`, is added.

    `most` is how many candidates it is shown.
    """

    weight: float
    most: int

    def scores(self, asked: Query, ranked: Sequence[Ranked]) -> Sequence[float]:
        """Return a score for each candidate, in order."""
