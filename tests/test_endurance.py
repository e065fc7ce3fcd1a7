"""Nothing is left behind: neither by many runs, nor by those that are ended, nor by a dead runtime.

The same as `python -m benchmarks.run --endurance`, which does thousands.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.endurance import marked

from tests import needs

ROOT = Path(__file__).parents[1]
NAMES = {
    "alive after a kill of the runtime", "alive after a time-out", "alive after a cancel",
    "descriptors", "mounts", "cgroups", "temporary files", "shared files",
    "files outside the workspaces", "processes", "threads",
}  # fmt: skip
pytestmark = needs.linux


def endure(*arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--endurance", "--json", *arguments],
        cwd=ROOT, env={**os.environ, "PYTHONWARNINGS": "error"}, capture_output=True, timeout=500,
        check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr.decode()
    return {row["name"]: row["value"] for row in json.loads(done.stdout)}


@pytest.mark.parametrize(("runs", "tries"), [(4, 1), pytest.param(300, 15, marks=pytest.mark.long)])
def test_an_ordinary_user_leaves_nothing_behind(runs: int, tries: int) -> None:
    """Cases 63 and 64."""
    assert endure(f"--runs={runs}", f"--tries={tries}") == dict.fromkeys(NAMES, 0)


@needs.root
@pytest.mark.parametrize(("runs", "tries"), [(5, 1), pytest.param(150, 5, marks=pytest.mark.long)])
def test_root_leaves_nothing_behind(runs: int, tries: int) -> None:
    assert endure(f"--runs={runs}", f"--tries={tries}", "--root") == dict.fromkeys(NAMES, 0)


def test_a_process_is_known_by_its_words_and_by_its_environment() -> None:
    mark = f"mark-{os.urandom(8).hex()}"
    assert marked(mark) == []
    words = ["sh", "-c", f"read line; : {mark}"]
    with (
        subprocess.Popen(words, stdin=subprocess.PIPE) as by_words,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={"MARK": mark}) as by_environment,
    ):
        assert set(marked(mark)) == {by_words.pid, by_environment.pid}
