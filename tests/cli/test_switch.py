from __future__ import annotations

import stat

import pytest

from skillbelt import Catalog
from tests.tree import Tree

FILE = "home/.config/skillbelt/skills.toml"
CONFIG = "home/.config/skillbelt/config.toml"


@pytest.fixture
def skills(tree: Tree) -> Tree:
    tree.skill("home/.agents/skills/pdf")
    tree.skill("home/.agents/skills/mail")
    return tree


def test_a_skill_is_disabled_and_enabled_again(skills: Tree) -> None:
    done = skills.run("disable", "pdf")
    assert (done.exit_code, done.stdout) == (0, "pdf: disabled\n")
    assert list(Catalog(skills.project)) == ["mail"]
    assert "disabled" in skills.run("list").stdout
    assert skills.run("enable", "pdf").stdout == "pdf: enabled\n"
    assert list(Catalog(skills.project)) == ["mail", "pdf"]
    assert "pdf" not in skills.path(FILE).read_text()


def test_the_document_says_what_changed(skills: Tree) -> None:
    document = skills.run("disable", "pdf", "mail", "--json").document
    assert document["refused"] == []
    [first, second] = document["changes"]
    assert (first["name"], first["action"], first["from"], first["to"]) == (
        "pdf",
        "disable",
        "enabled",
        "disabled",
    )
    assert first["digest"].startswith("sha256:") and first["source"] == "local"
    assert second["name"] == "mail"
    assert skills.run("disable", "pdf", "--json").document == {"changes": [], "refused": []}


def test_an_unknown_skill_changes_nothing(skills: Tree) -> None:
    done = skills.run("disable", "mail", "pdff")
    assert done.exit_code == 3 and "closest: pdf" in done.stderr
    assert not skills.path(FILE).exists()


def test_what_another_file_of_the_user_disables_is_enabled(skills: Tree) -> None:
    skills.write(CONFIG, '[skills.pdf]\nenabled = false\n[skills."m*"]\nenabled = false\n')
    assert skills.run("enable", "pdf", "mail").exit_code == 0
    assert list(Catalog(skills.project)) == ["mail", "pdf"]
    assert skills.run("disable", "pdf").exit_code == 0
    assert list(Catalog(skills.project)) == ["mail"]


def test_what_a_project_disables_is_not_enabled(skills: Tree) -> None:
    where = skills.write("project/skillbelt.toml", "[skills.pdf]\nenabled = false\n")
    done = skills.run("enable", "pdf", "--json")
    assert done.exit_code == 4
    [refused] = done.document["refused"]
    assert (refused["name"], refused["code"]) == ("pdf", "decided-elsewhere")
    assert f"{where}:2" in refused["message"]
    assert "pdf" not in Catalog(skills.project)


def test_the_file_is_private_and_replaced_as_a_whole(skills: Tree) -> None:
    skills.run("disable", "pdf")
    file = skills.path(FILE)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    left = sorted(one.name for one in file.parent.iterdir())
    assert left == ["skills.toml", "skills.toml.lock"]


def test_settings_that_a_person_wrote_there_are_not_lost(skills: Tree) -> None:
    file = skills.write(FILE, "[skills.pdf]\npin = true\n")
    done = skills.run("disable", "mail")
    assert done.exit_code == 2 and "holds more than" in done.stderr
    assert file.read_text() == "[skills.pdf]\npin = true\n"


def test_a_link_in_place_of_the_file_is_not_written_through(skills: Tree) -> None:
    target = skills.write("elsewhere.toml", "")
    skills.path(FILE).parent.mkdir(parents=True)
    skills.path(FILE).symlink_to(target)
    skills.run("disable", "pdf")
    assert target.read_text() == ""
    assert "pdf" not in Catalog(skills.project)
