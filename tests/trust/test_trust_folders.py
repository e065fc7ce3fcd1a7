"""Trust is in the folder that was looked at, not in its path, and not in what a project names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from skillbelt.trust import Trust
from tests.tree import Tree


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(str(tmp_path / "state"))


def written_before(trust: Trust, folder: Path) -> None:
    """The file as it was when a path was enough."""
    entry = {"kind": "project", "value": str(folder), "time": 1}
    os.makedirs(os.path.dirname(trust.path))
    Path(trust.path).write_text(json.dumps({"version": 1, "trusted": [entry]}))
    os.chmod(trust.path, 0o600)


def test_another_folder_at_a_trusted_path_is_not_trusted(trust: Trust, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    (folder / "deep").mkdir(parents=True)
    first = trust.add(str(folder))
    folder.rename(tmp_path / "away")
    (folder / "deep").mkdir(parents=True)
    assert not trust.project(str(folder))
    assert not trust.project(str(folder / "deep"))
    assert trust.covering(str(folder)) is None
    [said] = trust.exchanged(str(folder / "deep"))
    assert said.code == "trust-exchanged"
    assert "is not the folder that was trusted at this path" in said.message
    assert f"skillbelt trust add {folder}" in said.remedy
    assert trust.exchanged(str(tmp_path / "away")) == ()
    second = trust.add(str(folder))
    assert second.identity != first.identity
    assert trust.entries() == [second]
    assert trust.project(str(folder / "deep"))
    assert trust.exchanged() == ()


def test_a_trusted_folder_is_not_trusted_elsewhere(trust: Trust, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    trust.add(str(tmp_path / "p"))
    (tmp_path / "p").rename(tmp_path / "away")
    assert not trust.project(str(tmp_path / "away"))
    (tmp_path / "away").rename(tmp_path / "p")
    assert trust.project(str(tmp_path / "p"))


def test_what_was_trusted_by_its_path_alone_is_trusted_anew(trust: Trust, tmp_path: Path) -> None:
    written_before(trust, tmp_path)
    assert not trust.project(str(tmp_path))
    [said] = trust.exchanged(str(tmp_path))
    assert "was trusted by its path alone" in said.message
    trust.add(str(tmp_path))
    assert trust.project(str(tmp_path))
    assert len(trust.entries()) == 1
    assert trust.exchanged() == ()


def test_an_exchanged_project_is_asked_for_again(tree: Tree) -> None:
    tree.setenv("SKILLBELT_TRUST_PROJECT", "ask")
    tree.skill("project/.agents/skills/pdf")
    assert tree.run("trust", "add").exit_code == 0
    assert tree.catalog().find("pdf").trusted
    tree.project.rename(tree.root / "away")
    tree.skill("project/.agents/skills/pdf", text="Something else.")
    catalog = tree.catalog()
    assert not catalog.find("pdf").trusted
    assert [one.code for one in catalog.diagnostics] == ["trust-exchanged"]
    assert "is not the folder that was trusted" in tree.run("trust", "list").stderr


@pytest.mark.parametrize("by", ["project", "user"])
def test_a_folder_that_a_project_names_is_as_trusted_as_the_project(tree: Tree, by: str) -> None:
    tree.setenv("SKILLBELT_TRUST_PROJECT", "ask")
    tree.skill("elsewhere/pdf")
    place = {"project": "project/skillbelt.toml", "user": "home/.config/skillbelt/config.toml"}[by]
    tree.write(place, f'paths = ["{tree.root}/elsewhere"]\n')
    assert tree.catalog().find("pdf").trusted is (by == "user")
    Trust(tree.settings().state_dir).add(str(tree.root / "elsewhere"))
    assert tree.catalog().find("pdf").trusted is (by == "user")
    Trust(tree.settings().state_dir).add(str(tree.project))
    assert tree.catalog().find("pdf").trusted
