from __future__ import annotations

import io
import os
import stat
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt import Skill
from skillbelt.errors import ArtifactError, RunRefused
from skillbelt.running.inputs import (
    HostInput,
    StagedInput,
    artifact_reference,
    destination,
    open_exactly,
)
from skillbelt.running.staging import stage
from skillbelt.running.workspace import Workspace, open_workspace
from tests.bounds import bounds
from tests.running.staged import stage_inputs
from tests.running.test_workspace import KEY, mode
from tests.tree import Tree

SECRET = "secret of the host"


class Shelf:
    """Artifacts in memory: a list of versions for each name."""

    def __init__(self, **versions: list[bytes]) -> None:
        self.versions = versions

    def resolve(self, name: str, version: int | None) -> int:
        known = self.versions.get(name, [])
        if not known or (version is not None and version >= len(known)):
            raise ArtifactError(f"no artifact {name!r}")
        return len(known) - 1 if version is None else version

    def open(self, name: str, version: int) -> BinaryIO:
        return io.BytesIO(self.versions[name][version])


@pytest.fixture
def workspace(tree: Tree) -> Workspace:
    return open_workspace(str(tree.path("state")), KEY)


@pytest.fixture
def secret(tree: Tree) -> Path:
    return tree.write("secret/key", SECRET)


def put(workspace: Workspace, source: str, to: str | None = None, **options: object) -> StagedInput:
    """Stage one input; `mode` and `pin` belong to it, all else to the call."""
    item = {"from": source, "to": to}
    item |= {key: options.pop(key) for key in ("mode", "pin") if key in options}  # type: ignore[misc]
    (done,) = stage_inputs(workspace, [item], **options)  # type: ignore[arg-type]
    return done


def put_host(workspace: Workspace, tree: Tree, path: Path | str, to: str | None = None,
             **options: object) -> StagedInput:  # fmt: skip
    return put(workspace, f"host://{path}", to, host_roots=[str(tree.project)], **options)


def at(workspace: Workspace, path: str) -> Path:
    return Path(workspace.path, path)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


# Files of the host


def test_a_file_comes_to_be_exactly_where_it_is_wanted(workspace: Workspace, tree: Tree) -> None:
    """Case 73."""
    path = tree.write("project/notes.txt", "notes")
    done = put_host(workspace, tree, path, "work/inputs/n.txt")
    assert done == StagedInput(f"host://{path}", "work/inputs/n.txt", "copy", 5)
    assert files(at(workspace, "work")) == {"inputs/n.txt": b"notes"}
    assert not at(workspace, "work/inputs/n.txt").is_symlink()


def test_a_folder_comes_to_be_exactly_where_it_is_wanted(workspace: Workspace, tree: Tree) -> None:
    """Case 73."""
    tree.write("project/data/a.txt", "a")
    tree.write("project/data/deep/b.txt", "bb")
    done = put_host(workspace, tree, tree.path("project/data"), "work/inputs/d")
    assert done.size_bytes == 3
    assert files(at(workspace, "work")) == {"inputs/d/a.txt": b"a", "inputs/d/deep/b.txt": b"bb"}


@pytest.mark.parametrize(
    ("to", "wanted"),
    [
        (None, "work/inputs/n.txt"),
        ("", "work/inputs/n.txt"),
        ("inputs/x", "work/inputs/x"),
        ("inputs/", "work/inputs/n.txt"),
        ("work/inputs/deep/er/x", "work/inputs/deep/er/x"),
        ("out/x", "out/x"),
        ("$WORK_DIR/x", "work/x"),
        ("${OUTPUT_DIR}/x", "out/x"),
        ("./work/x", "work/x"),
        ("work/", "work/n.txt"),
    ],
)
def test_where_an_input_goes(workspace: Workspace, tree: Tree, to: str | None, wanted: str) -> None:
    path = tree.write("project/n.txt", "notes")
    assert put_host(workspace, tree, path, to).to == wanted
    assert at(workspace, wanted).read_text() == "notes"


