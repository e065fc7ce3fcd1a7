"""Snapshots of workspaces: what runs left is there on another machine, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest
from obstore.store import MemoryStore

from skillbelt import Limits, Skill
from skillbelt.errors import ObjectDamaged, ObjectError, ObjectMissing
from skillbelt.objects.pack import SMALL_BYTES, put_list
from skillbelt.objects.space import Objects
from skillbelt.running import snapshots
from skillbelt.running.snapshots import (
    _MANY_PACKS,
    forget_snapshots,
    latest_snapshot,
    restore,
    snapshot,
)
from skillbelt.running.staging import stage
from skillbelt.running.workspace import Pin, Workspace, open_workspace
from tests.objects.test_trees import KEY, paths, seen
from tests.tree import Tree


class Machine(Protocol):
    def __call__(self, name: str) -> Workspace: ...


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def objects(store: MemoryStore) -> Objects:
    return Objects(store)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """The workspace of the same conversation on a machine of that name."""
    with ExitStack() as opened:
        yield lambda name: opened.enter_context(open_workspace(str(tmp_path / name), KEY))


def content(workspace: Workspace) -> dict[str, tuple[object, ...]]:
    return {
        f"{top}/{path}": found
        for top in ("work", "out", "runs")
        for path, found in seen(Path(workspace.path) / top).items()
    }


def write(workspace: Workspace, path: str, data: bytes = b"x") -> Path:
    file = Path(workspace.path) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


def settle(workspace: Workspace) -> None:
    """Make all files look as if they were left alone for a while: their times cannot be set."""
    path = Path(workspace.path) / "snapshot.json"
    state = json.loads(path.read_text())
    for top, _, names in os.walk(workspace.path):
        for name in names:
            file = os.path.join(top, name)
            info, below = os.lstat(file), os.path.relpath(file, workspace.path)
            if below.startswith(("work/", "out/", "runs/")) and stat.S_ISREG(info.st_mode):
                state["stamps"][below] = [
                    info.st_mtime_ns, info.st_ctime_ns, info.st_dev, info.st_ino, info.st_mode,
                    info.st_size,
                ]  # fmt: skip
    path.write_text(json.dumps(state))


def test_a_workspace_goes_on_elsewhere(objects: Objects, machine: Machine) -> None:
    one, two = machine("one"), machine("two")
    write(one, "work/data.csv", b"1,2\n")
    write(one, "work/deep/SKILL.md", b"# no skill")
    write(one, "out/report", b"#!/bin/sh\n").chmod(0o750)
    write(one, "work/node_modules/x/.git/config")
    (Path(one.path) / "work" / "empty").mkdir()
    (Path(one.path) / "work" / "link").symlink_to("data.csv")
    (Path(one.path) / "out" / "away").symlink_to("/etc/passwd")
    with one.locked() as metadata:
        metadata.pins["work/inputs/a"] = Pin("a", 3)
    made = snapshot(one, objects, KEY)
    assert (made.number, made.files, made.size) == (1, 4, 4 + 10 + 10 + 1)
    write(two, "work/leftover")
    assert restore(two, objects, KEY) == made._replace(sent=0)
    assert content(two) == content(one)
    assert two.metadata().pins == {"work/inputs/a": Pin("a", 3)}
    assert latest_snapshot(objects, KEY) == (made.digest, 1)


def test_only_what_changed_is_sent(objects: Objects, machine: Machine) -> None:
    one = machine("one")
    for number in range(20):
        write(one, f"work/{number}", os.urandom(2 * SMALL_BYTES))
        write(one, f"out/{number}", os.urandom(1000))
    assert snapshot(one, objects, KEY).sent == 20 * (2 * SMALL_BYTES + 1000)
    write(one, "work/7", os.urandom(SMALL_BYTES + 5))
    write(one, "out/8", b"changed")
    (Path(one.path) / "out" / "9").unlink()
    os.rename(Path(one.path) / "work" / "1", Path(one.path) / "out" / "moved")
    second = snapshot(one, objects, KEY)
    assert (second.number, second.sent) == (2, SMALL_BYTES + 5 + 7)
    assert snapshot(one, objects, KEY) == second._replace(sent=0)
    two = machine("two")
    restore(two, objects, KEY)
    assert content(two) == content(one)


def test_a_file_that_looks_the_same_is_not_read(objects: Objects, machine: Machine) -> None:
    one = machine("one")
    file = write(one, "work/a", b"first")
    before = snapshot(one, objects, KEY)
    settle(one)
    # Without a trace in its times, which only the administrator of the machine can do.
    info = file.stat()
    with open(file, "r+b") as opened:
        opened.write(b"other")
    os.utime(file, ns=(info.st_mtime_ns, info.st_mtime_ns))
    settle(one)
    assert snapshot(one, objects, KEY) == before._replace(sent=0)
    os.utime(file)
    assert snapshot(one, objects, KEY).digest != before.digest


def test_staged_skills_are_named_by_digest_and_not_copied(
    objects: Objects, machine: Machine, tree: Tree
) -> None:
    one, two = machine("one"), machine("two")
    skill = Skill.from_folder(tree.skill("a/some"))
    staged = stage(one, skill)
    made = snapshot(one, objects, KEY)
    assert (made.files, made.skills) == (0, {"some": staged.hash})
    restored = restore(two, objects, KEY)
    assert restored is not None
    assert restored.skills == {"some": skill.files.digest()}
    assert stage(two, skill).hash == staged.hash


def test_a_machine_that_was_thought_dead_replaces_nothing(
    objects: Objects, machine: Machine
) -> None:
    one, two = machine("one"), machine("two")
    write(one, "work/a", b"one")
    snapshot(one, objects, KEY)
    restore(two, objects, KEY)
    write(two, "work/a", b"two")
    second = snapshot(two, objects, KEY)
    write(one, "work/a", b"late")
    with pytest.raises(ObjectError, match="another machine has written a newer one"):
        snapshot(one, objects, KEY)
    assert restore(one, objects, KEY) == second._replace(sent=0)
    assert (Path(one.path) / "work" / "a").read_bytes() == b"two"
    with pytest.raises(ObjectError, match="restore that first"):
        snapshot(machine("three"), objects, KEY)


def test_two_machines_cannot_claim_one_number(
    objects: Objects, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = machine("one"), machine("two")
    snapshot(one, objects, KEY)
    restore(two, objects, KEY)
    for workspace in (one, two):
        write(workspace, f"work/{workspace.path[-3:]}", workspace.path.encode())

    def put_late(*args: object) -> str:
        monkeypatch.setattr(snapshots, "put_list", put_list)
        snapshot(two, objects, KEY)  # both have looked at the last number by now
        return put_list(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshots, "put_list", put_late)
    with pytest.raises(ObjectError, match="another machine has written a newer one"):
        snapshot(one, objects, KEY)
    restore(one, objects, KEY)
    assert content(one) == content(two)


def test_a_workspace_that_the_snapshot_was_made_of_stays(
    objects: Objects, machine: Machine
) -> None:
    one = machine("one")
    made = snapshot(one, objects, KEY)
    write(one, "work/newer")
    assert restore(one, objects, KEY) == made._replace(sent=0)
    assert (Path(one.path) / "work" / "newer").exists()


def test_there_is_nothing_to_restore_for_others(objects: Objects, machine: Machine) -> None:
    one = machine("one")
    write(one, "work/a")
    snapshot(one, objects, KEY)
    for other in (KEY._replace(user="other"), KEY._replace(session="other")):
        assert restore(machine("two"), objects, other) is None
    assert restore(machine("two"), objects, KEY, project="/another") is None


def test_many_small_changes_do_not_scatter_what_is_restored(
    objects: Objects, machine: Machine, store: MemoryStore
) -> None:
    one = machine("one")
    for number in range(_MANY_PACKS + 10):
        write(one, f"work/{number}", str(number).encode())
        made = snapshot(one, objects, KEY)
    [path] = paths(store, f"{objects.tenant(KEY).prefix}trees/{made.digest[7:9]}/{made.digest[9:]}")
    assert len(json.loads(bytes(store.get(path).bytes()).split(b"\n")[0])["blobs"]) < _MANY_PACKS
    two = machine("two")
    restore(two, objects, KEY)
    assert content(two) == content(one)


# Hostile workspaces and stores


def test_a_workspace_beyond_its_bounds_is_an_error_that_names_it(
    objects: Objects, machine: Machine
) -> None:
    one = machine("one")
    with open(write(one, "work/sparse"), "wb") as file:
        file.truncate(2**42)
    with pytest.raises(ObjectError, match=r"the workspace .* has 4,398,046,511,104 bytes or more"):
        snapshot(one, objects, KEY)
    (Path(one.path) / "work" / "sparse").unlink()
    for number in range(30):
        write(one, f"out/{number}")
    with pytest.raises(ObjectError, match="has more than 20 files and folders"):
        snapshot(one, objects, KEY, limits=Limits(max_workspace_files=20))
    write(one, "work/" + "d/" * 70 + "x")
    with pytest.raises(ObjectError, match="nested deeper"):
        snapshot(one, objects, KEY)


def test_links_are_never_followed(objects: Objects, machine: Machine, tmp_path: Path) -> None:
    one, two = machine("one"), machine("two")
    (tmp_path / "secret").write_text("secret")
    (Path(one.path) / "work" / "SKILL.md").symlink_to(tmp_path / "secret")
    (Path(one.path) / "work" / "folder").symlink_to(tmp_path)
    (Path(one.path) / "out").rmdir()
    (Path(one.path) / "out").symlink_to(tmp_path)
    with pytest.raises(ObjectError, match="'out' is not a folder"):
        snapshot(one, objects, KEY)
    (Path(one.path) / "out").unlink()
    assert snapshot(one, objects, KEY).files == 0
    # A link in the workspace that is replaced is not followed either.
    (Path(two.path) / "work" / "folder").symlink_to(tmp_path)
    restore(two, objects, KEY)
    assert (tmp_path / "secret").read_text() == "secret"
    assert os.readlink(Path(two.path) / "work" / "SKILL.md") == str(tmp_path / "secret")


@pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root to make a file of another user: sudo make test"
)
def test_a_hard_link_to_the_file_of_another_user_is_refused(
    objects: Objects, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    with open_workspace(str(tmp_path / "all"), KEY) as opened:
        os.link(tmp_path / "secret", Path(opened.path) / "work" / "mine")
        opened.owner = (12345, 12345)
        with pytest.raises(ObjectError, match="hard link to the file of another user"):
            snapshot(opened, objects, KEY)


def test_pipes_are_left_out_and_named(objects: Objects, machine: Machine) -> None:
    one = machine("one")
    os.mkfifo(Path(one.path) / "work" / "pipe")
    assert snapshot(one, objects, KEY).left_out == ("work/pipe",)


def test_a_damaged_snapshot_leaves_the_workspace_as_it_was(
    objects: Objects, machine: Machine, store: MemoryStore
) -> None:
    one, two = machine("one"), machine("two")
    write(one, "work/a", b"good" * SMALL_BYTES)
    write(two, "work/mine")
    before = content(two)
    snapshot(one, objects, KEY)
    digits = hashlib.sha256(b"good" * SMALL_BYTES).hexdigest()
    [path] = paths(store, f"{objects.tenant(KEY).prefix}blobs")
    store.put(path, b"evil" * SMALL_BYTES)
    with pytest.raises(ObjectDamaged, match=digits):
        restore(two, objects, KEY)
    store.delete(path)
    with pytest.raises(ObjectMissing, match=digits):
        restore(two, objects, KEY)
    assert content(two) == before
    assert os.listdir(Path(two.path) / "private") == []


def test_a_name_that_leads_to_another_kind_of_tree_is_refused(
    objects: Objects, machine: Machine, tmp_path: Path
) -> None:
    one, space = machine("one"), objects.tenant(KEY)
    (tmp_path / "tree" / "skills-x").mkdir(parents=True)
    (tmp_path / "tree" / "metadata.json").write_text("{}")
    made = snapshot(one, objects, KEY)
    [name] = space.walk("names")
    digest = space.put_tree(str(tmp_path / "tree"))
    space.write(name.path, json.dumps({"tree": digest, "by": ""}).encode())
    with pytest.raises(ObjectDamaged, match="not the tree of a workspace"):
        restore(machine("two"), objects, KEY)
    space.write(name.path, b"nonsense")
    with pytest.raises(ObjectError, match="is not a record"):
        restore(machine("two"), objects, KEY)
    assert made.number == 1


def test_a_state_that_was_changed_counts_as_none(objects: Objects, machine: Machine) -> None:
    one = machine("one")
    made = snapshot(one, objects, KEY)
    for text in ("nonsense", "{}", '{"prefix": 1}'):
        (Path(one.path) / "snapshot.json").write_text(text)
        with pytest.raises(ObjectError, match="restore that first"):
            snapshot(one, objects, KEY)
    assert restore(one, objects, KEY) == made._replace(sent=0)


def test_a_deleted_conversation_leaves_no_name(objects: Objects, machine: Machine) -> None:
    one = machine("one")
    snapshot(one, objects, KEY)
    other = KEY._replace(session="other")
    with open_workspace(os.path.dirname(one.path), other) as second:
        snapshot(second, objects, other)
    assert forget_snapshots(objects, KEY) == 1
    assert latest_snapshot(objects, KEY) is None
    assert isinstance(latest_snapshot(objects, other), tuple)
