from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from skillbelt.files.remove import remove_tree
from tests.running.test_workspace import as_user, needs_root
from tests.tree import NOBODY, QUICK, Tree

# A hundred thousand of anything, on a machine that has much else to do.
slow = pytest.mark.timeout(900)


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


@slow
@pytest.mark.parametrize("levels", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_hundred_thousand_levels_are_no_obstacle(quick: Path, levels: int) -> None:
    nest(quick / "tree", levels)
    assert remove_tree(str(quick / "tree")) == ()
    assert os.listdir(quick) == []


@pytest.mark.long
@slow
def test_many_files_need_no_memory(quick: Path) -> None:
    tree = quick / "tree"
    tree.mkdir()
    here = os.open(tree, os.O_RDONLY)
    for number in range(40_000):
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
    code = "import sys; from skillbelt.files.remove import *; print(*remove_tree(sys.argv[1]))"
    script = f'{mount} || exit 77; "$0" -c "$1" tree && find . -name kept | wc -l'
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, sys.executable, code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip(f"needs the right to mount (sudo make test): {done.stderr}")
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
        """Act like a process that lives on: a folder, then a link of the same name."""
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
