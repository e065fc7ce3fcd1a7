"""Inputs and what an earlier run, or a run that goes on, does to their places."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.running.workspace import Workspace, open_workspace
from tests.handles import no_handle_left
from tests.running.test_inputs import SECRET, at, files, put, put_host
from tests.running.test_workspace import KEY, RUNNER, as_user, needs_root
from tests.tree import NOBODY, Tree


@pytest.fixture
def workspace(tree: Tree) -> Workspace:
    return open_workspace(str(tree.path("state")), KEY)


@pytest.fixture
def secret(tree: Tree) -> Path:
    return tree.write("secret/key", SECRET)


def test_a_link_in_the_way_is_not_written_through(
    workspace: Workspace, tree: Tree, secret: Path
) -> None:
    path = tree.write("project/n.txt", "notes")
    os.symlink(secret, at(workspace, "work/inputs/n.txt"))
    put_host(workspace, tree, path)
    assert at(workspace, "work/inputs/n.txt").read_text() == "notes"
    assert not at(workspace, "work/inputs/n.txt").is_symlink()
    assert secret.read_text() == SECRET


@pytest.mark.parametrize("planted", ["work/inputs", "work/inputs/deep"])
def test_a_folder_that_is_a_link_is_refused(
    workspace: Workspace, tree: Tree, secret: Path, planted: str
) -> None:
    path = tree.write("project/n.txt", "notes")
    if at(workspace, planted).exists():
        at(workspace, planted).rmdir()
    os.symlink(secret.parent, at(workspace, planted))
    with pytest.raises(RunRefused, match="is a link"):
        put_host(workspace, tree, path, "work/inputs/deep/n.txt")
    assert files(secret.parent) == {"key": SECRET.encode()}


def test_a_file_is_replaced_in_one_step(workspace: Workspace, tree: Tree) -> None:
    for text in ("old", "new"):
        put_host(workspace, tree, tree.write("project/n.txt", text))
        assert at(workspace, "work/inputs/n.txt").read_text() == text
    assert os.listdir(at(workspace, "private")) == []


def test_a_hard_link_in_the_way_is_not_written_through(
    workspace: Workspace, tree: Tree, secret: Path
) -> None:
    path = tree.write("project/n.txt", "notes")
    os.link(secret, at(workspace, "work/inputs/n.txt"))
    put_host(workspace, tree, path)
    assert secret.read_text() == SECRET


def test_a_folder_replaces_what_was_there(workspace: Workspace, tree: Tree, secret: Path) -> None:
    tree.write("project/data/a.txt", "a")
    for prepare in ("nothing", "folder", "file", "link"):
        place = at(workspace, "work/d")
        if prepare == "folder":
            (place / "old").write_text("old")
            place.chmod(0)
        elif prepare != "nothing":
            os.rename(place, at(workspace, f"work/{prepare}"))
            os.symlink(secret.parent, place) if prepare == "link" else place.write_text("old")
        put_host(workspace, tree, tree.path("project/data"), "work/d")
        assert files(place) == {"a.txt": b"a"}
        assert not place.is_symlink()
    assert files(secret.parent) == {"key": SECRET.encode()}
    assert os.listdir(at(workspace, "private")) == []


def test_a_file_does_not_replace_a_folder(workspace: Workspace, tree: Tree) -> None:
    at(workspace, "work/inputs/n.txt").mkdir()
    with pytest.raises(RunRefused, match="directory"):
        put_host(workspace, tree, tree.write("project/n.txt", "notes"))


@pytest.mark.long
def test_folders_swapped_for_links_meanwhile_lead_nowhere(
    workspace: Workspace, tree: Tree, secret: Path
) -> None:
    """A background run of the same session plays with the destination."""
    path = tree.write("project/n.txt", "notes")
    deep, away = at(workspace, "work/deep"), at(workspace, "work/away")
    deep.mkdir()
    stop = threading.Event()

    def swap() -> None:
        # Staging may make it anew in between, so any step may fail.
        while not stop.is_set():
            with suppress(OSError):
                os.rename(deep, f"{away}-{os.urandom(8).hex()}")
            with suppress(OSError):
                os.symlink(secret.parent, deep)
            with suppress(OSError):
                os.unlink(deep)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(1000):
            try:
                put_host(workspace, tree, path, "work/deep/er/n.txt")
            except RunRefused:
                continue
    finally:
        stop.set()
        thread.join()
    assert files(secret.parent) == {"key": SECRET.encode()}
    assert os.listdir(secret.parent) == ["key"]


@pytest.mark.parametrize("target", ["../../../secret/key", "/etc/passwd", "../metadata.json"])
@pytest.mark.parametrize("how", ["copy", "link"])
def test_a_link_left_by_a_run_leads_nowhere(
    workspace: Workspace, secret: Path, target: str, how: str
) -> None:
    os.symlink(target, at(workspace, "work/link"))
    with pytest.raises(RunRefused, match="leads out"):
        put(workspace, "workspace://work/link", "work/x", mode=how)
    assert not at(workspace, "work/x").exists()


def test_magic_links_lead_nowhere(workspace: Workspace) -> None:
    os.symlink("/proc/self/root", at(workspace, "work/link"))
    with pytest.raises(RunRefused):
        put(workspace, "workspace://work/link/etc/passwd", "work/x")


# Commands that run as another user


@needs_root
def test_inputs_belong_to_who_runs(open_tree: Tree) -> None:
    tree = open_tree
    tree.write("project/data/deep/a.txt", "a")
    with open_workspace(str(tree.path("state")), KEY, RUNNER) as workspace:
        put_host(workspace, tree, tree.path("project/data"), "work/new/d")
        put_host(workspace, tree, tree.path("project/data/deep/a.txt"), "work/a")
        put(workspace, "workspace://work/a", "work/link", mode="link")
        paths = [at(workspace, "work"), *at(workspace, "work").rglob("*")]
        assert {path.lstat().st_uid for path in paths} == {NOBODY}
        code = "open(sys.argv[1] + '/work/new/d/deep/a.txt', 'a').write('b')"
        as_user(code, workspace.path)
        assert at(workspace, "work/new/d/deep/a.txt").read_text() == "ab"


@needs_root
def test_a_hard_link_to_what_is_not_theirs_is_not_read(open_tree: Tree) -> None:
    secret = open_tree.write("secret/key", SECRET)
    with open_workspace(str(open_tree.path("state")), KEY, RUNNER) as workspace:
        at(workspace, "work/d").mkdir()
        for place in ("work/key", "work/d/key"):
            os.link(secret, at(workspace, place))
        for source in ("work/key", "work/d"):
            with pytest.raises(RunRefused, match="hard link"):
                put(workspace, f"workspace://{source}", "out/x")
        assert files(at(workspace, "out")) == {}


def test_an_ordinary_user_stages_every_kind(open_tree: Tree) -> None:
    open_tree.skill("project/pdf")
    open_tree.write("project/n.txt", "notes")
    os.chmod(open_tree.root, 0o777)
    code = """
