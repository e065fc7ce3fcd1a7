"""The files of the workspace that a command names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillbelt.permission.command_lines import read_line
from skillbelt.running.call import RunCall
from skillbelt.running.named_files import Ground, loose_files
from skillbelt.running.questions import asked_for


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """A skill's copy in a workspace, with the links that a skill gets."""
    home = tmp_path / "skills" / "echo"
    for folder in (home / "scripts", home / ".venv", tmp_path / "work", tmp_path / "out"):
        folder.mkdir(parents=True)
    for name in ("work", "out"):
        (home / name).symlink_to(f"../../{name}")
    return Ground(*map(os.path.realpath, (tmp_path, home, home)))


def loose(command: str, ground: Ground, **env: str) -> dict[str, str] | None:
    found = loose_files(RunCall(command, env=env), read_line(command), ground, "scripts/a.py")
    return dict(found.files) if found.certain else None


@pytest.mark.parametrize(
    "command",
    ["echo a", "python3 scripts/a.py x", "cat SKILL.md", "cat ./scripts/../a", "ls /usr/bin",
     "echo a > /dev/null".partition(" >")[0], "cat /dev/null"],
)  # fmt: skip
def test_what_no_run_can_write_is_covered_by_the_skill(command: str, ground: Ground) -> None:
    assert loose(command, ground) == {}


@pytest.mark.parametrize(
    "word",
    ["work/a", "./work/a", "../../work/a", "/workspace/work/a", "{root}/work/a", "--to=work/a",
     "x:work/a", "-Iwork/a", "open('work/a')", "/workspace/skills/../work/a"],
)  # fmt: skip
def test_what_a_run_can_write_counts_by_its_content(word: str, ground: Ground) -> None:
    command = f'cat "{word}"'.replace("{root}", ground.workspace)
    before = loose(command, ground)
    assert before
    assert set(before.values()) <= {"absent"}
    states = []
    for text in ("one", "two"):
        Path(ground.workspace, "work", "a").write_text(text)
        states.append(loose(command, ground))
    assert states[0] != states[1]
    assert before not in states


def test_a_folder_counts_by_all_that_is_in_it(ground: Ground) -> None:
    states = [loose("ls work", ground)]
    for name in ("a", "b/c"):
        path = Path(ground.workspace, "work", name)
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
        states.append(loose("ls work", ground))
    path.write_text("y")
    states.append(loose("ls work", ground))
    assert None not in states
    assert all(one not in states[:at] for at, one in enumerate(states))


@pytest.mark.parametrize(
    "command",
    ["cat $X", "cat *", "cat `x`", "cat < work/a", "cat /proc/self/cwd/a", "cat /dev/fd/9"],
)
def test_what_can_not_be_told_is_not(command: str, ground: Ground) -> None:
    assert loose(command, ground) is None


@pytest.mark.parametrize(
    "word",
    ["/workspace/skills/echo/work/a", "/workspace/skills/echo/inputs/../a", "../echo/work/a"],
)
def test_a_copy_that_lies_elsewhere_hides_nothing(word: str, tmp_path: Path) -> None:
    home = tmp_path / "copy" / "echo"
    for folder in (home, tmp_path / "work" / "inputs"):
        folder.mkdir(parents=True)
    (home / "work").symlink_to("../../work")
    (home / "inputs").symlink_to("../../work/inputs")
    ground = Ground(*map(os.path.realpath, (tmp_path, home, home)))
    states = []
    for text in ("one", "two"):
        (tmp_path / "work" / "a").write_text(text)
        states.append(loose(f"cat {word}", ground))
    assert states[0] != states[1] or states == [None, None]
    assert states[0] != {}


def test_a_pipe_or_too_much_is_not_told(ground: Ground) -> None:
    os.mkfifo(os.path.join(ground.workspace, "work", "pipe"))
    assert loose("cat work/pipe", ground) is None
    with open(os.path.join(ground.workspace, "work", "huge"), "wb") as file:
        file.truncate(2**30)
    assert loose("cat work/huge", ground) is None


@pytest.mark.parametrize("value", ["/workspace/work", "work", "/bin:work/x", "/proc/self/root"])
def test_a_variable_that_leads_to_where_runs_write_is_not_told(value: str, ground: Ground) -> None:
    assert loose("ls", ground, HOME=value) is None
    assert loose("ls", ground, HOME="/usr", A="1") == {}


def test_what_starts_elsewhere_or_with_programs_left_behind_is_not_told(ground: Ground) -> None:
    work = os.path.join(ground.workspace, "work")
    assert loose("ls", ground._replace(cwd=work)) is None
    Path(ground.home, ".venv", "bin").mkdir()
    assert loose("ls", ground) is None


def test_rules_are_asked_about_what_makes_a_command_another(ground: Ground) -> None:
    line = read_line("ls a; rm b")
    assert asked_for(RunCall("ls a; rm b"), line, ground) == ("ls a", "rm b")
    elsewhere = ground._replace(cwd=os.path.join(ground.workspace, "work"))
    call = RunCall("ls a; rm b", cwd="/work")
    assert asked_for(call, line, elsewhere) == ("cd /work", "ls a", "rm b")
    call = RunCall("ls a; rm b", env={"A": "hidden"})
    assert asked_for(call, line, ground) == ("shell: A=... ls a; rm b",)
