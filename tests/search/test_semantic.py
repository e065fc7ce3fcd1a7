from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest

from skillbelt.search import semantic
from skillbelt.search.protocol import Ranked
from skillbelt.search.query import query
from skillbelt.search.semantic import SemanticRanker, rankers
from skillbelt.skill import Skill
from tests.search.test_lexical import candidate
from tests.tree import Tree

SKILLS = "project/.agents/skills"


@pytest.fixture
def ranker() -> Iterator[SemanticRanker]:
    pytest.importorskip("wordllama", reason="the extra `semantic` is not there for this platform")
    yield SemanticRanker()


def ranked(name: str, description: str) -> Ranked:
    skill = Skill(name, name, description, f"/s/{name}/SKILL.md")
    return Ranked(1.0, candidate(name, description), skill)


TWO = [
    ranked("postgres-tuning", "Makes queries and indexes of a database faster."),
    ranked("recipe-book", "Collects recipes for cakes and bread."),
]


def test_the_same_in_other_words_is_near(ranker: SemanticRanker) -> None:
    good, bad = ranker.scores(query("our SQL statements take too long"), TWO)
    assert good > bad


def test_small_talk_around_a_request_does_no_harm(ranker: SemanticRanker) -> None:
    text = "Thank you for yesterday. The weather is fine. Please bake a chocolate cake for us.\n"
    bad, good = ranker.scores(query(text), TWO)
    assert good > bad


@pytest.mark.parametrize("text", ["x", "\ud800 \x00", "word " * 20_000, "数据库太慢"])
def test_any_request_has_scores(ranker: SemanticRanker, text: str) -> None:
    assert len(ranker.scores(query(text), TWO)) == 2


def test_what_is_kept_is_bounded(ranker: SemanticRanker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(semantic, "_MOST_KEPT", 1)
    first = ranker.scores(query("database"), TWO)
    assert ranker.scores(query("database"), TWO) == first


def test_logging_stays_as_the_program_has_it(ranker: SemanticRanker) -> None:
    before = (list(logging.getLogger().handlers), logging.getLogger().level)
    ranker.scores(query("database"), TWO)
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == before


def test_it_is_used_where_it_is_installed(ranker: SemanticRanker, tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.")
    catalog = tree.catalog()
    assert [one.skill.name for one in catalog.search("read a pdf")] == ["pdf"]
    assert [type(one) for one in catalog.searcher.rankers] == [SemanticRanker]


def test_without_the_extra_search_does_without(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    assert rankers() == ()
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.")
    assert [one.skill.name for one in tree.catalog().search("read a pdf")] == ["pdf"]


def test_vectors_are_those_of_the_model(ranker: SemanticRanker) -> None:
    import numpy

    texts = ["Collects recipes.", "Makes queries and indexes of a database faster.", "名前 \ud800"]
    clean = [text.encode("utf-8", "replace").decode() for text in texts]
    ranker.scores(query("so that the model is loaded"), TWO)
    model = semantic._model()
    for text, vector in zip(clean, semantic._embed(texts), strict=True):
        assert numpy.allclose(vector, model.embed([text], norm=True)[0], atol=1e-5)
    assert not semantic._embed([""]).any()
