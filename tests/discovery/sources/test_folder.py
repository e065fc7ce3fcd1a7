from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.discovery.catalog import Catalog
from skillbelt.discovery.sources.folder import Walker, WalkProgress, WalkRules
from skillbelt.values import Diagnostic, Limits
from tests.bounds import bounds
from tests.examples import examples
from tests.tree import QUICK, Tree


def walk(root: Path | str, **rules: object) -> Walker:
    walker = Walker(str(root), WalkRules(**rules), WalkProgress())  # type: ignore[arg-type]
    walker.walk()
    return walker


def found(walker: Walker) -> list[str]:
    """The folders of the skills, below the root."""
    return [os.path.relpath(os.path.dirname(one.location), walker.root) for one in walker.found]


def said(walker: Walker) -> list[tuple[str, str]]:
    """Codes and paths below the root."""
    return [(d.code, os.path.relpath(d.path, walker.root)) for d in walker.diagnostics]


def only(walker: Walker) -> Diagnostic:
    [diagnostic] = walker.diagnostics
    return diagnostic


@pytest.fixture
def root(tree: Tree) -> Path:
    folder = tree.path("root")
    folder.mkdir()
    return folder


def test_skills_come_in_sorted_order(tree: Tree, root: Path) -> None:
    """Case 1."""
    for name in ("b", "a", "c", "B", "a-b", "a/x"):
        tree.skill(f"root/{name}")
    assert found(walk(root)) == ["B", "a", "a-b", "b", "c"]


SEGMENT = st.sampled_from(["a", "b", "B", "a-b", "é", "c c"])


@settings(max_examples=examples(40))
@given(st.lists(st.lists(SEGMENT, min_size=1, max_size=4), max_size=8), st.booleans())
def test_the_walk_is_in_path_order_and_stops_at_skills(
    paths: list[list[str]], nested: bool
) -> None:
    with tempfile.TemporaryDirectory() as root:
        for parts in paths:
            folder = Path(root, *parts)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "SKILL.md").touch()
        skills = sorted({tuple(parts) for parts in paths})
        inner = {s for s in skills for n in range(1, len(s)) if s[:n] in skills}
        wanted = [s for s in skills if nested or s not in inner]
        assert found(walk(root, nested=nested)) == ["/".join(parts) for parts in wanted]


def test_what_is_found_tells_whether_it_changed(tree: Tree, root: Path) -> None:
    folder = tree.skill("root/a")
    status = (folder / "SKILL.md").stat()
    [one] = walk(root).found
    assert one.location == str(folder / "SKILL.md")
    assert (one.size, one.mtime_ns, one.inode) == (
        status.st_size,
        status.st_mtime_ns,
        status.st_ino,
    )
    assert one.identity == folder.stat().st_dev << 64 | folder.stat().st_ino


def test_the_root_may_itself_be_a_skill(tree: Tree, root: Path) -> None:
    tree.skill("root")
    tree.skill("root/inner")
    assert found(walk(root)) == ["."]
    assert found(walk(root, nested=True)) == [".", "inner"]


def test_a_folder_of_skills_may_have_a_skill_at_its_top(tree: Tree, root: Path) -> None:
    tree.skill("root")
    tree.skill("root/inner/deeper")
    tree.skill("root/inner")
    assert found(walk(root, collection=True)) == [".", "inner"]


def test_a_missing_root_and_a_file_are_no_roots(tree: Tree) -> None:
    file = tree.write("file", "x")
    for path in (tree.path("nowhere"), file, file / "below"):
        walker = walk(path)
        assert not walker.exists
        assert walker.diagnostics == []


def test_dot_folders_are_searched_and_some_folders_are_not(tree: Tree, root: Path) -> None:
    for name in (".hidden", ".git", "node_modules", "__pycache__"):
        tree.skill(f"root/{name}/s")
    assert found(walk(root)) == [".hidden/s"]
    assert found(walk(root, skip_directories=(".hidden",))) == [
        ".git/s",
        "__pycache__/s",
        "node_modules/s",
    ]


