from __future__ import annotations

import fcntl
import os
import socket
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from skillbelt.cleanup import clean_workspaces, held, hold, release, remove_tree
from skillbelt.store import SessionKey
from skillbelt.workspace import Workspace, open_workspace
from tests.test_workspace import as_user, needs_root
from tests.tree import NOBODY, QUICK, Tree

DAY = 24 * 3600.0


@pytest.fixture
def quick() -> Iterator[Path]:
    """A folder where many files are made quickly; any user can reach it."""
    folder = Path(mkdtemp(prefix="skillbelt-", dir=QUICK))
    folder.chmod(0o777)
    yield folder
    assert remove_tree(str(folder)) == ()


def nest(folder: Path, depth: int) -> None:
    """Folders in folders, deeper than any path could say."""
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


# One tree


def test_a_tree_is_gone_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "b" / "file").write_text("x")
    (tmp_path / "beside").write_text("y")
    assert remove_tree(str(tmp_path / "tree")) == ()
    assert os.listdir(tmp_path) == ["beside"]


def test_what_is_not_there_needs_no_removing(tmp_path: Path) -> None:
    assert remove_tree(str(tmp_path / "none")) == ()


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    os.symlink(outside, tree / "link")
    os.symlink(outside, tree / "deep" / "link")
    os.symlink(outside / "kept", tree / "deep" / "file")
    assert remove_tree(str(tree)) == ()
    assert (outside / "kept").read_text() == "x"


