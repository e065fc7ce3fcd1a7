"""What is new since the last approval: nothing of a hostile version is left out."""

from __future__ import annotations

import pytest

from skillbelt import Runtime
from skillbelt.console import approved
from skillbelt.console.approved import ApprovedChange, compare_files, read_files
from tests.console.desks import SKILLS, fill
from tests.tree import Tree

TOO_MANY = "too many lines to compare; open the file"


def compare(before: str, after: str) -> ApprovedChange:
    [change] = compare_files({"a": ("1", before)}, {"a": ("2", after)})
    return change


@pytest.mark.parametrize("text", ["++ rm -rf x", "-- drop", "++", "+", "@@ x"])
def test_an_added_line_is_shown_whatever_it_begins_with(text: str) -> None:
    lines = compare("one\ntwo\n", f"one\n{text}\ntwo\n").lines
    assert [one.text for one in lines if one.kind == "add"] == [f"+{text}"]


@pytest.mark.parametrize("text", ["-- drop", "++ rm"])
def test_a_removed_line_is_shown_whatever_it_begins_with(text: str) -> None:
    lines = compare(f"one\n{text}\n", "one\n").lines
    assert [one.text for one in lines if one.kind == "cut"] == [f"-{text}"]


@pytest.mark.parametrize("char", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_only_a_line_feed_ends_a_line(char: str) -> None:
    lines = compare("one\n", f"one\ntwo{char}three\n").lines
    assert f"+two{char}three" in [one.text for one in lines]


def test_files_after_the_limit_of_lines_are_named() -> None:
    text = "".join(f"{n}\n" for n in range(300))
    files = dict.fromkeys("abc", ("2", text))
    changes = compare_files({}, files)
    assert [one.path for one in changes] == ["a", "b", "c"]
    assert sum(len(one.lines) for one in changes) <= approved.MAX_DIFF_LINES + 3
    assert changes[1].lines[-1].text.endswith("more lines")
    assert [one.text for one in changes[2].lines] == [TOO_MANY]


def test_long_texts_are_not_compared() -> None:
    [line] = compare("a\n" * 1_500, "b\n" * 1_500).lines
    assert line.text == TOO_MANY


def test_every_file_of_a_skill_has_its_digest(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approved, "MAX_FILES", 2)
    fill(tree)
    for name in ("x.md", "y.md"):
        tree.write(f"{SKILLS}/pdf/{name}", name)
    with Runtime(tree.project) as belt:
        skill = belt.look()["pdf"]
        found = read_files(skill)
        assert set(found) == {"SKILL.md", "guide.md", "x.md", "y.md"}
        assert sum(text is None for _, text in found.values()) == 2
        assert all(digest for digest, _ in found.values())


def test_a_file_that_cannot_be_read_has_its_digest(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Runtime(fill(tree).project) as belt:
        skill = belt.look()["pdf"]
        known = read_files(skill)

        def refuse(files: object, path: str) -> object:
            raise OSError(path)

        monkeypatch.setattr(type(skill.files), "open", refuse)
        assert read_files(skill) == {path: (one[0], None) for path, one in known.items()}
