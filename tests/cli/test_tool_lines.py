from __future__ import annotations

import pytest

from skillbelt.agent.events import ToolCall, ToolResponse
from skillbelt.cli.tool_lines import (
    FileChange,
    WrittenFiles,
    describe_call,
    describe_change,
    describe_outcome,
    diff,
    succeeded,
)
from skillbelt.running.outputs import OutputFile
from skillbelt.text import describe_seconds


@pytest.mark.parametrize(
    ("kind", "arguments", "line"),
    [
        ("skill_run", {"skill": "kit", "command": "ls -l"}, "run ls -l (kit)"),
        ("skill_run", '{"skill": "kit", "command": "ls"}', "run ls (kit)"),
        ("skill_load", {"skill": "kit"}, "load kit"),
        ("read_file", {"file_name": "out/a\x1b[2J.txt"}, "read out/a\\x1b[2J.txt"),
        ("skill_run", {"skill": "kit", "command": "a\n✓ b"}, "run a\\n✓ b (kit)"),
        ("skill_list", {}, "list the skills"),
        ("skill_run", {"skill": "kit"}, 'tool {"skill": "kit"}'),
        ("skill_run", "{broken", "tool {broken"),
        ("", {"a": 1}, 'tool {"a": 1}'),
    ],
)
def test_a_call_is_one_readable_line(kind: str, arguments: object, line: str) -> None:
    assert describe_call(ToolCall("1", "tool", arguments), kind) == line


@pytest.mark.parametrize(
    ("response", "outcome", "good"),
    [
        (ToolResponse("1", "t", "", data={"exit_code": 0, "duration_ms": 300}), "0.3 s", True),
        (ToolResponse("1", "t", "", data={"exit_code": 3}), "exit 3", False),
        (ToolResponse("1", "t", "", data={"exit_code": 1, "timed_out": True}), "timed out", False),
        (ToolResponse("1", "t", "", error="was\nrefused\x1b"), "was refused\\x1b", False),
        (ToolResponse("1", "t", "", data={"names": ["a", "b"]}), "2 skills", True),
    ],
)
def test_an_outcome_is_a_few_words(response: ToolResponse, outcome: str, good: bool) -> None:
    assert describe_outcome(response) == outcome
    assert succeeded(response) is good


def test_times_are_for_a_reader() -> None:
    assert [describe_seconds(n) for n in (0.04, 9.94, 12.2, 125)] == [
        "0.0 s", "9.9 s", "12 s", "2 min 5 s",
    ]  # fmt: skip


def file(name: str, text: str) -> OutputFile:
    return OutputFile(name, "", text, "text/plain", len(text))


def test_only_what_changed_is_shown() -> None:
    there = [file("out/a", "1\n2\n"), file("out/b", "x\n")]
    files = WrittenFiles(lambda: there)
    files.mark()
    there[0] = file("out/a", "1\n3\n")
    there.append(file("out/c", "new"))
    [changed, new] = files.changes()
    assert describe_change(changed) == "changed out/a (4 to 4 bytes)"
    assert list(diff(changed))[1:] == [(" ", "1"), ("-", "2"), ("+", "3")]
    assert describe_change(new) == "wrote out/c (1 line)"
    assert list(diff(new)) == [("+", "new")]
    assert files.changes() == []


def test_a_line_that_looks_like_the_head_of_a_diff_is_shown() -> None:
    change = FileChange("out/a", file("out/a", "-- x\n++ y\n"), file("out/a", "z\n"))
    assert ("-", "-- x") in list(diff(change))
    assert ("-", "++ y") in list(diff(change))


def test_a_long_diff_is_cut_and_a_huge_one_left_out() -> None:
    long = FileChange("out/a", None, file("out/a", "x\n" * 100))
    assert list(diff(long))[-1] == ("@", "(71 more lines)")
    assert list(diff(FileChange("out/a", None, file("out/a", "x\n" * 2_000)))) == []