def test_a_link_is_removed_itself(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    os.symlink(outside, tmp_path / "link")
    assert remove_tree(str(tmp_path / "link")) == ()
    assert os.listdir(tmp_path) == ["outside"]


def test_a_hundred_thousand_levels_are_no_obstacle(quick: Path) -> None:
    nest(quick / "tree", 100_000)
    assert remove_tree(str(quick / "tree")) == ()
    assert os.listdir(quick) == []


def test_many_files_need_no_memory(quick: Path) -> None:
    tree = quick / "tree"
    tree.mkdir()
    here = os.open(tree, os.O_RDONLY)
    for number in range(100_000):
        os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    tracemalloc.start()
    assert remove_tree(str(tree)) == ()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not tree.exists()
    assert peak < 2**20


def test_many_folders_in_one_are_removed(quick: Path) -> None:
    for number in range(3000):
        (quick / "tree" / "wide" / str(number) / "deep").mkdir(parents=True)
    assert remove_tree(str(quick / "tree")) == ()
    assert os.listdir(quick) == []


def test_odd_names_and_kinds_are_removed(tmp_path: Path) -> None:
    tree = os.fsencode(tmp_path / "tree")
    os.makedirs(tree + b"/new\nline/\xff\xfe")
    for name in (b"-rf", b"a\nb", b"\xff", b"*", b".hidden", b"x" * 255):
        with open(tree + b"/" + name, "w"):
            pass
    os.mkfifo(tree + b"/pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fsdecode(tree) + "/s")
    assert remove_tree(os.fsdecode(tree)) == ()
    assert os.listdir(tmp_path) == []


def test_modes_are_no_obstacle(open_tree: Tree) -> None:
    os.chmod(open_tree.root, 0o777)
    code = """
top = sys.argv[1] + "/tree"
for mode in (0, 0o111, 0o222, 0o444, 0o555):
    os.makedirs(f"{top}/{mode}/deep/deeper")
    for path in (f"{top}/{mode}/file", f"{top}/{mode}/deep/file", f"{top}/{mode}/deep/deeper/file"):
        open(path, "w").close()
        os.chmod(path, 0)
    for path in (f"{top}/{mode}/deep/deeper", f"{top}/{mode}/deep", f"{top}/{mode}"):
        os.chmod(path, mode)
os.chmod(top, 0)
print(remove_tree(top), os.path.lexists(top))
"""
    assert as_user(code, open_tree.root) == "() False\n"


@needs_root
def test_root_removes_what_others_own(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "file").write_text("x")
    for path in (tmp_path / "tree" / "a" / "file", tmp_path / "tree" / "a"):
        os.chown(path, NOBODY, NOBODY)
        os.chmod(path, 0)
    assert remove_tree(str(tmp_path / "tree")) == ()
    assert os.listdir(tmp_path) == []


@needs_root
def test_what_can_not_be_removed_is_named_and_the_rest_is_gone(open_tree: Tree) -> None:
    tree = open_tree.path("tree")
    (tree / "mine").mkdir(parents=True)
    (tree / "theirs").mkdir()
    for folder in ("mine", "theirs"):
        (tree / folder / "file").write_text("x")
    for path in (open_tree.root, tree, tree / "mine"):
        os.chown(path, NOBODY, NOBODY)
    left = as_user("print(*remove_tree(sys.argv[1]), sep=chr(10))", tree)
    assert left == "file: Permission denied\n"
    (stays,) = tree.iterdir()
    assert (stays / "file").read_text() == "x"


def test_a_tree_that_takes_too_long_says_so_and_stays(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (left,) = remove_tree(str(tmp_path / "tree"), seconds=-1)
    assert "took too long" in left
    assert (tmp_path / "tree" / "a").is_dir()


@pytest.mark.parametrize("kind", ["memory", "bind"])
@pytest.mark.parametrize("place", ["tree", "tree/here", "tree/deep/er/here"])
def test_another_file_system_is_not_entered(tmp_path: Path, kind: str, place: str) -> None:
    (tmp_path / "tree" / "deep" / "er" / "here").mkdir(parents=True)
    (tmp_path / "tree" / "here").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").write_text("x")
    mount = {
        "memory": f"mount -t tmpfs none {place} && cp other/kept {place}/",
        "bind": f"mount --bind other {place}",
    }[kind]
    code = "import sys; from skillbelt.cleanup import *; print(*remove_tree(sys.argv[1]))"
    script = f'{mount} || exit 77; "$0" -c "$1" tree && find . -name kept | wc -l'
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, sys.executable, code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip(f"no mount here: {done.stderr}")
    said, kept = done.stdout.splitlines()
    assert "busy" in said.lower() or "cross-device" in said.lower()
    assert kept == "2"  # the one outside, and the same or another through the mount
    assert (tmp_path / "other" / "kept").read_text() == "x"


def test_folders_swapped_for_links_lead_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "kept").write_text("x")
    (outside / "sub" / "kept").write_text("x")
    stop = threading.Event()

    def swap(top: Path) -> None:
        """What a process that lives on would do: a folder, then a link of the same name."""
        while not stop.is_set():
            for name in ("a", "a/b"):
                path = top / name
                try:
                    path.mkdir(parents=True, exist_ok=True)
                    (path / "file").touch()
                    os.rename(path, top / "away")
                    os.symlink(outside, path)
                    os.unlink(path)
                    os.rename(top / "away", path)
                except OSError:
                    pass

    tree = tmp_path / "tree"
    tree.mkdir()
    thread = threading.Thread(target=swap, args=(tree,))
    thread.start()
    try:
        for _ in range(300):
            remove_tree(str(tree), seconds=1)
    finally:
        stop.set()
        thread.join()
    assert sorted(os.listdir(outside)) == ["kept", "sub"]
    assert (outside / "sub" / "kept").read_text() == "x"


# Locks


def test_the_lock_of_a_removed_file_holds_nobody(tmp_path: Path) -> None:
    """Who waited while the file was removed goes on to wait for the new one."""
    path = str(tmp_path / "lock")
    first = hold(path, fcntl.LOCK_EX)
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(hold(path, fcntl.LOCK_EX)))
    waiting.start()
    time.sleep(0.1)  # it waits by now; if not, the test only shows less
    os.unlink(path)
    release(first)
    waiting.join()
    with pytest.raises(BlockingIOError):
        hold(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    release(got[0])
    release(hold(path, fcntl.LOCK_EX | fcntl.LOCK_NB))


def test_who_waits_for_a_lock_goes_on_when_it_is_free_or_gives_up(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first = hold(path, fcntl.LOCK_EX)
    with pytest.raises(KeyError, match="late"), held(path, 0.1, KeyError("late")):
        pass
    threading.Timer(0.1, release, (first,)).start()
    with held(path, 50, KeyError("late")), pytest.raises(BlockingIOError):
        hold(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    release(hold(path, fcntl.LOCK_EX | fcntl.LOCK_NB))


# Workspaces


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