@pytest.mark.parametrize(
    "to",
    ["../../x", "work/../../x", "/etc/x", "skills/pdf/x", "metadata.json", "private/x", "x", "work",
     "inputs", "work/inputs", "work//x", "work/./x", "work/a\0b", "work/a\nb", "work\\x", "C:/x",
     "runs/x", "runs/1/x", "$WORKSPACE_DIR/runs/1/x",
     "work/" + "x" * 300, "work/" + "a/" * 100 + "x", "$HOME/x", "work/\udcff", ".locks/x"],
)  # fmt: skip
def test_where_no_input_may_go(workspace: Workspace, tree: Tree, to: str) -> None:
    """Case 74."""
    path = tree.write("project/n.txt", "notes")
    before = sorted(tree.root.rglob("*"))
    with pytest.raises(RunRefused):
        put_host(workspace, tree, path, to)
    assert sorted(tree.root.rglob("*")) == before


def test_of_the_folders_of_calls_an_input_goes_to_its_own() -> None:
    assert destination("$RUN_DIR/x", "name", "runs/1") == "runs/1/x"
    assert destination("runs/1/x", "name", "runs/1") == "runs/1/x"
    for to in ("runs/2/x", "runs/12/x", "$RUN_DIR/../2/x", "runs/1"):
        with pytest.raises(RunRefused):
            destination(to, "name", "runs/1")


def test_a_file_of_another_call_is_copied_since_a_link_would_lead_nowhere(
    workspace: Workspace,
) -> None:
    earlier = workspace.run_folder()
    at(workspace, f"{earlier}/log").write_text("text")
    done = put(workspace, f"workspace://{earlier}/log", "work/log", mode="link")
    assert (done.mode, done.warning) == ("copy", "a file of another call is always copied")
    assert not at(workspace, "work/log").is_symlink()
    assert at(workspace, "work/log").read_text() == "text"


@given(st.lists(st.sampled_from(["..", ".", "", "work", "out", "inputs", "a", "$WORK_DIR", "\0"])
                | st.text(max_size=4), max_size=7).map("/".join))  # fmt: skip
def test_an_input_never_goes_outside(to: str) -> None:
    try:
        found = destination(to, "name")
    except RunRefused:
        return
    parts = found.split("/")
    assert parts[0] in ("work", "out", "runs")
    assert len(parts) > 1
    assert not {"", ".", ".."} & set(parts)


def test_the_copy_is_the_users_own(workspace: Workspace, tree: Tree) -> None:
    path = tree.write("project/tool", "x")
    path.chmod(0o6755)
    put_host(workspace, tree, path, "work/tool")
    assert mode(at(workspace, "work/tool")) == 0o755
    at(workspace, "work/tool").write_text("changed")
    assert path.read_text() == "x"


def test_what_lies_elsewhere_is_asked_for_by_its_real_path(
    workspace: Workspace, tree: Tree, secret: Path
) -> None:
    os.symlink(secret.parent, tree.path("project/link"))
    asked: list[HostInput] = []
    for path in (secret, tree.path("project/link/key"), tree.path("project/../secret/key")):
        put_host(workspace, tree, path, "work/x", permit_host=asked.append)
        assert at(workspace, "work/x").read_text() == SECRET
    assert [one.path for one in asked] == [str(secret)] * 3
    assert [one.files for one in asked] == [(str(secret),)] * 3
    assert not any(one.free for one in asked)


def test_what_is_not_permitted_is_not_given_nor_told_of(
    workspace: Workspace, tree: Tree, secret: Path
) -> None:
    def refuse(host: HostInput) -> None:
        raise RunRefused(f"no: {host.path}")

    gone = tree.path("secret/gone")
    for path in (secret, tree.path("project/../secret/key"), gone):
        with pytest.raises(RunRefused, match="no: /"):
            put_host(workspace, tree, path, permit_host=refuse)
        with pytest.raises(RunRefused, match="not below a folder that is allowed"):
            put_host(workspace, tree, path)
    assert files(at(workspace, "work")) == {}


def test_a_project_that_is_a_link_is_allowed_by_both_names(
    workspace: Workspace, tree: Tree
) -> None:
    tree.write("project/n.txt", "notes")
    os.symlink(tree.project, tree.path("alias"))
    for root in ("alias", "project"):
        for path in ("alias/n.txt", "project/n.txt"):
            roots = [str(tree.path(root))]
            put(workspace, f"host://{tree.path(path)}", "work/x", host_roots=roots)


def test_a_link_inside_the_project_is_followed(workspace: Workspace, tree: Tree) -> None:
    tree.write("project/deep/n.txt", "notes")
    os.symlink("deep/n.txt", tree.path("project/link"))
    put_host(workspace, tree, tree.path("project/link"))
    assert at(workspace, "work/inputs/link").read_text() == "notes"
    assert not at(workspace, "work/inputs/link").is_symlink()


