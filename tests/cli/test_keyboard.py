"""What is taken as typed, on a real pseudo-terminal, and in what state that is left."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

from skillbelt.cli.keyboard import _is_burst, can_ask
from tests.terminal import Paste, Screen, on_terminal
from tests.tree import Tree

ASKS = """
import os, signal
from skillbelt.cli.keyboard import Burst, Keyboard, NoLongerNeeded, can_ask
assert can_ask()
"""


def program(tree: Tree, code: str, *answers: tuple[str, str], ahead: str = "") -> Screen:
    return on_terminal(tree, program=("-c", ASKS + code), answers=answers, ahead=ahead)


@pytest.mark.parametrize(
    ("data", "at_once"),
    [
        (b"a", False),
        (b"a\n", True),
        (b"\n", False),
        (b"a\r", True),
        ("é".encode(), False),
        ("é\n".encode(), True),
        (b"\r\n", False),
        (b"\x1b[A", False),  # an arrow
        (b"\x1b", False),
        (b"ab", True),
        (b"\n\n", True),
        (b"\na", True),
        (b"a\x1b[A", True),
        (b"\x1b[200~", True),
        (b"\x1b[200~a\x1b[201~", True),
        (b"\x1b[201~\n", True),
    ],
)
def test_one_key_is_all_that_a_person_types_at_once(data: bytes, at_once: bool) -> None:
    assert _is_burst(data) is at_once


def test_words_may_come_at_once_where_they_grant_nothing(tree: Tree) -> None:
    code = "with Keyboard() as keys: print('got', repr(keys.line('why? ', words=True)))"
    screen = program(tree, code, ("why? ", "\x1b[200~some\twords\x1b[2J\nand more\n\x1b[201~"))
    assert "got 'somewords'" in screen.lines


def test_between_two_questions_what_was_typed_is_thrown_away(tree: Tree) -> None:
    code = """
with Keyboard() as keys:
    print('first', repr(keys.line('one? ')), flush=True)
    print('READY', flush=True)
    import select; select.select([0], [], [])
    print('second', repr(keys.line('two? ')))
"""
    screen = program(tree, code, ("one? ", "x\n"), ("READY", Paste("a\n")), ("two? ", "o\n"))
    assert "first 'x'" in screen.lines
    assert "second 'o'" in screen.lines


def test_nothing_is_asked_any_more_when_nobody_waits(tree: Tree) -> None:
    code = """
try:
    with Keyboard(lambda: True) as keys: keys.line('still? ')
except NoLongerNeeded:
    print('gone')
"""
    assert "gone" in program(tree, code).lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_program_leaves_the_terminal_as_it_was(
    tree: Tree, number: signal.Signals
) -> None:
    """`on_terminal` looks at the state."""
    code = f"""
with Keyboard(lambda: os.kill(os.getpid(), {int(number)}) or False) as keys: keys.line('what? ')
"""
    # What runs the tests may ignore the signal, as nohup does.
    usual = f"import signal; signal.signal({int(number)}, signal.SIG_DFL)\n"
    screen = on_terminal(tree, program=("-c", usual + ASKS + code))
    assert screen.exit_code == -number
    assert screen.written.rstrip().endswith("\x1b[?2004l")


def test_a_terminal_that_goes_away_is_the_end_of_the_input(tree: Tree) -> None:
    ours, theirs = pty.openpty()
    code = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
try:
    with Keyboard() as keys: keys.line('what? ')
except EOFError:
    os._exit(7)
"""
    with subprocess.Popen(
        [sys.executable, "-c", ASKS + code], stdin=theirs, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        data = b""
        try:
            while b"what? " not in data:
                data += os.read(ours, 4096)
        finally:
            os.close(ours)
        assert child.wait(150) == 7


def test_a_pipe_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with open(read) as pipe, open(write, "w"):
        monkeypatch.setattr(sys, "stdin", pipe)
        assert not can_ask()
    monkeypatch.setattr(sys, "stdin", None)
    assert not can_ask()
