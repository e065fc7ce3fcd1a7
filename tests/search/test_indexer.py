from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from skillbelt import Catalog
from skillbelt.format.skill import Skill
from skillbelt.search import indexer
from skillbelt.search.indexer import Upkeep, stamp
from skillbelt.search.store import SearchIndex
from skillbelt.search.text import MAX_INDEXED_SCRIPTS
from tests.bounds import bounds
from tests.tree import Tree

SKILLS = "project/.agents/skills"


def made(tree: Tree, count: int, start: int = 0) -> dict[str, list[Skill]]:
    for n in range(start, start + count):
        tree.skill(f"{SKILLS}/s{n:03}", description=f"Does job{n}.", text=f"Word{n}.")
    return {str(tree.path(SKILLS)): list(tree.catalog().values())}


def file(tree: Tree) -> Path:
    (found,) = tree.home.rglob("search-*.sqlite3")
    return found


def docs(kept: Upkeep) -> int:
    return sum(len(one.docs) for one in kept.kept.values())


def test_a_few_are_indexed_at_once_and_many_in_the_background(tree: Tree) -> None:
    keeper = Upkeep(tree.settings())
    assert keeper.sync(made(tree, 20), 0.0)
    many = made(tree, 200, 20)
    done = keeper.sync(many, 0.0)
    assert keeper.sync(many)
    assert docs(keeper) == 220
    assert done in (True, False)
    keeper.close()


