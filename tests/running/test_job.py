"""The job that a sandbox is given for a run."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator

import pytest

from skillbelt.errors import PathEscape, RunRefused
from skillbelt.permission.gate import Gate
from skillbelt.permission.packages import Environment
from skillbelt.running.call import Asker, RunCall
from skillbelt.running.job import environment, make_job, mounts, shell, write_editor
from skillbelt.running.programs.folder import Programs
from skillbelt.running.run import INSIDE, Run
from skillbelt.running.staging import stage
from skillbelt.running.workspace import open_workspace
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.network.proxy import Egress
from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.protocol import Mount
from skillbelt.settings import Settings
from skillbelt.store import SessionKey
from skillbelt.store.memory import MemoryStore
from skillbelt.values import Capabilities, Limits
from tests.tree import Tree

KEY = SessionKey("app", "me", "one")


@pytest.fixture
def run(tree: Tree) -> Iterator[Run]:
    """A staged run of a skill `kit`, in a sandbox that shows the workspace at a path of its own."""
    tree.skill("project/.agents/skills/kit")
    skill = tree.catalog().find("kit")
    with open_workspace(str(tree.path("workspaces")), KEY) as workspace:
        run = Run(
            skill=skill,
            call=RunCall("true"),
            who=Asker(KEY),
            gate=Gate(Settings(), MemoryStore),
            limits=Limits(),
            sandbox=LinuxSandbox(),
            argv=("true",),
        )
        run.workspace = workspace
        run.staged = stage(workspace, skill, Limits())
        run.folder = workspace.run_folder()
        run.capabilities = Capabilities(processes=True)
        yield run


def test_a_field_that_no_step_has_set_can_not_be_read(run: Run) -> None:
    with pytest.raises(AttributeError, match="request"):
        print(run.request)


def test_a_run_can_write_to_its_own_places_alone(run: Run) -> None:
    shown = {mount.target: mount for mount in mounts(run)}
    writable = {path for path, mount in shown.items() if mount.writable}
    own = {f"{INSIDE}/{name}" for name in ("work", "out", run.folder)}
    assert writable == {*own, f"{INSIDE}/skills/kit/.venv"}
    assert f"{INSIDE}/runs" not in shown
    assert not shown[f"{INSIDE}/skills/kit"].writable
    assert INSIDE not in shown and f"{INSIDE}/skills" not in shown
    root = run.workspace.path
    for path, mount in shown.items():
        below = path.removeprefix(f"{INSIDE}/").replace("skills/kit", run.staged.home, 1)
        assert mount.source == f"{root}/{below}"


def test_a_skill_that_an_input_comes_from_is_there_to_be_read(run: Run) -> None:
    run.others["other"] = "skills-1/other"
    shown = {mount.target: mount for mount in make_job(run).mounts}
    source = f"{run.workspace.path}/skills-1/other"
    assert shown[f"{INSIDE}/skills/other"] == Mount(source, f"{INSIDE}/skills/other")


def test_where_nothing_is_mounted_elsewhere_paths_are_those_of_the_host(run: Run) -> None:
    assert make_job(run).env["HOME"] == "/tmp"
    run.sandbox = NoSandbox()
    made, root = make_job(run), run.workspace.path
    assert made.cwd == run.staged.path == f"{made.env['SKILLS_DIR']}/kit"
    assert all(mount.source == mount.target for mount in made.mounts)
    assert made.env["HOME"] == made.env["TMPDIR"] == f"{root}/{run.folder}"


def test_programs_of_packages_and_of_the_skill_are_looked_for_last(run: Run) -> None:
    run.packages = Environment("/kept/packages", "hash", ())
    found = environment(run)["PATH"].split(":")
    assert not any(".venv" in folder for folder in found)
    first, *system, second, last = found
    assert first == "/kept/packages/interpreter"
    assert {"/usr/bin", "/bin"} <= set(system)
    assert second == "/kept/packages/bin"
    assert last == f"{INSIDE}/skills/kit/bin"


def test_our_programs_do_not_show_where_the_state_of_the_user_lies(run: Run) -> None:
    """But where nothing can be mounted elsewhere; then their path may hold anything."""
    run.programs = Programs("/home/zoë b/state/.programs/1")
    made = make_job(run)
    assert made.env["PATH"].split(":")[0] == "/run/programs"
    assert ("/home/zoë b/state/.programs/1", "/run/programs", False) in made.mounts
    assert "zoë" not in str(made.env)
    run.sandbox = NoSandbox()
    assert environment(run)["PATH"].split(":")[0] == "/home/zoë b/state/.programs/1"


def test_what_a_run_can_write_is_not_on_the_path(run: Run) -> None:
    assert ".venv" not in environment(run)["PATH"]
    home = run.staged.path
    os.chmod(home, 0o755)
    os.symlink("work", os.path.join(home, "bin"))
    assert "skills/kit" not in environment(run)["PATH"]


def test_what_the_call_sets_wins_but_not_what_starts_others(run: Run) -> None:
    assert "MY_OWN" not in environment(run)
    run.call = RunCall("true", env={"LANG": "de", "PATH": "/mine", "LD_PRELOAD": "/x.so"})
    env = environment(run)
    assert (env["LANG"], env["PATH"], "LD_PRELOAD" in env) == ("de", "/mine", False)
    run.policy = True
    assert environment(run)["PATH"] != "/mine"


def test_packages_for_node_lie_where_import_looks(run: Run, tree: Tree) -> None:
    """Only NODE_PATH is left where nothing can be mounted elsewhere."""
    folder = tree.path("packages")
    (folder / "node_modules").mkdir(parents=True)
    run.packages = Environment(str(folder), "hash", ())
    made = make_job(run)
    assert (f"{folder}/node_modules", f"{INSIDE}/node_modules", False) in made.mounts
    assert made.env["NODE_PATH"] == f"{folder}/node_modules"
    run.sandbox = NoSandbox()
    there = make_job(run)
    assert all(mount.source == mount.target for mount in there.mounts)
    run.programs = Programs("/home/zoë b/programs")
    found = environment(run)["NODE_OPTIONS"]
    assert found == '--require "/home/zoë b/programs/.modules.cjs"'


def test_packages_are_there_and_named(run: Run) -> None:
    assert make_job(run).env["VIRTUAL_ENV"] == f"{INSIDE}/skills/kit/.venv"
    run.packages = Environment("/kept/packages", "hash", ())
    made = make_job(run)
    assert ("/kept/packages", "/kept/packages", False) in made.mounts
    assert made.env["VIRTUAL_ENV"] == "/kept/packages"


def test_a_network_comes_through_its_door(run: Run) -> None:
    assert make_job(run).bridge == ()
    with Egress(["example.com"]) as egress:
        run.egress = egress
        made = make_job(run)
        assert (egress.folder, "/run/net", False) in made.mounts
        assert made.bridge[-1] == "/run/net/proxy.sock"
        run.sandbox = NoSandbox()
        there = make_job(run)
        assert there.bridge[-1] == egress.socket_path


def test_what_the_call_says_is_passed_on(run: Run) -> None:
    run.call = RunCall("true", "$OUTPUT_DIR", timeout_seconds=2.5, stdin=b"x", terminal=True)
    made = make_job(run)
    assert (made.cwd, made.timeout_seconds) == (f"{INSIDE}/out", 2.5)
    assert (made.stdin, made.terminal, made.workspace) == (b"x", True, run.workspace.path)


@pytest.mark.parametrize("cwd", ["../../../..", "/etc", "$WORK_DIR/../../.."])
def test_no_run_starts_outside_its_workspace(run: Run, cwd: str) -> None:
    run.call = RunCall("true", cwd)
    try:
        made = make_job(run)
    except (PathEscape, RunRefused):
        return
    assert f"{made.cwd}/".startswith(f"{INSIDE}/")


def test_the_shell_is_one_that_nobody_can_replace() -> None:
    found = os.path.realpath(shell())
    assert os.path.isabs(shell()) and os.path.basename(found) == "bash"
    assert os.stat(found).st_uid == 0 and not os.stat(found).st_mode & stat.S_IWOTH


def test_an_editor_writes_its_text_whatever_the_path_is(run: Run, tree: Tree) -> None:
    write_editor(run, "a $text\n")
    run.call = RunCall("true", editor_text="x")
    named = environment(run)["EDITOR"]
    editor = named.replace(INSIDE, run.workspace.path, 1)
    file = tree.path("a b")
    subprocess.run([editor, file], env={"PATH": "/nowhere"}, check=True)
    assert file.read_text() == "a $text\n"
