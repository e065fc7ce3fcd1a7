from __future__ import annotations

from pathlib import Path

from skillbelt.search.idf import STEP, UNSEEN, UNSEEN_DESCRIBED, rarity
from skillbelt.search.stem import stem
from skillbelt.search.words import number
from tests.tree import Tree


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


def test_the_figures_can_be_counted_again(tree: Tree) -> None:
    for n in range(40):
        text = "common words here" + " seldom" * (n % 3 == 0)
        tree.skill(f"pool/s{n}", description="Says common.", text=text)
    script = Path(__file__).parents[2] / "scripts" / "word_rarity.py"
    done = tree.python(str(script), str(tree.path("pool")), "-o", str(tree.path("out.bin")))
    assert done == (0, "", "")
    data = tree.path("out.bin").read_bytes()
    count = len(data) // 6
    numbers = [int.from_bytes(data[at : at + 4], "little") for at in range(0, 4 * count, 4)]
    assert numbers == sorted(numbers)
    common, seldom = (numbers.index(number(stem(word))) for word in ("common", "seldom"))
    anywhere, described = data[4 * count : 5 * count], data[5 * count :]
    assert anywhere[common] == described[common] < described[seldom]
