"""The launcher needs nothing of the product, and no program comes before its answer."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from typing import Literal

import pytest

from skillbelt.sandbox.inside.source import source_of
from tests import needs

TEXT = source_of("launch")


def started(python: str = sys.executable, **fields: object) -> subprocess.Popen[bytes]:
    task = {
        "argv": ["/bin/echo", "ran"], "env": {"PATH": "/usr/bin"}, "cwd": "/", "identity": None,
        "parent": os.getpid(), "terminal": False, "rules": None, "filter": "", "lock": None,
        "limits": [], **fields,
    }  # fmt: skip
    fd = os.memfd_create("task")
    os.write(fd, json.dumps(task).encode())
    os.lseek(fd, 0, os.SEEK_SET)
    try:
        return subprocess.Popen(
            [python, "-I", "-S", "-c", TEXT, str(fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(fd,),
        )
    finally:
        os.close(fd)


@pytest.mark.parametrize("python", [sys.executable, "/usr/bin/python3"])
def test_it_waits_for_its_answer(python: str) -> None:
    with started(python) as process:
        assert process.communicate(b"go\n", timeout=500) == (b"1ran\n", b"")
        assert process.returncode == 0


def test_nothing_runs_when_nobody_answers() -> None:
    with started() as process:
        assert process.communicate(b"", timeout=500) == (b"1", b"")
        assert process.returncode == 125


def test_nothing_runs_for_another_parent() -> None:
    """Our parent was gone before the launcher could ask for a death signal."""
    with started(parent=1) as process:
        assert process.communicate(b"go\n", timeout=500) == (b"", b"")
        assert process.returncode == 125


@pytest.mark.parametrize(
    ("program", "code"), [("no-such-program", 127), ("/etc/passwd", 126), ("/etc/passwd/x", 127)]
)
def test_a_program_that_can_not_be_run(program: str, code: int) -> None:
    with started(argv=[program]) as process:
        said, errors = process.communicate(b"go\n", timeout=500)
        assert (process.returncode, said) == (code, b"1")
        assert errors.startswith(program.encode())


def test_a_rule_that_the_kernel_refuses_is_told_before_the_answer() -> None:
    rules = {"handled": (2**40, 0, 0), "size": 8, "paths": []}
    with started(rules=rules) as process:
        said, errors = process.communicate(b"go\n", timeout=500)
        assert (process.returncode, said) == (125, b"")
        assert b"Invalid argument" in errors


def test_it_ends_what_is_below_it_when_asked() -> None:
    with started(argv=["/bin/sleep", "1000"]) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.read(1) == b"1"
        process.terminate()
        assert process.wait(timeout=500) == 137


@pytest.mark.parametrize("program", ["launch", "portable_launch", "bridge", "container"])
def test_no_program_needs_the_product(program: Literal["launch", "portable_launch"]) -> None:
    """Its text runs where the package cannot be read."""
    tree = ast.parse(source_of(program))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {getattr(node, "module", None) or node.names[0].name for node in imported}
    assert "os" in names and not any(name.startswith("skillbelt") for name in names)


@pytest.mark.long
@needs.root
def test_tasks_of_the_same_user_in_other_containers_are_found() -> None:
    """The kernel counts them for the limit of processes, and they do not show."""
    uid = 58_000 + os.getpid() % 1_000
    others = [subprocess.Popen(["sleep", "60"], user=uid) for _ in range(40)]
    try:
        code = (
            "import os; from skillbelt.sandbox.inside.launch import find_unseen_tasks as find\n"
            f"os.setuid({uid}); print(find(0), find(41))"
        )
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        for one in others:
            one.kill()
            one.wait()
    with_none, with_all = map(int, done.stdout.split())
    assert 41 <= with_none <= 41 + 2 * 16
    assert with_all == 0
