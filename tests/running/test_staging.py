from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt import Skill, build_manifest
from skillbelt.errors import RunRefused
from skillbelt.files.tree import relative_target
from skillbelt.running.staging import Staged, stage, stamp
from skillbelt.running.workspace import Workspace, open_workspace
from tests.bounds import bounds
from tests.handles import no_handle_left
from tests.running.test_workspace import KEY, RUNNER, as_user, mode, needs_root
from tests.tree import NOBODY, Tree, settle

SECRET = "secret of the host"


def make_skill(tree: Tree) -> Path:
    """A skill with a script and a document."""
    folder = tree.skill("project/pdf")
    tree.write(folder / "scripts" / "run.sh", "#!/bin/sh\necho hello\n").chmod(0o755)
    tree.write(folder / "reference" / "deep" / "more.md", "more\n")
    return folder


@pytest.fixture
def source(tree: Tree) -> Path:
    return make_skill(tree)


@pytest.fixture
def workspace(tree: Tree) -> Workspace:
    return open_workspace(str(tree.path("state")), KEY)


@pytest.fixture
def secret(tree: Tree) -> Path:
    return tree.write("secret/key", SECRET)


def staged(workspace: Workspace, source: Path, **options: str) -> Staged:
    return stage(workspace, Skill.from_folder(source), **options)  # type: ignore[arg-type]


def hash_of(source: Path) -> str:
    return Skill.from_folder(source).files.digest()


def copies(workspace: Workspace) -> list[str]:
    return [name for name in os.listdir(workspace.path) if name.startswith("skills")]


def texts(folder: str | Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file() and not path.is_symlink()
    }


# What is there


def test_every_file_is_copied_and_the_hash_is_that_of_the_skill(
    workspace: Workspace, source: Path
) -> None:
    done = staged(workspace, source)
    assert done.path == os.path.join(workspace.path, done.home)
    assert copies(workspace) == [os.path.dirname(done.home)]
    assert os.path.basename(done.home) == "pdf"
    assert texts(done.path) == texts(source)
    assert done.hash == hash_of(source)
    assert build_manifest(str(source)).files == build_manifest(done.path).files
    assert build_manifest(str(source)).hash == done.hash


def test_a_skill_finds_the_folders_of_the_workspace(workspace: Workspace, source: Path) -> None:
    """Case 68."""
    root = Path(staged(workspace, source).path)
    links = {name: os.readlink(root / name) for name in ("out", "work", "inputs")}
    assert links == {"out": "../../out", "work": "../../work", "inputs": "../../work/inputs"}
    for name, place in {"out": "out", "work": "work", "inputs": "work/inputs"}.items():
        assert os.path.samefile(root / name, os.path.join(workspace.path, place))
    assert stat.S_ISDIR(os.lstat(root / ".venv").st_mode)


def test_a_skill_with_packages_of_node_finds_them_in_its_folder(
    workspace: Workspace, source: Path
) -> None:
    """It leads to where the sandbox mounts them; the hash stays that of the skill."""
    (source / "package.json").write_text("{}")
    done = staged(workspace, source)
    assert os.readlink(Path(done.path, "node_modules")) == "../../node_modules"
    assert build_manifest(str(source)).files == build_manifest(done.path).files
    assert build_manifest(str(source)).hash == done.hash
    assert staged(workspace, source).path == done.path


def test_nothing_but_the_venv_may_be_written(workspace: Workspace, source: Path) -> None:
    root = staged(workspace, source).path
    modes = {
        os.path.relpath(path, root): mode(path)
        for folder, folders, files in os.walk(root)
        for path in (folder, *(os.path.join(folder, name) for name in (*files, *folders)))
        if not os.path.islink(path)
    }
    assert modes.pop(".venv") & 0o700 == 0o700
    assert modes.pop("SKILL.md") == modes.pop("reference/deep/more.md") == 0o444
    assert modes.pop("scripts/run.sh") == 0o555
    assert set(modes.values()) == {0o555}


