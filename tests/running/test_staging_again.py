"""Staging a skill that is there already, and by many at once."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from skillbelt import build_manifest
from skillbelt.errors import RunRefused
from skillbelt.files import tree_copy
from skillbelt.running.staging import Staged
from skillbelt.running.workspace import Workspace, open_workspace
from skillbelt.store import SessionKey
from tests import warm
from tests.running.test_staging import SECRET, make_skill, staged, texts
from tests.running.test_workspace import KEY, PRELUDE, RUNNER, as_user, mode, needs_root
from tests.tree import Tree, settle


@pytest.fixture
def source(tree: Tree) -> Path:
    return make_skill(tree)


@pytest.fixture
def workspace(tree: Tree) -> Workspace:
    return open_workspace(str(tree.path("state")), KEY)


def test_a_second_call_uses_the_same_copy(workspace: Workspace, source: Path) -> None:
    first = staged(workspace, source)
    assert not first.reused
    inode = os.stat(first.path).st_ino
    for _ in range(3):
        settle()
        again = staged(workspace, source)
        assert (again.reused, os.stat(again.path).st_ino) == (True, inode)


def test_another_process_uses_the_same_copy(open_tree: Tree) -> None:
    open_tree.skill("pdf")
    os.chmod(open_tree.root, 0o777)
    code = """
with open_workspace(sys.argv[1] + "/state", KEY) as workspace:
    print(stage(workspace, Skill.from_folder(sys.argv[1] + "/pdf")).reused)
