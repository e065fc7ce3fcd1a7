from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from skillbelt.search.document import Parts, document
from skillbelt.search.store import FORMAT, MOST_POSTINGS, Fresh, SearchIndex, holder
from skillbelt.search.words import number


def fresh(name: str, body: str = "", stamp: str = "1") -> Fresh:
    return Fresh(f"/s/{name}/SKILL.md", stamp, document(Parts(name, "", "", body)))


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "cache" / "search.sqlite3")


@pytest.fixture
def index(file: str) -> SearchIndex:
    made = SearchIndex(file)
    made.save(made.root("/s"), [fresh("pdf", "merge pages"), fresh("csv", "draw charts")])
    return made


def test_documents_come_back_as_they_were(index: SearchIndex) -> None:
    root = index.root("/s")
    stored = index.stored(root)
    assert stored.keys() == {"/s/pdf/SKILL.md", "/s/csv/SKILL.md"}
    (found,) = index.candidates([stored["/s/pdf/SKILL.md"].id])
    made = fresh("pdf", "merge pages").made
    assert (found.terms, found.codes, found.length) == (made.terms, made.codes, made.length)
    assert found.facts.named > 0.0


def test_postings_are_there_after_a_merge(index: SearchIndex) -> None:
    root = index.root("/s")
    assert index.postings(root, [number("merg")]) == []
    index.merge(root)
    root = index.root("/s")
    (posting,) = index.postings(root, [number("merg"), number("absent")])
    assert [root.docs[place] for place in posting.places] == [
        index.stored(root)["/s/pdf/SKILL.md"].id
    ]
    assert len(posting.impacts) == 1


def test_those_who_say_a_word_best_come_first_and_the_list_ends(file: str) -> None:
    index = SearchIndex(file)
    many = [
        fresh(f"s{n}", "word " * (1 + n % 7) + "filler " * 50) for n in range(MOST_POSTINGS + 50)
    ]
    index.save(index.root("/s"), many)
    index.merge(index.root("/s"))
    (posting,) = index.postings(index.root("/s"), [number("word")])
    assert len(posting.places) == MOST_POSTINGS
    assert list(posting.impacts) == sorted(posting.impacts, reverse=True)


def test_a_changed_document_replaces_the_one_before(index: SearchIndex) -> None:
    root = index.root("/s")
    before = index.stored(root)["/s/pdf/SKILL.md"]
    index.save(root, [fresh("pdf", "split pages", "2")])
    after = index.stored(root)["/s/pdf/SKILL.md"]
    assert after.stamp == "2"
    assert after.id > before.id
    assert index.candidates([before.id]) == []


def test_what_is_gone_is_forgotten(index: SearchIndex) -> None:
    root = index.root("/s")
    index.save(root, (), ["/s/pdf/SKILL.md"])
    assert index.stored(root).keys() == {"/s/csv/SKILL.md"}


def test_folders_are_apart(index: SearchIndex) -> None:
    other = index.root("/t")
    assert other.id != index.root("/s").id
    assert index.stored(other) == {}


def test_another_process_sees_what_was_stored(index: SearchIndex, file: str) -> None:
    other = SearchIndex(file)
    before = other.version()
    assert len(other.stored(other.root("/s"))) == 2
    index.save(index.root("/s"), [fresh("new")])
    assert other.version() != before
    assert len(other.stored(other.root("/s"))) == 3


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 5000, b""])
def test_a_damaged_file_is_made_anew(file: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(file))
    Path(file).write_bytes(content)
    index = SearchIndex(file)
    assert index.save(index.root("/s"), [fresh("pdf")])
    assert len(index.stored(index.root("/s"))) == 1


def test_a_file_damaged_while_it_is_open_is_made_anew(index: SearchIndex, file: str) -> None:
    index.close()
    size = os.path.getsize(file)
    with open(file, "r+b") as handle:
        handle.seek(100)
        handle.write(b"\xee" * (size - 100))
    assert index.stored(index.root("/s")) == {}
    assert index.save(index.root("/s"), [fresh("pdf")])


def test_a_file_of_another_version_is_made_anew(index: SearchIndex, file: str) -> None:
    index.close()
    with sqlite3.connect(file) as db:
        db.execute(f"PRAGMA user_version = {FORMAT + 1}")
    db.close()
    assert index.stored(index.root("/s")) == {}


def test_a_folder_that_can_not_be_made_is_said_not_raised(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    index = SearchIndex(str(tmp_path / "file" / "search.sqlite3"))
    assert index.version() == ()
    assert index.trouble
    assert index.stored(index.root("/s")) == {}


def test_without_a_path_it_lives_in_memory() -> None:
    index = SearchIndex("")
    index.save(index.root("/s"), [fresh("pdf")])
    assert len(index.stored(index.root("/s"))) == 1


def test_paths_that_are_no_text_are_kept_all_the_same(file: str) -> None:
    index = SearchIndex(file)
    odd = Fresh("/s/\udcff/SKILL.md", "1", document(Parts("odd", "", "", "")))
    assert index.save(index.root("/s"), [odd])
    assert index.stored(index.root("/s")).keys() == {odd.path}
    assert index.save(index.root("/s"), (), [odd.path])
    assert index.stored(index.root("/s")) == {}


def test_one_builds_at_a_time_until_the_lease_ends(index: SearchIndex) -> None:
    assert index.lease("a", 100.0, 120.0)
    assert not index.lease("b", 110.0, 130.0)
    assert index.lease("a", 115.0, 135.0)
    assert index.lease("b", 140.0, 160.0)


def test_a_lease_ends_with_the_process_that_holds_it(index: SearchIndex) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    gone = holder(1).replace(f":{os.getpid()}:", f":{process.pid}:")
    assert index.lease(gone, 100.0, 120.0)
    assert index.lease(holder(2), 110.0, 130.0)
    assert not index.lease(holder(3), 115.0, 135.0)


def test_a_merge_that_is_stopped_changes_nothing(index: SearchIndex) -> None:
    index.merge(index.root("/s"))
    index.save(index.root("/s"), [fresh("new")])
    before = index.root("/s")
    assert index.merge(before, lambda: False)
    assert index.root("/s") == before
    assert index.postings(before, [number("merg")])


def test_a_merge_that_others_overtook_changes_nothing(index: SearchIndex, file: str) -> None:
    others = iter([lambda: None] * 3 + [lambda: SearchIndex(file).merge(index.root("/s"))])

    def alive() -> bool:
        next(others, lambda: None)()
        return True

    assert index.merge(index.root("/s"), alive)
    root = index.root("/s")
    sought = [number(word) for word in ("merg", "page", "draw", "chart", "pdf", "csv")]
    assert len(index.postings(root, sought)) == len(sought)
    with sqlite3.connect(file) as db:
        (kept,) = db.execute("SELECT count(*) FROM posting").fetchone()
    db.close()
    assert kept == len(sought)


def test_a_merge_that_the_disk_can_not_hold_says_so(index: SearchIndex, file: str) -> None:
    index.save(index.root("/s"), [fresh("long", " ".join(f"word{n}x" for n in range(5_000)))])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(file), limits[1]))
    try:
        assert not index.merge(index.root("/s"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(index.stored(index.root("/s"))) == 3
    assert index.merge(index.root("/s"))