def test_an_ordinary_user_can_not_write_to_what_is_staged(open_tree: Tree) -> None:
    """Case 68."""
    source = open_tree.skill("pdf")
    before = texts(source)
    os.chmod(open_tree.root, 0o777)
    code = """
with open_workspace(sys.argv[1] + "/state", KEY) as workspace:
    root = stage(workspace, Skill.from_folder(sys.argv[1] + "/pdf")).path
    for path in ("SKILL.md", "new", "scripts"):
        try:
            open(f"{root}/{path}", "a").write("x")
        except PermissionError:
            print("refused")
    open(root + "/.venv/new", "w").close()
    open(root + "/out/new", "w").close()
    print(os.listdir(workspace.path + "/out"))
"""
    assert as_user(code, open_tree.root) == "refused\nrefused\nrefused\n['new']\n"
    assert texts(source) == before


@needs_root
def test_what_is_staged_does_not_belong_to_who_runs_it(open_tree: Tree) -> None:
    source = open_tree.skill("pdf")
    with open_workspace(str(open_tree.path("state")), KEY, RUNNER) as workspace:
        root = staged(workspace, source).path
        code = """
os.chdir(sys.argv[1])
text = open("SKILL.md").read()
for action in (
    lambda: open("SKILL.md", "a"),
    lambda: os.chmod("SKILL.md", 0o777),
    lambda: os.chmod(".", 0o777),
    lambda: os.rename("SKILL.md", "other"),
    lambda: os.unlink("out"),
    lambda: os.rename("../pdf", "../evil"),
    lambda: os.rmdir(".venv"),
):
    try:
        action()
    except PermissionError:
        print("refused")
open(".venv/new", "w").close()
"""
        assert as_user(code, root) == "refused\n" * 7
        assert os.lstat(os.path.join(root, ".venv", "new")).st_uid == NOBODY


def test_bits_that_raise_privileges_are_dropped(workspace: Workspace, source: Path) -> None:
    (source / "scripts" / "run.sh").chmod(0o6755)
    (source / "scripts").chmod(0o3755)
    root = staged(workspace, source).path
    assert mode(os.path.join(root, "scripts", "run.sh")) == 0o555
    assert mode(os.path.join(root, "scripts")) == 0o555


def test_what_no_hash_covers_is_not_staged(tree: Tree, workspace: Workspace, source: Path) -> None:
    for name in ("__pycache__", "node_modules", ".git"):
        tree.write(source / "scripts" / name / "planted.pyc", "x")
    assert "planted.pyc" not in "".join(texts(staged(workspace, source).path))


def test_names_of_any_bytes_are_copied(workspace: Workspace, source: Path) -> None:
    names = [b"a b", b"new\nline", b"\xff\xfe", b"colon: here", b"back\\slash", b"-rf"]
    for name in names:
        with open(os.fsencode(source) + b"/" + name, "wb") as file:
            file.write(name)
    done = staged(workspace, source)
    assert set(names) <= set(os.listdir(os.fsencode(done.path)))
    assert done.hash == hash_of(source)


@pytest.mark.parametrize("name", ["out", "work", "inputs", ".venv"])
def test_the_workspace_hides_a_skills_own_entry_and_says_so(
    tree: Tree, workspace: Workspace, source: Path, name: str
) -> None:
    tree.write(source / name / "own.txt", "own")
    for done in (staged(workspace, source), staged(workspace, source)):
        (said,) = done.diagnostics
        assert (said.code, said.path) == ("entry-hidden", str(source / name))
        assert not os.path.exists(os.path.join(done.path, name, "own.txt"))
        assert done.hash == hash_of(source)


# What is refused


