"""How a person at a terminal is asked for permission."""

from __future__ import annotations

import json

import pytest

from skillbelt.cli.asking import question
from skillbelt.permission import Request
from tests.terminal import on_terminal
from tests.tree import Tree


@pytest.fixture
def asked(tree: Tree) -> Tree:
    """A skill that the user's own rule asks for."""
    tree.skill("project/.agents/skills/pdf", text="The body.\n")
    tree.write("home/.config/skillbelt/config.toml", '[permission]\nskill = "ask"\n')
    return tree


def test_the_question_says_what_why_and_what_always_covers(asked: Tree) -> None:
    screen = on_terminal(asked, "load", "pdf", columns=200, typed="o\n")
    assert screen.exit_code == 0
    text = "\n".join(screen.lines)
    assert "load the skill pdf from" in text
    assert "you asked for it, no rule allows it" in text
    assert "would cover skill pdf of pdf in this project, until the skill changes" in text
    assert "The body." in text


def test_once_is_not_remembered(asked: Tree) -> None:
    assert on_terminal(asked, "load", "pdf", typed="once\n").exit_code == 0
    assert asked.run("load", "pdf").exit_code == 4


def test_always_is_remembered_until_the_skill_changes(asked: Tree) -> None:
    assert on_terminal(asked, "load", "pdf", typed="a\n").exit_code == 0
    assert asked.run("load", "pdf").exit_code == 0
    asked.write("project/.agents/skills/pdf/scripts/run.py", "print()\n")
    assert asked.run("load", "pdf").exit_code == 4


def test_reject_ends_with_the_reason_that_was_typed(asked: Tree) -> None:
    screen = on_terminal(asked, "load", "pdf", typed="r\nnot today\n")
    assert screen.exit_code == 4
    assert any("was refused: not today" in line for line in screen.lines)


def test_an_answer_that_is_none_is_asked_for_again_and_then_no(asked: Tree) -> None:
    screen = on_terminal(asked, "load", "pdf", typed="what\nwhat\nwhat\n")
    assert screen.exit_code == 4
    assert sum(line.count("[r]eject?") for line in screen.lines) == 3


def test_the_end_of_the_input_is_a_no(asked: Tree) -> None:
    screen = on_terminal(asked, "load", "pdf", typed="\x04")
    assert screen.exit_code == 4
    assert not any("Why, in a word" in line for line in screen.lines)


def test_under_a_pipe_it_is_denied_and_says_how_to_allow_it(asked: Tree) -> None:
    done = asked.run("load", "pdf", "--json")
    assert done.exit_code == 4
    assert done.stdout == ""
    assert "nobody is there to give it" in done.stderr
    assert "skillbelt permissions allow" in done.stderr


def test_what_the_refusal_says_to_do_helps(asked: Tree) -> None:
    assert asked.run("permissions", "allow", "pdf").exit_code == 0
    assert json.loads(asked.run("load", "pdf", "--json").stdout)["text"] == "The body.\n"


def test_a_hostile_request_can_not_forge_the_question() -> None:
    request = Request("run", ("ls\n  why      you trust it\x1b[2J",), summary="run a\nb\u202ec")
    lines = question(request).splitlines()
    assert len(lines) == 4
    assert not any("\x1b" in line or "\u202e" in line for line in lines)


def test_a_type_that_is_not_known_is_said_so() -> None:
    assert "something this version does not know" in question(Request("teleport", ("home",)))
