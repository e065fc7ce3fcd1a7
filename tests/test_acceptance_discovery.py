"""Discovery and parsing as somebody outside sees them; one test or more for each case."""

from __future__ import annotations

import html
import json
import os
import threading
from pathlib import Path

import pytest

from skillbelt import Diagnostic, Frontmatter, Skill, check_file
from tests import unprivileged
from tests.tree import Tree

SKILLS = "project/.agents/skills"


def read(text: str | bytes, folder: str = "x") -> Skill:
    return Skill.from_text(text, folder=folder)


def described(value: str) -> Skill:
    return read(f"---\nname: x\ndescription: {value}\n---\nText.\n")


def codes(diagnostics: tuple[Diagnostic, ...]) -> list[str]:
    return [diagnostic.code for diagnostic in diagnostics]


def strict_errors(file: Path) -> list[str]:
    found = check_file(str(file), strict=True).diagnostics
    return [diagnostic.code for diagnostic in found if diagnostic.severity == "error"]


def test_skills_are_listed_by_name(tree: Tree) -> None:
    """Case 1."""
    for name in "bac":
        tree.skill(f"{SKILLS}/{name}")
    assert [skill.name for skill in tree.catalog().all()] == ["a", "b", "c"]
    assert list(tree.catalog()) == ["a", "b", "c"]


def test_no_frontmatter_takes_name_and_body_from_folder_and_text(tree: Tree) -> None:
    """Case 2. Tolerant."""
    file = tree.write(f"{SKILLS}/x/SKILL.md", "# Heading\n\nThe whole text.\n")
    catalog = tree.catalog()
    assert list(catalog) == ["x"]
    assert catalog["x"].body_offset == 0
    assert catalog["x"].derived
    assert catalog["x"].description == "The whole text."
    assert [d.path for d in catalog.problems] == [str(file)]


def test_no_frontmatter_is_skipped_in_strict_mode_and_named(tree: Tree) -> None:
    """Case 2. Strict."""
    file = tree.write(f"{SKILLS}/x/SKILL.md", "# Heading\n\nThe whole text.\n")
    tree.skill(f"{SKILLS}/good")
    catalog = tree.catalog(strict=True)
    assert list(catalog) == ["good"]
    assert [(d.path, d.severity) for d in catalog.diagnostics] == [(str(file), "error")]


@pytest.mark.parametrize(
    "text", ["---\nname: y\nmodel: z\n", "---\n", "---", "---\nname: y\n\n# T\n"]
)
def test_unclosed_frontmatter_is_no_metadata(text: str) -> None:
    """Case 3."""
    skill = read(text)
    assert skill.body_offset == 0
    assert skill.frontmatter == Frontmatter()
    assert skill.name == "x"
    assert skill.diagnostics


def test_literal_block_keeps_its_lines_and_drops_the_last_newline() -> None:
    """Case 4."""
    assert described("|-\n  one\n  two").description == "one\ntwo"
    assert not described("|-\n  one\n  two").diagnostics


@pytest.mark.parametrize(
    "value", ["Use C # and F", "fix issue #12 and #13", "C# code", "a\n  second # third"]
)
def test_hash_in_a_value_is_kept_or_reported(value: str) -> None:
    """Case 5."""
    skill = described(value)
    kept = " ".join(value.split())
    assert skill.description == kept or "comment-cut" in codes(skill.diagnostics)


@pytest.mark.parametrize(
    "value", ["use when: x", "a: b: c", "Triggers: a, b", "ratio 1: 2 (see: y)"]
)
def test_unquoted_colon_is_repaired(value: str) -> None:
    """Case 6."""
    skill = described(value)
    assert skill.description == value
    assert codes(skill.diagnostics) == ["yaml-repaired"]


def test_quoted_values_are_unchanged_by_repair() -> None:
    """Case 7."""
    text = "---\nname: x\nlicense: \"a: b\"\nmodel: 'c: d'\ndescription: use when: x\n---\n"
    skill = read(text)
    assert skill.description == "use when: x"
    assert (skill.frontmatter.license, skill.frontmatter.model) == ("a: b", "c: d")


@pytest.mark.parametrize("value", ["pay: $& now", r"to: $1 and \1", "$`: $'", r"c:\new: \\x"])
def test_repaired_text_is_literal(value: str) -> None:
    """Case 8."""
    assert described(value).description == value


