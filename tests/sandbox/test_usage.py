from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from skillbelt.sandbox.usage import free_memory, free_space, measure_processes

PLENTY = 2**60


def test_free_space_falls_as_files_are_written(tmp_path: Path) -> None:
    """Somebody else may give some back meanwhile, but not each time."""
    falls: list[int] = []
    while not falls or falls[-1] < 10 * 2**20:
        assert len(falls) < 20, falls
        before = free_space(str(tmp_path))
        (tmp_path / "big").write_bytes(os.urandom(30 * 2**20))
        os.sync()
        falls.append(before.bytes - free_space(str(tmp_path)).bytes)
        (tmp_path / "big").unlink()
    assert free_memory() > 0


def test_processes_are_summed_up() -> None:
    code = """
import os, time
kept = bytearray(b"x") * 40_000_000
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(30)]
while time.process_time() < 0.3:
    pass
print("ready", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = measure_processes([process.pid, 2**22 + 1], PLENTY)
        exact = measure_processes([process.pid], 0)
        process.kill()
    assert 40_000_000 < found.memory_bytes < 200_000_000
    assert 40_000_000 < exact.memory_bytes <= found.memory_bytes
    assert 0.2 < found.cpu_seconds < 60
    assert found.tasks == 1
    assert found.most_files in (0, *range(33, 50))  # 0 on a kernel that does not tell


def test_no_process_is_nothing() -> None:
    assert measure_processes([], 0) == (0, 0.0, 0, 0)
