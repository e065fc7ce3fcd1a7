from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillbelt.check.folder import Content, UnusableFile, check_entries, read
from skillbelt.files.tree import MAX_ENTRY_DEPTH
from skillbelt.format.bounds import MAX_RESOURCE_FILE_BYTES
from skillbelt.running.workspace import LINKS
from tests.tree import Tree


def said(folder: Path) -> list[tuple[str, str]]:
    found = check_entries(str(folder))
    return [(each.code, os.path.relpath(each.path, folder)) for each in found]


def test_reading_gives_the_beginning_and_the_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abcdef")
    assert read(str(tmp_path / "a"), 4) == Content(b"abcd", 6)


def test_reading_a_pipe_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(UnusableFile, match="pipe") as caught:
        read(str(tmp_path / "a"), 4)
    assert caught.value.code == "not-a-file"


def test_reading_a_path_with_a_zero_byte_is_a_refusal() -> None:
    with pytest.raises(UnusableFile):
        read("/tmp/a\0b", 4)


def test_a_folder_with_ordinary_files_is_fine(tree: Tree) -> None:
    folder = tree.skill("pdf")
    tree.write("pdf/references/a.md", "text")
    tree.write("pdf/scripts/a.py", "pass")
    tree.write("pdf/scripts/b.sh", "#!/bin/sh\n").chmod(0o755)
    assert said(folder) == []


def test_links(tree: Tree) -> None:
    folder = tree.skill("pdf")
    secret = tree.write("secret.md", "text")
    tree.write("pdf/a.md", "text")
    for name, target in {"in": "a.md", "away": str(secret), "up": "../..", "gone": "b.md"}.items():
        os.symlink(target, folder / name)
    assert said(folder) == [
        ("link-outside", "away"),
        ("broken-link", "gone"),
        ("link-outside", "up"),
    ]


@pytest.mark.parametrize("name", LINKS)
def test_what_a_run_hides_is_named(tree: Tree, name: str) -> None:
    folder = tree.skill("pdf")
    tree.write(f"pdf/{name}/own.txt", "text")
    tree.write(f"pdf/references/{name}/own.txt", "text")
    assert said(folder) == [("entry-hidden", name)]


def test_a_skill_file_that_is_a_link_out(tree: Tree) -> None:
    tree.write("elsewhere.md", "text")
    tree.path("pdf").mkdir()
    os.symlink("../elsewhere.md", tree.path("pdf/SKILL.md"))
    assert said(tree.path("pdf")) == [("link-outside", "SKILL.md")]


def test_nested_skill_and_special_and_large_files(tree: Tree) -> None:
    folder = tree.skill("pdf")
    tree.skill("pdf/inner/csv")
    os.mkfifo(folder / "pipe")
    with open(folder / "big.bin", "wb") as file:
        file.truncate(MAX_RESOURCE_FILE_BYTES + 1)
    with open(folder / "fits.bin", "wb") as file:
        file.truncate(MAX_RESOURCE_FILE_BYTES)
    with open(folder / "skill.wasm", "wb") as file:
        file.truncate(MAX_RESOURCE_FILE_BYTES + 1)
    assert said(folder) == [
        ("entry-large", "big.bin"),
        ("nested-skill", "inner/csv/SKILL.md"),
        ("entry-unusable", "pipe"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "mode", "code"),
    [
        ("a.py", "#!/usr/bin/env python3\n", 0o644, "script-mode"),
        ("a.py", "pass\n", 0o755, "script-shebang"),
        ("a.sh", "echo\n", 0o644, "script-shebang"),
        ("run", "echo\n", 0o644, "script-shebang"),
        ("a.py", "pass\n", 0o644, ""),
        ("a.py", "#!/usr/bin/env python3\n", 0o755, ""),
        ("tool", "\x7fELF\0", 0o755, ""),
        ("__init__.py", "", 0o755, ""),
    ],
)
def test_scripts(tree: Tree, name: str, text: str, mode: int, code: str) -> None:
    folder = tree.skill("pdf")
    tree.write(f"pdf/scripts/{name}", text).chmod(mode)
    assert said(folder) == ([(code, f"scripts/{name}")] if code else [])


def test_dependencies_and_repositories_are_not_looked_into(tree: Tree) -> None:
    folder = tree.skill("pdf")
    for name in (".git", "node_modules", "__pycache__", ".venv"):
        tree.skill(f"pdf/{name}/x")
    assert said(folder) == []


def test_what_a_host_need_not_take_over_mcp_is_told(tree: Tree) -> None:
    """Files and bytes count, SKILL.md among them; links and folders do not."""
    many, heavy = tree.skill("many"), tree.skill("heavy")
    for number in range(511):
        (many / f"{number}.md").touch()
    os.symlink("1.md", many / "link")
    (many / "empty").mkdir()
    assert said(many) == []
    (many / "one-more").touch()
    assert said(many) == [("folder-large", ".")]
    with open(heavy / "data.wasm", "wb") as file:
        file.truncate(16 * 2**20)
    assert said(heavy) == [("folder-large", ".")]


def test_the_number_of_entries_is_bounded(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tree.skill("pdf")
    for number in range(5):
        tree.write(f"pdf/{number}.md", "text")
    monkeypatch.setattr("skillbelt.files.tree.MAX_MANIFEST_FILES", 6)
    assert said(folder) == []
    monkeypatch.setattr("skillbelt.files.tree.MAX_MANIFEST_FILES", 3)
    assert said(folder) == [("folder-cut", ".")]


def test_the_depth_is_bounded(tree: Tree) -> None:
    folder = tree.skill("pdf")
    tree.skill("pdf/" + "a/" * (MAX_ENTRY_DEPTH + 3))
    assert [code for code, _ in said(folder)] == ["folder-cut"]


def test_a_circle_of_links_ends(tree: Tree) -> None:
    folder = tree.skill("pdf")
    os.symlink(".", folder / "again")
    assert said(folder) == []
