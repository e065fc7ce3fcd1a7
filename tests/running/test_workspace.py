from __future__ import annotations

import json
import os
import stat
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.errors import ConfigError, PathEscape, RunRefused, SandboxUnavailable
from skillbelt.running.cleanup import clean_orphans
from skillbelt.running.workspace import Pin, Workspace, expanded, open_workspace, place_of, plain
from skillbelt.store import SessionKey
from tests import needs, warm
from tests.handles import no_handle_left
from tests.tree import NOBODY, Tree

KEY = SessionKey("desk", "ada", "one")
HOMES = {"pdf": "skills-1/pdf"}
RUNNER = (NOBODY, NOBODY)
needs_root = needs.root
# The interpreter may lie where only root can read, so everything is imported before root is left.
PRELUDE = f"""
import ctypes, errno, fcntl, hashlib, json, os, stat, sys, threading, time
from skillbelt import Skill, build_manifest
from skillbelt.errors import ConfigError, PathEscape, RunRefused
from skillbelt.running.cleanup import clean_workspaces
from skillbelt.files.remove import remove_tree
from skillbelt.running.inputs import Inputs
from skillbelt.running.staging import stage
from skillbelt.store import SessionKey
from skillbelt.running.workspace import open_workspace
Skill.from_text("---\\na: [\\n---\\n").frontmatter
hashlib.sha256(b"").hexdigest()
os.chdir("/")
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
KEY = SessionKey("desk", "ada", "one")
"""


