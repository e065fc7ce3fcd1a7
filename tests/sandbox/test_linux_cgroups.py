from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from skillbelt.sandbox.linux import cgroups
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.cgroups import ControlGroup, Hierarchy, hierarchy
from skillbelt.sandbox.protocol import run
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Limits
from tests.sandbox.ordinary import as_user

needs_groups = pytest.mark.skipif(
    hierarchy() is None, reason="needs control groups that can be written: sudo make test"
)


def groups() -> list[str]:
    """Those of this process."""
    found = hierarchy()
    assert found is not None
    return [name for parent in found.parents for name in os.listdir(parent)
            if name.startswith(f"skillbelt-{os.getpid()}-")]  # fmt: skip


@needs_groups
def test_a_group_bounds_who_joins_it_and_is_gone_afterwards() -> None:
    found = hierarchy()
    assert found is not None
    group = ControlGroup(found, Limits(max_processes=5, max_memory_bytes=50 * 2**20))
    script = "read x; for n in 1 2 3 4 5 6 7 8; do sleep 0.5 & done; wait"
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as shell:
        group.join(shell.pid)
        assert group.hits() == ()
        shell.communicate("go\n", timeout=500)
    assert group.hits() == ("max_processes",)
    assert groups() != []
    group.remove()
    assert groups() == []