@pytest.mark.parametrize(
    "name", ["../evil", "/etc", "..", ".", "", ".hidden", "a/b", "a\\b", "a\0b", "x" * 300, "a\nb"]
)
def test_a_name_that_is_no_folder_is_refused(workspace: Workspace, source: Path, name: str) -> None:
    """Case 72."""
    skill = Skill.from_folder(source)._replace(name=name)
    before = sorted(os.listdir(workspace.path))
    with pytest.raises(RunRefused):
        stage(workspace, skill)
    assert sorted(os.listdir(workspace.path)) == before
    assert copies(workspace) == []


def test_a_skill_without_files_is_refused(workspace: Workspace) -> None:
    with pytest.raises(RunRefused, match="made from text"):
        stage(workspace, Skill.from_text("---\nname: a\ndescription: b\n---\n"))


@pytest.mark.parametrize(
    "target",
    [
        "/etc/passwd",
        "../../secret/key",
        "scripts/../../../secret/key",
        "..",
        "/",
        "../pdf/SKILL.md",
    ],
)
def test_a_link_that_leaves_is_refused_by_name(
    workspace: Workspace, source: Path, secret: Path, target: str
) -> None:
    os.symlink(target, source / "link.md")
    with pytest.raises(RunRefused, match=r"'link\.md' is a link that leads out"):
        staged(workspace, source)
    assert copies(workspace) == []
    assert os.listdir(os.path.join(workspace.path, "private")) == []


def test_a_link_out_in_a_deep_folder_is_refused(workspace: Workspace, source: Path) -> None:
    os.symlink("../../../x", source / "reference" / "deep" / "link")
    with pytest.raises(RunRefused, match="reference/deep/link"):
        staged(workspace, source)


def test_links_that_stay_are_kept(workspace: Workspace, source: Path) -> None:
    os.symlink("scripts/run.sh", source / "run")
    os.symlink("../../SKILL.md", source / "reference" / "deep" / "up")
    os.symlink("scripts", source / "folder")
    os.symlink(source / "scripts" / "run.sh", source / "reference" / "absolute")
    os.symlink("nowhere", source / "dangling")
    root = Path(staged(workspace, source).path)
    assert (root / "run").read_text() == (source / "run").read_text()
    assert (root / "reference" / "deep" / "up").read_text() == (source / "SKILL.md").read_text()
    assert (root / "folder" / "run.sh").samefile(root / "scripts" / "run.sh")
    assert os.readlink(root / "reference" / "absolute") == "../scripts/run.sh"
    assert os.readlink(root / "dangling") == "nowhere"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)  # the path of a socket must be short
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("needs root to make a device: sudo make test")


@pytest.mark.parametrize(
    ("make", "said"), [(fifo, "named pipe"), (unix_socket, "socket"), (device, "device")]
)
def test_what_is_no_file_is_refused(
    workspace: Workspace, source: Path, make: Callable[[Path], None], said: str
) -> None:
    make(source / "scripts" / "odd")
    with pytest.raises(RunRefused, match=f"'scripts/odd' is a {said}"):
        staged(workspace, source)