"""
    assert [as_user(code, open_tree.root) for _ in range(2)] == ["False\n", "True\n"]


def change_text(source: Path) -> None:
    (source / "SKILL.md").write_text("---\nname: pdf\ndescription: Other.\n---\n")


def change_same_size_and_time(source: Path) -> None:
    path = source / "reference" / "deep" / "more.md"
    info = path.stat()
    path.write_text("MORE\n")
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def add_file(source: Path) -> None:
    (source / "new.md").write_text("new")


def remove_file(source: Path) -> None:
    (source / "reference" / "deep" / "more.md").unlink()


def change_mode(source: Path) -> None:
    (source / "scripts" / "run.sh").chmod(0o644)


def add_link(source: Path) -> None:
    os.symlink("SKILL.md", source / "link.md")


@pytest.mark.parametrize(
    "change",
    [change_text, change_same_size_and_time, add_file, remove_file, change_mode, add_link],
)
def test_a_changed_skill_is_staged_again(
    workspace: Workspace, source: Path, change: Callable[[Path], None]
) -> None:
    settle()
    staged(workspace, source)
    change(source)
    done = staged(workspace, source)
    assert not done.reused
    assert texts(done.path) == texts(source)
    settle()
    assert staged(workspace, source).reused


def test_a_change_right_after_staging_is_seen(workspace: Workspace, source: Path) -> None:
    for number in range(10):
        (source / "SKILL.md").write_text(f"{number}")
        root = staged(workspace, source).path
        assert Path(root, "SKILL.md").read_text() == f"{number}"


def tamper_text(root: Path) -> None:
    path = root / "SKILL.md"
    info = path.stat()
    text = path.read_text()
    path.chmod(0o644)
    path.write_text(text.upper())
    path.chmod(0o444)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def tamper_link(root: Path) -> None:
    root.chmod(0o755)
    (root / "out").unlink()
    os.symlink("/etc", root / "out")
    root.chmod(0o555)


def tamper_links_vanish(root: Path) -> None:
    root.chmod(0o755)
    for name in ("out", "work", "inputs"):
        (root / name).unlink()
    root.chmod(0o555)


def tamper_new_file(root: Path) -> None:
    (root / "scripts").chmod(0o755)
    (root / "scripts" / "__pycache__").mkdir()
    (root / "scripts" / "__pycache__" / "evil.pyc").touch()
    (root / "scripts").chmod(0o555)


def tamper_mode(root: Path) -> None:
    root.chmod(0o755)


def tamper_venv(root: Path) -> None:
    root.chmod(0o755)
    (root / ".venv").rmdir()
    os.symlink("/tmp", root / ".venv")
    root.chmod(0o555)


def tamper_whole(root: Path) -> None:
    os.rename(root, root.parent / "away")
    os.symlink("/etc", root)


def tamper_moved(root: Path) -> None:
    """To where a run may write, with a link in its place."""
    root.chmod(0o755)
    away = root.parents[1] / "work" / "pdf"
    os.rename(root, away)
    away.chmod(0o555)
    os.symlink("../work/pdf", root)


def tamper_gone(root: Path) -> None:
    os.rename(root, root.parent / "away")


@pytest.mark.parametrize(
    "tamper",
    [
        tamper_text,
        tamper_link,
        tamper_links_vanish,
        tamper_new_file,
        tamper_mode,
        tamper_venv,
        tamper_whole,
        tamper_moved,
        tamper_gone,
    ],
)
def test_a_copy_that_was_tampered_with_is_replaced(
    workspace: Workspace, source: Path, tamper: Callable[[Path], None]
) -> None:
    settle()
    root = Path(staged(workspace, source).path)
    tamper(root)
    done = staged(workspace, source)
    assert not done.reused
    assert build_manifest(done.path).files == build_manifest(str(source)).files
    assert not root.is_symlink()
    assert os.readlink(root / "out") == "../../out"
    assert stat.S_ISDIR(os.lstat(root / ".venv").st_mode)
    assert mode(root) == 0o555


def test_what_is_in_the_venv_changes_nothing(workspace: Workspace, source: Path) -> None:
    settle()
    root = Path(staged(workspace, source).path)
    (root / ".venv" / "bin").mkdir()
    (root / ".venv" / "bin" / "tool").write_text("x")
    assert staged(workspace, source).reused
    assert (root / ".venv" / "bin" / "tool").exists()


def test_a_changed_skill_gets_a_fresh_venv(workspace: Workspace, source: Path) -> None:
    root = Path(staged(workspace, source).path)
    (root / ".venv" / "planted").write_text("x")
    change_text(source)
    assert os.listdir(os.path.join(staged(workspace, source).path, ".venv")) == []


def test_two_skills_of_one_name_take_turns(tree: Tree, workspace: Workspace) -> None:
    first = tree.skill("a/pdf", text="first\n")
    second = tree.skill("b/pdf", text="second\n")
    roots = []
    for source in (first, second, first):
        roots.append(staged(workspace, source).path)
        assert texts(roots[-1]) == texts(source)
    assert roots[0] == roots[2] != roots[1]


# At once


def test_a_run_that_goes_on_keeps_the_files_it_started_with(tree: Tree, source: Path) -> None:
    state = str(tree.path("state"))
    with open_workspace(state, KEY) as running:
        root = os.open(staged(running, source).path, os.O_RDONLY)
        change_text(source)
        with open_workspace(state, KEY) as other:
            staged(other, source)
        handle = os.open("reference/deep/more.md", os.O_RDONLY, dir_fd=root)
        assert os.read(handle, 10) == b"more\n"
        os.close(handle)
        os.close(root)
    assert os.listdir(os.path.join(running.path, "private")) == []


@needs_root
def test_another_user_keeps_the_files_a_run_started_with(open_tree: Tree) -> None:
    source = make_skill(open_tree)
    code = "os.chdir(sys.argv[1]); print(1, flush=True); sys.stdin.read(); print(os.listdir())"
    with open_workspace(str(open_tree.path("state")), KEY, RUNNER) as workspace:
        root = staged(workspace, source).path
        command = [sys.executable, "-c", PRELUDE + code, root]
        pipe = subprocess.PIPE
        with warm.Popen[str](command, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            change_text(source)
            assert not staged(workspace, source).reused
            said, _ = process.communicate("", timeout=500)
    assert "reference" in said


def test_nobody_ever_sees_half_a_skill(tree: Tree, workspace: Workspace, source: Path) -> None:
    for number in range(30):
        tree.write(source / "many" / f"{number}.md", "0")
    root = staged(workspace, source).path
    stop = threading.Event()
    odd: list[object] = []

    def look() -> None:
        while not stop.is_set():
            folder = os.open(root, os.O_RDONLY)
            try:
                # What a mount of the folder would show.
                names = set(os.listdir(folder))
                many = os.open("many", os.O_RDONLY, dir_fd=folder)
                count = len(os.listdir(many))
                os.close(many)
                if count != 30 or not {"SKILL.md", "out", "work", "inputs", ".venv"} <= names:
                    odd.append((count, names))
            finally:
                os.close(folder)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for number in range(40):
            tree.write(source / "many" / "0.md", str(number))
            root = staged(workspace, source).path
    finally:
        stop.set()
        thread.join()
    assert odd == []


def test_many_threads_stage_it_once(tree: Tree, source: Path) -> None:
    settle()
    done: list[Staged] = []

    def run() -> None:
        with open_workspace(str(tree.path("state")), KEY) as workspace:
            done.append(staged(workspace, source))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.reused for each in done) == [False] + [True] * 7


def test_a_folder_swapped_for_a_link_leads_nowhere(
    tree: Tree, workspace: Workspace, source: Path
) -> None:
    """A process that changes the source makes staging fail, but copies nothing from outside it."""
    secret = tree.write("secret/key", SECRET)
    folder, away = source / "scripts", source.parent / "away"
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(folder, away)
            os.symlink(secret.parent, folder)
            os.unlink(folder)
            os.rename(away, folder)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for number in range(150):
            (source / "SKILL.md").write_text(str(number))
            try:
                root = staged(workspace, source).path
            except RunRefused:
                continue
            assert SECRET.encode() not in texts(root).values()
    finally:
        stop.set()
        thread.join()
    assert secret.read_text() == SECRET


def test_the_source_is_never_touched(tree: Tree, source: Path) -> None:
    def look() -> dict[str, tuple[int, int, int]]:
        return {
            str(path): (path.lstat().st_mode, path.lstat().st_mtime_ns, path.lstat().st_ctime_ns)
            for path in (source, *source.rglob("*"))
        }

    before = look()
    with open_workspace(str(tree.path("state")), KEY) as workspace:
        root = Path(staged(workspace, source).path)
        assert not any(path.stat().st_nlink > 1 for path in root.rglob("*") if path.is_file())
        tamper_text(root)
        staged(workspace, source)
        shutil.rmtree(root.parent, ignore_errors=True)
    assert look() == before


def test_sessions_have_copies_of_their_own(tree: Tree, source: Path) -> None:
    roots = []
    for name in ("a", "b"):
        with open_workspace(str(tree.path("state")), SessionKey("d", "u", name)) as workspace:
            roots.append(staged(workspace, source).path)
    assert not os.path.samefile(
        os.path.join(roots[0], "SKILL.md"), os.path.join(roots[1], "SKILL.md")
    )


def test_a_process_killed_while_it_stages_leaves_a_whole_skill(tree: Tree, source: Path) -> None:
    state = str(tree.path("state"))
    code = f"""
