"""Workspaces that any server can go on with: kept in the object store after each run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from skillbelt import RunRefused, Runtime
from skillbelt.running.call import RunCall
from skillbelt.running.cleanup import METADATA
from skillbelt.running.workbench import Workbench
from tests.bench import ALLOW, ME
from tests.tree import Tree


@pytest.fixture
def server(open_tree: Tree) -> Any:
    """A function that opens a server: each has its own state folder, all share the object store."""
    open_tree.skill("project/.agents/skills/echo")
    objects = (open_tree.root / "objects").as_uri()

    def make(name: str, **settings: Any) -> Workbench:
        state = open_tree.root / name
        state.mkdir(mode=0o711, exist_ok=True)
        values = {"objects": objects, "state_dir": str(state), **settings}
        belt = Runtime(open_tree.project, rules=ALLOW, **values)
        return Workbench(belt.settings, belt.gate, belt.get_skill)

    return make


def run(bench: Workbench, command: str) -> Any:
    return bench.run(bench.find("echo"), RunCall(command), ME)


def test_a_conversation_goes_on_on_another_server(server: Any) -> None:
    one, two = server("one"), server("two")
    assert not run(one, "echo 1 > $WORK_DIR/a; echo out > $OUTPUT_DIR/b").warnings
    assert run(two, "cat $WORK_DIR/a $OUTPUT_DIR/b; echo 2 >> $WORK_DIR/a").stdout == "1\nout\n"
    assert run(one, "cat $WORK_DIR/a; rm $WORK_DIR/a").stdout == "1\n2\n"
    assert run(two, "ls $WORK_DIR").stdout == "inputs\n"


def test_files_of_a_workspace_can_be_read_on_another_server(server: Any) -> None:
    run(server("one"), "echo text > $OUTPUT_DIR/b")
    with server("two").workspace(ME.key) as workspace:
        assert workspace.results() == ["out/b"]


def test_a_conversation_that_is_deleted_is_deleted_everywhere(server: Any) -> None:
    run(server("one"), "echo 1 > $WORK_DIR/a")
    server("two").forget(ME.key)
    assert run(server("three"), "ls $WORK_DIR").stdout == "inputs\n"


def test_nothing_runs_with_old_files(server: Any, open_tree: Tree) -> None:
    """While the store is away, another machine may have gone on."""
    one = server("one")
    run(one, "echo 1 > $WORK_DIR/a")
    for path in (open_tree.root / "objects").rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    with pytest.raises(RunRefused, match=r"cannot be restored: .*; nothing was run"):
        run(server("two"), "cat $WORK_DIR/a")


def let_a_minute_pass(bench: Workbench) -> None:
    """Date back the last use of each workspace: one tick of the clock tells nothing apart."""
    for place in bench.workspaces(ME.key):
        used = Path(place, METADATA)
        stat = used.stat()
        os.utime(used, (stat.st_atime - 60, stat.st_mtime - 60))


def test_a_machine_that_was_away_removes_what_was_deleted_meanwhile(server: Any) -> None:
    one, two = server("one"), server("two")
    run(one, "echo 1 > $WORK_DIR/a")
    other = ME._replace(key=ME.key._replace(session="other"))
    one.run(one.find("echo"), RunCall("echo 1 > $WORK_DIR/a"), other)
    let_a_minute_pass(one)
    two.forget(ME.key)
    assert one.workspaces(ME.key)
    one.forget_deleted()
    assert not one.workspaces(ME.key) and one.workspaces(other.key)
    # Begun again, it is another conversation: the mark is older than its use.
    assert run(one, "ls $WORK_DIR; echo 2 > $WORK_DIR/b").stdout == "inputs\n"
    one.forget_deleted()
    assert run(one, "cat $WORK_DIR/b").stdout == "2\n"


def test_a_workspace_in_use_is_not_removed(server: Any) -> None:
    one = server("one")
    run(one, "true")
    with one.workspace(ME.key):
        let_a_minute_pass(one)
        server("two").forget(ME.key)
        one.forget_deleted()
        assert one.workspaces(ME.key)
    one.forget_deleted()
    assert not one.workspaces(ME.key)


def test_a_conversation_that_is_begun_again_has_no_file_of_the_deleted_one(server: Any) -> None:
    one = server("one")
    run(one, "echo secret > $WORK_DIR/a")
    let_a_minute_pass(one)
    server("two").forget(ME.key)
    assert run(one, "ls $WORK_DIR $WORK_DIR/inputs | tail -n +2; echo 2 > $WORK_DIR/b").stdout == (
        "inputs\n\n/workspace/work/inputs:\n"
    )
    assert run(server("three"), "cat $WORK_DIR/b").stdout == "2\n"
