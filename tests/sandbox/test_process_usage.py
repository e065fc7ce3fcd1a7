from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skillbelt.sandbox.process.usage import (
    free_memory,
    free_space,
    machine_memory,
    measure_processes,
)

PLENTY = 2**60


def test_free_space_falls_as_files_are_written(tmp_path: Path) -> None:
    """Other processes may free space meanwhile, but not each time."""
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


def started(code: str) -> subprocess.Popen[bytes]:
    """A process that has done what the code says, and waits."""
    end = "\nprint('ready', flush=True)\ntime.sleep(60)\n"
    text = "import ctypes, mmap, os, threading, time\n" + code.replace("READY", end)
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def test_memory_of_a_process_whose_first_thread_has_ended() -> None:
    code = """
def hold():
    time.sleep(0.1)
    kept = bytearray(b"x") * 40_000_000
    print("ready", flush=True)
    time.sleep(60)
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall(ctypes.c_long(60 if os.uname().machine == "x86_64" else 93), 0)
"""
    with started(code) as process:
        rough = measure_processes([process.pid], PLENTY)
        exact = measure_processes([process.pid], 0)
        process.kill()
    assert rough.memory_bytes > 40_000_000
    assert exact.memory_bytes > 40_000_000


def test_the_tables_of_a_process_count() -> None:
    """A page for each two MiB that were looked at, though nothing is there."""
    code = """
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
room = mmap.mmap(-1, 2**35, flags=flags, prot=mmap.PROT_READ)
for at in range(0, 2**35, 2**21):
    room[at]
READY"""
    with started(code) as process:
        rough = measure_processes([process.pid], PLENTY)
        exact = measure_processes([process.pid], 0)
        process.kill()
    assert rough.memory_bytes > 2**26
    assert exact.memory_bytes > 2**26


def test_what_is_held_beside_counts_once() -> None:
    """The shared memory of a process counts as its own too."""
    code = "room = mmap.mmap(-1, 2**25)\nroom.write(b'x' * 2**25)\nREADY"
    with started(code) as process:
        alone = measure_processes([process.pid], 0).memory_bytes
        same = measure_processes([process.pid], 0, shared_bytes=2**25).memory_bytes
        more = measure_processes([process.pid], 0, 2**26, 2**20).memory_bytes
        process.kill()
    assert same == pytest.approx(alone, rel=0.05)
    assert more == pytest.approx(alone + 2**25 + 2**20, rel=0.05)


def test_the_machine_says_what_it_could_give() -> None:
    found = machine_memory()
    assert found.available_bytes > 0
    assert found.shared_bytes >= 0