def test_a_pattern_leaves_out_all_dot_folders(tree: Tree) -> None:
    tree.skill("project/.agents/skills/open")
    tree.skill("project/.agents/skills/.hidden/s")
    tree.write("project/skillbelt.toml", 'skip_directories = ".*"\n')
    assert list(Catalog(settings=tree.settings())) == ["open"]


# Bounds


def test_folders_below_the_depth_are_reported(tree: Tree, root: Path) -> None:
    tree.skill("root/1/2/3")
    assert found(walk(root, limits=Limits(max_depth=3))) == ["1/2/3"]
    walker = walk(root, limits=Limits(max_depth=2))
    assert found(walker) == []
    assert said(walker) == [("max-depth", "1/2")]
    assert "1 folders are deeper than max_depth (2)" in only(walker).message


def test_a_link_from_higher_up_leads_to_what_lies_too_deep(tree: Tree, root: Path) -> None:
    deep = tree.skill("root/1/2/3")
    tree.path("root/2").mkdir()
    tree.path("root/2/link").symlink_to(deep)
    walker = walk(root, limits=Limits(max_depth=2))
    assert found(walker) == ["2/link"]
    assert said(walker) == [("max-depth", "1/2")]


def test_the_number_of_folders_is_bounded_and_reported(tree: Tree, root: Path) -> None:
    for number in range(1000):
        (root / f"{number:04}").mkdir()
    tree.skill("root/9999")
    walker = walk(root, limits=Limits(max_directories=100))
    assert not walker.complete
    assert said(walker) == [("max-directories", ".")]
    assert "max_directories is 100" in only(walker).message
    assert walk(root).complete


def test_skills_do_not_count_as_folders_searched(tree: Tree, root: Path) -> None:
    for number in range(20):
        tree.skill(f"root/{number}")
    walker = walk(root, limits=Limits(max_directories=1))
    assert len(walker.found) == 20
    assert walker.diagnostics == []


def test_the_number_of_entries_is_bounded_and_reported(tree: Tree, root: Path) -> None:
    for number in range(50):
        tree.write(f"root/a/{number}")
    tree.skill("root/b/c")
    walker = walk(root, limits=bounds(max_root_entries=40))
    assert found(walker) == []
    assert said(walker) == [("max-root-entries", ".")]


@pytest.mark.long
def test_a_folder_with_a_hundred_thousand_files_is_passed_through(tree: Tree) -> None:
    with tempfile.TemporaryDirectory(dir=QUICK) as root:
        for number in range(100_000):
            os.mknod(f"{root}/{number:06}")
        walker = walk(root)
        assert (walker.found, walker.diagnostics) == ([], [])
        tree.skill(f"{root}/x")
        assert found(walk(root)) == ["x"]


# Links


def test_a_linked_root_is_searched(tree: Tree, root: Path) -> None:
    """Case 12."""
    tree.skill("root/a")
    link = tree.path("link")
    link.symlink_to(root)
    walker = walk(link)
    assert found(walker) == ["a"]
    assert walker.found[0].location == str(link / "a/SKILL.md")
    assert walker.found[0].identity == walk(root).found[0].identity


def test_linked_folders_and_files_are_followed(tree: Tree, root: Path) -> None:
    outside = tree.skill("outside/a")
    (root / "linked").symlink_to(outside)
    (root / "file").mkdir()
    (root / "file/SKILL.md").symlink_to(outside / "SKILL.md")
    assert found(walk(root)) == ["file", "linked"]


def test_links_to_folders_are_followed_only_if_wanted(tree: Tree, root: Path) -> None:
    (root / "linked").symlink_to(tree.skill("outside/a"))
    tree.skill("root/b")
    walker = walk(root, follow_symlinks=False)
    assert found(walker) == ["b"]
    assert walker.diagnostics == []


