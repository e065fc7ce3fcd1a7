"""The kernel's counters for a container are found, in either layout of cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillbelt.sandbox.container import counters
from skillbelt.sandbox.container.counters import (
    CgroupCounts,
    ContainerCgroup,
    ContainerWatch,
    in_group,
    limits_enforced,
)
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Limits


def first_version(root: Path) -> None:
    """The layout that the engines of this machine have."""
    for controller, files in {
        "memory": {"memory.limit_in_bytes": "1000\n", "memory.oom_control": "oom_kill 2\n"},
        "pids": {"pids.max": "11\n", "pids.events": "max 3\n"},
        "cpuacct": {"cpuacct.usage": "1500000000\n"},
    }.items():
        folder = root / controller / "box"
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text)


def second_version(root: Path) -> None:
    folder = root / "box"
    folder.mkdir(parents=True)
    for name, text in {
        "memory.max": "1000\n",
        "memory.events": "low 0\nmax 9\noom 1\noom_kill 2\n",
        "pids.max": "11\n",
        "pids.events": "max 3\n",
        "cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
    }.items():
        (folder / name).write_text(text)


TABLES = {
    first_version: "3:memory:/box\n2:pids:/box\n1:cpu,cpuacct:/box\n0::/elsewhere\n",
    second_version: "0::/box\n",
}


@pytest.fixture(params=list(TABLES), ids=["v1", "v2"])
def group(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ContainerCgroup:
    """The control groups of a process, laid out in a folder."""
    request.param(tmp_path / "cgroup")
    table = tmp_path / "table"
    table.write_text(TABLES[request.param])
    monkeypatch.setattr(counters, "MOUNT", str(tmp_path / "cgroup"))
    monkeypatch.setattr(counters, "_UNIFIED", (str(tmp_path / "cgroup"),))
    monkeypatch.setattr(counters, "_TABLE", str(table))
    return ContainerCgroup(1)


def test_limits_and_counts_are_read(group: ContainerCgroup) -> None:
    assert (group.memory_bytes, group.processes) == (1000, 11)
    assert group.counts() == CgroupCounts(2, 3, 1.5)


def test_a_process_that_is_gone_counts_nothing() -> None:
    group = ContainerCgroup(2**30)
    assert (group.memory_bytes, group.processes, group.counts()) == (0, 0, CgroupCounts())


def test_only_what_the_kernel_shows_is_claimed(group: ContainerCgroup) -> None:
    held = limits_enforced(Limits(max_memory_bytes=1000, max_processes=10), group, 1, False)
    assert held["memory"].startswith("cgroup") and held["process count"].startswith("cgroup")
    more = limits_enforced(Limits(max_memory_bytes=999, max_processes=9), group, 1, False)
    assert more["memory"].startswith("watched")
    assert more["process count"].startswith("not enforced")


def test_where_nothing_is_counted_users_of_its_own_are_a_limit() -> None:
    own = limits_enforced(Limits(), ContainerCgroup(2**30), 1, True)
    assert own["process count"] == "rlimit in a user namespace"


def test_what_can_not_be_seen_is_not_claimed() -> None:
    """The processes of an engine in a machine of its own."""
    unseen = limits_enforced(Limits(), ContainerCgroup(0), 0, False)
    assert unseen["memory"].startswith("not enforced for all together")
    assert "watched" not in unseen["cpu"]


def test_a_process_is_known_by_the_name_of_its_group() -> None:
    """A number alone may be that of another, on another machine."""
    own = Path("/proc/self/cgroup").read_text().strip().splitlines()[0]
    assert in_group(os.getpid(), own)
    assert not in_group(os.getpid(), "0123456789abcdef")
    assert not in_group(2**30, own)


def test_what_was_counted_before_is_of_no_account(group: ContainerCgroup, place: Place) -> None:
    """A container is used again; so are its counters."""
    watch = ContainerWatch(place.job("true"), "/tmp", group, os.getpid())
    assert watch.look() is None
    assert watch.finish(0, 0.0) == set()


def test_the_end_of_the_counters_is_not_the_end_of_what_was_seen(
    group: ContainerCgroup, place: Place, tmp_path: Path
) -> None:
    """They go with the container."""
    import shutil

    watch = ContainerWatch(place.job("true"), "/tmp", group, os.getpid())
    for path in (tmp_path / "cgroup").rglob("memory.*"):
        path.write_text(path.read_text().replace("oom_kill 2", "oom_kill 3"))
    assert watch.look() == "max_memory_bytes"
    shutil.rmtree(tmp_path / "cgroup")
    assert watch.finish(137, 0.0) == {"max_memory_bytes"}


def test_signals_of_limits_are_told(group: ContainerCgroup, place: Place) -> None:
    watch = ContainerWatch(place.job("true"), "/tmp", group, os.getpid())
    assert watch.finish(128 + 25, 0.0) == {"max_written_file_bytes"}
    assert watch.finish(128 + 24, 0.0) == {"max_cpu_seconds"}
    assert watch.finish(0, 601.0) == {"max_cpu_seconds"}
