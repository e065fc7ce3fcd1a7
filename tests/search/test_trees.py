from __future__ import annotations

from importlib.resources import files

from skillbelt.search.protocol import Ranked
from skillbelt.search.query import query
from skillbelt.search.trees import FEATURES, HEAD, Node, describe_all, gain, refine, shipped
from tests.search.test_lexical import candidate, score
from tests.tree import Tree

SKILLS = "project/.agents/skills"
MANY = [f"files-{n}" for n in range(HEAD + 5)]


def ranked(tree: Tree, text: str, names: list[str]) -> list[Ranked]:
    """Return the skills of these names as the words rank them for the request."""
    for name in names:
        tree.skill(f"{SKILLS}/{name}", description=f"Handles {name} files.")
    skills, asked = tree.catalog().current(), query(text)
    found = [
        Ranked(score(asked, made, name), made, skills[name])
        for name in names
        for made in [candidate(name, f"Handles {name} files.", f"How to open {name}.")]
    ]
    return sorted(found, key=lambda one: (-one.score, one.skill.name))


def test_a_value_up_to_the_threshold_goes_to_the_first_branch() -> None:
    trees: list[Node] = [(0, 1.0, 0.25, (1, 5.0, 0.5, 0.75)), 2.0]
    assert gain([1.0, 9.0], trees) == 2.25
    assert gain([1.1, 5.0], trees) == 2.5
    assert gain([1.1, 5.1], trees) == 2.75


def test_every_candidate_is_kept_and_no_score_falls(tree: Tree) -> None:
    text = "open the pdf and the csv files of last year"
    before = ranked(tree, text, ["pdf", "csv", "docx", "open-files", *MANY])
    after = refine(query(text), before)
    scores = {one.skill.name: one.score for one in before}
    assert {one.skill.name for one in after} == scores.keys()
    assert all(one.score >= scores[one.skill.name] for one in after)
    assert after[0].score > scores[after[0].skill.name]
    assert [one.score for one in after] == sorted((one.score for one in after), reverse=True)


def test_candidates_behind_the_head_stay_behind_it(tree: Tree) -> None:
    text = "open files"
    before = ranked(tree, text, MANY)
    after = refine(query(text), before)
    assert after[HEAD:] == before[HEAD:]
    assert after[HEAD - 1].score >= after[HEAD].score


def test_a_few_candidates_keep_their_scores(tree: Tree) -> None:
    few = ranked(tree, "open pdf files", MANY[: HEAD - 1])
    assert refine(query("open pdf files"), few) == few
    assert refine(query("open pdf files"), []) == []


def test_a_skill_that_is_ruled_out_stays_last(tree: Tree) -> None:
    text = "open the files, not pdf"
    found = refine(query(text), ranked(tree, text, ["pdf", *MANY[: HEAD - 1]]))
    assert found[-1].skill.name == "pdf"


def test_the_values_are_the_features_the_distances_and_three_more(tree: Tree) -> None:
    text = "open the pdf files"
    rows = describe_all(query(text), ranked(tree, text, ["pdf", "csv"]))
    assert {len(row) for row in rows} == {2 * len(FEATURES) + 3}
    assert max(row[len(FEATURES)] for row in rows) == 0.0


def test_the_shipped_trees_look_only_at_values_that_exist() -> None:
    assert shipped()
    features = [feature for tree in shipped() for feature in _features(tree)]
    assert 0 <= min(features) <= max(features) < 2 * len(FEATURES) + 3


def test_the_shipped_file_says_where_it_comes_from() -> None:
    text = files("skillbelt.search").joinpath("trees.json").read_text("utf-8")
    assert "scripts/fit_ranking.py" in text
    assert "learnt from" in text


def _features(node: Node) -> list[int]:
    if not isinstance(node, tuple):
        assert node >= 0.0
        return []
    feature, _, low, high = node
    return [feature, *_features(low), *_features(high)]
