from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt import Origin, Skill, SkillNotFound
from tests.tree import Tree

TEXT = st.text(st.characters(codec=None))


def test_a_skill_from_a_folder_and_from_its_file_are_equal(tree: Tree) -> None:
    folder = tree.skill("pdf", "Reads PDF files.", license="MIT", metadata={"a": 1})
    skill = Skill.from_folder(folder)
    assert skill == Skill.from_file(str(folder / "SKILL.md"))
    assert (skill.name, skill.title, skill.description) == ("pdf", "pdf", "Reads PDF files.")
    assert (skill.location, skill.dir) == (str(folder / "SKILL.md"), str(folder))
    assert skill.path == folder / "SKILL.md"
    assert skill.scope == "explicit"
    assert skill.origin == Origin("local")
    assert skill.frontmatter.license == "MIT"
    assert skill.fields == {
        "name": "pdf",
        "description": "Reads PDF files.",
        "license": "MIT",
        "metadata": {"a": "1"},
    }
    assert skill.model_visible
    assert skill.user_invocable
    assert skill.trusted
    assert not (skill.hidden or skill.derived or skill.diagnostics or skill.shadows)


def test_a_relative_path_is_made_absolute(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tree.skill("pdf")
    monkeypatch.chdir(tree.root)
    assert Skill.from_folder("pdf").location == str(folder / "SKILL.md")


@pytest.mark.parametrize("text", ["---\nname: x\ndescription: An x.\n---\nB", b"---\nname: x\n---"])
def test_a_skill_from_text_or_bytes(text: str | bytes) -> None:
    skill = Skill.from_text(text)
    assert skill.name == "x"
    assert skill.location == "SKILL.md"


def test_the_folder_names_a_text_that_does_not() -> None:
    skill = Skill.from_text("Just text.", folder="notes")
    assert (skill.name, skill.description, skill.derived) == ("notes", "Just text.", True)
    assert skill.diagnostics


def test_the_body_offset_is_where_the_body_starts(tree: Tree) -> None:
    file = tree.skill("pdf", "é", text="# Body\n") / "SKILL.md"
    assert file.read_bytes()[Skill.from_file(file).body_offset :] == b"# Body\n"


@pytest.mark.parametrize("name", ["nowhere", "folder", "pipe", "link"])
def test_what_is_no_readable_file_is_not_found(tree: Tree, name: str) -> None:
    tree.path("folder").mkdir()
    os.mkfifo(tree.path("pipe"))
    tree.path("link").symlink_to("link")
    with pytest.raises(SkillNotFound, match=name):
        Skill.from_file(tree.path(name))


@pytest.mark.parametrize(
    ("fields", "model", "user", "hidden"),
    [
        ({}, True, True, False),
        ({"disable_model_invocation": True}, False, True, False),
        ({"user_invocable": False}, True, False, False),
        ({"metadata": {"internal": True}}, True, True, True),
        ({"description": None}, False, True, False),
    ],
    ids=str,
)
def test_who_may_use_a_skill(
    tree: Tree, fields: dict[str, object], model: bool, user: bool, hidden: bool
) -> None:
    """Case 37 is the last: without a description only a user can ask for it."""
    skill = Skill.from_folder(tree.skill("x", **fields))  # type: ignore[arg-type]
    assert (skill.model_visible, skill.user_invocable, skill.hidden) == (model, user, hidden)


@given(TEXT, TEXT)
def test_the_repr_is_one_short_line_whatever_the_skill_says(name: str, about: str) -> None:
    shown = repr(Skill(name, name, about, "/x/SKILL.md"))
    assert len(shown) <= 100
    assert len(shown.splitlines()) == 1
    shown.encode()


def test_the_repr_names_skill_scope_and_description(tree: Tree) -> None:
    assert repr(Skill.from_folder(tree.skill("pdf", "Reads PDFs."))) == (
        "<Skill pdf (explicit): 'Reads PDFs.'>"
    )


@given(st.binary(max_size=400))
def test_no_bytes_raise(data: bytes) -> None:
    skill = Skill.from_text(data, folder="x")
    assert skill.name
    assert isinstance(skill.fields, dict)
    assert skill.frontmatter.extra is not None


def test_a_text_has_its_own_frontmatter_whatever_lies_in_the_current_folder(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree.skill("other"))
    assert Skill.from_text("").fields == {}
    assert Skill.from_text("---\nname: mine\n---\n").fields["name"] == "mine"


def test_the_frontmatter_of_a_file_that_is_gone_is_not_found(tree: Tree) -> None:
    folder = tree.skill("x")
    skill = Skill.from_folder(folder)
    (folder / "SKILL.md").unlink()
    with pytest.raises(SkillNotFound):
        _ = skill.frontmatter


def test_the_frontmatter_read_later_is_the_one_read_first(tree: Tree) -> None:
    """Also where the block had to be repaired."""
    file = tree.write("x/SKILL.md", "---\nname: x\ndescription: use when: asked\n---\n")
    skill = Skill.from_file(file)
    assert skill.description == "use when: asked"
    assert skill.frontmatter.description == "use when: asked"


def test_a_skill_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Skill.from_text("x", folder="x").name = "y"  # type: ignore[misc]


def test_a_path_object_is_only_made_when_asked_for() -> None:
    assert Skill.from_text("x", folder="x").path == Path("SKILL.md")
