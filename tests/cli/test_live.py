from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.cli.live import LiveOutput
from skillbelt.running.following import visible
from tests.terminal import on_terminal
from tests.tree import Tree

FOLDER = "project/.agents/skills/talk"


def test_a_pipe_gets_the_very_bytes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    live = LiveOutput()
    live("stdout", b"\x1b[2Ja\xff\r\n")
    live("stderr", b"b\0")
    assert capfdbinary.readouterr() == (b"\x1b[2Ja\xff\r\n", b"b\0")


def test_a_terminal_is_shown_what_would_play_with_it(open_tree: Tree) -> None:
    open_tree.skill(FOLDER)
    script = "printf 'a\\033[2J  b\\n\\ttab \\302\\2331m\\n'; printf 'c\\033]0;t\\007' >&2"
    open_tree.write(f"{FOLDER}/scripts/run.sh", script)
    screen = on_terminal(open_tree, "exec", "talk", "--yes")
    assert screen.exit_code == 0
    assert "a\\x1b[2J  b" in screen.lines
    assert "\ttab \\x9b1m" in screen.lines
    assert "c\\x1b]0;t\\x07" in screen.lines


def test_a_character_that_comes_in_two_pieces_is_shown_whole(open_tree: Tree) -> None:
    open_tree.skill(FOLDER)
    script = "printf 'a\\303'; read -rt 0.3 < <(sleep 1); printf '\\274b\\n'"
    open_tree.write(f"{FOLDER}/scripts/run.sh", script)
    assert "aüb" in on_terminal(open_tree, "exec", "talk", "--yes").lines


@given(st.text())
def test_what_is_shown_can_not_move_the_cursor(text: str) -> None:
    assert not any(ord(char) < 32 and char not in "\t\n\r" for char in visible(text))
    assert not any(0x7F <= ord(char) < 0xA0 for char in visible(text))


@given(st.text(st.characters(categories=["L", "N", "P", "Zs"])))
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    assert visible(text) == text
