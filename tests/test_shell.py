"""What a command line would run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.shell import WHOLE, simple_commands


@pytest.mark.parametrize(
    ("command", "commands"),
    [
        ("git add .", ("git add .",)),
        ("git  add\t.", ("git add .",)),
        ("git add . && git push", ("git add .", "git push")),
        ("a; b | c || d & e", ("a", "b", "c", "d", "e")),
        ("ls;ls", ("ls",)),
        ("echo 'a; b'", ("echo 'a; b'",)),
        ("'git add' .", ("'git add' .",)),
        ("echo ''", ("echo ''",)),
        ("# rm", ("# rm",)),
    ],
)
def test_a_line_is_taken_apart(command: str, commands: tuple[str, ...]) -> None:
    assert simple_commands(command) == commands


@pytest.mark.parametrize(
    "command",
    ["git add $(rm x)", "git add `rm x`", "git add > ~/.bashrc", "git add\nrm x", "(rm x)",
     "git add 'x", "git add \\\n x", "", " ", ";"],
)  # fmt: skip
def test_a_line_that_can_not_be_taken_apart_is_given_whole(command: str) -> None:
    assert simple_commands(command) == (WHOLE + command,)


@given(st.text(alphabet="ab ;&|'\"$(`>\n\\", max_size=20))
def test_no_separator_outside_quotes_is_left_in_a_command(command: str) -> None:
    for text in simple_commands(command):
        if not text.startswith(WHOLE):
            outside = "".join(text.replace('"', "'").split("'")[::2])
            assert not set(outside) & set("`>(\n\\")
