"""The promises about bodies, documents and their reports, each as it was written down."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from skillbelt.disclosure.body import load_resource, load_skill_body
from skillbelt.disclosure.overflow import Storage
from skillbelt.errors import FileTooLarge, PathEscape, SectionNotFound
from skillbelt.format.skill import Skill
from tests.tree import Tree

FOLDER = "project/.agents/skills/pdf"


@pytest.fixture
def skill(tree: Tree) -> Skill:
    return Skill.from_folder(tree.skill(FOLDER))


@pytest.mark.parametrize("path", ["../secret", "../secret.md", "{root}/secret.md", "link.md"])
def test_what_lies_outside_the_skill_is_refused(tree: Tree, skill: Skill, path: str) -> None:
    """Case 92."""
    tree.write("project/.agents/skills/secret.md", "secret")
    tree.write("secret.md", "secret")
    tree.path(f"{FOLDER}/link.md").symlink_to(tree.path("secret.md"))
    with pytest.raises(PathEscape):
        load_resource(skill, path.format(root=tree.root))


def test_a_nested_path_inside_is_returned(tree: Tree, skill: Skill) -> None:
    """Case 92."""
    tree.write(f"{FOLDER}/references/deep/er/a.md", "inside")
    assert load_resource(skill, "references/deep/er/a.md").text == "inside"


@pytest.mark.parametrize("body", ["a line\n" * 501, "x" * 40_001])
def test_a_body_over_a_limit_is_refused_or_cut(tree: Tree, body: str) -> None:
    """Case 96."""
    skill = Skill.from_folder(tree.skill(FOLDER, text=body))
    with pytest.raises(FileTooLarge, match="reference/"):
        load_skill_body(skill, overflow="refuse")
    loaded = load_skill_body(skill)
    assert loaded.report.truncated
    assert len(loaded.text) <= 40_000
    assert len(loaded.text.splitlines()) <= 500


@pytest.mark.parametrize("body", ["a line\n" * 500, "x" * 40_000])
def test_a_body_at_a_limit_is_whole(tree: Tree, body: str) -> None:
    """Case 96."""
    skill = Skill.from_folder(tree.skill(FOLDER, text=body))
    loaded = load_skill_body(skill, overflow="refuse")
    assert loaded.text == body
    assert not loaded.report.truncated


SECTIONS = "# T\n\n## A\n\na\n\n## B\n\nb\n\n### B1\n\nb1\n\n## C\n\nc\n"


def test_a_section_reaches_to_the_next_of_its_level(tree: Tree, skill: Skill) -> None:
    """Case 97."""
    tree.write(f"{FOLDER}/a.md", SECTIONS)
    assert load_resource(skill, "a.md", "## B").text == "## B\n\nb\n\n### B1\n\nb1\n\n"


def test_a_missed_section_gives_the_head_and_says_so(tree: Tree, skill: Skill) -> None:
    """Case 98."""
    tree.write(f"{FOLDER}/a.md", SECTIONS)
    loaded = load_resource(skill, "a.md", "## D")
    assert loaded.text == SECTIONS
    assert loaded.report.section_missed
    with pytest.raises(SectionNotFound):
        load_resource(skill, "a.md", "## D", strict_section=True)


def test_a_resource_beyond_the_size_is_refused(tree: Tree, skill: Skill) -> None:
    """Case 99."""
    tree.write(f"{FOLDER}/a.md", "x" * 2_000_001)
    with pytest.raises(FileTooLarge):
        load_resource(skill, "a.md")
    tree.write(f"{FOLDER}/a.md", "x" * 2_000_000)
    assert load_resource(skill, "a.md").report.bytes_read == 2_000_000


def test_a_long_resource_gives_an_excerpt(tree: Tree, skill: Skill) -> None:
    """Case 99."""
    tree.write(f"{FOLDER}/a.md", "x" * 20_000)
    loaded = load_resource(skill, "a.md")
    assert len(loaded.text) == loaded.report.chars_returned == 12_000
    assert loaded.report.truncated
    assert loaded.report.excerpt_sha256 == hashlib.sha256(loaded.text.encode()).hexdigest()
    assert loaded.report.sha256 == hashlib.sha256(b"x" * 20_000).hexdigest()
    assert loaded.report.bytes_read == 20_000


def test_the_report_points_at_what_was_stored(tree: Tree, skill: Skill) -> None:
    """Case 100."""
    tree.write(f"{FOLDER}/a.md", "x" * 20_000)
    storage = Storage(tree.path("home/state"))
    report = load_resource(skill, "a.md", storage=storage).report
    assert {"sha256", "bytes_read", "chars_returned", "truncated"} <= set(report._fields)
    assert os.access(report.storage_ref, os.R_OK)
    assert Path(report.storage_ref).read_text("utf-8") == "x" * 20_000
    assert load_skill_body(skill, storage=storage).report.storage_ref == ""