def test_a_host_file_is_copied_where_a_link_was_asked_for(workspace: Workspace, tree: Tree) -> None:
    done = put_host(workspace, tree, tree.write("project/n.txt", "notes"), mode="link")
    assert (done.mode, "always copied" in done.warning) == ("copy", True)
    assert not at(workspace, "work/inputs/n.txt").is_symlink()


@pytest.mark.parametrize("source", ["host://relative", "host://", "host:///a\0b", "host://./x"])
def test_a_host_path_is_absolute(workspace: Workspace, tree: Tree, source: str) -> None:
    with pytest.raises(RunRefused):
        put(workspace, source, "work/x", host_roots=[str(tree.project)])


def test_a_host_file_that_is_not_there_is_refused(workspace: Workspace, tree: Tree) -> None:
    with pytest.raises(RunRefused, match="No such file"):
        put_host(workspace, tree, tree.path("project/none"))


def test_a_pipe_is_neither_waited_for_nor_copied(workspace: Workspace, tree: Tree) -> None:
    os.mkfifo(tree.path("project/pipe"))
    with pytest.raises(RunRefused, match="named pipe"):
        put_host(workspace, tree, tree.path("project/pipe"))


def test_a_folder_with_a_link_out_is_refused(
    workspace: Workspace, tree: Tree, secret: Path
) -> None:
    tree.write("project/data/a.txt", "a")
    os.symlink(secret, tree.path("project/data/link"))
    with pytest.raises(RunRefused, match="'link' is a link that leads out"):
        put_host(workspace, tree, tree.path("project/data"))
    assert files(at(workspace, "work")) == {}
    assert os.listdir(at(workspace, "private")) == []


def test_a_source_swapped_after_it_was_allowed_leads_nowhere(
    workspace: Workspace, tree: Tree, secret: Path
) -> None:
    folder = tree.write("project/data/key", "allowed").parent
    away = tree.path("project/away")
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
        for _ in range(1000):
            # Refused as often as not; what is copied must be what was allowed.
            with suppress(RunRefused):
                put_host(workspace, tree, folder / "key", "work/x")
                assert at(workspace, "work/x").read_text() == "allowed"
    finally:
        stop.set()
        thread.join()
    put_host(workspace, tree, folder / "key", "work/x")
    assert at(workspace, "work/x").read_text() == "allowed"


def test_a_permitted_path_is_opened_through_no_link(tree: Tree, secret: Path) -> None:
    os.close(open_exactly(os.path.realpath(secret)))
    os.symlink(secret.parent, tree.path("link"))
    for path in (tree.path("link/key"), tree.path("link")):
        with pytest.raises(Exception, match=r"link|Not a directory"):
            open_exactly(str(path))


# Files of the workspace and of skills


def test_a_file_of_the_workspace_is_copied(workspace: Workspace) -> None:
    at(workspace, "out/result.csv").write_text("1,2")
    done = put(workspace, "workspace://out/result.csv")
    assert done.to == "work/inputs/result.csv"
    assert at(workspace, done.to).read_text() == "1,2"


def test_a_file_of_the_workspace_is_linked(workspace: Workspace) -> None:
    at(workspace, "out/result.csv").write_text("1,2")
    done = put(workspace, "workspace://out/result.csv", mode="link")
    assert (done.mode, done.size_bytes) == ("link", 0)
    assert os.readlink(at(workspace, done.to)) == "../../out/result.csv"
    assert at(workspace, done.to).read_text() == "1,2"


def test_an_input_linked_to_itself_stays(workspace: Workspace) -> None:
    at(workspace, "work/inputs/a").write_text("kept")
    put(workspace, "workspace://inputs/a", "inputs/a", mode="link")
    assert at(workspace, "work/inputs/a").read_text() == "kept"


@pytest.mark.parametrize(
    "source",
    ["workspace://../../etc/passwd", "workspace:///etc/passwd", "workspace://metadata.json",
     "workspace://private/x", "workspace://", "workspace://work/../metadata.json",
     "workspace://work/a\0b", "skill://../../etc/passwd", "skill:///x", "skill://",
     "skill://pdf/../../metadata.json"],
)  # fmt: skip
def test_nothing_outside_the_workspace_is_a_source(
    workspace: Workspace, tree: Tree, source: str
) -> None:
    """Case 74."""
    stage(workspace, Skill.from_folder(tree.skill("project/pdf")))
    for how in ("copy", "link"):
        with pytest.raises(RunRefused):
            put(workspace, source, "work/x", mode=how)
    assert files(at(workspace, "work")) == {}