def test_each_real_folder_is_visited_once(tree: Tree, root: Path) -> None:
    tree.skill("root/b")
    for name in ("a", "c"):
        (root / name).symlink_to(root / "b")
    walker = walk(root)
    assert found(walker) == ["a"]
    assert said(walker) == [("same-folder", "b"), ("same-folder", "c")]
    assert {d.severity for d in walker.diagnostics} == {"info"}


@pytest.mark.parametrize("up", [".", "..", "../..", "../../.."])
def test_a_circle_is_reported_with_the_links_path(tree: Tree, root: Path, up: str) -> None:
    """Case 13. A link back to its own folder, the root, or a folder above the root."""
    tree.skill("root/a/s")
    tree.skill("outside")
    (root / "a/back").symlink_to(root / "a" / up)
    walker = walk(root)
    assert found(walker) == ["a/s"]
    assert said(walker) == [("link-cycle", "a/back")]
    assert only(walker).severity == "warning"
    assert str((root / "a" / up).resolve()) in only(walker).message


def test_two_links_that_lead_to_each_others_folders_end(tree: Tree, root: Path) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        tree.skill(f"root/{one}/s")
        (root / one / "other").symlink_to(root / other)
    walker = walk(root)
    assert found(walker) == ["a/s", "b/s"]
    assert [code for code, _ in said(walker)] == ["same-folder", "same-folder"]


@pytest.mark.parametrize("target", ["missing", "loop"])
def test_a_link_that_leads_nowhere_is_reported(tree: Tree, root: Path, target: str) -> None:
    tree.skill("root/b")
    (root / "loop").symlink_to(target)
    walker = walk(root)
    assert found(walker) == ["b"]
    assert said(walker) == [("broken-link", "loop")]


@pytest.mark.parametrize("target", ["missing", "SKILL.md"])
def test_a_skill_file_that_leads_nowhere_is_reported(tree: Tree, root: Path, target: str) -> None:
    (root / "a").mkdir()
    (root / "a/SKILL.md").symlink_to(target)
    walker = walk(root)
    assert found(walker) == []
    assert said(walker) == [("broken-link", "a/SKILL.md")]


# Names


@pytest.mark.parametrize("name", ["skill.md", "Skill.md", "SKILL.MD"])
def test_a_misspelled_file_is_reported_and_loads_only_if_wanted(
    tree: Tree, root: Path, name: str
) -> None:
    tree.write(f"root/a/{name}", "x")
    strict = walk(root)
    assert found(strict) == []
    assert said(strict) == [("file-name", f"a/{name}")]
    assert "rename it to SKILL.md" in only(strict).remedy
    loose = walk(root, loose_file_name=True)
    assert [one.location for one in loose.found] == [str(root / "a" / name)]
    assert said(loose) == [("file-name", f"a/{name}")]


def test_a_misspelled_skill_ends_the_search_if_it_loads(tree: Tree, root: Path) -> None:
    tree.write("root/a/skill.md", "x")
    tree.skill("root/a/inner")
    assert found(walk(root)) == ["a/inner"]
    assert found(walk(root, loose_file_name=True)) == ["a"]
    assert found(walk(root, loose_file_name=True, nested=True)) == ["a", "a/inner"]


def test_a_well_spelled_file_beside_a_misspelled_one_wins(tree: Tree, root: Path) -> None:
    tree.skill("root/a")
    tree.write("root/a/skill.md", "x")
    walker = walk(root, loose_file_name=True)
    assert [one.location for one in walker.found] == [str(root / "a/SKILL.md")]


def test_names_that_are_not_utf8_are_found(root: Path) -> None:
    folder = os.fsencode(root) + b"/\xff\xfe"
    os.mkdir(folder)
    with open(folder + b"/SKILL.md", "wb") as file:
        file.write(b"x")
    [one] = walk(root).found
    assert os.fsencode(one.location) == folder + b"/SKILL.md"


# What is no file


