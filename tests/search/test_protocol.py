from __future__ import annotations

from collections.abc import Sequence

from skillbelt.format.skill import Skill
from skillbelt.search.protocol import Ranked, Ranker, Result
from skillbelt.search.query import Query


class Longest:
    """Prefers long names."""

    weight, most = 2.0, 50

    def scores(self, asked: Query, ranked: Sequence[Ranked]) -> Sequence[float]:
        return [float(len(one.skill.name)) for one in ranked]


def test_any_object_with_scores_is_a_ranker() -> None:
    ranker: Ranker = Longest()
    assert ranker.weight == 2.0


def test_a_result_says_no_more_than_it_knows() -> None:
    result = Result(Skill("a", "a", "", "/a/SKILL.md"), 1.0)
    assert (result.field, result.snippet, result.variants) == ("description", "", ())
