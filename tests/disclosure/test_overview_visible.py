"""The skills that a model sees: visibility, the caller's filter, and files in play."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt import Skill
from skillbelt.disclosure.overview import visible
from tests.tree import Tree

TEXT = st.text(st.characters(codec=None), max_size=80)


def skill(name: str, about: str = "Does a thing.") -> Skill:
    return Skill(name, name, about, f"/skills/{name}/SKILL.md")


def test_only_what_a_model_may_use_is_visible() -> None:
    skills = [
        skill("a"),
        skill("b")._replace(model_visible=False),
        skill("c", ""),
        skill("d"),
    ]
    assert [one.name for one in visible(skills)] == ["a", "d"]
    assert [one.name for one in visible(skills, keep=lambda one: one.name != "a")] == ["d"]


def test_the_filter_is_not_asked_about_what_is_hidden_anyway() -> None:
    asked: list[str] = []

    def keep(one: Skill) -> bool:
        asked.append(one.name)
        return True

    visible([skill("a"), skill("b")._replace(model_visible=False)], keep=keep)
    assert asked == ["a"]


def with_paths(paths: object) -> Skill:
    return Skill.from_text(
        f"---\nname: x\ndescription: An x.\npaths: {json.dumps(paths)}\n---\nText.\n"
    )


@pytest.mark.parametrize(
    ("paths", "file", "seen"),
    [
        ("*.py", "a.py", True),
        ("*.py", "src/deep/a.py", True),
        ("*.py", "a.pyc", False),
        ("/*.py", "a.py", True),
        ("/*.py", "src/a.py", False),
        ("./src/*.py", "./src/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/very/deep/a.py", True),
        ("src/**/*.py", "lib/src/a.py", False),
        ("**/*.py", "a.py", True),
        ("**", "any/thing", True),
        ("src/", "src/deep/a.py", True),
        ("src", "lib/src/a.py", True),
        ("src/deep", "src/deep/a.py", True),
        ("src/deep", "src/deeper/a.py", False),
        ("a?[0-9].txt", "ab7.txt", True),
        ("a?[!0-9].txt", "ab7.txt", False),
        ("*.PY", "a.py", False),
        ("src/**/*.{ts,tsx}", "src/a/b.tsx", True),
        ("src/**/*.{ts,tsx}, *.md", "docs/a.md", True),
        ("src/**/*.{ts,tsx}", "src/a/b.js", False),
        (["*.{ts,tsx}", "*.md"], "a.ts", True),
        (["{a,b{c,d}}/x.md"], "bd/x.md", True),
        (["*.ts", "docs/**"], "docs/a/b.md", True),
        (["a{b"], "a{b", True),
        ([], "a.py", True),
        ("a" * 4096, "a" * 4096, True),
        ("a" * 4097, "a" * 4097, False),
    ],
)
def test_a_skill_with_paths_is_there_when_one_is_in_play(
    paths: object, file: str, seen: bool
) -> None:
    one = with_paths(paths)
    assert bool(visible([one], files=[file])) == seen
    assert bool(visible([one], files=["other.bin", file])) == seen


def test_without_files_paths_do_not_count() -> None:
    assert visible([with_paths("*.py")]) == [with_paths("*.py")]
    assert visible([with_paths("*.py")], files=[]) == []
    assert visible([skill("a"), with_paths("*.py")], files=["a.md"]) == [skill("a")]


def test_paths_are_read_from_the_file(tree: Tree) -> None:
    tree.skill("project/.agents/skills/py", paths=["**/*.py"])
    tree.skill("project/.agents/skills/any")
    skills = tree.catalog().available()
    assert [one.name for one in visible(skills, files=["a.md"])] == ["any"]
    assert [one.name for one in visible(skills, files=["a.py"])] == ["any", "py"]


def test_a_skill_that_went_away_is_left_to_the_next_scan() -> None:
    assert visible([skill("a")], files=["a.md"]) == [skill("a")]


PARTS = st.lists(st.sampled_from(["**", "*", "a", "b", "?", "[", "[a-", "{a,b}", "{", "}"]))


@given(PARTS, st.lists(st.sampled_from(["a", "b", "ab", ""]), min_size=1))
def test_no_glob_of_a_skill_raises(glob: list[str], file: list[str]) -> None:
    for paths in ("/".join(glob), "".join(glob), glob):
        assert visible([with_paths(paths)], files=["/".join(file)]) in ([], [with_paths(paths)])


@given(TEXT, TEXT)
def test_no_text_as_a_glob_raises(glob: str, file: str) -> None:
    visible([with_paths([glob])], files=[file])


@pytest.mark.parametrize(
    "paths",
    [
        ["**/" * 5000 + "x"],
        ["*a" * 2000 + "b"],
        ["{a,b}" * 5000],
        ["{" * 15000],
        ["{" + "a," * 10000 + "}"],
        ["a" for _ in range(10000)],
        ["{a}" * 1300 for _ in range(10)],
    ],
    ids=["stars", "star", "braces", "open", "choices", "list", "single"],
)
def test_a_hostile_glob_takes_no_time(paths: list[str]) -> None:
    visible([with_paths(paths)], files=["a/" * 200 + "a" * 200] * 20)
