"""A command in the worker gives what it gives as a process."""

from __future__ import annotations

import os
import sys

import pytest

from tests import inside
from tests.handles import no_handle_left, no_thread_left
from tests.tree import Tree


@pytest.fixture
def skills(tree: Tree) -> Tree:
    tree.skill("project/.agents/skills/pdf", description="Liest Dateien für 李 … 🙂")
    tree.write("project/.agents/skills/broken/SKILL.md", "Only text.\n")
    return tree


@pytest.mark.parametrize(
    "words",
    [
        ["list", "-v"], ["show", "pdf", "--json"], ["show", "nope", "--json"], ["check"],
        ["list", "--nope"], ["prompt"], ["--version"], ["help"], [],
    ],
    ids=" ".join,
)  # fmt: skip
def test_it_is_the_same(skills: Tree, words: list[str]) -> None:
    assert inside.is_enough(words)
    assert skills.run(*words) == skills.run_process(*words)


def test_nothing_stays_as_the_command_had_it(skills: Tree) -> None:
    def state() -> tuple[object, ...]:
        return os.getcwd(), sys.stdin, sys.stdout, sys.stderr

    before = state()
    with no_handle_left(), no_thread_left():
        assert skills.run("show", "nope").exit_code == 3
        assert skills.run("list").exit_code == 0
    assert state() == before


@pytest.mark.parametrize("words", [["run", "pdf", "--", "true"], ["log", "--follow"], ["chat"]])
def test_what_runs_or_waits_is_a_process(words: list[str]) -> None:
    assert not inside.is_enough(words)
