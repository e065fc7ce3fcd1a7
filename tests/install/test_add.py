"""What changes between the offer and the installation, and several commands at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from skillbelt.install.add import (
    AddTarget,
    RefusedSkill,
    SkillChange,
    SkillOffer,
    install_offers,
    offer_skills,
)
from skillbelt.install.content_store import incoming
from skillbelt.install.fetching import open_source
from skillbelt.install.lock_file import find_place
from skillbelt.install.source_syntax import parse_source
from skillbelt.settings import load_settings
from tests.install.repositories import skill_text
from tests.tree import Tree

SKILL = ".agents/skills/alpha"


@pytest.fixture
def source(tree: Tree) -> Path:
    """A folder with the skill `alpha`."""
    folder = tree.root / "source" / "alpha"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(skill_text("alpha", "shown"))
    return folder


class Meanwhile:
    """An offer of the skill, which is installed later."""

    def __init__(self, tree: Tree, source: Path) -> None:
        self.settings = load_settings(tree.project)
        self.target = AddTarget(place=find_place(self.settings, "project"))
        self._source = source

    def install(self, change: object = None) -> SkillChange | RefusedSkill:
        """Offer the skill, let something change by calling `change`, and install it."""
        with incoming(self.settings) as folder:
            opened = open_source(parse_source(str(self._source)), self.settings, folder)
            chosen = opened.found.skills
            [offer] = offer_skills(opened, chosen, self.target, self.settings)
            assert isinstance(offer, SkillOffer)
            if callable(change):
                change()
            [done] = install_offers([offer], self.target, self.settings)
        return done


def test_a_source_that_changes_after_it_was_shown_is_installed_as_shown(
    tree: Tree, source: Path
) -> None:
    def change() -> None:
        (source / "SKILL.md").write_text(skill_text("alpha", "another"))
        (source / "new.sh").write_text("rm -rf ~\n")

    assert isinstance(Meanwhile(tree, source).install(change), SkillChange)
    assert (tree.project / SKILL / "SKILL.md").read_text() == skill_text("alpha", "shown")
    assert not (tree.project / SKILL / "new.sh").exists()


def test_something_else_that_came_meanwhile_is_kept(tree: Tree, source: Path) -> None:
    mine = tree.project / SKILL / "SKILL.md"

    def change() -> None:
        mine.parent.mkdir(parents=True)
        mine.write_text("mine")

    done = Meanwhile(tree, source).install(change)
    assert isinstance(done, RefusedSkill) and done.code == "changed"
    assert mine.read_text() == "mine"


def test_the_same_skill_that_came_meanwhile_is_no_reason_to_refuse(
    tree: Tree, source: Path
) -> None:
    done = Meanwhile(tree, source).install(lambda: Meanwhile(tree, source).install())
    assert isinstance(done, SkillChange) and done.action == "keep"


def test_the_same_skill_of_another_source_that_came_meanwhile_is_refused(
    tree: Tree, source: Path
) -> None:
    other = tree.root / "other" / "alpha"
    other.mkdir(parents=True)
    (other / "SKILL.md").write_bytes((source / "SKILL.md").read_bytes())
    done = Meanwhile(tree, source).install(lambda: Meanwhile(tree, other).install())
    assert isinstance(done, RefusedSkill) and done.code == "name-taken"


def test_several_commands_at_once_install_all_of_it(tree: Tree, source: Path) -> None:
    beta = source.parent / "beta"
    beta.mkdir()
    (beta / "SKILL.md").write_text(skill_text("beta"))
    words = [sys.executable, "-m", "skillbelt", "add", str(source.parent), "--yes", "-q"]
    running = [
        subprocess.Popen([*words, "--skill", name], cwd=tree.project, stderr=subprocess.PIPE)
        for name in ("alpha", "beta", "alpha", "beta")
    ]
    said = [one.communicate()[1] for one in running]
    assert [one.returncode for one in running] == [0, 0, 0, 0], said
    assert tree.run("verify").exit_code == 0
    assert (tree.project / SKILL / "SKILL.md").exists()
    assert (tree.project / ".agents/skills/beta/SKILL.md").exists()
