"""The text that goes around sandlock, run as it is but without sandlock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from skillbelt.sandbox import landlock, launch, sandlock_launch, seccomp
from skillbelt.sandbox.limits import process_limits
from skillbelt.sandbox.protocol import Job
from skillbelt.values import Limits

TEXT = Path(sandlock_launch.__file__).read_text("utf-8")
LAUNCHER = Path(launch.__file__).read_text("utf-8")
HANG_SECONDS = 50


def task(folder: Path, *argv: str) -> dict[str, object]:
    env = {"PATH": "/usr/bin:/bin", "GIVEN": "é\n"}
    job = Job(argv, env, str(folder), (), str(folder))
    return {
        "argv": argv,
        "env": env,
        "cwd": str(folder),
        "parent": os.getpid(),
        "identity": None,
        "terminal": False,
        "rules": landlock.rules(job),
        "lock": None,
        "filter": seccomp.program(True, network=False).hex(),
        "limits": process_limits(Limits(max_open_files=77), 10_000),
    }


def inside(given: dict[str, object], answer: bytes) -> subprocess.CompletedProcess[bytes]:
    words = json.dumps([given, LAUNCHER])
    half = len(words) // 2
    env = {"SKILLBELT_00000000": words[:half], f"SKILLBELT_{half:08}": words[half:]}
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", TEXT],
        env=env,
        input=answer,
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def test_it_becomes_the_command_when_it_is_answered(tmp_path: Path) -> None:
    script = 'printf "%s" "$GIVEN"; pwd; ulimit -n; env | grep -c SKILLBELT; cat; exit 3'
    done = inside(task(tmp_path, "sh", "-c", script), b"go\nrest")
    assert done.returncode == 3, done.stderr
    assert done.stdout == b"1" + f"é\n{tmp_path}\n77\n0\nrest".encode()


def test_without_an_answer_nothing_is_run(tmp_path: Path) -> None:
    done = inside(task(tmp_path, "sh", "-c", "echo no"), b"")
    assert (done.returncode, done.stdout) == (125, b"1")


def test_a_missing_program_is_said(tmp_path: Path) -> None:
    done = inside(task(tmp_path, "no-such-program"), b"go\n")
    assert (done.returncode, done.stderr) == (127, b"no-such-program: not found\n")


@pytest.mark.parametrize("script", ["echo > ../beside", "cat ../secret", "unshare -U true"])
def test_the_command_is_held_back_by_our_own_rules(tmp_path: Path, script: str) -> None:
    """Whatever sandlock does."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "work").mkdir()
    done = inside(task(tmp_path / "work", "sh", "-c", script), b"go\n")
    assert done.returncode not in (0, 125)
    assert b"secret" not in done.stdout
    assert not (tmp_path / "beside").exists()


def test_what_can_not_be_granted_ends_it_before_it_is_ready(tmp_path: Path) -> None:
    given = task(tmp_path, "true") | {"cwd": str(tmp_path / "gone")}
    done = inside(given, b"go\n")
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"FileNotFoundError" in done.stderr


def test_without_sandlock_nothing_is_run(tmp_path: Path) -> None:
    policy = {"packages": str(tmp_path), "name": "x", "command": ["true"]}
    fd = os.memfd_create("task")
    os.write(fd, json.dumps(task(tmp_path, "sh", "-c", "echo no")).encode())
    os.lseek(fd, 0, os.SEEK_SET)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", TEXT, str(fd), LAUNCHER, json.dumps(policy)],
        pass_fds=(fd,),
        env={},
        input=b"go\n",
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    os.close(fd)
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"No module named 'sandlock'" in done.stderr


@pytest.mark.parametrize(
    ("code", "reason", "number", "expected"),
    [(0, 0, -1, 0), (7, 0, -1, 7), (-1, 1, 11, 139), (-1, 2, -1, 137), (-1, None, -1, -1)],
)
def test_a_command_that_was_killed_is_told_by_its_code(
    code: int, reason: int | None, number: int, expected: int
) -> None:
    """The last is a supervisor that knows nothing, which is a failure of its own."""
    result = SimpleNamespace(exit_code=code, reason=reason, signal=number)
    assert sandlock_launch.exit_code(result) == expected
