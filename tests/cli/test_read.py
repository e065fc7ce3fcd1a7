from __future__ import annotations

from typing import Any

import pytest

from tests.terminal import on_terminal
from tests.tree import Tree

FOLDER = "project/.agents/skills/pdf"
TEXT = "# Forms\n\n## Fill\n\nSee [more](more.md).\n\n## Read\n\nRead it.\n"


@pytest.fixture
def skills(tree: Tree) -> Tree:
    tree.setenv("XDG_STATE_HOME", tree.home / ".state")
    folder = tree.skill(FOLDER)
    tree.write(folder / "references/forms.md", TEXT)
    tree.write(folder / "long.txt", "word word\n" * 3_000)
    tree.write(folder / "run.py", "print()")
    return tree


def read(tree: Tree, *arguments: str) -> dict[str, Any]:
    done = tree.run("read", "pdf", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    document: dict[str, Any] = done.document
    return document


def test_json_has_the_promised_keys(skills: Tree) -> None:
    document = read(skills, "./references/forms.md")
    report = document.pop("report")
    assert document == {"name": "pdf", "path": "references/forms.md", "text": TEXT}
    assert report["bytes_read"] == report["chars_returned"] == len(TEXT)
    assert report["sha256"] == report["excerpt_sha256"]
    assert report["references"] == ["more.md"]
    assert (report["strategy"], report["storage_ref"]) == ("whole", "")
    assert (report["truncated"], report["section_missed"]) == (False, False)


def test_text_is_the_file(skills: Tree) -> None:
    done = skills.run("read", "pdf", "references/forms.md")
    assert (done.stdout, done.stderr) == (TEXT, "")


def test_a_section(skills: Tree) -> None:
    done = skills.run("read", "pdf", "references/forms.md", "--section", "read")
    assert done.stdout == "## Read\n\nRead it.\n"


def test_a_missed_section_gives_the_beginning_and_says_so(skills: Tree) -> None:
    done = skills.run("read", "pdf", "references/forms.md", "--section", "None")
    assert (done.exit_code, done.stdout) == (0, TEXT)
    assert "no heading matches 'None'" in done.stderr
    assert read(skills, "references/forms.md", "--section", "None")["report"]["section_missed"]


def test_lines(skills: Tree) -> None:
    assert read(skills, "references/forms.md", "--start", "3", "--lines", "1")["text"] == (
        "## Fill\n"
    )
    assert skills.run("read", "pdf", "references/forms.md", "--start", "9").stdout == "Read it.\n"


@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_lines_are_counted_from_one(skills: Tree, number: str) -> None:
    done = skills.run("read", "pdf", "long.txt", f"--start={number}")
    assert done.exit_code == 2
    assert "invalid line number value" in done.stderr


def test_a_section_has_no_line_range(skills: Tree) -> None:
    done = skills.run("read", "pdf", "long.txt", "--section", "a", "--lines", "1")
    assert done.exit_code == 2
    assert "--section" in done.stderr


def test_a_long_file_is_cut_and_stored(skills: Tree) -> None:
    report = read(skills, "long.txt")["report"]
    assert (report["truncated"], report["chars_returned"]) == (True, 12_000)
    done = skills.run("read", "pdf", "long.txt")
    assert "long.txt was cut to 12,000 characters" in done.stderr
    assert report["storage_ref"] in done.stderr


@pytest.mark.parametrize(
    ("path", "code"),
    [("../pdf/SKILL.md", 4), ("/etc/hostname", 4), ("run.py", 1), ("missing.md", 1)],
)
def test_what_can_not_be_given(skills: Tree, path: str, code: int) -> None:
    done = skills.run("read", "pdf", path)
    assert (done.exit_code, done.stdout) == (code, "")
    assert path in done.stderr


def test_an_unknown_skill(skills: Tree) -> None:
    assert skills.run("read", "nothing", "a.md").exit_code == 3


def test_a_terminal_is_not_steered_by_the_text(skills: Tree) -> None:
    skills.write(f"{FOLDER}/a.md", "a\x1b]0;title\x07b\n")
    screen = on_terminal(skills, "read", "pdf", "a.md")
    assert screen.lines[0] == "a\\x1b]0;title\\x07b"
