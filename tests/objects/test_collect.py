"""Collection removes the objects that nothing refers to, and nothing else."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from obstore.store import LocalStore

from skillbelt import Skill
from skillbelt.errors import ObjectMissing, ObjectsAway
from skillbelt.objects.blobs import GRACE_SECONDS, SKILL_SECONDS, Blobs, text_space
from skillbelt.objects.collect import NAME_SECONDS, CollectedObjects, collect
from skillbelt.objects.space import Objects
from skillbelt.running.snapshots import forget_snapshots, restore, snapshot
from skillbelt.running.workspace import Workspace, open_workspace
from tests.objects.test_trees import KEY
from tests.tree import Tree

LONG = 10 * NAME_SECONDS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.fixture
def objects(folder: Path) -> Objects:
    return Objects(LocalStore(folder))


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(str(tmp_path / "state"), KEY) as opened:
        yield opened


def age(folder: Path, seconds: float) -> None:
    """Make everything in the store older."""
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)
            with suppress(FileNotFoundError):  # removed meanwhile
                os.utime(path, (os.stat(path).st_mtime - seconds,) * 2)


def fill(workspace: Workspace, objects: Objects, *files: str) -> None:
    for name in files:
        (Path(workspace.path) / "work" / name).write_text(f"content of {name}")
    snapshot(workspace, objects, KEY)


def test_what_a_snapshot_refers_to_stays(
    folder: Path, objects: Objects, workspace: Workspace, tmp_path: Path
) -> None:
    fill(workspace, objects, "a", "b")
    age(folder, NAME_SECONDS / 2)
    fill(workspace, objects, "c")
    age(folder, NAME_SECONDS / 2)
    gone = collect(objects)
    assert (gone.names, gone.trees, gone.blobs) == (0, 1, 0)
    with open_workspace(str(tmp_path / "other"), KEY) as other:
        restore(other, objects, KEY)
        assert sorted(os.listdir(Path(other.path) / "work")) == ["a", "b", "c", "inputs"]


def test_the_snapshots_of_a_deleted_conversation_go(
    folder: Path, objects: Objects, workspace: Workspace
) -> None:
    fill(workspace, objects, "a")
    other = KEY._replace(session="other")
    with open_workspace(os.path.dirname(workspace.path), other) as second:
        (Path(second.path) / "work" / "b").write_text("mine")
        snapshot(second, objects, other)
    forget_snapshots(objects, KEY)
    assert collect(objects) == CollectedObjects()  # too young: a machine may be about to name them
    age(folder, GRACE_SECONDS)
    gone = collect(objects)
    assert (gone.names, gone.trees, gone.blobs) == (0, 1, 1)
    with open_workspace(str(folder.parent / "other"), other) as third:
        restored = restore(third, objects, other)
        assert restored is not None
        assert restored.files == 1


def test_a_conversation_that_was_never_deleted_ends_too(
    folder: Path, objects: Objects, workspace: Workspace
) -> None:
    fill(workspace, objects, "a")
    text_space(LocalStore(folder), KEY).write(f"{'0' * 64}.txt", b"text")
    age(folder, NAME_SECONDS)
    gone = collect(objects)
    assert (gone.names, gone.trees, gone.blobs) == (2, 1, 1)
    assert not [name for _, _, names in os.walk(folder) for name in names]


def test_a_conversation_that_goes_on_without_a_change_stays(
    folder: Path, objects: Objects, workspace: Workspace
) -> None:
    fill(workspace, objects, "a")
    age(folder, NAME_SECONDS - 100)
    fill(workspace, objects)
    age(folder, NAME_SECONDS - 100)
    assert collect(objects) == CollectedObjects()


def test_skills_stay_while_machines_put_them(folder: Path, objects: Objects, tree: Tree) -> None:
    skill = Skill.from_folder(tree.skill("a/some"))
    digest = objects.put_skill(skill)
    age(folder, SKILL_SECONDS - 100)
    assert collect(objects) == CollectedObjects()
    Objects(LocalStore(folder)).put_skill(skill)  # another process
    age(folder, SKILL_SECONDS - 100)
    gone = collect(objects)  # the older copy
    assert (gone.trees, gone.blobs) == (1, 1)
    objects.get_skill(digest, str(folder.parent / "copy"))
    age(folder, 200)
    gone = collect(objects)
    assert (gone.trees, gone.blobs) == (1, 1)
    with pytest.raises(ObjectMissing):
        objects.get_skill(digest, str(folder.parent / "again"))


def test_a_tree_that_cannot_be_read_keeps_nothing_and_stops_nothing(
    folder: Path, objects: Objects, workspace: Workspace
) -> None:
    fill(workspace, objects, "a")
    space = objects.tenant(KEY)
    space.write(f"trees/00/{'0' * 62}/{'0' * 16}", b"nonsense")
    space.write("names/workspaces/x/0000000000000000001", b"nonsense")
    space.put_file(b"nobody's")
    age(folder, GRACE_SECONDS)
    gone = collect(objects)
    assert (gone.trees, gone.blobs) == (1, 1)


def test_nothing_is_removed_that_an_absent_store_does_not_name(
    folder: Path, objects: Objects, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(workspace, objects, "a")
    age(folder, GRACE_SECONDS)
    before = sorted(names for _, _, names in os.walk(folder))
    read = Blobs.read

    def away(self: Blobs, path: str, most: int) -> bytes | None:
        if path.startswith("names"):
            raise ObjectsAway("the object store is away")
        return read(self, path, most)

    monkeypatch.setattr(Blobs, "read", away)
    with pytest.raises(ObjectsAway):
        collect(objects)
    assert sorted(names for _, _, names in os.walk(folder)) == before


@pytest.mark.long
def test_snapshots_are_whole_while_others_collect(
    folder: Path, objects: Objects, workspace: Workspace, tmp_path: Path
) -> None:
    """Contents come back after their blobs are old and refer to nothing."""
    done = threading.Event()

    def sweep() -> None:
        while not done.is_set():
            collect(objects, name_seconds=LONG)

    sweepers = [threading.Thread(target=sweep) for _ in range(2)]
    for sweeper in sweepers:
        sweeper.start()
    try:
        for number in range(40):
            (Path(workspace.path) / "work" / "a").write_text(f"content {number % 3}")
            snapshot(workspace, objects, KEY)
            with open_workspace(str(tmp_path / f"other-{number}"), KEY) as other:
                restore(other, objects, KEY)
                found = (Path(other.path) / "work" / "a").read_text()
                assert found == f"content {number % 3}"
            age(folder, 1.1 * GRACE_SECONDS)
    finally:
        done.set()
        for sweeper in sweepers:
            sweeper.join()


def test_the_command_removes_what_nothing_refers_to(
    folder: Path, objects: Objects, tree: Tree
) -> None:
    objects.tenant(KEY).put_file(b"12345")
    age(folder, GRACE_SECONDS)
    tree.setenv("SKILLBELT_OBJECTS", f"file://{folder}")
    done = tree.run("store", "collect", "--json")
    assert done.document == {
        "objects": f"file://{folder}", "names": 0, "trees": 0, "blobs": 1, "size": 5,
        "workspaces": 0,
    }  # fmt: skip
    assert "removed 0 names, 0 trees, 0 blobs: 0 bytes" in tree.run("store", "collect").stderr
    assert tree.run("store", "collect", "--days", "3").exit_code == 2
    tree.setenv("SKILLBELT_OBJECTS", "")
    refused = tree.run("store", "collect")
    assert (refused.exit_code, "set `objects`" in refused.stderr) == (2, True)