def as_user(code: str, *arguments: object, timeout: float = 50) -> str:
    """The output of the code, run by a user without privileges."""
    done = warm.run(
        [sys.executable, "-c", PRELUDE + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.fixture
def all_of_them(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "workspaces")


@pytest.fixture
def workspace(all_of_them: str) -> Workspace:
    return open_workspace(all_of_them, KEY)


# Layout


def test_a_new_workspace_has_its_folders(workspace: Workspace) -> None:
    assert {"work", "out", "runs", "metadata.json"} <= set(os.listdir(workspace.path))
    assert os.listdir(os.path.join(workspace.path, "work")) == ["inputs"]


def test_nobody_else_can_enter_it(workspace: Workspace, all_of_them: str) -> None:
    assert {mode(path) for path in (all_of_them, workspace.path)} == {0o700}
    assert {mode(entry.path) for entry in os.scandir(workspace.path) if entry.is_dir()} == {0o700}
    assert mode(os.path.join(workspace.path, "metadata.json")) == 0o600


def test_its_name_tells_nothing_of_the_session(all_of_them: str) -> None:
    with open_workspace(all_of_them, SessionKey("../../etc", "a/b", "\udcff\0")) as workspace:
        assert os.path.dirname(workspace.path) == all_of_them
        assert workspace.name.isalnum()


def test_a_session_sees_what_it_wrote_and_another_does_not(all_of_them: str) -> None:
    """Case 67."""
    with open_workspace(all_of_them, KEY) as first:
        Path(first.path, "work", "a.txt").write_text("kept")
    with open_workspace(all_of_them, KEY) as again:
        assert Path(again.path, "work", "a.txt").read_text() == "kept"
    for key in (KEY._replace(session="two"), KEY._replace(user="bob"), KEY._replace(app="x")):
        with open_workspace(all_of_them, key) as other:
            assert not Path(other.path, "work", "a.txt").exists()


def test_keys_that_join_to_the_same_text_are_apart(all_of_them: str) -> None:
    names = [
        open_workspace(all_of_them, SessionKey(*key)).name
        for key in (("a", "bc", ""), ("ab", "c", ""))
    ]
    assert names[0] != names[1]


def test_another_process_finds_the_same_workspace(open_tree: Tree) -> None:
    os.chmod(open_tree.root, 0o777)
    code = "w = open_workspace(sys.argv[1], KEY); print(w.path, os.listdir(w.path + '/work'))"
    runs = {as_user(code, open_tree.path("state")) for _ in range(2)}
    assert len(runs) == 1


@pytest.mark.parametrize("name", ["work", "out", "runs", "work/inputs"])
def test_a_link_left_in_place_of_a_folder_is_replaced(
    all_of_them: str, tmp_path: Path, name: str
) -> None:
    with open_workspace(all_of_them, KEY) as workspace:
        path = os.path.join(workspace.path, name)
    os.rename(path, f"{path}-moved")
    os.symlink(tmp_path, path)
    with open_workspace(all_of_them, KEY):
        assert stat.S_ISDIR(os.lstat(path).st_mode)


def test_a_folder_that_was_locked_up_can_be_used_again(open_tree: Tree) -> None:
    os.chmod(open_tree.root, 0o777)
    code = """
for name in ("work/inputs", "work", "out", "runs"):
    with open_workspace(sys.argv[1], KEY) as workspace:
        os.chmod(os.path.join(workspace.path, name), 0)
with open_workspace(sys.argv[1], KEY) as workspace:
    os.close(workspace.make_folders("work/inputs/a"))
    print(workspace.run_folder()[:5])
"""
    assert as_user(code, open_tree.path("state")) == "runs/\n"


def test_a_folder_that_can_not_be_used_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="state_dir"):
        open_workspace(str(tmp_path / "file" / "workspaces"), KEY)


def test_what_a_killed_process_left_is_gone_with_the_next_use(all_of_them: str) -> None:
    with open_workspace(all_of_them, KEY) as workspace:
        private = Path(workspace.path, "private")
        (private / "new-1" / "half").mkdir(parents=True)
        (private / "metadata.json-1").write_text("{")
        with open_workspace(all_of_them, KEY):
            pass
        assert len(os.listdir(private)) == 2  # they may be in use
    assert os.listdir(private) == []


def test_nothing_stays_open(all_of_them: str) -> None:
    def use() -> None:
        with open_workspace(all_of_them, KEY) as workspace:
            workspace.end_run(workspace.run_folder())
            workspace.enter("out/a", {})
            for wrong in ("../x", "work/inputs/../x", "skills/x"):
                with pytest.raises(PathEscape):
                    workspace.make_folders(wrong)
            with workspace.locked() as metadata:
                metadata.pins["a"] = Pin("a", 1)

    use()
    with no_handle_left():
        for _ in range(10):
            use()


# Runs


def test_each_call_has_a_folder_of_its_own(workspace: Workspace) -> None:
    runs = [workspace.run_folder() for _ in range(20)]
    assert len(set(runs)) == 20
    assert all(os.listdir(os.path.join(workspace.path, run)) == [] for run in runs)


def test_the_folder_of_a_call_that_left_nothing_is_taken_away(workspace: Workspace) -> None:
    full, empty = workspace.run_folder(), workspace.run_folder()
    Path(workspace.path, full, "log").write_text("kept")
    for run in (full, empty):
        workspace.end_run(run)
    assert os.listdir(os.path.join(workspace.path, "runs")) == [os.path.basename(full)]
    fresh = [workspace.run_folder() for _ in range(3)]
    assert len({full, *fresh}) == 4
    assert fresh[0] == empty  # for a container that is kept and shows that one
    assert all(os.listdir(os.path.join(workspace.path, run)) == [] for run in fresh)


def test_variables_are_as_the_run_sees_them(workspace: Workspace) -> None:
    assert workspace.variables("/w", "pdf", "runs/7") == {
        "WORKSPACE_DIR": "/w",
        "SKILLS_DIR": "/w/skills",
        "WORK_DIR": "/w/work",
        "OUTPUT_DIR": "/w/out",
        "RUN_DIR": "/w/runs/7",
        "SKILL_NAME": "pdf",
        "CLAUDE_SKILL_DIR": "/w/skills/pdf",
        "SKILL_DIR": "/w/skills/pdf",
        "SKILL_ROOT": "/w/skills/pdf",
    }


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "skills/pdf"),
        (".", "skills/pdf"),
        ("scripts", "skills/pdf/scripts"),
        ("./scripts/", "skills/pdf/scripts"),
        ("scripts\\deep", "skills/pdf/scripts/deep"),
        ("../../..", "skills/pdf"),
        ("..\\..", "skills/pdf"),
        ("../..", "skills/pdf"),
        ("../../../../etc", "skills/pdf"),
        ("/etc", "skills/pdf"),
        ("/../etc", "skills/pdf"),
        ("//etc", "skills/pdf"),
        ("/metadata.json", "skills/pdf"),
        ("/private", "skills/pdf"),
        ("/workaround", "skills/pdf"),
        ("/work", "work"),
        ("/work/a/../b", "work/b"),
        ("/", "."),
        ("$WORKSPACE_DIR", "."),
        ("$WORKSPACE_DIR/out", "out"),
        ("${OUTPUT_DIR}/x", "out/x"),
        ("$OUTPUT_DIR", "out"),
        ("$WORK_DIR/../../etc", "skills/pdf"),
        ("$WORK_DIR/../out", "out"),
        ("$SKILLS_DIR/other", "skills/other"),
        ("$HOME", "skills/pdf/$HOME"),
        ("$WORK_DIRX/a", "skills/pdf/$WORK_DIRX/a"),
        ("a\0b", "skills/pdf"),
        ("a\nb", "skills/pdf"),
        ("\udcff", "skills/pdf"),
        ("x" * 300, "skills/pdf"),
    ],
)
def test_where_a_command_starts(workspace: Workspace, text: str, wanted: str) -> None:
    """Case 65."""
    assert workspace.resolve_cwd(text, "pdf") == wanted


