from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from skillbelt import Catalog, Settings
from skillbelt.discovery.clients import Root
from skillbelt.discovery.index import Entry, MemoryIndex, Row, SqliteIndex
from skillbelt.discovery.scan import Scan, scan
from skillbelt.values import Origin
from tests import mounts
from tests.tree import Tree

ROOT = "project/.agents/skills"


def scan_one(tree: Tree, index: MemoryIndex | None = None, **settings: object) -> Scan:
    root = Root(str(tree.path(ROOT)), "project", "agents")
    [scanned] = scan([root], tree.settings(**settings), index or MemoryIndex())
    return scanned


def names(scanned: Scan) -> list[str]:
    return [skill.name for skill in scanned.skills]


def test_roots_are_scanned_in_the_order_given(tree: Tree) -> None:
    for name in "abc":
        tree.skill(f"{name}/{name}")
    roots = [Root(str(tree.path(name)), "explicit") for name in ("c", "a", "nowhere", "b")]
    scans = scan(roots, tree.settings(), MemoryIndex())
    assert [one.root for one in scans] == roots
    assert [names(one) for one in scans] == [["c"], ["a"], [], ["b"]]
    assert [one.exists for one in scans] == [True, True, False, True]


def test_no_roots_give_nothing(tree: Tree) -> None:
    assert scan([], tree.settings(), MemoryIndex()) == []


def test_a_root_somebody_asked_for_is_missed(tree: Tree) -> None:
    """Case 18."""
    path = str(tree.path("nowhere"))
    wanted, standard = scan(
        [Root(path, "explicit", required=True), Root(path, "user")], tree.settings(), MemoryIndex()
    )
    assert [(d.code, d.path, d.severity) for d in wanted.diagnostics] == [
        ("root-missing", path, "warning")
    ]
    assert "skill path not found" in wanted.diagnostics[0].message
    assert standard.diagnostics == ()


# What is read again


def test_only_changed_files_are_read_again(tree: Tree) -> None:
    """Case 21."""
    for name in ("a", "b", "c"):
        tree.skill(f"{ROOT}/{name}", f"Old {name}.")
    index = MemoryIndex()
    assert scan_one(tree, index).files_read == 3
    assert scan_one(tree, index).files_read == 0
    tree.skill(f"{ROOT}/b", "New and longer b.")
    second = scan_one(tree, index)
    assert second.files_read == 1
    assert [skill.description for skill in second.skills] == [
        "Old a.",
        "New and longer b.",
        "Old c.",
    ]


@pytest.mark.parametrize("change", ["size", "time", "inode"])
def test_size_time_and_inode_each_tell_of_a_change(tree: Tree, change: str) -> None:
    file = tree.skill(f"{ROOT}/a", "Old text.") / "SKILL.md"
    index = MemoryIndex()
    scan_one(tree, index)
    status = file.stat()
    if change == "inode":
        copy = file.with_name("copy")
        copy.write_text(file.read_text().replace("Old", "New"))
        copy.rename(file)
    else:
        file.write_text(file.read_text().replace("Old", "Newer" if change == "size" else "New"))
    if change != "time":
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
    again = scan_one(tree, index)
    assert again.files_read == 1
    assert again.skills[0].description.startswith("New")


@pytest.mark.parametrize("file", ["SKILL.md", "agents/openai.yaml"])
def test_a_change_in_place_with_the_same_size_and_time_is_read(tree: Tree, file: str) -> None:
    head = "---\nname: a\ndescription: A.\ndisable-model-invocation: "
    texts = [f"{head}{word}\n---\n" for word in ("false", "true ")]
    if file != "SKILL.md":
        tree.skill(f"{ROOT}/a")
        texts = [f"policy: {{allow_implicit_invocation: {word}}}\n" for word in ("true ", "false")]
    index, seen = MemoryIndex(), []
    for text in texts * 5:  # as fast as it goes
        os.utime(tree.write(f"{ROOT}/a/{file}", text), ns=(1, 1))
        seen.append(scan_one(tree, index).skills[0].model_visible)
    assert seen == [True, False] * 5