root = sys.argv[1]
with open_workspace(root + "/state", KEY) as workspace:
    stage(workspace, Skill.from_folder(root + "/project/pdf"))
    inputs = Inputs(workspace, [
        {"from": f"host://{root}/project/n.txt"},
        {"from": f"host://{root}/project/pdf", "to": "work/tree"},
        {"from": f"host://{root}/project/pdf", "to": "work/tree"},
        {"from": "workspace://work/inputs/n.txt", "to": "out/n.txt"},
        {"from": "skill://pdf/SKILL.md", "mode": "link"},
    ], host_roots=[root + "/project"], remaps=False)
    with inputs:
        done = inputs.place()
    print([os.path.exists(os.path.join(workspace.path, each.to)) for each in done])
"""
    assert as_user(code, open_tree.root) == "[True, True, True, True, True]\n"


def test_nothing_stays_open_whatever_is_refused(
    workspace: Workspace, tree: Tree, secret: Path
) -> None:
    tree.write("project/data/a", "a")
    os.symlink(secret, tree.path("project/data/link"))
    os.symlink(secret, at(workspace, "work/link"))
    os.mkfifo(at(workspace, "work/pipe"))
    good = tree.write("project/n.txt", "notes")

    def use() -> None:
        put_host(workspace, tree, good)
        put_host(workspace, tree, secret, permit_host=lambda path: None)
        for path in (tree.path("project/data"), tree.path("project/none"), secret):
            with pytest.raises(RunRefused):
                put_host(workspace, tree, path)
        for name in ("work/link", "work/pipe", "out/none"):
            with pytest.raises(RunRefused):
                put(workspace, f"workspace://{name}", "work/x")

    use()
    with no_handle_left():
        for _ in range(5):
            use()
    assert os.listdir(at(workspace, "private")) == []