def test_too_many_files_are_refused(
    tree: Tree, workspace: Workspace, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillbelt.files.tree.MAX_MANIFEST_FILES", 10)
    for number in range(20):
        tree.write(source / f"{number}.md")
    with pytest.raises(RunRefused, match="more than 10 files"):
        staged(workspace, source)


def test_too_many_bytes_are_refused(tree: Tree, workspace: Workspace, source: Path) -> None:
    tree.write(source / "large.bin", b"x" * 2000)
    with pytest.raises(RunRefused, match="more than 1,000 bytes"):
        stage(workspace, Skill.from_folder(source), bounds(max_staged_bytes=1000))
    assert os.listdir(os.path.join(workspace.path, "private")) == []


def test_folders_without_end_are_refused(workspace: Workspace, source: Path) -> None:
    (source / "/".join("d" * 100)).mkdir(parents=True)
    with pytest.raises(RunRefused, match="nested deeper"):
        staged(workspace, source)


def test_what_may_not_be_read_is_refused(open_tree: Tree) -> None:
    open_tree.write(open_tree.skill("pdf") / "closed", "x").chmod(0)
    os.chmod(open_tree.root, 0o777)
    code = """
with open_workspace(sys.argv[1] + "/state", KEY) as workspace:
    try:
        stage(workspace, Skill.from_folder(sys.argv[1] + "/pdf"))
    except RunRefused as refused:
        print("'closed' cannot be copied" in str(refused))
"""
    assert as_user(code, open_tree.root) == "True\n"


def test_nothing_stays_open_whatever_is_refused(workspace: Workspace, source: Path) -> None:
    def use() -> None:
        staged(workspace, source)
        os.symlink("/etc", source / "scripts" / "link")
        with pytest.raises(RunRefused):
            staged(workspace, source)
        os.unlink(source / "scripts" / "link")
        with pytest.raises(RunRefused):
            staged(workspace, source, expected_hash="sha256:0")

    use()
    with no_handle_left():
        for _ in range(5):
            use()
    assert os.listdir(os.path.join(workspace.path, "private")) == []


# Hashes


def test_a_skill_that_is_not_what_was_approved_is_refused(
    tree: Tree, workspace: Workspace, source: Path
) -> None:
    approved = hash_of(source)
    assert staged(workspace, source, expected_hash=approved).hash == approved
    tree.write(source / "scripts" / "run.sh", "#!/bin/sh\nrm -rf /\n")
    with pytest.raises(RunRefused, match="not what was approved"):
        staged(workspace, source, expected_hash=approved)
    (copy,) = copies(workspace)
    assert "hello" in Path(workspace.path, copy, "pdf", "scripts", "run.sh").read_text()


def test_the_copy_of_an_earlier_call_is_checked_too(workspace: Workspace, source: Path) -> None:
    settle()
    staged(workspace, source)
    with pytest.raises(RunRefused, match="not what was approved"):
        staged(workspace, source, expected_hash="sha256:" + "0" * 64)


def test_a_file_swapped_while_it_is_approved_is_never_staged(
    tree: Tree, workspace: Workspace, source: Path
) -> None:
    """The staged content has the approved hash, even if the source changes."""
    script = source / "scripts" / "run.sh"
    good = script.read_bytes()
    tree.write(script, good)
    approved = hash_of(source)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            tree.write(script, b"evil")
            tree.write(script, good)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(100):
            try:
                done = staged(workspace, source, expected_hash=approved)
            except RunRefused:
                continue
            assert Path(done.path, "scripts", "run.sh").read_bytes() == good
    finally:
        stop.set()
        thread.join()
    tree.write(script, good)
    assert staged(workspace, source, expected_hash=approved).hash == approved


# Links by their text


@given(
    st.lists(st.sampled_from(["a", "b", "..", ".", ""]), max_size=7).map("/".join),
    st.integers(0, 3),
)
def test_a_link_that_stays_inside_never_resolves_outside(target: str, depth: int) -> None:
    path = "/".join(["d"] * depth + ["link"])
    if relative_target("", path, target):
        resolved = os.path.normpath(os.path.join("/root", os.path.dirname(path), target))
        assert resolved == "/root" or resolved.startswith("/root/")


def test_a_stamp_says_nothing_of_what_it_can_not_see(tmp_path: Path) -> None:
    assert stamp(str(tmp_path / "none"), 10).text == ""
    for number in range(3):
        (tmp_path / str(number)).touch()
    assert stamp(str(tmp_path), 2).text == ""
    assert stamp(str(tmp_path), 3).text != ""


def test_a_stamp_is_not_settled_while_files_are_fresh(tmp_path: Path) -> None:
    def fresh() -> bool:
        (tmp_path / "file").write_text("x")
        return not stamp(str(tmp_path), 3).settled

    assert any(fresh() for _ in range(50))  # once quick enough, on a busy machine too
    settle()
    assert stamp(str(tmp_path), 3).settled