def test_every_file_is_read_when_that_is_asked_for(tree: Tree) -> None:
    for name in ("a", "b"):
        tree.skill(f"{ROOT}/{name}")
    catalog = tree.catalog()
    catalog.discover()
    tree.skill(f"{ROOT}/b", "Another.")
    catalog.refresh()
    assert [(one.files_read, one.files_changed) for one in catalog.scans if one.exists] == [(2, 1)]


def test_a_deleted_skill_is_forgotten(tree: Tree) -> None:
    """Case 20."""
    for name in ("a", "b"):
        tree.skill(f"{ROOT}/{name}")
    index = MemoryIndex()
    scan_one(tree, index)
    tree.path(f"{ROOT}/a/SKILL.md").unlink()
    second = scan_one(tree, index)
    assert (names(second), second.files_gone) == (["b"], 1)
    assert scan_one(tree, index).files_gone == 0


def test_what_a_bounded_walk_did_not_reach_is_not_forgotten(tree: Tree) -> None:
    for name in ("a", "b", "c"):
        tree.skill(f"{ROOT}/{name}/s", name=name)
    index = MemoryIndex()
    scan_one(tree, index)
    bounded = scan_one(tree, index, max_directories=2)
    assert (names(bounded), bounded.files_gone) == (["a"], 0)
    assert scan_one(tree, index).files_read == 0


def test_diagnostics_come_from_the_index_as_they_were(tree: Tree) -> None:
    tree.write(f"{ROOT}/a/SKILL.md", "---\nname: a\ndescription: x: y\n---\n")
    tree.write(f"{ROOT}/b/SKILL.md", b"---\nname: \xff\n---\n")
    index = MemoryIndex()
    first, second = scan_one(tree, index), scan_one(tree, index)
    assert second.files_read == 0
    assert len(first.diagnostics) >= 2
    what_it_took = {
        name: getattr(first, name) for name in ("files_read", "files_changed", "cpu_seconds")
    }
    assert second._replace(**what_it_took) == first


def test_an_index_entry_that_makes_no_sense_is_read_again(tree: Tree) -> None:
    tree.write(f"{ROOT}/a/SKILL.md", "---\nname: a\ndescription: x: y\n---\n")
    tree.catalog().all()
    [file] = (tree.home / ".cache/skillbelt").glob("*.sqlite3")
    with sqlite3.connect(file) as db:
        db.execute("UPDATE entry SET diagnostics = '[[1, '")
    db.close()
    catalog = tree.catalog()
    assert catalog["a"].diagnostics
    assert sum(one.files_read for one in catalog.scans) == 1


def test_times_an_index_can_not_hold_are_no_failure(tree: Tree) -> None:
    file = tree.skill(f"{ROOT}/a") / "SKILL.md"
    policy = tree.write(f"{ROOT}/a/agents/openai.yaml", "policy: {}")
    for path in (file, policy):
        os.utime(path, (20_000_000_000, 20_000_000_000))
    for files_read in (1, 0):
        catalog = tree.catalog()
        assert list(catalog) == ["a"]
        assert sum(one.files_read for one in catalog.scans) == files_read


class Broken(MemoryIndex):
    """An index with a mistake in it."""

    def save(self, entries: Iterable[Entry], gone: Iterable[str]) -> None:
        raise RuntimeError("a mistake")


def test_a_mistake_in_the_thread_is_not_lost(tree: Tree) -> None:
    tree.skill(f"{ROOT}/a")
    with pytest.raises(RuntimeError, match="a mistake"):
        scan_one(tree, Broken())


class Slow(MemoryIndex):
    """An index on a slow disk."""

    def load(self, root: str) -> dict[str, Row]:
        time.sleep(0.6)
        return super().load(root)


def test_a_long_scan_says_how_far_it_is(tree: Tree) -> None:
    tree.skill(f"{ROOT}/a")
    said: list[str] = []
    catalog = Catalog(tree.project, index=Slow(), progress=said.append)
    assert list(catalog) == ["a"]
    assert said
    assert str(tree.path(ROOT)) in said[-1]


# What is read at all

COUNT = """
import sys
from skillbelt import Catalog

def read_so_far():
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])

Catalog(sys.argv[1], use_index=False).all()  # loads whatever is loaded on first use
catalog = Catalog(sys.argv[2], use_index=False)
before = read_so_far()
found = len(catalog.all())
print(found, read_so_far() - before)
"""


