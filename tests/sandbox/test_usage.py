from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from skillbelt.sandbox.usage import (
    free_memory,
    free_space,
    measure_folder,
    measure_processes,
)

PLENTY = 2**60


def test_a_folder_is_summed_up_by_what_lies_on_disk(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100_000))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(os.urandom(50_000))
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(10**9)
    found = measure_folder(str(tmp_path), PLENTY, PLENTY)
    assert found.files == 4
    assert 150_000 <= found.bytes < 10**6
    assert found.largest == 10**9
    assert not found.hidden


def test_links_are_neither_followed_nor_counted_twice(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "big").write_bytes(bytes(10**6))
    (inside / "away").symlink_to(outside)
    (inside / "one").write_bytes(bytes(200_000))
    os.link(inside / "one", inside / "two")
    found = measure_folder(str(inside), PLENTY, PLENTY)
    assert found.bytes < 300_000
    assert found.files == 2


def test_it_stops_at_the_bound(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).write_bytes(bytes(10_000))
    assert measure_folder(str(tmp_path), PLENTY, 10).files == 11
    assert measure_folder(str(tmp_path), 50_000, PLENTY).files < 10


def test_what_lies_too_deep_is_said_to_be_hidden(tmp_path: Path) -> None:
    """And no handle stays open."""
    before = len(os.listdir("/proc/self/fd"))
    home = os.getcwd()
    os.chdir(tmp_path)
    try:
        for _ in range(300):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(home)
    found = measure_folder(str(tmp_path), PLENTY, PLENTY)
    assert found.hidden
    assert 50 < found.files < 300
    assert len(os.listdir("/proc/self/fd")) == before
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_a_folder_that_is_gone_is_hidden(tmp_path: Path) -> None:
    assert measure_folder(str(tmp_path / "none"), PLENTY, PLENTY) == (0, 0, 0, True)


def test_free_space_falls_as_files_are_written(tmp_path: Path) -> None:
    before = free_space(str(tmp_path))
    (tmp_path / "big").write_bytes(os.urandom(30 * 2**20))
    os.sync()
    assert before.bytes - free_space(str(tmp_path)).bytes > 10 * 2**20
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