def test_a_folder_in_place_of_the_file_is_reported(tree: Tree, root: Path) -> None:
    tree.write("root/a/SKILL.md/x")
    walker = walk(root)
    assert found(walker) == []
    assert said(walker) == [("not-a-file", "a/SKILL.md")]
    assert "is a folder" in only(walker).message


def test_a_pipe_in_place_of_the_file_is_reported(root: Path) -> None:
    (root / "a").mkdir()
    os.mkfifo(root / "a/SKILL.md")
    assert said(walk(root)) == [("not-a-file", "a/SKILL.md")]


def test_a_device_in_place_of_the_file_is_reported(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a/SKILL.md").symlink_to("/dev/zero")
    walker = walk(root)
    assert said(walker) == [("not-a-file", "a/SKILL.md")]
    assert "is a special file" in only(walker).message


def test_times_and_inodes_too_large_for_an_index_are_brought_down(tree: Tree, root: Path) -> None:
    file = tree.skill("root/a") / "SKILL.md"
    os.utime(file, (20_000_000_000, 20_000_000_000))
    [one] = walk(root).found
    assert 0 < one.mtime_ns < 2**63
    assert 0 < one.inode < 2**63


# Permissions

WALK = """
from skillbelt.discovery.sources.folder import WalkProgress, WalkRules, Walker
walker = Walker(ROOT, WalkRules(), WalkProgress())
walker.walk()
print(json.dumps({
    "found": [os.path.relpath(one.location, ROOT) for one in walker.found],
    "said": [(d.code, d.severity, os.path.relpath(d.path, ROOT)) for d in walker.diagnostics],
}))
"""


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
@pytest.mark.parametrize("name", ["b", "."])
@pytest.mark.parametrize(
    "rules", ["WalkRules()", "WalkRules(nested=True)", "WalkRules(collection=True)"]
)
def test_a_folder_that_can_not_be_read_is_one_diagnostic(
    open_tree: Tree, mode: int, name: str, rules: str
) -> None:
    """Closed, without search permission, without read permission; a folder and the root itself."""
    for folder in ("a", "b/group", "c"):
        open_tree.skill(f"root/{folder}/s")
    root = open_tree.path("root")
    code = f"ROOT = {str(root)!r}\nos.chmod(os.path.join(ROOT, {name!r}), {mode})\n" + WALK
    result = json.loads(open_tree.as_user(code.replace("WalkRules()", rules)))
    if name == ".":
        assert result["found"] == []
        assert result["said"] == [["root-unreadable", "error", "."]]
    else:
        assert result["found"] == ["a/s/SKILL.md", "c/s/SKILL.md"]
        assert result["said"] == [["unreadable", "error", "b"]]


def test_a_root_below_a_closed_folder_is_one_diagnostic(open_tree: Tree) -> None:
    open_tree.skill("closed/root/a")
    root = str(open_tree.path("closed/root"))
    code = f"ROOT = {root!r}\nos.chmod(os.path.dirname(ROOT), 0)\n" + WALK
    result = json.loads(open_tree.as_user(code))
    assert result == {"found": [], "said": [["root-unreadable", "error", "."]]}


# Giving up


def test_a_walk_that_is_told_to_stop_stops(tree: Tree, root: Path) -> None:
    tree.skill("root/a")
    pulse = WalkProgress()
    pulse.stopped = True
    walker = Walker(str(root), WalkRules(), pulse)
    walker.walk()
    assert walker.found == []


def test_a_walk_shows_where_it_is(tree: Tree, root: Path) -> None:
    tree.skill("root/a")
    pulse = WalkProgress()
    Walker(str(root), WalkRules(), pulse).walk()
    assert pulse.beats == 2
    assert pulse.path == str(root / "a/SKILL.md")


def test_a_folder_with_more_entries_than_are_allowed_is_not_listed_whole(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}").mkdir()
    walker = walk(tmp_path, limits=bounds(max_root_entries=10))
    assert not walker.complete
    assert said(walker)[-1][0] == "max-root-entries"