@pytest.mark.parametrize("size", [0, 50 * 2**20])
def test_a_body_costs_no_more_than_the_head(tree: Tree, size: int) -> None:
    """The kernel's own count of the bytes that a process read."""
    tree.skill("other/.agents/skills/x")
    file = tree.skill(f"{ROOT}/big", "Has a large body.") / "SKILL.md"
    tree.write(f"{ROOT}/big/scripts/run.py", b"x" * 100_000)
    os.truncate(file, file.stat().st_size + size)
    done = tree.python("-c", COUNT, str(tree.path("other")), str(tree.project))
    assert done.exit_code == 0, done.stderr
    found, read = map(int, done.stdout.split())
    assert found == 1
    # The counter's own file is read twice.
    assert 0 < read <= 8 * 2**10 + 1024


# What the settings and the root make of a skill


def test_skills_carry_the_scope_and_origin_of_their_root(tree: Tree) -> None:
    tree.skill("x/a")
    origin = Origin("archive", "https://host/a.zip")
    root = Root(str(tree.path("x")), "remote", "", origin)
    [scanned] = scan([root], tree.settings(), MemoryIndex())
    [skill] = scanned.skills
    assert (skill.scope, skill.origin, skill.trusted) == ("remote", origin, False)


@pytest.mark.parametrize(("setting", "trusted"), [("allow", True), ("ask", False)])
def test_a_projects_own_skills_are_trusted_unless_asked_for(
    tree: Tree, setting: str, trusted: bool
) -> None:
    tree.skill(f"{ROOT}/a")
    assert scan_one(tree, trust_project=setting).skills[0].trusted is trusted


def test_internal_skills_are_hidden_unless_wanted(tree: Tree) -> None:
    tree.skill(f"{ROOT}/a", metadata={"internal": True})
    [skill] = scan_one(tree).skills
    assert (skill.hidden, skill.model_visible) == (True, False)
    tree.setenv("INSTALL_INTERNAL_SKILLS", "1")
    [skill] = scan_one(tree).skills
    assert (skill.hidden, skill.model_visible) == (False, True)


def test_derived_descriptions_can_be_hidden(tree: Tree) -> None:
    tree.write(f"{ROOT}/a/SKILL.md", "Text without frontmatter.")
    [skill] = scan_one(tree).skills
    assert (skill.derived, skill.hidden, skill.model_visible) == (True, False, True)
    [skill] = scan_one(tree, derived_descriptions="hide").skills
    assert (skill.derived, skill.hidden, skill.model_visible) == (True, True, False)


def test_strict_skips_what_has_no_frontmatter_and_names_it(tree: Tree) -> None:
    """Case 2."""
    file = tree.write(f"{ROOT}/x/SKILL.md", "Just a body.")
    assert names(scan_one(tree)) == ["x"]
    strict = scan_one(tree, strict=True)
    assert names(strict) == []
    assert str(file) in [diagnostic.path for diagnostic in strict.diagnostics]


def test_a_file_that_can_not_be_understood_is_skipped_and_named(tree: Tree) -> None:
    tree.skill(f"{ROOT}/good")
    bad = tree.write(f"{ROOT}/bad/SKILL.md", "---\na: &a [x]\n" + "b: [*a]\n" * 100 + "---\n")
    scanned = scan_one(tree)
    assert names(scanned) == ["good"]
    assert {diagnostic.path for diagnostic in scanned.diagnostics} == {str(bad)}


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("policy:\n  allow_implicit_invocation: false\n", False),
        ("policy:\n  allow_implicit_invocation: true\n", True),
        ("interface:\n  display_name: A\n", True),
        ("policy: [\n", False),
        ("policy:\n" + "# long\n" * 10_000, False),
        ("", True),
    ],
)
def test_the_codex_policy_may_keep_the_model_away(tree: Tree, text: str, visible: bool) -> None:
    tree.skill(f"{ROOT}/a")
    index = MemoryIndex()
    assert scan_one(tree, index).skills[0].model_visible
    tree.write(f"{ROOT}/a/agents/openai.yaml", text)
    scanned = scan_one(tree, index)
    assert scanned.files_read == 1
    assert scanned.skills[0].model_visible is visible


