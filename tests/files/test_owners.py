"""The owner of a file, the identity of a folder, and projects of other users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillbelt.cli import main
from skillbelt.errors import ConfigError
from skillbelt.files.owners import folder_identity, stranger
from tests.tree import Tree

SKILLS = "project/.agents/skills"


@pytest.fixture
def somebody_else(monkeypatch: pytest.MonkeyPatch) -> int:
    """This process is of another user than the one whose files the test makes."""
    mine = os.geteuid()
    other = mine + 4_321
    real = os.lstat

    def owned(path: str) -> os.stat_result:
        found = real(path)
        values = list(found)
        # The files of the tests may be root's, which are everybody's.
        values[4] = found.st_uid + 1_234 if found.st_uid == mine else found.st_uid
        more = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return os.stat_result(values, {**more, "st_uid": values[4]})

    monkeypatch.setattr("skillbelt.files.owners.os.lstat", owned)
    monkeypatch.setattr("skillbelt.files.owners.os.geteuid", lambda: other)
    return mine + 1_234


def test_ones_own_files_and_the_systems_are_no_strangers(tmp_path: Path) -> None:
    assert stranger(str(tmp_path), {}) == ""
    assert stranger("/", {}) == ""
    assert stranger(str(tmp_path / "nowhere"), {}) == ""


def test_another_users_file_is_told(tmp_path: Path, somebody_else: int) -> None:
    assert stranger(str(tmp_path), {}) == f"uid {somebody_else}"


def test_who_became_root_by_sudo_is_still_who_they_were(
    tmp_path: Path, somebody_else: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sudo = {"SUDO_UID": str(somebody_else)}
    assert stranger(str(tmp_path), sudo)  # not root: any user can set a variable
    monkeypatch.setattr("skillbelt.files.owners.os.geteuid", lambda: 0)
    assert stranger(str(tmp_path), sudo) == ""
    assert stranger(str(tmp_path), {"SUDO_UID": "x"})


def test_another_folder_at_the_same_path_is_another(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    before = folder_identity(str(folder))
    assert before == folder_identity(str(folder))
    (folder / "new").write_text("a folder that changes stays the same")
    assert folder_identity(str(folder)) == before
    folder.rename(tmp_path / "away")
    assert folder_identity(str(tmp_path / "away")) == before
    assert folder_identity(str(folder)) == ""
    folder.mkdir()
    assert folder_identity(str(folder)) not in ("", before)


def test_an_inode_that_is_used_again_is_no_proof(tmp_path: Path) -> None:
    """File systems give the number of a removed folder to the next."""
    seen = set()
    for _ in range(20):
        (tmp_path / "p").mkdir()
        seen.add(folder_identity(str(tmp_path / "p")))
        (tmp_path / "p").rmdir()
    assert len(seen) == 20


# Projects


def test_a_settings_file_of_another_user_is_not_read(tree: Tree, somebody_else: int) -> None:
    file = tree.write("project/skillbelt.toml", "max_depth = 3\n")
    with pytest.raises(ConfigError) as raised:
        tree.settings()
    text = str(raised.value)
    assert f"{file}: belongs to uid {somebody_else}" in text
    assert f"skillbelt trust add {tree.project}" in text


def test_it_is_read_once_its_folder_is_trusted(tree: Tree, somebody_else: int) -> None:
    tree.write("project/skillbelt.toml", "max_depth = 3\n")
    assert main(["trust", "add", "--project", str(tree.project)]) == 0
    assert tree.settings().limits.max_depth == 3
    assert tree.settings().strangers == ()


def test_a_repository_of_another_user_is_not_the_worktree(tree: Tree, somebody_else: int) -> None:
    (tree.root / ".git").mkdir()
    settings = tree.settings()
    assert settings.worktree == str(tree.project)
    assert (str(tree.root), f"uid {somebody_else}") in settings.strangers


def test_its_skills_are_not_trusted_and_it_is_said(tree: Tree, somebody_else: int) -> None:
    tree.skill(f"{SKILLS}/pdf")
    catalog = tree.catalog()
    assert not catalog.find("pdf").trusted
    [said] = [one for one in catalog.diagnostics if one.code == "foreign-project"]
    assert said.path == str(tree.project)
    assert f"skillbelt trust add {tree.project}" in said.remedy


def test_ones_own_project_is_taken(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/pdf")
    tree.write("project/skillbelt.toml", "max_depth = 3\n")
    assert tree.settings().strangers == ()
    assert tree.catalog().find("pdf").trusted
