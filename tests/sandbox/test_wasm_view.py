"""The files that a guest sees, and links that cannot lead elsewhere."""

from __future__ import annotations

import os

import pytest

from skillbelt.errors import PathEscape, SandboxUnavailable
from skillbelt.sandbox.protocol import Job, Mount
from skillbelt.sandbox.wasm.folders import GuestFolders
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Capabilities


def workspace(place: Place) -> Job:
    """A job with a workspace as the runtime lays it out."""
    for name in ("skills/kit/.venv", "work/inputs", "out", "runs"):
        os.makedirs(os.path.join(place.folder, name))
    skill = os.path.join(place.folder, "skills/kit")
    for name, target in (("out", "../../out"), ("work", "../../work"), ("own", ".venv"),
                         ("inputs", "../../work/inputs"), ("lost", "../../none"),
                         ("etc", "/etc")):  # fmt: skip
        os.symlink(target, os.path.join(skill, name))
    mounts = [
        Mount(os.path.join(place.folder, path), f"/workspace/{path}", writable)
        for path, writable in (
            ("skills/kit", False),
            ("skills/kit/.venv", True),
            ("work", True),
            ("out", True),
            ("runs", True),
        )
    ]
    env = {
        "SKILLS_DIR": "/workspace/skills",
        "SKILL_NAME": "kit",
        "WORK_DIR": "/workspace/work",
    }
    return place.job("x.wasm", mounts=tuple(mounts), env=env, cwd="/workspace/skills/kit")


def test_the_skill_and_its_work_have_fixed_names(place: Place) -> None:
    view = GuestFolders(workspace(place), place.beside("tmp"))
    found = {folder.path: folder for folder in view.folders()}
    assert not found["/skill"].writable and found["/work"].writable
    assert found["/skill"].source == os.path.join(place.folder, "skills/kit")
    assert found["/skill/.venv"].writable
    assert found["/tmp"].writable


@pytest.mark.parametrize("home", ["/skill", "/workspace/skills/kit"])
def test_links_of_the_skill_to_the_workspace_are_folders_of_their_own(
    place: Place, home: str
) -> None:
    """The engine would not follow them; each is as writable as where it leads."""
    view = GuestFolders(workspace(place), place.beside("tmp"))
    found = {folder.path: folder for folder in view.folders()}
    assert found[f"{home}/out"].source == os.path.join(place.folder, "out")
    assert found[f"{home}/inputs"].below == ("inputs",)
    assert found[f"{home}/inputs"].source == os.path.join(place.folder, "work")
    assert all(found[f"{home}/{name}"].writable for name in ("out", "work", "inputs"))


def test_links_to_anywhere_else_are_none(place: Place) -> None:
    view = GuestFolders(workspace(place), place.beside("tmp"))
    paths = {folder.path for folder in view.folders()}
    assert not paths & {"/skill/etc", "/skill/lost", "/skill/own", "/workspace/skills/kit/etc"}


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ("/workspace/work/a/b.wasm", ("a", "b.wasm")),
        ("/workspace/skills/kit/x.wasm", ("x.wasm",)),
        ("/skill/wasm/x.wasm", ("wasm", "x.wasm")),
        ("/skill/inputs/x.wasm", ("inputs", "x.wasm")),
        ("/workspace/work/../out/x.wasm", ("x.wasm",)),
    ],
)
def test_a_path_inside_is_a_place_on_the_host(
    place: Place, path: str, below: tuple[str, ...]
) -> None:
    found = GuestFolders(workspace(place), place.beside("tmp")).find(path)
    assert found is not None and found.below == below


@pytest.mark.parametrize("path", ["/", "/etc/passwd", "/workspace", "/workspace/skills/other", ""])
def test_other_paths_are_nowhere(place: Place, path: str) -> None:
    assert GuestFolders(workspace(place), place.beside("tmp")).find(path) is None


def test_a_module_is_opened_through_no_link_that_leads_out(place: Place) -> None:
    job = workspace(place)
    outside = os.path.join(place.beside("outside"), "x.wasm")
    open(outside, "wb").close()
    os.symlink(outside, os.path.join(place.folder, "work/x.wasm"))
    os.symlink("../../outside", os.path.join(place.folder, "work/folder"))
    os.mkfifo(os.path.join(place.folder, "work/pipe.wasm"))
    view = GuestFolders(job, place.beside("tmp"))
    for path in ("/work/x.wasm", "/work/folder/x.wasm"):
        with pytest.raises(PathEscape):
            view.open_file(path)
    for path in ("/work/pipe.wasm", "/work", "/none", "/work/none.wasm", "/skill/out"):
        with pytest.raises(FileNotFoundError):
            view.open_file(path)


def test_the_kernel_is_told_of_whole_folders_only(place: Place) -> None:
    """An entry of a folder that a guest may write to could become a link."""
    job = workspace(place)
    inputs = os.path.join(place.folder, "work/inputs")
    os.rmdir(inputs)
    os.symlink("/etc", inputs)
    rules = {rule.path for rule in GuestFolders(job, place.beside("tmp")).rules()}
    assert inputs not in rules
    assert os.path.join(place.folder, "work") in rules


def test_a_file_can_not_be_shown(place: Place) -> None:
    path = os.path.join(place.beside("granted"), "file")
    open(path, "wb").close()
    job = place.job("x.wasm", capabilities=Capabilities(read=(path,)))
    with pytest.raises(SandboxUnavailable, match="shows folders only; grant its folder"):
        GuestFolders(job, place.beside("tmp"))


def test_what_is_granted_is_at_its_own_place(place: Place) -> None:
    read, write = place.beside("read"), place.beside("write")
    job = place.job("x.wasm", capabilities=Capabilities(read=(read, "/no/such"), write=(write,)))
    found = {folder.path: folder for folder in GuestFolders(job, place.beside("tmp")).folders()}
    assert (found[read].writable, found[write].writable) == (False, True)
    assert "/no/such" not in found
