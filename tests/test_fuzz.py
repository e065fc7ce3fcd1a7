from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

TARGET = Path(__file__).parent / "fuzz" / "parse_target.py"


@needs.atheris
@pytest.mark.parametrize("runs", [300, pytest.param(20_000, marks=pytest.mark.long)])
def test_no_input_that_coverage_leads_to_breaks_a_promise(tmp_path: Path, runs: int) -> None:
    work = tmp_path / "work"
    work.mkdir()
    command = [
        sys.executable,
        str(TARGET),
        f"-runs={runs}",
        "-seed=1",
        "-timeout=10",
        "-max_len=2048",
    ]
    command += [f"-artifact_prefix={tmp_path}/", str(work), str(TARGET.parent / "corpus")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {runs} runs" in done.stderr
