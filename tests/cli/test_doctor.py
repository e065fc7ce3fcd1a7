from __future__ import annotations

import json
from typing import Any

from tests.terminal import on_terminal
from tests.tree import Tree


def diagnosed(tree: Tree) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(tree.run("doctor", "--json").stdout)
    return document


def test_json_has_the_promised_keys(tree: Tree) -> None:
    document = diagnosed(tree)
    assert {"roots", "sandboxes", "matrix"} <= document.keys()
    assert isinstance(document["sandboxes"], list)
    assert isinstance(document["matrix"], list)


def test_roots_stand_in_order_of_precedence(tree: Tree) -> None:
    tree.git()
    tree.path("project/deep").mkdir()
    tree.setenv("SKILLBELT_PATHS", tree.path("mine"))
    expected = [
        ("mine/a", "explicit", ""),
        ("project/deep/.skillbelt/skills/b", "project", "skillbelt"),
        ("project/deep/.agents/skills/c", "project", "agents"),
        ("project/deep/.claude/skills/d", "project", "claude"),
        ("project/.agents/skills/e", "project", "agents"),
        ("home/.agents/skills/f", "user", "agents"),
        ("home/.config/agents/skills/g", "user", "agents"),
        ("home/.claude/skills/h", "user", "claude"),
    ]
    for path, _, _ in reversed(expected):
        tree.skill(path)
    done = tree.run("doctor", "--json", project="project/deep")
    roots = [root for root in json.loads(done.stdout)["roots"] if root["exists"]]
    assert [(root["path"], root["scope"], root["client"]) for root in roots] == [
        (str(tree.path(path).parent), scope, client) for path, scope, client in expected
    ]
    assert all(root["skills"] == 1 for root in roots)


def test_roots_say_what_each_gave_and_lost(tree: Tree) -> None:
    winner = tree.skill("project/.agents/skills/pdf")
    loser = tree.skill("home/.agents/skills/pdf")
    tree.skill("home/.agents/skills/text")
    document = diagnosed(tree)
    first, second = (root for root in document["roots"] if root["exists"])
    assert (first["skills"], first["shadowed"], first["files_read"]) == (1, [], 1)
    assert (second["skills"], second["shadowed"]) == (2, [f"{loser}/SKILL.md"])
    (why,) = document["diagnostics"]
    assert why["code"] == "shadowed"
    assert f"{winner}/SKILL.md (project) stands before {loser}/SKILL.md (user)" in why["message"]


def test_absent_roots_are_listed_too(tree: Tree) -> None:
    roots = diagnosed(tree)["roots"]
    assert str(tree.path("project/.agents/skills")) in [root["path"] for root in roots]
    assert not any(root["exists"] for root in roots)


def test_no_errors_is_exit_0(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    done = tree.run("doctor")
    assert done.exit_code == 0
    assert done.stdout.endswith("1 skill, 0 shadowed, 0 hidden\nno problems\n")


def test_warnings_are_exit_0_and_errors_exit_1(tree: Tree) -> None:
    tree.write("project/.agents/skills/x/SKILL.md", "Only text.\n")
    assert tree.run("doctor").exit_code == 0
    tree.write("project/.agents/skills/y/SKILL.md", b"\xff")
    assert tree.run("doctor").exit_code == 1
    assert tree.run("doctor", "--json").exit_code == 1


def test_text_shows_roots_in_order_and_every_problem_with_its_remedy(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    tree.skill("home/.agents/skills/pdf")
    file = tree.write("project/.agents/skills/bad/SKILL.md", b"\xff")
    out = tree.run("doctor").stdout
    project, home = (tree.path(f"{place}/.agents/skills") for place in ("project", "home"))
    assert f"  1 skill                {project} (project, agents)\n" in out
    assert f"  1 skill, 1 shadowed    {home} (user, agents)\n" in out
    assert out.index(str(project)) < out.index(str(home))
    assert "1 skill, 1 shadowed, 0 hidden\n2 problems:\n" in out
    assert f"  {file}:1: error not-utf8: the file is not UTF-8\n    save it as UTF-8\n" in out


def test_verbose_names_the_absent_folders(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    absent = str(tree.path("home/.claude/skills"))
    assert absent not in tree.run("doctor").stdout
    assert f"absent                 {absent}" in tree.run("doctor", "-v").stdout


def test_absent_folders_are_counted(tree: Tree) -> None:
    number = len(diagnosed(tree)["roots"])
    assert f"  all {number} are absent (--verbose names them)\n" in tree.run("doctor").stdout
    tree.skill("project/.agents/skills/pdf")
    assert f"  {number - 1} more are absent (--verbose" in tree.run("doctor").stdout


def test_a_missing_folder_that_was_asked_for_is_named(tree: Tree) -> None:
    tree.setenv("SKILLBELT_PATHS", tree.path("nowhere"))
    out = tree.run("doctor").stdout
    assert f"absent                 {tree.path('nowhere')} (explicit)" in out
    assert "root-missing" in out


def test_a_terminal_gets_the_same(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    screen = on_terminal(tree, "doctor")
    assert screen.lines == tree.run("doctor").stdout.splitlines()
