"""The program before a command, run as it is, outside of any sandbox."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from skillbelt.sandbox.entry import WORDS, paths_of, program
from skillbelt.sandbox.process import ANSWER, READY

Started = subprocess.CompletedProcess[bytes]
Start = Callable[..., Started]
FILES = (resource.RLIMIT_NOFILE, (50, 60))
CORE = (resource.RLIMIT_CORE, (0, 0))
PATHS = ("/bin/sh",)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def started(
        *command: str,
        paths: Sequence[str] = PATHS,
        limits: Sequence[tuple[int, tuple[int, int]]] = (),
        given: bytes = ANSWER,
    ) -> Started:
        made = program(paths, limits, "x86_64")
        assert made is not None
        file = tmp_path / "program"
        file.write_bytes(made)
        file.chmod(0o755)
        return subprocess.run(
            [*WORDS, *command], executable=str(file), input=given, capture_output=True, check=False,
            cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "WORD": "x"},
        )  # fmt: skip

    if os.uname().machine != "x86_64":
        pytest.skip("this processor has the shell instead")
    return started


def test_it_becomes_the_command_with_all_that_it_was_given(start: Start) -> None:
    script = 'read -r line; echo "$line $1 $WORD"; exit 3'
    done = start("sh", "-c", script, "sh", "a b", given=ANSWER + b"input\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, READY + b"input a b x\n", b"")


@pytest.mark.parametrize("given", [b"", b"g", ANSWER[:-1]])
def test_without_an_answer_nothing_is_started(start: Start, given: bytes) -> None:
    done = start("sh", "-c", "echo started", given=given)
    assert (done.returncode, done.stdout) == (125, READY)


def test_when_nobody_listens_nothing_is_started(start: Start, tmp_path: Path) -> None:
    start("sh", "-c", "")
    read, write = os.pipe()
    os.close(read)
    words = [*WORDS, "sh", "-c", "touch made"]
    with subprocess.Popen(
        words, executable=str(tmp_path / "program"), stdin=subprocess.PIPE, stdout=write,
        cwd=tmp_path,
    ) as process:  # fmt: skip
        os.close(write)
        process.communicate(ANSWER)
    assert process.returncode == -signal.SIGPIPE
    assert not (tmp_path / "made").exists()


def test_the_limits_are_set(start: Start) -> None:
    done = start("sh", "-c", "ulimit -n; ulimit -H -n; ulimit -c", limits=(FILES, CORE))
    assert done.stdout == READY + b"50\n60\n0\n"


def test_a_limit_that_can_not_be_set_is_the_end(start: Start) -> None:
    wrong = (resource.RLIMIT_NOFILE, (60, 50))
    done = start("sh", "-c", "echo started", limits=(CORE, wrong))
    assert (done.returncode, done.stdout) == (125, READY)


def test_the_first_that_is_there_is_started(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    there = f"{tmp_path}/there"
    os.symlink("/bin/sh", there)
    paths = (f"{tmp_path}/none", "file/sh", "file", "folder", "there", "/bin/false")
    assert start("sh", "-c", "echo it", paths=paths).stdout == READY + b"it\n"


def test_a_script_without_a_first_line_is_not_passed_over(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "mine $1"\n')
    script.chmod(0o755)
    done = start("./script", "a", paths=("./script", "/bin/false"))
    assert (done.returncode, done.stdout) == (0, READY + b"mine a\n")


def test_what_can_not_be_started_is_told_as_a_shell_does(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = start("no-such", paths=("/bin/no-such",))
    assert done.returncode == 127 and b"no-such: not found" in done.stderr
    done = start("./file", paths=("./file",))
    assert done.returncode == 126 and b"denied" in done.stderr
    assert start("no-such", paths=()).returncode == 127


@pytest.mark.parametrize(
    ("word", "path", "paths"),
    [
        ("a", "/x:/y", ["/x/a", "/y/a"]),
        ("a", ":/y:", ["a", "/y/a", "a"]),
        ("./a", "/x", ["./a"]),
        ("/b/a", "", ["/b/a"]),
        ("a", "", []),
        ("", "/x", []),
    ],
)
def test_where_a_command_is_looked_for(word: str, path: str, paths: list[str]) -> None:
    assert paths_of(word, path) == paths


def test_other_processors_have_none() -> None:
    assert program(PATHS, (), "riscv64") is None


def test_a_word_that_is_no_text_is_passed_on() -> None:
    made = program([os.fsdecode(b"/x/\xff")], (), "x86_64")
    assert made is not None and b"/x/\xff\0\0" in made
