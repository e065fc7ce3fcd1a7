from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skillbelt.discovery.index import Entry, Index, MemoryIndex, SqliteIndex
from tests import warm
from tests.tree import Tree


def entry(path: str, name: str = "a") -> Entry:
    return Entry(
        path=path,
        size=1,
        mtime_ns=2,
        inode=3,
        ctime_ns=5,
        policy_ns=0,
        name=name,
        title=name,
        description="Does.",
        when_to_use="",
        flags=3,
        body_offset=4,
        diagnostics="",
    )


@pytest.fixture(params=["memory", "file"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    return MemoryIndex() if request.param == "memory" else SqliteIndex(str(tmp_path / "i.sqlite3"))


def test_what_was_saved_is_loaded(index: Index) -> None:
    one, other = entry("/r/a/SKILL.md"), entry("/r/b/SKILL.md")
    index.save([one, other], ())
    assert index.load("/r") == {one.path: one, other.path: other}


def test_only_entries_below_the_folder_are_loaded(index: Index) -> None:
    index.save([entry(f"{folder}/SKILL.md") for folder in ("/r/a", "/r-x/a", "/r0", "/q")], ())
    assert set(index.load("/r")) == set(index.load("/r/")) == {"/r/a/SKILL.md"}
    assert len(index.load("/")) == 4


def test_what_is_gone_is_forgotten(index: Index) -> None:
    index.save([entry("/r/a/SKILL.md"), entry("/r/b/SKILL.md")], ())
    index.save((), ["/r/a/SKILL.md", "/r/never/SKILL.md"])
    assert set(index.load("/r")) == {"/r/b/SKILL.md"}


def test_a_later_entry_replaces_an_earlier_one(index: Index) -> None:
    index.save([entry("/r/a/SKILL.md", "old")], ())
    index.save([entry("/r/a/SKILL.md", "new")], ())
    assert Entry._make(index.load("/r")["/r/a/SKILL.md"]).name == "new"


def test_text_of_any_kind_is_kept(index: Index) -> None:
    one = entry("/r/é '\"%_\n/SKILL.md", "日本")
    index.save([one], ())
    assert index.load("/r") == {one.path: one}


def test_a_path_that_is_not_utf8_is_no_failure(index: Index) -> None:
    index.save([entry("/r/\udcff/SKILL.md"), entry("/r/b/SKILL.md")], ["/r/\udcfe/SKILL.md"])
    assert "/r/b/SKILL.md" in index.load("/r")
    assert set(index.load("/r/\udcff")) <= {"/r/\udcff/SKILL.md"}


def test_entries_made_by_other_rules_are_not_mixed_in(tmp_path: Path) -> None:
    path = str(tmp_path / "i.sqlite3")
    SqliteIndex(path, "one").save([entry("/r/a/SKILL.md")], ())
    assert SqliteIndex(path, "other").load("/r") == {}
    assert len(SqliteIndex(path, "one").load("/r")) == 1


def test_the_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    SqliteIndex(str(tmp_path / "new/deep/i.sqlite3")).save([entry("/r/a/SKILL.md")], ())
    assert (tmp_path / "new/deep").stat().st_mode & 0o777 == 0o700


def test_closing_lets_go_and_the_next_use_opens_again(tmp_path: Path) -> None:
    index = SqliteIndex(str(tmp_path / "i.sqlite3"))
    index.save([entry("/r/a/SKILL.md")], ())
    index.close()
    index.close()
    assert len(index.load("/r")) == 1


# Files that are not what they should be


def text(path: Path) -> None:
    path.write_text("not a database at all\n" * 100)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def garbled(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xff" * (len(data) - 100))


def foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE entry (something, else_)")
        db.execute("INSERT INTO entry VALUES (1, 2)")
    db.close()


def not_text(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE entry SET name = CAST(x'ff' AS TEXT)")
    db.close()


@pytest.mark.parametrize("damage", [text, empty, truncated, garbled, foreign, not_text])
def test_a_damaged_file_is_made_anew(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    index = SqliteIndex(str(tmp_path / "i.sqlite3"))
    many = [entry(f"/r/{number}/SKILL.md") for number in range(500)]
    index.save(many, ())
    index.close()
    damage(Path(index.path))
    index = SqliteIndex(str(tmp_path / "i.sqlite3"))
    assert index.load("/r") == {}
    index.save(many, ())
    index.close()
    assert len(SqliteIndex(str(tmp_path / "i.sqlite3")).load("/r")) == 500


def test_a_file_damaged_while_it_is_open_is_made_anew(tmp_path: Path) -> None:
    index = SqliteIndex(str(tmp_path / "i.sqlite3"))
    index.save([entry(f"/r/{number}/SKILL.md") for number in range(500)], ())
    text(Path(index.path))
    assert index.load("/r") == {}
    assert not index.trouble
    index.save([entry("/r/a/SKILL.md")], ())
    assert len(index.load("/r")) == 1


def test_a_folder_in_its_place_is_done_without(tmp_path: Path) -> None:
    index = SqliteIndex(str(tmp_path / "i.sqlite3"))
    os.makedirs(f"{index.path}/x")
    index.save([entry("/r/a/SKILL.md")], ())
    assert index.load("/r") == {}
    assert index.path in index.trouble
    assert os.path.isdir(f"{index.path}/x")


def test_a_file_in_place_of_its_folder_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    index = SqliteIndex(str(tmp_path / "cache/i.sqlite3"))
    index.save([entry("/r/a/SKILL.md")], ())
    assert index.load("/r") == {}
    assert index.trouble


@pytest.mark.parametrize("target", ["folder", "file"])
def test_what_can_not_be_written_is_done_without(open_tree: Tree, target: str) -> None:
    open_tree.skill("project/.agents/skills/a")
    cache = open_tree.home / ".cache/skillbelt"
    made = json.loads(
        open_tree.as_user(f"""
Catalog({str(open_tree.project)!r}, user_roots=False).all()
files = [entry.path for entry in os.scandir({str(cache)!r})]
for path in files if {target!r} == "file" else [{str(cache)!r}]:
    os.chmod(path, 0o444 if {target!r} == "file" else 0o500)
Path({str(open_tree.project)!r}, ".agents/skills/b").mkdir()
Path({str(open_tree.project)!r}, ".agents/skills/b/SKILL.md").write_text("text")
catalog = Catalog({str(open_tree.project)!r}, user_roots=False)
print(json.dumps([list(catalog), [d.code for d in catalog.diagnostics if d.severity == "error"]]))
""")
    )
    assert made == [["a", "b"], []]


# Several processes

LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


def test_one_that_another_process_holds_is_done_without(tree: Tree) -> None:
    tree.skill("project/.agents/skills/a")
    tree.skill("project/.claude/skills/b")
    catalog = tree.catalog()
    assert list(catalog) == ["a", "b"]
    [file] = (tree.home / ".cache/skillbelt").glob("*.sqlite3")
    with warm.Popen[str](
        [sys.executable, "-c", LOCK, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        tree.skill("project/.agents/skills/c")
        fresh = tree.catalog()
        assert [skill.name for skill in fresh.all()] == ["a", "b", "c"]
        assert sum(scan.files_read for scan in fresh.scans) == 3
        holder.communicate()
    assert sum(scan.files_read for scan in tree.catalog().scans) == 1


SCAN = """
import json, sys
from skillbelt import Catalog
from skillbelt.discovery.describe import diagnostics_json, skill_json
catalog = Catalog(sys.argv[1])
print(json.dumps([[skill_json(s) for s in catalog.all()], diagnostics_json(catalog.diagnostics)]))
print(sum(scan.files_read for scan in catalog.scans), file=sys.stderr)
"""


@pytest.mark.long
def test_eight_processes_share_one_index(tree: Tree) -> None:
    """Cold, all of them build it at once; warm, none reads a file. All give the same."""
    for number in range(200):
        tree.skill(f"project/.agents/skills/s{number}", f"Does thing {number}.")
        tree.skill(f"project/.claude/skills/s{number}", f"Does other thing {number}.")
    rounds = [together(tree, 8) for _ in range(2)]
    assert len({out for outs in rounds for out, _ in outs}) == 1
    assert len(json.loads(rounds[0][0][0])[0]) == 200
    assert [read for _, read in rounds[1]] == ["0\n"] * 8


def together(tree: Tree, count: int) -> list[tuple[str, str]]:
    command = [sys.executable, "-c", SCAN, str(tree.project)]
    started = [
        warm.Popen[str](command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    outputs = [process.communicate(timeout=500) for process in started]
    assert [process.returncode for process in started] == [0] * count, outputs
    return outputs
