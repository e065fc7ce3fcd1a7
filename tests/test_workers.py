"""The processes that the tests run in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = """
import pytest
from tests.workers import take_over

@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    take_over(config)

def pytest_unconfigure(config):
    if hasattr(config, "workerinput"):
        raise OSError("at the end of a worker")
"""
TESTS = """
import os
import pytest

@pytest.fixture(scope="module", autouse=True)
def module():
    print("module begins")
    yield
    print("module ends")

def test_passes(tmp_path):
    (tmp_path / "a").touch()

def test_fails():
    os.system("echo from a process")
    assert 1 == 2

def test_ends_its_worker():
    os._exit(3)

def test_comes_after_it():
    pass

@pytest.mark.parametrize("number", range(20))
def test_many(number):
    pass

@pytest.fixture
def broken():
    yield
    raise OSError("at its end")

def test_is_torn_down(broken):
    pass
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest says of two modules in two workers."""
    folder = tmp_path_factory.mktemp("tests")
    (folder / "conftest.py").write_text(CONFTEST)
    for name in ("test_a.py", "test_b.py"):
        (folder / name).write_text(TESTS)
    words = ["-n2", "--dist=loadscope", "-q", "-rA", "-p", "no:cacheprovider"]
    words += ["-p", "no:langsmith_plugin", "-p", "no:hypothesispytest", f"--rootdir={folder}"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *words,
        ],
        cwd=folder,
        # pytest closes the folder of all temporary folders to other users, and sandboxes have one.
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
            "PYTEST_DEBUG_TEMPROOT": str(tmp_path_factory.mktemp("root")),
        },
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_every_test_is_run_once(told: str) -> None:
    assert "4 failed, 46 passed, 2 errors" in told
    for name in ("test_a.py", "test_b.py"):
        assert told.count(f"PASSED {name}::") == 23
        assert told.count(f"PASSED {name}::test_many[7]\n") == 1


def test_a_failure_is_told_with_what_was_printed(told: str) -> None:
    assert told.count("\nE       assert 1 == 2\n") == 2
    assert told.count("from a process\n") == 2
    assert told.count(" - OSError: at its end") == 2


def test_a_worker_that_ends_fails_its_test_and_what_follows_is_run(told: str) -> None:
    for name in ("test_a.py", "test_b.py"):
        assert f"FAILED {name}::test_ends_its_worker - the worker ended with 3" in told
        assert f"PASSED {name}::test_comes_after_it\n" in told


def test_a_fixture_of_a_module_ends_with_it(told: str) -> None:
    assert told.count("module begins") == 4  # again in the worker that took over
    assert told.count("module ends") == 2


def test_a_worker_that_does_not_end_well_hides_no_summary(told: str) -> None:
    assert told.count("OSError: at the end of a worker") == 2
    assert "4 failed, 46 passed, 2 errors" in told
