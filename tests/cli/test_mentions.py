from __future__ import annotations

import os

import pytest

from skillbelt.cli.mentions import ProjectFiles, find_mentions
from tests.tree import Tree


@pytest.fixture
def project(tree: Tree) -> str:
    tree.write("project/notes.txt", "x")
    tree.write("project/src/deep/main.py", "x")
    tree.write("project/.env", "KEY=1")
    tree.write("project/.git/config", "x")
    tree.write("project/with space.txt", "x")
    tree.write("project/evil\x1b[2J.txt", "x")
    tree.write("home/secret.txt", "x")
    os.symlink(tree.home, tree.project / "home-link")
    return str(tree.project)


def test_files_of_the_project_are_found_in_a_message(project: str) -> None:
    text = "See @notes.txt, (not a@notes.txt) @./src/deep/main.py. And @ada or @src and @notes.txt!"
    found = [os.path.relpath(path, project) for path in find_mentions(text, project)]
    assert found == ["notes.txt", "src/deep/main.py"]


@pytest.mark.parametrize("path", ["../home/secret.txt", "/etc/passwd", "~/x", "a\0b", ""])
def test_a_path_that_leads_out_is_text(project: str, path: str) -> None:
    assert find_mentions(f"see @{path}", project) == []


def test_completion_offers_what_can_be_typed_and_follows_no_link(project: str) -> None:
    files = ProjectFiles(project)
    assert files.matching("") == ["notes.txt", "src/deep/main.py"]
    assert files.matching("MAIN") == ["src/deep/main.py"]
    assert files.matching("./no") == ["notes.txt"]