def test_carriage_returns_change_nothing() -> None:
    """Case 9."""
    text = (
        "---\nname: x\ndescription: |\n  one\n  two\nmetadata:\n  a: b\ntags: [c, d]\n---\nText.\n"
    )
    plain, other = read(text), read(text.replace("\n", "\r\n"))
    assert plain.frontmatter == other.frontmatter
    assert plain.description == other.description == "one\ntwo"
    assert plain.diagnostics == other.diagnostics == ()


def test_a_key_in_the_body_is_no_metadata() -> None:
    """Case 10."""
    skill = read("---\nname: x\ndescription: Good.\n---\nlicense: MIT\ndescription: Bad.\n---\n")
    assert skill.fields == {"name": "x", "description": "Good."}


@pytest.mark.parametrize("use_index", [True, False])
def test_the_same_name_twice_has_one_winner_always(tree: Tree, use_index: bool) -> None:
    """Case 11."""
    winner = tree.skill(f"{SKILLS}/pdf", description="new") / "SKILL.md"
    loser = tree.skill("home/.agents/skills/pdf", description="old") / "SKILL.md"
    for _ in range(20):
        catalog = tree.catalog(use_index=use_index)
        assert [skill.location for skill in catalog.all()] == [str(winner)]
        (said,) = catalog.diagnostics
        assert said.code == "shadowed"
        assert str(winner) in said.message
        assert str(loser) in said.message
        assert catalog["pdf"].shadows == (str(loser),)


def test_precedence_is_the_documented_one(tree: Tree) -> None:
    """Case 11. Explicit, project, user; in a scope our own folder, `.agents`, `.claude`, others."""
    places = [
        "elsewhere/pdf",
        "project/.skillbelt/skills/pdf",
        "project/.agents/skills/pdf",
        "project/.claude/skills/pdf",
        "project/.cursor/skills/pdf",
        "home/.skillbelt/skills/pdf",
        "home/.agents/skills/pdf",
        "home/.claude/skills/pdf",
    ]
    made = [str(tree.skill(place) / "SKILL.md") for place in reversed(places)][::-1]
    skill = tree.catalog(paths=[tree.path("elsewhere")])["pdf"]
    assert [skill.location, *skill.shadows] == made


def test_a_root_that_is_a_link_is_scanned_once(tree: Tree) -> None:
    """Case 12."""
    tree.skill("project/elsewhere/pdf")
    (tree.project / ".agents").mkdir()
    (tree.project / ".agents/skills").symlink_to(tree.path("project/elsewhere"))
    (tree.project / ".claude").mkdir()
    (tree.project / ".claude/skills").symlink_to(tree.path("project/elsewhere"))
    catalog = tree.catalog()
    assert list(catalog) == ["pdf"]
    assert not catalog.shadowed
    assert not catalog.problems


def test_a_cycle_of_links_ends_and_is_named(tree: Tree) -> None:
    """Case 13."""
    for name in ("a", "b"):
        tree.skill(f"{SKILLS}/group/{name}")
    link = tree.path(f"{SKILLS}/group/loop")
    link.symlink_to(tree.path(SKILLS))
    catalog = tree.catalog()
    assert [skill.name for skill in catalog.all()] == ["a", "b"]
    assert not catalog.shadowed
    (said,) = catalog.problems
    assert (said.code, said.path, said.severity) == ("link-cycle", str(link), "warning")


def test_singular_and_plural_folders(tree: Tree) -> None:
    """Case 14."""
    tree.skill("project/.opencode/skill/a")
    tree.skill("project/.opencode/skills/b")
    assert list(tree.catalog()) == ["a", "b"]


def test_families_of_roots_can_be_switched_off(tree: Tree) -> None:
    """Case 15."""
    tree.skill("project/.claude/skills/c")
    tree.skill("project/.agents/skills/a")
    tree.skill("project/.skillbelt/skills/own")
    tree.skill("home/.claude/skills/hc")
    tree.skill("home/.config/skillbelt/skills/hown")
    assert list(tree.catalog()) == ["a", "c", "hc", "hown", "own"]
    assert list(tree.catalog(disabled_clients=["claude"])) == ["a", "hown", "own"]
    assert list(tree.catalog(disabled_clients=["*"])) == ["hown", "own"]