from skillbelt import Skill
from skillbelt.running.staging import stage
from skillbelt.running.workspace import open_workspace
skill = Skill.from_folder({str(source)!r})
print("ready", flush=True)
with open_workspace({state!r}, {tuple(KEY)!r}) as workspace:
    for number in range(1_000_000):
        open({str(source / "SKILL.md")!r}, "w").write(str(number))
        stage(workspace, skill)
"""
    for tenth in range(5):
        process = warm.Popen[bytes]([sys.executable, "-c", code], stdout=subprocess.PIPE)
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.05 + tenth / 50)
            process.kill()
        with open_workspace(state, KEY) as workspace:
            done = staged(workspace, source)
            assert texts(done.path) == texts(source)
        assert os.listdir(os.path.join(workspace.path, "private")) == []


@pytest.mark.parametrize("exchange", [True, False])
def test_folders_are_swapped_with_or_without_the_kernels_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(tree_copy, "_exchange", lambda: None)
    for path in ("a/new", "b/old"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "mark").write_text(path)
    first, second = (os.open(tmp_path / name, os.O_RDONLY) for name in "ab")
    tree_copy.swap(first, "new", second, "old")
    tree_copy.swap(first, "new", second, "fresh")
    os.close(first)
    os.close(second)
    marks = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("mark")}
    assert marks == {"b/old/mark": "a/new", "b/fresh/mark": "b/old"}