@needs_groups
def test_a_group_that_is_halted_starts_nothing_and_is_ended() -> None:
    """A fork that is refused then was within the limit."""
    found = hierarchy()
    assert found is not None
    group = ControlGroup(found, Limits())
    script = "read x; sleep 60 & wait; :"
    with (
        subprocess.Popen(
            ["sh", "-c", script], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as shell,
        subprocess.Popen(["sleep", "60"]) as other,
    ):
        group.take_in([shell.pid, other.pid, 4194305])
        group.halt()
        shell.communicate(b"go\n", timeout=500)
        assert shell.returncode != 0
        assert group.hits() == ()
        group.end()
        assert other.wait(timeout=500) < 0
    group.remove()
    assert groups() == []


@needs_groups
def test_no_group_stays_behind(place: Place) -> None:
    """After any kind of end."""
    sandbox = LinuxSandbox()
    for job in (
        place.job("true"),
        place.job("no-such-program"),
        place.job("sleep", "9", timeout_seconds=0.2),
        place.python("import os; os.fork(); os.setsid()"),
    ):
        assert "cgroup" in run(sandbox, job).enforced["memory"]
    running = sandbox.start(place.job("sleep", "60"))
    until = time.monotonic() + 150
    while not groups() and time.monotonic() < until:
        time.sleep(0.01)
    assert groups() != []
    running.kill()
    running.wait()
    assert groups() == []


@needs_groups
def test_all_processes_of_a_run_are_in_its_group(place: Place) -> None:
    """Also those that were there before it."""
    script = "sleep 60 & sleep 60 & sh -c 'sleep 60; :' & wait"
    running = LinuxSandbox().start(place.shell(script))
    until = time.monotonic() + 150
    while len(members()) < 6 and time.monotonic() < until:
        time.sleep(0.01)
    assert len(members()) == 6  # the first of the namespace, the shell, its three, and one below
    running.kill()
    running.wait()


def members() -> set[int]:
    found = hierarchy()
    assert found is not None
    pids: set[int] = set()
    for name in set(groups()):
        with suppress(OSError):
            file = Path(found.parents[0], name, "cgroup.procs")
            pids |= {int(line) for line in file.read_text().split()}
    return pids


@needs_groups
def test_what_a_killed_runtime_left_is_swept() -> None:
    found = hierarchy()
    assert found is not None
    left = [os.path.join(parent, "skillbelt-4194305-0") for parent in found.parents]
    for folder in left:
        os.mkdir(folder)
    hierarchy.cache_clear()
    assert hierarchy() == found
    assert not any(os.path.exists(folder) for folder in left)


def test_who_may_not_make_groups_has_none() -> None:
    """Not root any more; who was not root before may have been given a group."""
    own = hierarchy() if os.getuid() else None
    found = as_user("json.dump(cgroups.hierarchy(), sys.stdout)")
    assert found == (None if own is None else [own.version, list(own.parents)])


def test_a_group_that_can_not_be_made_leaves_nothing(tmp_path: Path) -> None:
    """A plain folder has none of the kernel's files, but everything is taken back."""
    (tmp_path / "memory").mkdir()
    with pytest.raises(OSError):
        ControlGroup(Hierarchy(1, (str(tmp_path / "memory"), str(tmp_path / "none"))), Limits())
    assert os.listdir(tmp_path / "memory") == []


def test_the_second_version_is_used_where_it_hands_controllers_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own group cannot, since we are in it; the one around it may."""
    own = tmp_path / "user" / "session"
    own.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("memory pids")
    (own / "cgroup.subtree_control").write_text("")
    (own.parent / "cgroup.subtree_control").write_text("cpu memory pids")
    monkeypatch.setattr(cgroups, "MOUNT", str(tmp_path))
    monkeypatch.setattr(cgroups, "_own_groups", lambda: {"": "/user/session"})
    found = cgroups._second_version()
    assert found == Hierarchy(2, (str(own.parent),))
    assert found.label.startswith("cgroup v2")


def test_a_group_that_was_handed_over_is_told_to_hand_controllers_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It works as with Delegate and DelegateSubgroup of systemd."""
    own = tmp_path / "service" / "main"
    own.mkdir(parents=True)
    for folder in (tmp_path, own.parent):
        (folder / "cgroup.controllers").write_text("cpu memory pids")
        (folder / "cgroup.subtree_control").write_text("")
    monkeypatch.setattr(cgroups, "MOUNT", str(tmp_path))
    monkeypatch.setattr(cgroups, "_own_groups", lambda: {"": "/service/main"})
    assert cgroups._second_version() == Hierarchy(2, (str(own.parent),))
    assert (own.parent / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_the_group_of_everything_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "main"
    own.mkdir()
    (tmp_path / "cgroup.controllers").write_text("memory pids")
    (tmp_path / "cgroup.subtree_control").write_text("")
    monkeypatch.setattr(cgroups, "MOUNT", str(tmp_path))
    monkeypatch.setattr(cgroups, "_own_groups", lambda: {"": "/main"})
    assert cgroups._second_version() is None
    assert (tmp_path / "cgroup.subtree_control").read_text() == ""


def handed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A group that we are in, as `systemd-run --user --scope -p Delegate=yes` makes one."""
    own = folder / "run.scope"
    own.mkdir()
    for group in (folder, own):
        (group / "cgroup.controllers").write_text("memory pids")
        (group / "cgroup.subtree_control").write_text("")
        (group / "cgroup.procs").write_text("")
    monkeypatch.setattr(cgroups, "MOUNT", str(folder))
    monkeypatch.setattr(cgroups, "_own_groups", lambda: {"": "/run.scope"})
    # A group with processes cannot delegate controllers.
    real = cgroups._delegate_controllers

    def told(group: str) -> bool:
        return os.path.isdir(f"{group}/{cgroups._OWN}") and real(group)

    monkeypatch.setattr(cgroups, "_delegate_controllers", told)
    return own


@pytest.mark.parametrize("mark, used", [(b"1", True), (b"0", False)])
def test_a_group_that_was_given_to_us_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: bytes, used: bool
) -> None:
    """We make room in it first; a group that is only writable is not ours to use."""
    own = handed_over(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "getxattr", lambda *_: mark)
    assert cgroups._second_version() == (Hierarchy(2, (str(own),)) if used else None)
    assert (own / cgroups._OWN).is_dir() is used


def test_where_nobody_marks_groups_ours_begin_where_our_rights_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = handed_over(tmp_path, monkeypatch)

    def none(*_: object) -> bytes:
        raise OSError

    monkeypatch.setattr(os, "getxattr", none)
    monkeypatch.setattr(os, "access", lambda path, _: path != str(tmp_path))
    assert cgroups._second_version() == Hierarchy(2, (str(own),))
    monkeypatch.setattr(os, "access", lambda *_: True)
    assert not cgroups._is_delegated(str(own))


def test_room_that_does_not_help_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = handed_over(tmp_path, monkeypatch)
    monkeypatch.setattr(cgroups, "_delegate_controllers", lambda _: False)
    monkeypatch.setattr(os, "getxattr", lambda *_: b"1")
    assert cgroups._second_version() is None
    assert not (own / cgroups._OWN).exists()


UNIFIED = "/sys/fs/cgroup/unified" if os.path.isdir("/sys/fs/cgroup/unified") else "/sys/fs/cgroup"


@pytest.mark.skipif(
    not os.path.exists(f"{UNIFIED}/cgroup.controllers") or not os.access(UNIFIED, os.W_OK),
    reason="needs cgroup v2: boot with systemd.unified_cgroup_hierarchy=1",
)
def test_all_processes_of_a_group_move_into_another() -> None:
    source, target = (f"{UNIFIED}/skillbelt-test-{os.getpid()}{end}" for end in "ab")
    os.mkdir(source)
    os.mkdir(target)
    children = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    try:
        for child in children:
            Path(source, "cgroup.procs").write_text(str(child.pid))
        cgroups._move(source, target)
        assert Path(source, "cgroup.procs").read_text() == ""
        moved = set(Path(target, "cgroup.procs").read_text().split())
        assert moved == {str(child.pid) for child in children}
    finally:
        for child in children:
            child.kill()
            child.wait()
        for folder in (source, target):
            while not cgroups._try_remove(folder):
                time.sleep(0.001)


@needs_groups
def test_a_group_that_could_not_be_removed_is_removed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And so is one that a runtime left that was killed while this one runs."""
    found = hierarchy()
    assert found is not None
    monkeypatch.setattr(cgroups, "_REMOVE_SECONDS", 0.0)
    group = ControlGroup(found, Limits())
    with subprocess.Popen(["sleep", "60"]) as child:
        group.join(child.pid)
        group.remove()
        assert groups() != []
        child.kill()
    left = [os.path.join(parent, "skillbelt-4194305-1") for parent in found.parents]
    for folder in left:
        os.mkdir(folder)
    until = time.monotonic() + 150
    while groups() and time.monotonic() < until:
        monkeypatch.setattr(cgroups, "_next_sweep", 0.0)
        monkeypatch.setattr(cgroups, "_REMOVE_SECONDS", 2.0)
        made = cgroups.open_group(Limits())
        assert made is not None
        made.remove()
    assert groups() == []
    assert not any(os.path.exists(folder) for folder in left)