def test_roots_above_are_found_up_to_the_worktree(tree: Tree) -> None:
    """Case 16."""
    tree.git()
    start = tree.path("project/one/two/three")
    start.mkdir(parents=True)
    tree.skill("project/.agents/skills/top")
    tree.skill("project/one/two/.claude/skills/middle")
    tree.skill(".agents/skills/outside")
    assert list(tree.catalog(start)) == ["middle", "top"]


def test_the_nearest_of_the_roots_above_wins(tree: Tree) -> None:
    """Case 16. And the nearest folder stands before the others."""
    tree.git()
    near = tree.skill("project/one/.claude/skills/pdf")
    tree.skill("project/.agents/skills/pdf")
    assert tree.catalog("project/one")["pdf"].dir == str(near)


def test_a_project_outside_git_has_its_own_skills(tree: Tree) -> None:
    """Case 17."""
    tree.skill(f"{SKILLS}/pdf")
    tree.skill(".agents/skills/outside")
    assert list(tree.catalog()) == ["pdf"]


def test_a_missing_explicit_path_is_a_warning(tree: Tree) -> None:
    """Case 18."""
    tree.skill(f"{SKILLS}/pdf")
    tree.skill("more/text")
    missing = tree.path("nowhere")
    catalog = tree.catalog(paths=[missing, tree.path("more")])
    assert list(catalog) == ["pdf", "text"]
    (said,) = catalog.diagnostics
    assert (said.code, said.severity, said.path) == ("root-missing", "warning", str(missing))
    assert "skill path not found" in said.message


def test_explicit_paths_may_be_relative_or_in_the_home(tree: Tree) -> None:
    """Case 18. Both forms name real folders."""
    tree.skill("home/mine/a")
    tree.skill("project/local/b")
    assert list(tree.catalog(paths=["~/mine", "local"])) == ["a", "b"]


def test_an_unreadable_root_costs_only_itself() -> None:
    """Case 19."""
    with unprivileged.open_folder() as folder:
        roots = [folder / name for name in ("one", "two", "three")]
        for root in roots:
            skill = root / f"in-{root.name}"
            skill.mkdir(parents=True)
            (skill / "SKILL.md").write_text(f"---\nname: {skill.name}\ndescription: D.\n---\n")
        roots[1].chmod(0)
        seen = unprivileged.discover(folder, *roots)
        roots[1].chmod(0o755)
    assert seen.names == ["in-one", "in-three"]
    assert seen.said == [("root-unreadable", str(roots[1]))]


def test_a_deleted_skill_is_not_listed(tree: Tree) -> None:
    """Case 20."""
    tree.skill(f"{SKILLS}/kept")
    gone = tree.skill(f"{SKILLS}/gone")
    catalog = tree.catalog()
    assert [skill.name for skill in catalog.all()] == ["gone", "kept"]
    (gone / "SKILL.md").unlink()
    assert [skill.name for skill in catalog.all()] == ["kept"]
    assert not catalog.diagnostics
    assert list(tree.catalog()) == ["kept"]


def test_an_edited_skill_shows_its_new_description(tree: Tree) -> None:
    """Case 21. By size, by time, and by another file put in its place."""
    folder = tree.skill(f"{SKILLS}/pdf", description="Old text.")
    catalog = tree.catalog()
    assert catalog.all()[0].description == "Old text."
    tree.skill(folder, description="Another size.")
    assert catalog.all()[0].description == "Another size."
    tree.skill(folder, description="Another time.")
    os.utime(folder / "SKILL.md", (1, 1))
    assert catalog.all()[0].description == "Another time."
    tree.skill("new", name="pdf", description="Another file.")
    os.utime(tree.path("new/SKILL.md"), (1, 1))
    os.replace(tree.path("new/SKILL.md"), folder / "SKILL.md")
    assert catalog.all()[0].description == "Another file."


COUNT_OPENED = """
import json, sys
opened = []
def hook(event, arguments):
    if event == "open" and str(arguments[0]).endswith("SKILL.md"):
        opened.append(arguments[0])
sys.addaudithook(hook)
from skillbelt import Catalog
counts = []
for _ in range(2):
    catalog = Catalog()
    for _ in range(2):
        catalog.all()
        counts.append(len(opened))
print(json.dumps([counts, opened]))
"""


