from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import pytest

from skillbelt import Catalog
from skillbelt.search import engine
from skillbelt.search.engine import Searcher
from skillbelt.search.protocol import Ranked, Result
from skillbelt.search.query import Query
from skillbelt.search.store import SearchIndex
from tests.bounds import bounds
from tests.tree import Tree

SKILLS = "project/.agents/skills"


@pytest.fixture
def skills(tree: Tree) -> Tree:
    tree.skill(f"{SKILLS}/pdf-merge", description="Joins PDF files.", text="Use qpdf for pages.")
    tree.skill(f"{SKILLS}/csv-report", description="Makes charts.", text="Reads a table of sales.")
    tree.skill(f"{SKILLS}/release-notes", description="Writes notes.", text="Look at git tags.")
    tree.skill(f"{SKILLS}/表格", name="tables", description="处理电子表格数据", text="打开文件")
    return tree


def names(found: Sequence[Result]) -> list[str]:
    return [one.skill.name for one in found]


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("join pdf", "pdf-merge"),
        ("qpdf", "pdf-merge"),
        ("charting tables of sales", "csv-report"),
        ("which git tag was it", "release-notes"),
        ("电子表格", "tables"),
        ("请帮我处理表格里的数据", "tables"),
    ],
)
def test_the_whole_text_is_searched(skills: Tree, text: str, best: str) -> None:
    assert names(skills.catalog().search(text))[0] == best


@pytest.mark.parametrize("text", ["", "   ", "?!", "seismology", "\x00\ud800"])
def test_what_nobody_has_is_not_found(skills: Tree, text: str) -> None:
    assert skills.catalog().search(text) == []


def test_the_limit_holds(skills: Tree) -> None:
    catalog = skills.catalog()
    assert len(catalog.search("files table git notes", 2)) == 2
    assert catalog.search("pdf", 0) == []
    assert catalog.search("pdf", -5) == []
    assert len(catalog.search("pdf", 10**9)) == 1
    bounds(max_search_results=1)
    few = skills.catalog()
    assert len(few.search("files table git notes", 2)) == 1


def test_results_say_why(skills: Tree) -> None:
    (found,) = skills.catalog().search("qpdf", 1)
    assert found.field == "text"
    assert found.snippet == "Use qpdf for pages."
    assert found.score > 0.0