def test_a_command_may_start_in_its_run_folder(workspace: Workspace) -> None:
    """Case 66."""
    run = workspace.run_folder()
    assert workspace.resolve_cwd("$RUN_DIR", "pdf", run) == run
    assert workspace.resolve_cwd("${RUN_DIR}/x", "pdf", run) == f"{run}/x"
    assert workspace.resolve_cwd("$RUN_DIR/x", "pdf") == "runs/x"  # not known yet


@pytest.mark.parametrize(
    "text",
    ["/runs", "/runs/1", "/runs/2", "$WORKSPACE_DIR/runs/2", "$RUN_DIR/..", "$RUN_DIR/../2",
     "$RUN_DIR/../../work", "$RUN_DIR/../runs/x", "$WORK_DIR/../runs/2", "../../runs/2"],
)  # fmt: skip
def test_no_other_way_leads_to_the_folder_of_a_call(workspace: Workspace, text: str) -> None:
    """The same is found before the call has a folder, when it is judged."""
    assert {workspace.resolve_cwd(text, "pdf", run) for run in ("", "runs/1")} == {"skills/pdf"}


@given(
    st.lists(
        st.sampled_from(
            [
                "..",
                ".",
                "",
                "/",
                "\\",
                "work",
                "out",
                "skills",
                "$WORK_DIR",
                "${RUN_DIR}",
                "\0",
                "é",
            ]
        )
        | st.text(max_size=5),
        max_size=8,
    ).map("/".join)
)
def test_a_command_never_starts_outside(text: str) -> None:
    # No file is touched: the workspace need not exist.
    found = Workspace.resolve_cwd(Workspace.__new__(Workspace), text, "pdf", "runs/1")
    parts = found.split("/")
    assert found == "." or parts[0] in ("skills", "work", "out", "runs")
    assert ".." not in parts
    assert "" not in parts


def test_a_missing_place_to_start_is_made_where_runs_may_write(workspace: Workspace) -> None:
    assert workspace.enter("out/a/b", HOMES) == "out/a/b"
    assert os.path.isdir(os.path.join(workspace.path, "out/a/b"))
    assert workspace.enter("skills/pdf/out/c", HOMES) == "out/c"
    assert workspace.enter(".", HOMES) == "."


def test_a_place_in_a_skill_is_one_in_its_copy(workspace: Workspace) -> None:
    os.makedirs(os.path.join(workspace.path, HOMES["pdf"], "scripts"))
    assert workspace.enter("skills/pdf/scripts", HOMES) == f"{HOMES['pdf']}/scripts"
    assert workspace.enter("skills", HOMES) == "skills-1"
    with pytest.raises(RunRefused, match="cannot run in 'skills/other'"):
        workspace.enter("skills/other", HOMES)


def test_the_same_session_has_a_workspace_in_each_project(all_of_them: str) -> None:
    with open_workspace(all_of_them, KEY, project="/a") as first:
        Path(first.path, "work", "a.txt").write_text("kept")
    with open_workspace(all_of_them, KEY, project="/b") as other:
        assert os.listdir(os.path.join(other.path, "work")) == ["inputs"]
    with open_workspace(all_of_them, KEY, project="/a") as again:
        assert Path(again.path, "work", "a.txt").read_text() == "kept"


def test_without_a_session_each_workspace_is_a_new_one(all_of_them: str) -> None:
    paths = {open_workspace(all_of_them, None).path for _ in range(3)}
    assert len(paths) == 3


def test_a_missing_place_to_start_in_a_skill_is_refused(workspace: Workspace) -> None:
    with pytest.raises(RunRefused, match="cannot run in 'skills/pdf/nowhere'"):
        workspace.enter("skills/pdf/nowhere", HOMES)