def test_what_is_there_is_not_read_again(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = made(tree, 10)
    Upkeep(tree.settings()).sync(groups)
    monkeypatch.setattr(indexer, "parts_of", lambda *_: pytest.fail("it was read again"))
    again = Upkeep(tree.settings())
    assert again.sync(groups)
    assert docs(again) == 10


def test_skills_that_came_while_it_was_built_are_indexed_too(tree: Tree) -> None:
    keeper = Upkeep(tree.settings())
    keeper.sync(made(tree, 100), 0.0)
    assert keeper.sync(made(tree, 100, 100))
    assert docs(keeper) == 200


def test_closing_ends_a_build(tree: Tree) -> None:
    keeper = Upkeep(tree.settings())
    keeper.sync(made(tree, 300), 0.0)
    keeper.close()
    assert not [one for one in threading.enumerate() if one.name == "skillbelt-search"]


def test_what_is_gone_is_forgotten_and_what_is_only_left_out_stays(tree: Tree) -> None:
    groups = made(tree, 3)
    keeper = Upkeep(tree.settings())
    keeper.sync(groups)
    ((path, skills),) = groups.items()
    os.unlink(skills[0].location)
    keeper.sync({path: skills[2:]})
    assert keeper.kept[path].docs.keys() == {one.location for one in skills[1:]}


def test_another_process_that_writes_is_followed(tree: Tree) -> None:
    groups = made(tree, 3)
    one, other = Upkeep(tree.settings()), Upkeep(tree.settings())
    one.sync(groups)
    other.sync(groups)
    assert not other.follow()
    ((path, skills),) = groups.items()
    tree.skill(f"{SKILLS}/s000", description="Another.")
    one.sync({path: list(tree.catalog().values())})
    assert other.follow()
    assert skills[0].location in other.kept[path].docs


def test_two_catalogues_that_build_at_once_both_end_with_everything(tree: Tree) -> None:
    made(tree, 150)
    catalogs = [tree.catalog() for _ in range(3)]
    threads = [threading.Thread(target=one.search, args=("job7",)) for one in catalogs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in catalogs:
        assert [found.skill.name for found in one.search("job7", 1)] == ["s007"]


def damage(path: Path) -> None:
    with open(path, "r+b") as handle:
        handle.seek(0)
        handle.write(os.urandom(path.stat().st_size))


def scramble(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE doc SET words = x'ffffff00'")
    db.close()


def cut(path: Path) -> None:
    os.truncate(path, 20_000)


@pytest.mark.parametrize("spoil", [damage, scramble, cut, os.unlink])
def test_a_file_spoilt_while_in_use_is_made_anew(tree: Tree, spoil: object) -> None:
    made(tree, 5)
    catalog: Catalog = tree.catalog()
    assert [one.skill.name for one in catalog.search("job3", 1)] == ["s003"]
    assert callable(spoil)
    spoil(file(tree))
    assert [one.skill.name for one in catalog.search("job3", 1)] == ["s003"]
    assert [one.skill.name for one in tree.catalog().search("job4", 1)] == ["s004"]


def test_a_file_that_can_not_be_written_is_done_without(tree: Tree) -> None:
    made(tree, 5)
    assert tree.catalog().search("job3")
    with sqlite3.connect(file(tree)) as db:
        db.execute("CREATE TRIGGER no BEFORE INSERT ON doc BEGIN SELECT RAISE(FAIL, 'no'); END")
    db.close()
    made(tree, 1, 9)
    assert [one.skill.name for one in tree.catalog().search("job9", 1)] == ["s009"]


def test_what_other_limits_read_is_not_taken_for_what_these_do(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/kit", description="Does it.")
    tree.write(f"{SKILLS}/kit/zebra.py", '"""Counts giraffes."""')
    bounds(max_indexed_scripts=0)
    assert not tree.catalog().search("giraffes")
    bounds(max_indexed_scripts=MAX_INDEXED_SCRIPTS)
    assert tree.catalog().search("giraffes")
    bounds(max_indexed_scripts=0)
    assert not tree.catalog().search("giraffes")


def test_a_folder_whose_name_is_no_text_is_found_and_not_read_again(tree: Tree) -> None:
    odd = os.fsencode(tree.path(SKILLS)) + b"/odd\xff"
    os.makedirs(odd)
    with open(odd + b"/SKILL.md", "w", encoding="utf-8") as handle:
        handle.write("---\nname: oddly\ndescription: Paints zebras.\n---\n")
    catalog = tree.catalog()
    assert [one.skill.name for one in catalog.search("zebras")] == ["oddly"]
    keeper = Upkeep(tree.settings())
    keeper.sync({str(tree.path(SKILLS)): list(catalog.values())})
    assert [list(one.docs) for one in keeper.kept.values()] == [[catalog["oddly"].location]]


def test_what_others_do_elsewhere_is_not_read(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = made(tree, 3)
    one, other = Upkeep(tree.settings()), Upkeep(tree.settings())
    other.sync(groups)
    before = other.kept
    one.sync({"/elsewhere": []})
    monkeypatch.setattr(other.index, "stored", lambda _: pytest.fail("it was read again"))
    assert not other.follow()
    assert other.kept is before


def test_who_changes_a_few_need_not_wait_for_postings(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "_MOST_UNMERGED", 5)
    keeper = Upkeep(tree.settings())
    groups = made(tree, 310)
    keeper.sync(groups)
    (path,) = groups
    before = keeper.kept[path].root.generation
    begun, go_on, real = threading.Event(), threading.Event(), SearchIndex.merge

    def slowly(index: SearchIndex, *given: Any) -> bool:
        begun.set()
        return go_on.wait(150) and real(index, *given)

    monkeypatch.setattr(SearchIndex, "merge", slowly)
    assert keeper.sync(made(tree, 10, 310))
    assert begun.wait(150)
    assert keeper.sync(made(tree, 1, 320))
    assert (docs(keeper), keeper.kept[path].root.generation) == (321, before)
    go_on.set()
    keeper.wait()
    assert keeper.kept[path].root.generation > before
    assert docs(keeper) == 321
    keeper.close()


def test_a_disk_that_can_not_hold_the_postings_is_done_without(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SearchIndex.merge
    monkeypatch.setattr(
        SearchIndex, "merge", lambda self, *given: not self.path and real(self, *given)
    )
    keeper = Upkeep(tree.settings())
    keeper.sync(made(tree, 310))
    (one,) = keeper.kept.values()
    assert (keeper.index.path, len(one.docs), len(one.root.docs)) == ("", 310, 310)


def test_a_stamp_tells_a_change(tree: Tree) -> None:
    (skills,) = made(tree, 1).values()
    skill = skills[0]
    for other in (skill._replace(mtime_ns=1), skill._replace(description="New.")):
        assert stamp(other) != stamp(skill)
