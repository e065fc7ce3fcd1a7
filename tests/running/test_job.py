"""The job that a sandbox is given for a run."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator

import pytest

from skillbelt.errors import PathEscape, RunRefused
from skillbelt.permission.packages import Environment
from skillbelt.running.call import RunCall
from skillbelt.running.job import INSIDE, Place, environment, make_job, mounts, shell, write_editor
from skillbelt.running.staging import stage
from skillbelt.running.workspace import open_workspace
from skillbelt.sandbox.network.proxy import Egress
from skillbelt.sandbox.protocol import Job, Mount
from skillbelt.store import SessionKey
from skillbelt.values import Capabilities, Limits
from tests.tree import Tree


@pytest.fixture
def place(tree: Tree) -> Iterator[Place]:
    """A run of a skill `kit`, in a sandbox that shows the workspace at a place of its own."""
    tree.skill("project/.agents/skills/kit")
    with open_workspace(str(tree.path("workspaces")), SessionKey("app", "me", "one")) as workspace:
        staged = stage(workspace, tree.catalog().find("kit"), Limits())
        yield Place(
            workspace=workspace, skill="kit", staged=staged, run=workspace.run_folder(), remaps=True
        )


def job(place: Place, call: RunCall | None = None, **more: object) -> Job:
    given = (call or RunCall("true"), place, Capabilities(processes=True), Limits())
    return make_job(("true",), *given, **more)  # type: ignore[arg-type]


def test_a_run_can_write_to_its_own_places_alone(place: Place) -> None:
    shown = {mount.target: mount for mount in mounts(place)}
    writable = {path for path, mount in shown.items() if mount.writable}
    own = {f"{INSIDE}/{name}" for name in ("work", "out", place.run)}
    assert writable == {*own, f"{INSIDE}/skills/kit/.venv"}
    assert f"{INSIDE}/runs" not in shown
    assert not shown[f"{INSIDE}/skills/kit"].writable
    assert INSIDE not in shown and f"{INSIDE}/skills" not in shown
    root = place.workspace.path
    for path, mount in shown.items():
        below = path.removeprefix(f"{INSIDE}/").replace("skills/kit", place.staged.home, 1)
        assert mount.source == f"{root}/{below}"


def test_a_skill_that_an_input_comes_from_is_there_to_be_read(place: Place) -> None:
    there = place._replace(others={"other": "skills-1/other"})
    shown = {mount.target: mount for mount in job(there).mounts}
    source = f"{place.workspace.path}/skills-1/other"
    assert shown[f"{INSIDE}/skills/other"] == Mount(source, f"{INSIDE}/skills/other")


def test_where_nothing_is_mounted_elsewhere_paths_are_those_of_the_host(place: Place) -> None:
    there = place._replace(remaps=False)
    made, root = job(there), place.workspace.path
    assert made.cwd == place.staged.path == f"{made.env['SKILLS_DIR']}/kit"
    assert all(mount.source == mount.target for mount in made.mounts)
    assert made.env["HOME"] == made.env["TMPDIR"] == f"{root}/{place.run}"
    assert job(place).env["HOME"] == "/tmp"


def test_programs_of_packages_and_of_the_skill_are_looked_for_last(place: Place) -> None:
    packages = Environment("/kept/packages", "hash", ())
    found = environment(RunCall("true"), place, packages)["PATH"].split(":")
    assert not any(".venv" in folder for folder in found)
    first, *system, second, last = found
    assert first == "/kept/packages/interpreter"
    assert {"/usr/bin", "/bin"} <= set(system)
    assert second == "/kept/packages/bin"
    assert last == f"{INSIDE}/skills/kit/bin"


def test_what_a_run_can_write_is_not_on_the_path(place: Place) -> None:
    assert ".venv" not in environment(RunCall("true"), place)["PATH"]
    home = place.staged.path
    os.chmod(home, 0o755)
    os.symlink("work", os.path.join(home, "bin"))
    assert "skills/kit" not in environment(RunCall("true"), place)["PATH"]


def test_what_the_call_sets_wins_but_not_what_starts_others(place: Place) -> None:
    call = RunCall("true", env={"LANG": "de", "PATH": "/mine", "LD_PRELOAD": "/x.so"})
    env = environment(call, place)
    assert (env["LANG"], env["PATH"], "LD_PRELOAD" in env) == ("de", "/mine", False)
    assert environment(call, place, policy=True)["PATH"] != "/mine"
    assert "MY_OWN" not in environment(RunCall("true"), place)


def test_packages_for_node_lie_where_import_looks(place: Place, tree: Tree) -> None:
    """Only NODE_PATH is left where nothing can be mounted elsewhere."""
    folder = tree.path("packages")
    (folder / "node_modules").mkdir(parents=True)
    packages = Environment(str(folder), "hash", ())
    made = job(place, packages=packages)
    assert (f"{folder}/node_modules", f"{INSIDE}/node_modules", False) in made.mounts
    assert made.env["NODE_PATH"] == f"{folder}/node_modules"
    there = job(place._replace(remaps=False), packages=packages)
    assert all(mount.source == mount.target for mount in there.mounts)


def test_packages_are_there_and_named(place: Place) -> None:
    packages = Environment("/kept/packages", "hash", ())
    made = job(place, packages=packages)
    assert ("/kept/packages", "/kept/packages", False) in made.mounts
    assert made.env["VIRTUAL_ENV"] == "/kept/packages"
    assert job(place).env["VIRTUAL_ENV"] == f"{INSIDE}/skills/kit/.venv"


def test_a_network_comes_through_its_door(place: Place) -> None:
    with Egress(["example.com"]) as egress:
        made = job(place, egress=egress)
        assert (egress.folder, "/run/net", False) in made.mounts
        assert made.bridge[-1] == "/run/net/door"
        there = job(place._replace(remaps=False), egress=egress)
        assert there.bridge[-1] == egress.door
    assert job(place).bridge == ()


def test_what_the_call_says_is_passed_on(place: Place) -> None:
    made = job(
        place, RunCall("true", "$OUTPUT_DIR", timeout_seconds=2.5, stdin=b"x", terminal=True)
    )
    assert (made.cwd, made.timeout_seconds) == (f"{INSIDE}/out", 2.5)
    assert (made.stdin, made.terminal, made.workspace) == (b"x", True, place.workspace.path)


@pytest.mark.parametrize("cwd", ["../../../..", "/etc", "$WORK_DIR/../../.."])
def test_no_run_starts_outside_its_workspace(place: Place, cwd: str) -> None:
    try:
        made = job(place, RunCall("true", cwd))
    except (PathEscape, RunRefused):
        return
    assert f"{made.cwd}/".startswith(f"{INSIDE}/")


def test_the_shell_is_one_that_nobody_can_replace() -> None:
    found = os.path.realpath(shell())
    assert os.path.isabs(shell()) and os.path.basename(found) == "bash"
    assert os.stat(found).st_uid == 0 and not os.stat(found).st_mode & stat.S_IWOTH


def test_an_editor_writes_its_text_whatever_the_path_is(place: Place, tree: Tree) -> None:
    write_editor(place.workspace, place.run, "a $text\n")
    named = environment(RunCall("true", editor_text="x"), place)["EDITOR"]
    editor = named.replace(INSIDE, place.workspace.path, 1)
    file = tree.path("a b")
    subprocess.run([editor, file], env={"PATH": "/nowhere"}, check=True)
    assert file.read_text() == "a $text\n"