def test_a_link_out_is_no_place_to_start(workspace: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    os.symlink(outside, os.path.join(workspace.path, "work", "out"))
    for cwd in ("work/out", "work/out/new"):
        with pytest.raises(RunRefused):
            workspace.enter(cwd, HOMES)
    assert list(outside.iterdir()) == []


# Paths


def test_folders_are_made_through_no_link(workspace: Workspace, tmp_path: Path) -> None:
    os.symlink(tmp_path, os.path.join(workspace.path, "work", "link"))
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(PathEscape):
        workspace.make_folders("work/link/new")
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("path", ["skills/new", "private/x", "metadata.json", "../x", "/work/x"])
def test_folders_are_made_only_where_runs_may_write(workspace: Workspace, path: str) -> None:
    with pytest.raises(PathEscape):
        workspace.make_folders(path)


def test_links_of_a_skill_are_known_by_name() -> None:
    assert plain("skills/pdf/out/a/b") == "out/a/b"
    assert plain("skills/pdf/inputs") == "work/inputs"
    assert plain("skills/pdf/scripts/out") == "skills/pdf/scripts/out"
    assert plain("work/out") == "work/out"


def test_only_known_variables_are_expanded() -> None:
    assert expanded("$WORK_DIR/a") == "/work/a"
    assert expanded("$RUN_DIR") == "$RUN_DIR"
    assert expanded("a/$WORK_DIR") == "a/$WORK_DIR"


# Metadata


def test_what_is_changed_under_the_lock_is_remembered(all_of_them: str) -> None:
    with open_workspace(all_of_them, KEY) as workspace, workspace.locked() as metadata:
        metadata.pins["work/inputs/a"] = Pin("a", 3)
    with open_workspace(all_of_them, KEY) as workspace:
        assert workspace.metadata().pins == {"work/inputs/a": Pin("a", 3)}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "[" * 100_000, '{"staged": [], "pins": {"a": [1, "b"], "c": 3, "d": ["x"]}}'],
)
def test_damaged_metadata_is_forgotten(workspace: Workspace, text: str) -> None:
    Path(workspace.path, "metadata.json").write_text(text)
    assert workspace.metadata() == ({}, {}, {})


def test_an_error_under_the_lock_changes_nothing_and_frees_it(workspace: Workspace) -> None:
    with pytest.raises(KeyError), workspace.locked() as metadata:
        metadata.pins["a"] = Pin("a", 1)
        raise KeyError
    with workspace.locked() as metadata:
        assert metadata.pins == {}


def test_threads_do_not_lose_each_others_changes(workspace: Workspace) -> None:
    def add(number: int) -> None:
        with workspace.locked() as metadata:
            metadata.pins[str(number)] = Pin("a", number)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(workspace.metadata().pins) == 20


def test_processes_do_not_lose_each_others_changes(open_tree: Tree) -> None:
    os.chmod(open_tree.root, 0o777)
    code = """
from skillbelt.running.workspace import Pin
with open_workspace(sys.argv[1], KEY) as workspace:
    for number in range(50):
        with workspace.locked() as metadata:
            metadata.pins[sys.argv[2] + str(number)] = Pin("a", number)
    print(len(workspace.metadata().pins))
"""
    state = open_tree.path("state")
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda mark=mark: counts.append(int(as_user(code, state, mark))))
        for mark in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(counts) == 100


def test_closing_twice_is_harmless(workspace: Workspace) -> None:
    workspace.close()
    workspace.close()


# Commands that run as another user


@needs_root
def test_only_what_runs_may_write_belongs_to_their_user(open_tree: Tree) -> None:
    with open_workspace(str(open_tree.path("state")), KEY, RUNNER) as workspace:
        run = workspace.run_folder()
        os.close(workspace.make_folders("work/a/b"))
        owners = {
            name: os.lstat(os.path.join(workspace.path, name)).st_uid
            for name in ("", "private", "metadata.json", "work", "out", "runs", "work/inputs",
                         run, "work/a", "work/a/b")
        }  # fmt: skip
    theirs = {name for name, uid in owners.items() if uid == NOBODY}
    assert theirs == {"work", "out", "runs", "work/inputs", run, "work/a", "work/a/b"}


@needs_root
def test_the_user_of_runs_can_reach_and_write_what_is_theirs_and_nothing_else(
    open_tree: Tree,
) -> None:
    code = """
os.chdir(sys.argv[1])
open("work/inputs/a", "w").close()
denied = []
for path in ("skills-a", "metadata.json", "private/a", "../x", "../.locks/a"):
    try:
        open(path, "a").close()
    except PermissionError:
        denied.append(path)
for folder in (".", "..", "private", "../.locks"):
    try:
        os.listdir(folder)
    except PermissionError:
        denied.append(folder)
try:
    os.rename("work", "moved")
except PermissionError:
    denied.append("rename")
print(len(denied))
"""
    with open_workspace(str(open_tree.path("state")), KEY, RUNNER) as workspace:
        assert as_user(code, workspace.path) == "10\n"