def test_a_codex_policy_that_can_not_be_read_is_told(tree: Tree) -> None:
    tree.skill(f"{ROOT}/a")
    policy = tree.write(f"{ROOT}/a/agents/openai.yaml", "policy: [\n")
    [diagnostic] = scan_one(tree).diagnostics
    assert diagnostic.code == "policy-unreadable"
    assert str(policy) in diagnostic.message


def test_a_codex_policy_that_is_a_pipe_is_not_waited_for(tree: Tree) -> None:
    tree.skill(f"{ROOT}/a")
    tree.path(f"{ROOT}/a/agents").mkdir()
    os.mkfifo(tree.path(f"{ROOT}/a/agents/openai.yaml"))
    assert scan_one(tree).skills[0].name == "a"


# What does not answer


def test_a_file_that_can_not_be_opened_is_one_diagnostic(open_tree: Tree) -> None:
    for name in ("a", "b"):
        open_tree.skill(f"{ROOT}/{name}")
    code = f"""
os.chmod({str(open_tree.path(ROOT))!r} + "/a/SKILL.md", 0)
catalog = Catalog({str(open_tree.project)!r})
print(json.dumps([list(catalog), [(d.code, d.path) for d in catalog.diagnostics]]))
"""
    assert json.loads(open_tree.as_user(code)) == [
        ["b"],
        [["unreadable", str(open_tree.path(f"{ROOT}/a/SKILL.md"))]],
    ]


def test_one_unreadable_root_among_three(open_tree: Tree) -> None:
    """Case 19."""
    for name in (".agents", ".claude", ".cursor"):
        open_tree.skill(f"project/{name}/skills/{name[1:]}")
    closed = str(open_tree.path("project/.claude/skills"))
    code = f"""
os.chmod({closed!r}, 0)
catalog = Catalog({str(open_tree.project)!r})
print(json.dumps([list(catalog), [(d.code, d.path) for d in catalog.diagnostics]]))
"""
    assert json.loads(open_tree.as_user(code)) == [
        ["agents", "cursor"],
        [["root-unreadable", closed]],
    ]


def mounted(tree: Tree, kind: str, *folders: str) -> dict[str, Any]:
    paths = [str(tree.path(folder)) for folder in folders]
    done = tree.python(str(Path(mounts.__file__)), kind, str(tree.project), *paths)
    if done.exit_code == mounts.IMPOSSIBLE:
        pytest.skip(f"needs the right to mount (sudo make test): {done.stderr.strip()}")
    assert done.exit_code == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_folders_of_two_file_systems_with_the_same_inodes_are_two(tree: Tree) -> None:
    places = [f"{ROOT}/{name}" for name in ("a", "b")]
    for place in places:
        tree.path(place).mkdir(parents=True)
    result = mounted(tree, "memory", *places)
    assert (result["skills"], result["diagnostics"]) == (["a", "b"], [])


@pytest.mark.parametrize("place", ["project/.claude/skills", "project/.claude/skills/group/deep"])
def test_a_mount_that_never_answers_costs_its_root_alone(tree: Tree, place: str) -> None:
    for name in (".agents", ".claude", ".cursor"):
        tree.skill(f"project/{name}/skills/{name[1:]}")
    tree.setenv("SCAN_SECONDS", "0.5")
    tree.path(place).mkdir(parents=True, exist_ok=True)
    result = mounted(tree, "silent", place)
    root = str(tree.path("project/.claude/skills"))
    assert result["skills"] == result["again"] == ["agents", "cursor"]
    assert result["stalled"] == [root]
    [problem] = result["diagnostics"]
    assert (problem["code"], problem["path"]) == ("root-stalled", root)
    assert f"within 0.5 s at {tree.path(place)}" in problem["message"]


def test_the_index_of_a_catalogue_is_the_files(tree: Tree) -> None:
    settings: Settings = tree.settings()
    tree.skill(f"{ROOT}/a")
    index = SqliteIndex(settings.index_file)
    root = Root(str(tree.path(ROOT)), "project", "agents")
    [first] = scan([root], settings, index)
    [second] = scan([root], settings, SqliteIndex(settings.index_file))
    assert (first.files_read, second.files_read) == (1, 0)
    assert first.skills == second.skills
    assert first.identities == second.identities
