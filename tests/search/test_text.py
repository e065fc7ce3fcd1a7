from __future__ import annotations

import os

from skillbelt.format.skill import Skill
from skillbelt.search.text import parts_of, text_of
from tests.bounds import bounds
from tests.tree import Tree


def test_the_parts_of_a_skill(tree: Tree) -> None:
    folder = tree.skill("s/pdf", description="Reads PDF.", text="# Über\n\nThe text.", tags="[a]")
    parts = parts_of(Skill.from_folder(folder))
    assert parts.name == "pdf"
    assert parts.description.strip() == "Reads PDF."
    assert "tags" in parts.head
    assert parts.body == "# Über\n\nThe text."


def test_files_and_what_scripts_say_of_themselves(tree: Tree) -> None:
    folder = tree.skill("s/pdf")
    tree.write("s/pdf/scripts/join_pages.py", '#!/usr/bin/env python\n"""Joins pages."""\nx = 1\n')
    tree.write("s/pdf/scripts/go.sh", "#!/bin/sh\n# Starts the engine.\nrm -rf secret\n")
    tree.write("s/pdf/reference/forms.md", "never read")
    tree.write("s/pdf/node_modules/x/y.js", "// never seen")
    files = parts_of(Skill.from_folder(folder)).files
    for seen in ("scripts/join_pages", "Joins pages.", "Starts the engine.", "reference/forms"):
        assert seen in files
    for unseen in ("x = 1", "secret", "never", "node_modules"):
        assert unseen not in files


def test_links_out_of_the_folder_are_not_followed(tree: Tree) -> None:
    tree.write("outside.py", '"""Outside."""')
    folder = tree.skill("s/pdf")
    os.symlink(tree.path("outside.py"), folder / "inside.py")
    os.symlink(tree.root, folder / "up")
    files = parts_of(Skill.from_folder(folder)).files
    assert "Outside" not in files
    assert "outside" not in files


def test_a_pipe_where_a_script_should_be_is_not_a_file_of_the_skill(tree: Tree) -> None:
    folder = tree.skill("s/pdf")
    os.mkfifo(folder / "run.py")
    assert parts_of(Skill.from_folder(folder)).files == ""


def test_a_file_that_is_gone_has_no_text(tree: Tree) -> None:
    skill = Skill.from_folder(tree.skill("s/pdf"))
    (tree.path("s/pdf") / "SKILL.md").unlink()
    assert text_of(skill) == ""
    assert parts_of(skill).body == ""


def test_no_more_is_read_than_the_limit_allows(tree: Tree) -> None:
    skill = Skill.from_folder(tree.skill("s/pdf", text="word " * 1000))
    bounds(max_checked_bytes=100)
    assert len(text_of(skill)) == 100


def test_a_skill_without_a_file(tree: Tree) -> None:
    skill = Skill.from_text("---\nname: made\ndescription: Made up.\n---\nThe text.")
    assert parts_of(skill).body == "The text."
