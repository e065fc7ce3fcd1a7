from __future__ import annotations

from skillbelt.search import phrases
from skillbelt.search.phrases import raise_phrases
from skillbelt.search.protocol import Ranked
from skillbelt.search.query import query
from tests.search.test_lexical import candidate
from tests.tree import Tree

SKILLS = "project/.agents/skills"
ABOUT = "Helps."
TEXTS = {
    "routers": "A route is announced. A leak is repaired.",
    "leaks": "Finds Route-Leaks.",
    "pipes": "Repairs pipes.",
}


def ranked(tree: Tree, texts: dict[str, str], score: float = 1.0) -> list[Ranked]:
    """Return the skills in the order given, all with the same score."""
    for name, text in texts.items():
        tree.skill(f"{SKILLS}/{name}", description=ABOUT, text=text)
    skills = tree.catalog().current()
    return [
        Ranked(score, candidate(name, ABOUT, text), skills[name]) for name, text in texts.items()
    ]


def names(found: list[Ranked]) -> list[str]:
    return [one.skill.name for one in found]


def test_words_side_by_side_rise_in_any_form(tree: Tree) -> None:
    found = raise_phrases(query("Where is the route leak?"), ranked(tree, TEXTS))
    assert names(found) == ["leaks", "routers", "pipes"]
    assert found[0].gained > 0.0
    assert [one.score - one.gained for one in found] == [1.0, 1.0, 1.0]
    assert [one.gained for one in found[1:]] == [0.0, 0.0]


def test_only_the_best_few_change_places(tree: Tree) -> None:
    filler = {f"pipes-{n}": TEXTS["pipes"] for n in range(phrases._HEAD)}
    before = ranked(tree, filler | {"leaks": TEXTS["leaks"]})
    after = raise_phrases(query("Where is the route leak?"), before)
    assert names(after) == names(before)


def test_a_ruled_out_skill_gains_little(tree: Tree) -> None:
    text = {"routers": TEXTS["routers"], "route-leak": "Finds a route leak at the customer edge."}
    asked = "Which customer edge has it, not route-leak?"
    ruled_out = raise_phrases(query(asked), ranked(tree, text))
    meant = raise_phrases(query(asked.replace("not", "the")), ranked(tree, text))
    gains = [
        next(one.gained for one in x if one.skill.name != "routers") for x in (ruled_out, meant)
    ]
    assert 0.0 < gains[0] < gains[1] / 4


def test_a_file_that_is_gone_gains_nothing(tree: Tree) -> None:
    before = ranked(tree, TEXTS)
    tree.path(f"{SKILLS}/leaks/SKILL.md").unlink()
    assert raise_phrases(query("Where is the route leak?"), before) == before
