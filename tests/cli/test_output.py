from __future__ import annotations

import argparse
import io
import json
import re

import pytest

from skillbelt.cli import output, scanning, words
from skillbelt.discovery.describe import diagnostics_json
from skillbelt.values import Diagnostic
from tests.terminal import on_terminal
from tests.tree import Tree

INFO = Diagnostic(code="a", severity="info", path="/x", line=None, message="said")
WARNING = Diagnostic(
    code="b", severity="warning", path="/x\x1b", line=2, message="two\nlines", remedy="mend it"
)


def arguments(**given: object) -> argparse.Namespace:
    common = {"project": None, "config": None, "quiet": False, "verbose": False}
    return argparse.Namespace(**common | given)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 skills"), (1, "1 skill"), (2, "2 skills"), (1000, "1000 skills")]
)
def test_count(number: int, text: str) -> None:
    assert output.count(number, "skill") == text


def test_table_in_a_pipe_has_a_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("a", "b"), [("x\ty\nz", "two  words"), ("\x1b[1m", "")])
    assert capsys.readouterr().out == "x y z\ttwo words\n\\x1b[1m\t\n"


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("wrap", [True, False])
def test_table_on_a_terminal_fits(monkeypatch: pytest.MonkeyPatch, wrap: bool) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    text = "one two three four five six seven eight nine ten"
    output.print_table(("name", "text"), [("pdf", text)], wrap=wrap)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    lines = [line.rstrip() for line in plain.splitlines()]
    assert all(len(line) <= 40 for line in lines)
    assert lines[1].startswith("pdf   one two three")
    assert (" ".join(" ".join(lines[1:]).split()) == f"pdf {text}") == wrap
    assert (len(lines) == 2) != wrap


def test_no_row_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Terminal())
    output.print_table(("name", "text"), [])


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"a": "ü\x1b\u202e\udcff"})
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out) == {"a": "ü\x1b\u202e\udcff"}


def test_diagnostics_go_to_stderr_by_how_much_is_wanted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.print_diagnostics([INFO, WARNING], arguments())
    assert capsys.readouterr() == ("", "/x\\x1b:2: warning b: two lines\n")
    output.print_diagnostics([INFO, WARNING], arguments(verbose=True))
    assert capsys.readouterr().err == (
        "/x: info a: said\n/x\\x1b:2: warning b: two lines (mend it)\n"
    )
    output.print_diagnostics([INFO, WARNING], arguments(quiet=True))
    assert capsys.readouterr().err == ""


def test_messages_go_to_stderr_unless_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    output.say("hello", arguments())
    output.say("hello", arguments(quiet=True))
    assert capsys.readouterr() == ("", "hello\n")


def test_diagnostics_as_json() -> None:
    assert diagnostics_json([WARNING]) == [
        {
            "code": "b",
            "severity": "warning",
            "path": "/x\x1b",
            "line": 2,
            "message": "two\nlines",
            "remedy": "mend it",
        }
    ]


def test_catalogue_of_the_common_options(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    config = tree.write("my.toml", 'disabled_clients = ["*"]\n')
    project = str(tree.project)
    assert list(scanning.open_catalog(arguments(project=project))) == ["pdf"]
    assert not list(scanning.open_catalog(arguments(project=project, config=str(config))))


def test_a_terminal_sees_progress_and_a_pipe_does_not(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.skill("project/.agents/skills/pdf")
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    scanning.open_catalog(arguments(project=str(tree.project)))
    assert screen.getvalue().endswith("\r\x1b[K")
    for silent, quiet in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", silent)
        scanning.open_catalog(arguments(project=str(tree.project), quiet=quiet))
        assert silent.getvalue() == ""


def test_without_a_terminal_there_are_eighty_columns() -> None:
    assert words.width(io.StringIO()) == 80


def test_progress_fits_a_narrow_terminal(tree: Tree) -> None:
    code = "from skillbelt.cli import output; output.show_progress('word ' * 20)"
    screen = on_terminal(tree, program=("-c", code), columns=30)
    assert len(screen.written.rpartition("\x1b[K")[2]) < 30