def test_a_file_of_a_skill_is_copied_and_linked(workspace: Workspace, tree: Tree) -> None:
    source = tree.skill("project/pdf")
    tree.write(source / "forms" / "a.txt", "form")
    stage(workspace, Skill.from_folder(source))
    copied = put(workspace, "skill://pdf/forms/a.txt")
    assert at(workspace, copied.to).read_text() == "form"
    linked = put(workspace, "skill://pdf/forms", "work/forms", mode="link")
    assert os.readlink(at(workspace, linked.to)) == "../skills/pdf/forms"


def test_a_whole_skill_is_copied_without_the_workspaces_own(
    workspace: Workspace, tree: Tree
) -> None:
    source = tree.skill("project/pdf")
    root = stage(workspace, Skill.from_folder(source)).path
    os.mkfifo(os.path.join(root, ".venv", "pipe"))
    put(workspace, "skill://pdf", "work/copy")
    assert os.listdir(at(workspace, "work/copy")) == ["SKILL.md"]
    at(workspace, "work/copy/SKILL.md").write_text("mine now")


def test_a_skills_links_are_the_workspaces_folders(workspace: Workspace, tree: Tree) -> None:
    stage(workspace, Skill.from_folder(tree.skill("project/pdf")))
    at(workspace, "out/a").write_text("a")
    put(workspace, "skill://pdf/out/a", "skills/pdf/work/b")
    assert at(workspace, "work/b").read_text() == "a"


def test_a_skill_is_staged_when_it_is_needed(workspace: Workspace, tree: Tree) -> None:
    skill = Skill.from_folder(tree.skill("project/pdf"))
    with pytest.raises(RunRefused, match="'pdf' is not staged"):
        put(workspace, "skill://pdf/SKILL.md")
    put(workspace, "skill://pdf/SKILL.md", stage_skill=lambda _: stage(workspace, skill).home)
    assert at(workspace, "work/inputs/SKILL.md").is_file()


# Artifacts


def test_an_artifact_is_loaded_by_version_or_the_latest(workspace: Workspace) -> None:
    store = Shelf(a=[b"zero", b"one"])
    for source, version, text in (("artifact://a", 1, b"one"), ("artifact://a@0", 0, b"zero")):
        done = put(workspace, source, artifacts=store)
        assert (done.version, done.to) == (version, "work/inputs/a")
        assert at(workspace, done.to).read_bytes() == text


def test_a_pinned_artifact_stays_at_the_version_first_used(tree: Tree) -> None:
    """Case 75."""
    store = Shelf(a=[b"zero", b"one"])
    for saved in (b"two", b"three", b"four"):
        with open_workspace(str(tree.path("state")), KEY) as workspace:
            done = put(workspace, "artifact://a", "work/a", pin=True, artifacts=store)
            assert (done.version, at(workspace, "work/a").read_bytes()) == (1, b"one")
        store.versions["a"].append(saved)
    with open_workspace(str(tree.path("state")), KEY) as workspace:
        assert put(workspace, "artifact://a", "work/a", artifacts=store).version == 4
        assert put(workspace, "artifact://a", "work/b", pin=True, artifacts=store).version == 4


def test_a_pin_is_of_one_artifact(workspace: Workspace) -> None:
    store = Shelf(a=[b"a"], b=[b"0", b"1"])
    put(workspace, "artifact://a", "work/x", pin=True, artifacts=store)
    assert put(workspace, "artifact://b", "work/x", pin=True, artifacts=store).version == 1
    assert at(workspace, "work/x").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a", ("a", None)),
        ("a@3", ("a", 3)),
        ("a@b.txt", ("a@b.txt", None)),
        ("a@1@2", ("a@1", 2)),
        ("a@", ("a@", None)),
        ("a@-1", ("a@-1", None)),
        ("a@٣", ("a@٣", None)),
        ("a@" + "9" * 5000, ("a@" + "9" * 5000, None)),
    ],
)
def test_what_is_no_number_belongs_to_the_name(text: str, wanted: tuple[str, int | None]) -> None:
    """Case 76."""
    assert artifact_reference(text) == wanted


