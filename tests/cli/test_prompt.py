from __future__ import annotations

import json

import pytest

from skillbelt.disclosure.overview import Format, overview
from tests.terminal import on_terminal
from tests.tree import Tree

SKILLS = "project/.agents/skills"


@pytest.fixture
def skills(tree: Tree) -> Tree:
    """Two that a model may use, and one for the user alone."""
    tree.skill(f"{SKILLS}/text", description="Reads text.")
    tree.skill(f"{SKILLS}/pdf", description="Reads PDF files.")
    tree.skill(f"{SKILLS}/mine", description="Only when asked.", disable_model_invocation=True)
    return tree


def test_the_text_itself_in_the_format_of_the_settings(skills: Tree) -> None:
    made = overview(skills.catalog().available(), loader="skill_load")
    assert skills.run("prompt") == (0, f"{made.text}\n", "")
    skills.write("project/skillbelt.toml", 'overview_format = "markdown"\n')
    assert skills.run("prompt").stdout == (
        "## Available Skills\n- **pdf**: Reads PDF files.\n- **text**: Reads text.\n"
    )


@pytest.mark.parametrize("format", ["xml", "markdown", "plain", "json"])
def test_each_format(skills: Tree, format: Format) -> None:
    made = overview(skills.catalog().available(), format=format, loader="skill_load")
    assert skills.run("prompt", "--format", format) == (0, f"{made.text}\n", "")


def test_json_says_what_the_text_costs_and_holds(skills: Tree) -> None:
    done = skills.run("prompt", "--json", "--format", "markdown")
    made = overview(skills.catalog().available(), format="markdown")
    assert json.loads(done.stdout) == {
        "text": made.text,
        "tokens": made.tokens,
        "shown": 2,
        "names_only": 0,
        "omitted": 0,
    }


@pytest.mark.parametrize("option", ["--format=xml", "--format=json", "--agent=writer"])
def test_nothing_when_there_is_nothing_to_show(tree: Tree, option: str) -> None:
    tree.skill(f"{SKILLS}/mine", disable_model_invocation=True)
    assert tree.run("prompt", option) == (0, "", "")
    empty = {"text": "", "tokens": 0, "shown": 0, "names_only": 0, "omitted": 0}
    assert json.loads(tree.run("prompt", option, "--json").stdout) == empty


def test_a_budget(skills: Tree) -> None:
    done = skills.run("prompt", "--format", "plain", "--budget", "1")
    assert done == (0, "2 skills: find them with the skill_search tool\n", "")


def test_the_budget_is_a_share_of_the_context_window(tree: Tree) -> None:
    for number in range(20):
        tree.skill(f"{SKILLS}/skill-{number}", description="Words. " * 20)
    whole = json.loads(tree.run("prompt", "--json").stdout)
    assert (whole["shown"], whole["names_only"]) == (20, 0)
    tree.write("project/skillbelt.toml", "context_window_tokens = 20000\n")
    small = json.loads(tree.run("prompt", "--json").stdout)
    assert small["shown"] + small["names_only"] == 20
    assert 0 < small["shown"] < 20
    assert 350 < small["tokens"] <= 400


@pytest.mark.parametrize("budget", ["0", "-1", "x", "1.5", ""])
def test_a_wrong_budget_is_exit_2(skills: Tree, budget: str) -> None:
    done = skills.run("prompt", f"--budget={budget}")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is not a number of tokens above 0" in done.stderr


def test_more_words_on_the_other_stream(skills: Tree) -> None:
    done = skills.run("prompt", "-v", "--format", "markdown", "--budget", "500")
    assert done.stderr == "18 of 500 tokens: 2 with descriptions, 0 by name only, 0 left out\n"
    assert done.stdout == skills.run("prompt", "--format", "markdown").stdout


def test_a_terminal_is_safe(tree: Tree) -> None:
    tree.skill(f"{SKILLS}/odd", description="Clears\x1b[2J the \u202escreen.")
    for format in ("xml", "markdown", "plain", "json"):
        written = on_terminal(tree, "prompt", "--format", format).written
        assert "the" in written
        assert "\x1b[2J" not in written
        assert "\u202e" not in written
