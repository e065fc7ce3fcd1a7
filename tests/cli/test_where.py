from __future__ import annotations

import os
import sys

from tests import warm
from tests.terminal import on_terminal
from tests.tree import Tree


def test_json(tree: Tree) -> None:
    folder = tree.skill("project/.agents/skills/pdf")
    done = tree.run("where", "pdf", "--json")
    assert done.document == {
        "name": "pdf",
        "location": f"{folder}/SKILL.md",
        "dir": str(folder),
    }


def test_the_folder_alone_on_a_line(tree: Tree) -> None:
    folder = tree.skill("project/.agents/skills/pdf")
    assert tree.run("where", "pdf") == (0, f"{folder}\n", "")


def test_the_folder_goes_by_the_name_not_by_the_folders_name(tree: Tree) -> None:
    folder = tree.skill("project/.agents/skills/other", name="pdf")
    assert tree.run("where", "pdf").stdout == f"{folder}\n"


def test_a_script_gets_the_very_bytes_of_the_path(tree: Tree) -> None:
    name = os.fsdecode(b"p df\xff\x1b[1m")
    folder = tree.skill(f"project/.agents/skills/{name}", name="pdf", text="Text.\n")
    done = warm.run(
        [sys.executable, "-m", "skillbelt", "where", "pdf"],
        cwd=tree.project,
        capture_output=True,
        timeout=500,
        check=True,
    )
    assert done.stdout == os.fsencode(folder) + b"\n"


def test_a_terminal_gets_it_made_safe(tree: Tree) -> None:
    tree.skill("project/.agents/skills/a\x1b[1m", name="pdf", text="Text.\n")
    screen = on_terminal(tree, "where", "pdf")
    assert screen.lines[-1].endswith("/a\\x1b[1m")
    assert "\x1b[1m" not in screen.written


def test_an_unknown_name_is_exit_3(tree: Tree) -> None:
    tree.skill("project/.agents/skills/release-notes")
    done = tree.run("where", "release-note")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "closest: release-notes" in done.stderr
