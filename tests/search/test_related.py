from __future__ import annotations

from pytest import approx

from skillbelt.search.protocol import Ranked
from skillbelt.search.query import query
from skillbelt.search.related import relate
from tests.search.test_lexical import candidate, score
from tests.tree import Tree

SKILLS = "project/.agents/skills"
TEXTS = {
    "waves": "Reads earthquake waveforms: obspy, seismometer, hypocenter, seismogram.",
    "catalogs": "Writes earthquake tables with a hypocenter, from a seismometer.",
    "picks": "Finds the arrival in a seismogram with obspy and a seismometer.",
    "brochures": "Prints brochures, leaflets, posters and banners for visitors.",
    "stations": "Lists a seismometer and its seismogram with obspy, and the hypocenter.",
}
TASK = (
    "Read earthquake waveforms under /root/data and write tables of every arrival. "
    "Group them by event, discard weak ones, estimate uncertainty, then report totals, medians, "
    "brochures wanted by visitors, municipal officers, journalists, teachers and engineers."
)


def ranked(tree: Tree, text: str) -> list[Ranked]:
    """Return the skills as the words rank them for the request."""
    for name, about in TEXTS.items():
        tree.skill(f"{SKILLS}/{name}", description=about)
    skills, asked = tree.catalog().current(), query(text)
    found = [
        Ranked(score(asked, made, name), made, skills[name])
        for name, about in TEXTS.items()
        for made in [candidate(name, about, about)]
    ]
    return sorted(found, key=lambda one: (-one.score, one.skill.name))


def names(found: list[Ranked]) -> list[str]:
    return [one.skill.name for one in found]


def test_what_shares_the_subject_of_the_best_rises(tree: Tree) -> None:
    before = ranked(tree, TASK)
    after = relate(query(TASK), before)
    gains = {one.skill.name: one.gained for one in after}
    assert gains["stations"] > gains["brochures"]
    scores = {one.skill.name: one.score for one in before}
    assert all(one.score - one.gained == approx(scores[one.skill.name]) for one in after)


def test_the_first_stays_first_and_all_are_kept(tree: Tree) -> None:
    before = ranked(tree, TASK)
    after = relate(query(TASK), before)
    assert names(after)[0] == names(before)[0]
    assert sorted(names(after)) == sorted(names(before))
    assert [one.score for one in after] == sorted((one.score for one in after), reverse=True)


def test_a_sentence_has_one_subject(tree: Tree) -> None:
    before = ranked(tree, "read earthquake waveforms")
    assert relate(query("read earthquake waveforms"), before) == before
    assert relate(query(TASK), before[:3]) == before[:3]
    assert relate(query(TASK), []) == []