@pytest.mark.parametrize("source", ["artifact://@0", "artifact://", "artifact://x/"])
def test_an_artifact_needs_a_name(workspace: Workspace, source: str) -> None:
    """Case 76."""
    with pytest.raises((RunRefused, ArtifactError)):
        put(workspace, source, artifacts=Shelf())


def test_without_a_store_there_are_no_artifacts(workspace: Workspace) -> None:
    """Case 76."""
    with pytest.raises(RunRefused, match="no artifact store"):
        put(workspace, "artifact://a")


def test_an_artifact_that_is_not_there_is_the_stores_error(workspace: Workspace) -> None:
    with pytest.raises(ArtifactError):
        put(workspace, "artifact://a", artifacts=Shelf())


def test_no_input_replaces_another(workspace: Workspace, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text(name)
    both = [{"from": f"host://{tmp_path}/{name}/x.txt"} for name in ("a", "b")]
    with pytest.raises(RunRefused, match=r"two inputs go to 'work/inputs/x\.txt'.* another `to`"):
        stage_inputs(workspace, both, host_roots=[str(tmp_path)])
    apart = [both[0], {**both[1], "to": "inputs/y.txt"}]
    put = stage_inputs(workspace, apart, host_roots=[str(tmp_path)])
    assert [one.to for one in put] == ["work/inputs/x.txt", "work/inputs/y.txt"]


def test_an_artifact_is_called_by_the_last_part_of_its_name(workspace: Workspace) -> None:
    store = Shelf(**{"user:reports/a.pdf": [b"x"], "user:b.pdf": [b"y"]})
    assert (
        put(workspace, "artifact://user:reports/a.pdf", artifacts=store).to == "work/inputs/a.pdf"
    )
    assert put(workspace, "artifact://user:b.pdf", artifacts=store).to == "work/inputs/b.pdf"


# Arguments and limits


@pytest.mark.parametrize("source", ["http://x", "file:///etc/passwd", "x", "HOST:///etc", "://x"])
def test_another_scheme_is_refused(workspace: Workspace, source: str) -> None:
    """Case 77."""
    with pytest.raises(RunRefused) as refused:
        put(workspace, source)
    assert str(refused.value) == f"unsupported input: {source}"


@pytest.mark.parametrize(
    "item",
    [None, "host:///x", [], {}, {"from": 3}, {"from": "host:///a", "to": 3},
     {"from": "host:///a", "mode": "move"}, {"from": "host:///a", "mode": ["copy"]},
     {"from": "host:///a", "pin": "yes"}],
)  # fmt: skip
def test_what_is_no_input_is_refused_before_anything_is_done(
    workspace: Workspace, tree: Tree, item: Mapping[str, object]
) -> None:
    good = {"from": f"host://{tree.write('project/n.txt', 'notes')}"}
    with pytest.raises(RunRefused):
        stage_inputs(workspace, [good, item], host_roots=[str(tree.project)])
    assert files(at(workspace, "work")) == {}


def test_inputs_together_have_a_limit(workspace: Workspace, tree: Tree) -> None:
    items = [{"from": f"host://{tree.write(f'project/{name}', 'x' * 60)}"} for name in "ab"]
    for most in (120, 119):
        limits = bounds(max_input_bytes=most)
        roots = [str(tree.project)]
        if most == 120:
            assert len(stage_inputs(workspace, items, host_roots=roots, limits=limits)) == 2
        else:
            with pytest.raises(RunRefused, match="more than 59 bytes"):
                stage_inputs(workspace, items, host_roots=roots, limits=limits)


def test_a_stream_without_end_is_cut_off(workspace: Workspace) -> None:
    class Endless(Shelf):
        def open(self, name: str, version: int) -> BinaryIO:
            return open("/dev/zero", "rb")

    with pytest.raises(RunRefused, match="more than 4,194,304 bytes"):
        limits = bounds(max_input_bytes=4 * 2**20)
        put(workspace, "artifact://a", artifacts=Endless(a=[b""]), limits=limits)
    assert os.listdir(at(workspace, "private")) == []


def test_parents_are_private(workspace: Workspace, tree: Tree) -> None:
    put_host(workspace, tree, tree.write("project/n.txt", "x"), "work/a/b/n.txt")
    assert stat.S_IMODE(at(workspace, "work/a").stat().st_mode) == 0o700
