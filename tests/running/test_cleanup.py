from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

from skillbelt.running.cleanup import clean_workspaces
from skillbelt.running.workspace import Workspace, open_workspace
from skillbelt.store import SessionKey
from tests.files.test_remove import nest
from tests.files.test_remove import quick as quick

DAY = 24 * 3600.0


def opened(folder: Path, session: str, *, used: float | None = None, size: int = 0) -> Workspace:
    """A workspace that was used at that time and has a file of that size."""
    workspace = open_workspace(str(folder), SessionKey("desk", "ada", session))
    Path(workspace.path, "work", "data").write_bytes(b"x" * size)
    if used is not None:
        os.utime(os.path.join(workspace.path, "metadata.json"), (used, used))
    return workspace


def names(folder: Path) -> set[str]:
    return {name for name in os.listdir(folder) if not name.startswith(".")}


def test_idle_workspaces_go_and_others_stay(tmp_path: Path) -> None:
    old, new = (opened(tmp_path, str(used), used=used) for used in (1000.0, 1000.0 + 2 * DAY))
    for workspace in (old, new):
        workspace.close()
    done = clean_workspaces(
        str(tmp_path), idle_seconds=DAY, max_bytes=2**30, now=1000.0 + 2 * DAY + 1
    )
    assert [(each.name, each.reason, each.left) for each in done] == [(old.name, "idle", ())]
    assert names(tmp_path) == {new.name}


def test_the_least_recently_used_go_until_the_rest_fits(tmp_path: Path) -> None:
    made = [opened(tmp_path, str(used), used=used, size=2**20) for used in (1.0, 3.0, 2.0)]
    for workspace in made:
        workspace.close()
    done = clean_workspaces(str(tmp_path), idle_seconds=DAY, max_bytes=3 * 2**19, now=4.0)
    assert [(each.name, each.reason) for each in done] == [
        (made[0].name, "size"),
        (made[2].name, "size"),
    ]
    assert all(each.size_bytes >= 2**20 for each in done)


def test_opening_a_workspace_is_using_it(tmp_path: Path) -> None:
    opened(tmp_path, "a", used=1.0).close()
    opened(tmp_path, "a").close()
    now = os.lstat(tmp_path).st_mtime + 10
    assert clean_workspaces(str(tmp_path), idle_seconds=DAY, max_bytes=2**30, now=now) == []


def test_a_workspace_in_use_stays(tmp_path: Path) -> None:
    with opened(tmp_path, "a", used=1.0, size=2**20) as workspace:
        assert clean_workspaces(str(tmp_path), idle_seconds=1, max_bytes=0, now=DAY) == []
        assert Path(workspace.path, "work", "data").stat().st_size == 2**20
    (done,) = clean_workspaces(str(tmp_path), idle_seconds=1, max_bytes=0, now=2e9 * DAY)
    assert done.name == workspace.name


def test_nothing_is_left_of_what_was_cleaned(tmp_path: Path) -> None:
    opened(tmp_path, "a", used=1.0).close()
    clean_workspaces(str(tmp_path), idle_seconds=1, max_bytes=0, now=DAY)
    left = [path for path in tmp_path.rglob("*") if not path.is_dir()]
    assert left == []
    assert names(tmp_path) == set()


def test_what_a_killed_clean_up_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".removed" / "half" / "work").mkdir(parents=True)
    assert clean_workspaces(str(tmp_path), idle_seconds=1, max_bytes=0, now=DAY) == []
    assert os.listdir(tmp_path / ".removed") == []


def test_without_workspaces_there_is_nothing_to_clean(tmp_path: Path) -> None:
    where = str(tmp_path / "none")
    assert clean_workspaces(where, idle_seconds=1, max_bytes=0, now=DAY) == []


def test_a_session_goes_on_in_a_new_workspace_after_clean_up(tmp_path: Path) -> None:
    opened(tmp_path, "a", used=1.0, size=10).close()
    clean_workspaces(str(tmp_path), idle_seconds=1, max_bytes=0, now=DAY)
    with open_workspace(str(tmp_path), SessionKey("desk", "ada", "a")) as workspace:
        assert os.listdir(os.path.join(workspace.path, "work")) == ["inputs"]


def test_cleaning_and_opening_at_once_never_takes_a_workspace_away(tmp_path: Path) -> None:
    stop = threading.Event()

    def clean() -> None:
        while not stop.is_set():
            clean_workspaces(str(tmp_path), idle_seconds=-1, max_bytes=0, now=2e9 * DAY)

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    try:
        for number in range(300):
            with opened(tmp_path, str(number % 3), size=1) as workspace:
                assert stat.S_ISREG(os.lstat(os.path.join(workspace.path, "work/data")).st_mode)
                assert os.path.samestat(os.fstat(workspace.handle), os.lstat(workspace.path))
    finally:
        stop.set()
        cleaner.join()


def test_what_is_nested_without_end_costs_nobody_else_a_workspace(quick: Path) -> None:
    """It counts as what it takes, so those that were used before it stay."""
    for used, session in enumerate(("before", "digger")):
        with opened(quick, session, used=used) as workspace:
            if session == "digger":
                nest(Path(workspace.path, "work", "deep"), 200)
    assert clean_workspaces(str(quick), idle_seconds=DAY, max_bytes=2**22, now=2.0) == []
    assert len(names(quick)) == 2