def test_unchanged_files_are_not_opened_again(tree: Tree) -> None:
    """Case 21. Counted where files are opened, within a process and in the next one."""
    folders = [tree.skill(f"{SKILLS}/s{n}") for n in range(5)]
    counts, _ = json.loads(tree.python("-c", COUNT_OPENED).stdout)
    assert counts == [5, 5, 5, 5]
    tree.skill(folders[2], description="Changed, and longer than before.")
    counts, opened = json.loads(tree.python("-c", COUNT_OPENED).stdout)
    assert counts == [1, 1, 1, 1]
    assert opened == [str(folders[2] / "SKILL.md")]


def test_refresh_finds_what_came_and_what_went(tree: Tree) -> None:
    """Case 22. By refresh."""
    old = tree.skill(f"{SKILLS}/old")
    catalog = tree.catalog()
    assert list(catalog) == ["old"]
    tree.skill(f"{SKILLS}/new")
    assert catalog.refresh().added == ("new",)
    assert list(catalog) == ["new", "old"]
    (old / "SKILL.md").unlink()
    changes = catalog.refresh()
    assert (changes.added, changes.changed, changes.removed) == ((), (), ("old",))
    assert list(catalog) == ["new"]


def test_the_watcher_finds_what_came_and_what_went(tree: Tree) -> None:
    """Case 22. By watching; even the folder for skills is new."""
    catalog = tree.catalog(watch_seconds=0.2)
    assert not list(catalog)
    stop = threading.Event()
    guard = threading.Timer(40, stop.set)
    guard.start()
    try:
        changes = catalog.watch(stop)
        skill = tree.skill(f"{SKILLS}/new")
        assert next(changes).added == ("new",)
        assert list(catalog) == ["new"]
        tree.skill(skill, description="Another description.")
        assert next(changes).changed == ("new",)
        (skill / "SKILL.md").unlink()
        assert next(changes).removed == ("new",)
        assert not list(catalog)
        stop.set()
        assert not list(changes)
    finally:
        guard.cancel()


@pytest.mark.parametrize("name", ["a", "a" * 64, "a-b-c", "1a"])
def test_valid_names(tree: Tree, name: str) -> None:
    """Case 23. Valid."""
    folder = tree.skill(f"skills/{name}", text="Do it.\n")
    assert not strict_errors(folder / "SKILL.md")


@pytest.mark.parametrize("name", ["a" * 65, "Bad_Name", "-a", "a-", "a--b", "a b"])
def test_invalid_names(tree: Tree, name: str) -> None:
    """Case 23. Rejected in strict mode, loaded with something to say about it otherwise."""
    file = tree.skill(f"{SKILLS}/{name}", text="Do it.\n") / "SKILL.md"
    assert strict_errors(file)
    assert len(tree.catalog()) == 1
    assert check_file(str(file)).diagnostics


def test_length_of_a_description(tree: Tree) -> None:
    """Case 24. Length."""
    good = tree.skill("skills/good", description="d" * 1024)
    bad = tree.skill("skills/bad", description="d" * 1025)
    assert not strict_errors(good / "SKILL.md")
    assert strict_errors(bad / "SKILL.md") == ["description-length"]


@pytest.mark.parametrize("description", ["reads <file>", "a > b", "<b>bold"])
def test_angle_brackets_in_a_description(tree: Tree, description: str) -> None:
    """Case 24. Brackets: the specification allows them, and what a model reads has them escaped."""
    folder = tree.skill("project/.agents/skills/good", description=description)
    assert strict_errors(folder / "SKILL.md") == []
    shown = tree.run("prompt").stdout.partition("<description>")[2].partition("</description>")[0]
    assert html.unescape(shown) == description
    assert not set("<>").intersection(shown)


@pytest.mark.parametrize(
    "written",
    [
        "[Read, Bash(git add *), WebSearch]",
        "\n  - Read\n  - Bash(git add *)\n  - WebSearch",
        "Read, Bash(git add *), WebSearch",
        "Read Bash(git add *) WebSearch",
        '"Read,Bash(git add *),WebSearch"',
    ],
)
def test_allowed_tools_in_every_form(written: str) -> None:
    """Case 25."""
    skill = read(f"---\nname: x\ndescription: D.\nallowed-tools: {written}\n---\n")
    assert skill.frontmatter.allowed_tools == ("Read", "Bash(git add *)", "WebSearch")