def test_the_words_of_a_skill_in_any_language_are_shown(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/otchet", description="Делает дела.", text="# Отчёт\n\nБаланс за год.")
    catalog = tree.catalog()
    assert catalog.search("баланс")[0].snippet == "Баланс за год."
    assert catalog.search("отчет")[0].snippet == "Отчёт"


def test_a_change_is_found_and_what_was_there_is_not(skills: Tree) -> None:
    catalog = skills.catalog()
    assert names(catalog.search("qpdf")) == ["pdf-merge"]
    skills.skill(f"{SKILLS}/pdf-merge", description="Joins PDF files.", text="Use ghostscript.")
    catalog.refresh()
    assert catalog.search("qpdf") == []
    assert names(catalog.search("ghostscript")) == ["pdf-merge"]


def test_what_is_gone_is_not_found(skills: Tree) -> None:
    catalog = skills.catalog()
    assert catalog.search("qpdf")
    os.unlink(skills.path(f"{SKILLS}/pdf-merge/SKILL.md"))
    catalog.refresh()
    assert catalog.search("qpdf") == []


def test_another_process_need_not_read_the_skills_again(skills: Tree) -> None:
    first = skills.catalog()
    before = names(first.search("qpdf"))
    first.close()
    program = (
        "import skillbelt.search.indexer as e\n"
        "def no(*_): raise AssertionError('read again')\n"
        "e.parts_of = no\n"
        "from skillbelt import Catalog\n"
        "print(*(f.skill.name for f in Catalog('.').search('qpdf')))\n"
    )
    done = skills.python("-c", program)
    assert (done.exit_code, done.stdout.split(), done.stderr) == (0, before, "")


def test_near_copies_are_one_result(tree: Tree) -> None:
    text = " ".join(f"step{n} of the deployment" for n in range(60))
    for fork in ("deploy", "deploy-fork", "deploy-copy"):
        tree.skill(f"{SKILLS}/{fork}", description="Deploys a service.", text=text)
    tree.skill(f"{SKILLS}/rollback", description="Takes a deployment back.", text="Undo it.")
    found = tree.catalog().search("deploy a service")
    assert len(found) == 2
    assert len(found[0].variants) == 2
    assert all(at.endswith("SKILL.md") for at in found[0].variants)


def test_a_skill_of_the_same_name_is_a_variant(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf", description="Reads PDF files.")
    hidden = tree.skill("home/.agents/skills/pdf", description="Another one for PDF files.")
    (found,) = tree.catalog().search("pdf")
    assert found.variants == (str(hidden / "SKILL.md"),)


def many(tree: Tree, count: int = 700) -> Catalog:
    for n in range(count):
        tree.skill(f"{SKILLS}/s{n:03}", description=f"Does job{n} well.", text=f"Word{n % 9} x{n}.")
    bounds(max_scan_share=1.0)
    return tree.catalog()


@pytest.mark.long
def test_many_skills_are_found_through_postings(tree: Tree) -> None:
    catalog = many(tree)
    assert names(catalog.search("job345"))[0] == "s345"
    assert len(catalog.search("word3", 1000)) > 70
    tree.skill(f"{SKILLS}/s345", description="Does another thing.", text="Unheard.")
    catalog.refresh()
    assert names(catalog.search("unheard")) == ["s345"]
    assert "s345" not in names(catalog.search("job345"))


def test_of_many_without_postings_the_latest_are_looked_at(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_MOST_NEW", 20)
    monkeypatch.setattr(SearchIndex, "merge", lambda *_: True)
    catalog = many(tree, 310)
    assert catalog.search("x5") == []
    assert names(catalog.search("x305")) == ["s305"]


def test_only_the_skills_given_have_any_part_in_it(tree: Tree) -> None:
    catalog = many(tree)
    catalog.search("warm")
    searcher = catalog.searcher
    some = {name: skill for name, skill in catalog.items() if int(name[1:]) % 2}
    assert {int(name[1:]) % 2 for name in names(searcher.search("word3", some, 1000))} == {1}
    few = {name: catalog[name] for name in ("s003", "s012")}
    assert set(names(searcher.search("word3", few, 1000))) == {"s003", "s012"}
    assert searcher.search("word3", {}, 10) == []


def test_scores_do_not_depend_on_who_else_is_there(tree: Tree) -> None:
    """A hidden skill can not be noticed by what it does to the order or scores of others."""
    tree.skill(f"{SKILLS}/pdf", description="Reads PDF files.", text="qpdf")
    catalog = tree.catalog()
    (alone,) = catalog.search("read pdf")
    for n in range(20):
        tree.skill(f"{SKILLS}/other{n}", description=f"Reads PDF {n}.", text=f"read pdf number{n}")
    catalog.refresh()
    only = {"pdf": catalog["pdf"]}
    catalog.index_for_search()
    (found,) = catalog.searcher.search("read pdf", only)
    assert found.score == alone.score


def test_who_does_not_wait_gets_what_is_there(tree: Tree) -> None:
    catalog = many(tree)
    assert catalog.index_for_search(0.0) in (True, False)
    assert isinstance(catalog.search("job345", wait_seconds=0.0), list)
    assert catalog.index_for_search()
    assert names(catalog.search("job345"))[0] == "s345"


@pytest.mark.long
def test_many_threads_may_ask_at_once(skills: Tree) -> None:
    catalog = skills.catalog()
    failed: list[object] = []

    def ask() -> None:
        try:
            for _ in range(10):
                assert names(catalog.search("join pdf"))[0] == "pdf-merge"
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.parametrize("use_index", [True, False])
def test_a_cache_that_can_not_be_written_costs_nothing_but_time(
    skills: Tree, use_index: bool
) -> None:
    skills.write("blocked", "a file where a folder should be")
    catalog = skills.catalog(cache_dir=str(skills.path("blocked/cache")), use_index=use_index)
    assert names(catalog.search("qpdf")) == ["pdf-merge"]


class Backwards:
    """A ranker that likes what comes last in the alphabet."""

    weight, most = 100.0, 50

    def scores(self, asked: Query, ranked: Sequence[Ranked]) -> Sequence[float]:
        return [float(ord(one.skill.name[0])) for one in ranked]


def test_a_ranker_looks_again_at_the_best(skills: Tree) -> None:
    catalog = skills.catalog()
    catalog.search("warm")
    searcher = Searcher(catalog.settings, [Backwards()])
    searcher.sync({skills.path(SKILLS).as_posix(): list(catalog.values())})
    found = searcher.search("pdf files git table", catalog)
    assert names(found) == sorted(names(found), reverse=True)
    searcher.close()


def test_what_a_description_rules_out_is_less_sure(tree: Tree) -> None:
    request = "merge the pages of a scanned contract"
    tree.skill(f"{SKILLS}/pdf-merge", description="Merges pages of PDF files. Written for print.")
    (before,) = tree.catalog().search(request)
    tree.skill(
        f"{SKILLS}/pdf-merge",
        description="Merges pages of PDF files. Do NOT use for a scanned contract.",
    )
    (after,) = tree.catalog().search(request)
    assert after.confidence < before.confidence / 2
