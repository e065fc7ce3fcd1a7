"""The limits of a worker that are looked at from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.sandbox.wasm.run import WasmWatch
from skillbelt.values import Limits


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    work, temporary = tmp_path / "work", tmp_path / "tmp"
    work.mkdir()
    temporary.mkdir()
    return work, temporary


def watch(folders: tuple[Path, Path], **limits: int) -> WasmWatch:
    return WasmWatch(Limits()._replace(**limits), str(folders[0]), str(folders[1]))


@pytest.fixture
def process() -> Iterator[int]:
    """A process to watch, which can be put into a cgroup."""
    code = "data = bytearray(64 * 2**20); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started.pid
        started.kill()


def test_nothing_is_told_when_all_is_well(folders: tuple[Path, Path], process: int) -> None:
    found = watch(folders)
    assert found.look(process) is None
    os.kill(process, signal.SIGKILL)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    assert found.finish(0, 0.1) == ()


@pytest.mark.parametrize(
    ("place", "limit"), [(0, "max_workspace_bytes"), (1, "max_temporary_bytes")]
)
def test_each_folder_has_its_own_bound(folders: tuple[Path, Path], place: int, limit: str) -> None:
    found = watch(folders, **{limit: 2**20})
    (folders[place] / "large").write_bytes(os.urandom(4 * 2**20))
    assert limit in found.finish(0, 0.1)


def test_the_process_itself_is_looked_at(folders: tuple[Path, Path], process: int) -> None:
    """It has none below it."""
    found = watch(folders, max_memory_bytes=32 * 2**20)
    limit, until = None, time.monotonic() + 150
    while limit is None and time.monotonic() < until:
        limit = found.look(process)
    assert limit == "max_memory_bytes"
    os.kill(process, signal.SIGKILL)
    found.finish(137, 0.1)


def test_processor_time_is_told(folders: tuple[Path, Path]) -> None:
    assert watch(folders, max_cpu_seconds=1).finish(0, 1.5) == ("max_cpu_seconds",)
    assert watch(folders).finish(152, 0.0) == ("max_cpu_seconds",)
