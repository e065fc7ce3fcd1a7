"""A machine that becomes a node: Ray may fail to start it, and is then asked again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillbelt.errors import SkillbeltError
from skillbelt.fleet.join import UP, run_node


def start(times: Path, script: str) -> list[str]:
    """A command in the place of `ray start`, which notes that it was started."""
    return ["sh", "-c", f"echo once >> {times}; {script}"]


def starts(times: Path) -> int:
    return len(times.read_text().splitlines()) if times.exists() else 0


def test_a_node_that_does_not_start_in_time_is_started_again(tmp_path: Path) -> None:
    times = tmp_path / "times"
    arguments = start(times, f"[ $(wc -l < {times}) = 2 ] || exit 1; exec sleep 600")
    code = run_node(
        arguments, os.environ, ["sh", "-c", "exit 7"], lambda: UP if starts(times) == 2 else ""
    )
    assert (code, starts(times)) == (7, 2)


def test_a_node_that_never_starts_is_one_clear_error(tmp_path: Path) -> None:
    times = tmp_path / "times"
    with pytest.raises(SkillbeltError, match="ended 3 times before it had joined, the last"):
        run_node(start(times, "exit 9"), os.environ, (), lambda: "")
    assert starts(times) == 3


def test_a_node_that_is_told_to_end_before_it_joined_is_not_started_again(tmp_path: Path) -> None:
    times = tmp_path / "times"
    code = run_node(start(times, "kill $PPID; exec sleep 600"), os.environ, (), lambda: "")
    assert (code, starts(times)) == (128 + 15, 1)
