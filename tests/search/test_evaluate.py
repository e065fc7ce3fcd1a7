from __future__ import annotations

import json
from math import log2

import pytest

from skillbelt.errors import ConfigError
from skillbelt.search.evaluate import (
    MEASURES,
    Labelled,
    area_under_curve,
    as_named,
    evaluate,
    read_labelled,
)
from tests.tree import Tree

ROW = {"query": "merge pdf", "relevant": ["pdf"]}


def found(*names: str) -> list[frozenset[str]]:
    return [frozenset((name,)) for name in names]


def measured(relevant: str, *names: str) -> dict[str, float]:
    labelled = [Labelled("q", frozenset(relevant.split()))]
    report = evaluate(labelled, lambda _: found(*names))
    return {name: measure.mean for name, measure in report.measures.items()}


def test_a_right_first_answer_is_all_there_is_to_have() -> None:
    assert set(measured("a", "a", "b").values()) == {1.0}
    assert measured("a", "a").keys() == MEASURES.keys()


def test_a_right_answer_further_down_is_worth_less() -> None:
    given = measured("a", "x", "a")
    assert (given["Hit@1"], given["MRR@10"], given["Recall@10"]) == (0.0, 0.5, 1.0)
    assert given["nDCG@10"] == pytest.approx(1 / log2(3))


def test_recall_is_of_all_that_are_right() -> None:
    given = measured("a b c d", "a", *"xxxxxxxxx", "b")
    assert (given["Recall@10"], given["Recall@20"]) == (0.25, 0.5)


def test_a_result_stands_for_its_variants_and_each_counts_once() -> None:
    labelled = [Labelled("q", frozenset(("a", "b")))]
    report = evaluate(labelled, lambda _: [frozenset(("x", "a")), *found("a"), *found("b")])
    assert report.measures["Hit@1"].mean == 1.0
    assert report.measures["Recall@10"].mean == 1.0
    assert measured("a b", "a", "a")["Recall@10"] == 0.5


def test_nothing_found_is_nothing_gained() -> None:
    assert set(measured("a").values()) == {0.0}


def test_the_interval_holds_the_mean_and_narrows_with_more_requests() -> None:
    def width(count: int) -> float:
        labelled = [Labelled(str(n), frozenset("a")) for n in range(count)]
        report = evaluate(labelled, lambda q: found("a" if int(q) % 2 else "b"))
        mean, low, high = report.measures["Hit@1"]
        assert low <= mean <= high
        return high - low

    assert width(10) > width(200) > 0.0


def test_misses_say_what_was_given_instead() -> None:
    report = evaluate([Labelled("the task", frozenset("a"))], lambda _: found("b", "a"))
    assert report.misses == [("the task", "b")]
    assert report.hits[0] == 0.0
    assert report.hits[1] == report.hits[-1] == 1.0


@pytest.mark.parametrize("form", ["lines", "list"])
def test_both_forms_of_a_labelled_set(tree: Tree, form: str) -> None:
    text = json.dumps([ROW, ROW]) if form == "list" else f"{json.dumps(ROW)}\n\n{json.dumps(ROW)}\n"
    made = read_labelled(str(tree.write("set.jsonl", text)))
    assert made == [Labelled("merge pdf", frozenset(("pdf",)))] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no request"),
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[1]", "entry 1 is not of the form"),
        ('{"query": "x"}', "entry 1 is not of the form"),
        ('{"query": "x", "relevant": []}', "entry 1 is not of the form"),
        ('{"query": "x", "relevant": [1]}', "list of names"),
        ("\udcff", "cannot be read"),
    ],
)
def test_a_set_that_is_none_is_said(tree: Tree, text: str, said: str) -> None:
    path = tree.write("set.jsonl", text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=said):
        read_labelled(str(path))


def test_a_set_that_is_not_there_is_said(tree: Tree) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_labelled(str(tree.path("none.jsonl")))


def test_a_request_for_no_skill_is_read_only_where_it_is_allowed(tree: Tree) -> None:
    path = str(tree.write("set.jsonl", json.dumps({"query": "hello", "relevant": []})))
    assert read_labelled(path, allow_none=True) == [Labelled("hello", frozenset())]
    with pytest.raises(ConfigError, match="entry 1 is not of the form"):
        read_labelled(path)


@pytest.mark.parametrize(
    ("right", "wrong", "area"),
    [
        ([0.9, 0.8], [0.1, 0.2], 1.0),
        ([0.1], [0.2, 0.3], 0.0),
        ([0.5], [0.5], 0.5),
        ([0.3, 0.5], [0.4, 0.5], 0.375),
    ],
)
def test_the_area_counts_pairs_in_the_right_order(
    right: list[float], wrong: list[float], area: float
) -> None:
    scores = [*((score, True) for score in right), *((score, False) for score in wrong)]
    assert area_under_curve(scores) == pytest.approx(area)


def test_a_label_may_be_the_folder_or_the_name_as_it_is_spelt(tree: Tree) -> None:
    tree.skill("project/.agents/skills/asr", name="Speech Recognition (ASR)")
    tree.skill("project/.agents/skills/one/tts", name="voices")
    tree.skill("project/.agents/skills/two/tts", name="dubbing")
    skills = tree.catalog().current()
    near = frozenset(("Speech Recognition (ASR)",))
    asked = Labelled("", frozenset(("asr", "voices", "tts")), "", near)
    (one,) = as_named([asked], skills)
    (asr,) = one.near
    assert skills[asr].title == "Speech Recognition (ASR)"
    assert one.relevant == {asr, "voices", "tts"}
