from __future__ import annotations

from skillbelt.format.skill import Skill
from skillbelt.search.near_copies import alike, fold
from skillbelt.search.protocol import Ranked
from tests.search.test_lexical import candidate

TEXT = " ".join(f"step{n} of the work" for n in range(100))


def ranked(name: str, body: str, score: float) -> Ranked:
    skill = Skill(name, name, "", f"/skills/{name}/SKILL.md")
    return Ranked(score, candidate(name, "", body), skill)


def names(groups: list[tuple[Ranked, list[Ranked]]]) -> list[tuple[str, list[str]]]:
    return [(best.skill.name, [copy.skill.name for copy in copies]) for best, copies in groups]


def test_near_copies_go_with_the_best_of_them() -> None:
    found = [
        ranked("fork", f"{TEXT} forked", 3.0),
        ranked("other", "something else entirely", 2.0),
        ranked("original", TEXT, 1.0),
    ]
    assert names(fold(found, 10)) == [("fork", ["original"]), ("other", [])]


def test_copies_are_found_beyond_the_limit() -> None:
    found = [ranked("a", TEXT, 3.0), ranked("b", "else", 2.0), ranked("c", TEXT, 1.0)]
    assert names(fold(found, 1)) == [("a", ["c"])]


def test_skills_that_share_half_are_two() -> None:
    half = " ".join(f"step{n} of the work" for n in range(50, 150))
    assert not alike(candidate("a", "", TEXT), candidate("b", "", half))
    assert alike(candidate("a", "", TEXT), candidate("b", "", TEXT + " more"))


def test_nothing_folds_to_nothing() -> None:
    assert fold([], 5) == []
