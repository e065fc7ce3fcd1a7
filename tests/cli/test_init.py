from __future__ import annotations

import json
import os

import pytest

from tests.tree import Tree

FOLDER = ".agents/skills/tidy-notes"


@pytest.mark.parametrize("script", ["none", "python", "shell", "node"])
def test_a_new_skill_passes_every_check_and_is_found(tree: Tree, script: str) -> None:
    done = tree.run(
        "init", "tidy-notes", "--script", script, "--tests", "--license", "MIT", "--json"
    )
    assert done.exit_code == 0
    paths = [one["path"] for one in done.document["written"]]
    assert "SKILL.md" in paths and "evals/evals.json" in paths
    checked = tree.run("check", "--strict", FOLDER, "--json")
    assert checked.document["diagnostics"] == []
    assert [one["name"] for one in tree.run("list", "--json").document["skills"]] == ["tidy-notes"]
    folder = tree.project / FOLDER
    assert json.loads((folder / "evals/evals.json").read_text())["skill_name"] == "tidy-notes"
    for path in paths:
        runnable = path.startswith("scripts/")
        assert os.access(folder / path, os.X_OK) == runnable
    assert "license: MIT" in (folder / "SKILL.md").read_text()


def test_a_description_is_quoted_as_it_needs(tree: Tree) -> None:
    text = 'Use: "this" # when\tit rains'
    assert tree.run("init", "tidy-notes", "--description", text).exit_code == 0
    document = tree.run("list", "--json").document
    assert document["skills"][0]["description"] == 'Use: "this" # when it rains'
    assert tree.run("check", "--strict", FOLDER).exit_code == 0


def test_nothing_is_written_over(tree: Tree) -> None:
    tree.write(f"project/{FOLDER}/mine.txt", "mine")
    done = tree.run("init", "tidy-notes")
    assert done.exit_code == 2 and "already" in done.stderr
    assert os.listdir(tree.project / FOLDER) == ["mine.txt"]


@pytest.mark.parametrize("name", ["../up", "Big", "a--b", "-a", "a b", "a" * 65, "", "a/b"])
def test_a_name_that_the_format_does_not_allow_is_refused(tree: Tree, name: str) -> None:
    done = tree.run("init", "--", name)
    assert done.exit_code == 2
    assert not (tree.project / ".agents").exists()


@pytest.mark.parametrize("name", ["nul", "com1", "my-claude-notes"])
def test_a_name_with_a_reserved_word_is_refused(tree: Tree, name: str) -> None:
    done = tree.run("init", name)
    assert done.exit_code == 2 and "reserved word" in done.stderr
    assert not (tree.project / ".agents").exists()


def test_another_folder_and_a_dry_run(tree: Tree) -> None:
    assert tree.run("init", "tidy-notes", "--path", "drafts", "--dry-run").exit_code == 0
    assert not (tree.project / "drafts").exists()
    assert tree.run("init", "tidy-notes", "--path", "drafts").exit_code == 0
    assert (tree.project / "drafts/tidy-notes/SKILL.md").exists()