@needs_root
def test_a_session_run_as_another_user_starts_anew(open_tree: Tree) -> None:
    state = str(open_tree.path("state"))
    names = [open_workspace(state, KEY, owner).name for owner in (None, RUNNER, (4242, 4242))]
    assert len(set(names)) == 3


@needs_root
def test_a_private_state_folder_is_left_for_one_that_can_be_reached(
    open_tree: Tree, tmp_path: Path
) -> None:
    private = tmp_path / "home"
    private.mkdir(mode=0o700)
    shelter = str(open_tree.path("shelter"))
    place = place_of(str(private / "state"), RUNNER, [shelter])
    assert os.path.dirname(place) == shelter
    assert mode(private) == 0o700
    assert {mode(shelter), mode(place)} == {0o711}
    assert as_user("os.stat(sys.argv[1] + '/.'); print('in')", place) == "in\n"
    assert place_of(str(private / "other"), RUNNER, [shelter]) != place


@needs_root
def test_a_place_whose_state_folder_is_gone_is_removed(open_tree: Tree, tmp_path: Path) -> None:
    private, shelter = tmp_path / "home", str(open_tree.path("shelter"))
    private.mkdir(mode=0o700)
    (private / "kept").mkdir()
    folders = [str(private / name / "workspaces") for name in ("kept", "gone", "in-use")]
    kept, gone, held = (place_of(folder, RUNNER, [shelter]) for folder in folders)
    Workspace(gone, "one", RUNNER).close()
    open_tree.write("shelter/unknown/work/a.txt")

    def clean(idle_seconds: float) -> set[str]:
        found = clean_orphans([shelter], idle_seconds=idle_seconds, now=time.time() + 60)
        return {os.path.join(shelter, one.name) for one in found}

    with Workspace(held, "one", RUNNER) as workspace:
        assert clean(3600) == set()
        assert clean(1) == {gone}
        assert os.path.isdir(workspace.path)
    left = {os.path.join(shelter, name) for name in os.listdir(shelter)}
    assert left == {kept, held, os.path.join(shelter, "unknown")}
    os.utime(os.path.join(held, ".belongs"), (0, 0))
    place_of(folders[2], RUNNER, [shelter])
    assert clean(3600) == set()  # it was just used
    os.utime(os.path.join(held, ".belongs"), (0, 0))
    assert clean(3600) == {held}


@needs_root
def test_a_state_folder_that_somebody_else_could_move_is_not_used(open_tree: Tree) -> None:
    theirs = open_tree.path("theirs")
    theirs.mkdir(mode=0o755)
    os.chown(theirs, NOBODY, NOBODY)
    place = place_of(str(theirs / "state"), RUNNER, [str(open_tree.path("shelter"))])
    assert os.path.dirname(place) == str(open_tree.path("shelter"))
    assert list(theirs.iterdir()) == []


@needs_root
@pytest.mark.parametrize("trap", ["link", "theirs", "open"])
def test_a_shelter_that_somebody_prepared_is_not_used(open_tree: Tree, trap: str) -> None:
    shelter, target = open_tree.path("shelter"), open_tree.path("target")
    target.mkdir()
    if trap == "link":
        os.chown(target, NOBODY, NOBODY)
        os.symlink(target, shelter)
    else:
        shelter.mkdir()
        os.chmod(shelter, 0o777 if trap == "open" else 0o755)
        os.chown(shelter, NOBODY if trap == "theirs" else 0, 0)
    private = open_tree.path("private")
    private.mkdir(mode=0o700)
    with pytest.raises(SandboxUnavailable, match="state_dir"):
        place_of(str(private / "state"), RUNNER, [str(shelter)])
    assert list(target.iterdir()) == []


@needs_root
def test_folders_on_the_way_are_made_passable_whatever_the_umask(open_tree: Tree) -> None:
    before = os.umask(0o077)
    try:
        place = place_of(str(open_tree.path("a/b/workspaces")), RUNNER, [])
    finally:
        os.umask(before)
    assert place == str(open_tree.path("a/b/workspaces"))
    assert as_user("os.stat(sys.argv[1] + '/.'); print('in')", place) == "in\n"


def test_metadata_is_plain_json(workspace: Workspace) -> None:
    with workspace.locked() as metadata:
        metadata.pins["work/inputs/é\udcff"] = Pin("a", 1)
    text = Path(workspace.path, "metadata.json").read_text("ascii")
    assert json.loads(text)["pins"] == {"work/inputs/é\udcff": ["a", 1]}
