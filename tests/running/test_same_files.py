"""Every reader of a skill sees the same files: check, model, hash, copy, search, package, MCP."""

from __future__ import annotations

import io
import os
import re
import shutil
import socket
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillbelt import Runtime, Skill, build_manifest
from skillbelt.check.folder import check_entries
from skillbelt.disclosure.body import nameable, read_file, walk
from skillbelt.errors import ConfigError, FileUnreadable, LoadError, PathEscape, RunRefused
from skillbelt.files.manifest import is_complete
from skillbelt.files.tree import LEFT_OUT
from skillbelt.install.pack import pack_skills, read_skill_to_pack
from skillbelt.mcp.published import PublishedSkills, read_bytes
from skillbelt.running.staging import Staged, stage
from skillbelt.running.workspace import LINKS, Workspace, open_workspace
from skillbelt.search.text import parts_of
from tests.bounds import bounds
from tests.mcp.conftest import SKILLS
from tests.running.test_workspace import KEY
from tests.tree import NOBODY, Tree

bounds(max_indexed_files=1_000)
DEEP = "/".join("d" * 40) + "/deep.md"
ODD = ("back\\slash.md", "co:lon.md", "new\nline.md", "\udcff.md")
# Names that are unusual and can be asked for.
PLAIN = (".hidden", ".config/settings.json", ".github/x.md", "a b.md", "-rf.md", "$(x).md", "ü.md")
FILES = {"SKILL.md", "run.sh", "lib/util.py", "docs/guide.md", DEEP, *ODD, *PLAIN}
INSIDE = {"link.md": "docs/guide.md", "docs/up": "../lib", "nowhere.md": "missing.md"}


@pytest.fixture
def folder(tree: Tree) -> Path:
    """A skill with everything that could be read in more than one way and does not stop a run."""
    folder = tree.skill(f"{SKILLS}/awkward")
    for path in FILES - {"SKILL.md"}:
        tree.write(folder / path, f"#!/bin/sh\n# About {path.encode('utf-8', 'replace')!r}\n")
    (folder / "run.sh").chmod(0o755)
    for path, target in INSIDE.items():
        (folder / path).symlink_to(target)
    for name in LEFT_OUT:
        tree.write(folder / name / "SKILL.md", "left out")
        tree.write(folder / "lib" / name / "deep" / "left.md", "left out")
    (folder / "empty").mkdir()
    (folder / "docs" / "node_modules").symlink_to("/usr/lib/node_modules")
    (folder / "docs" / ".git").write_text("gitdir: /somewhere")
    return folder


@pytest.fixture
def skill(folder: Path) -> Skill:
    return Skill.from_folder(folder)


@pytest.fixture
def workspace(tree: Tree) -> Iterator[Workspace]:
    with open_workspace(str(tree.path("state")), KEY) as opened:
        yield opened


def copied(workspace: Workspace, skill: Skill) -> tuple[Staged, set[str], dict[str, str]]:
    """The staged skill, and the files and links in its copy but for those of the workspace."""
    done = stage(workspace, skill)
    files, links = set(), {}
    for top, folders, names in os.walk(done.path):
        for name in [*folders, *names]:
            path = os.path.join(top, name)
            below = os.path.relpath(path, done.path)
            if os.path.islink(path):
                links[below] = os.readlink(path)
            elif os.path.isfile(path):
                files.add(below)
    for name in LINKS:
        del links[name]
    return done, files, links


def searched(skill: Skill) -> set[str]:
    """The names of files in the search index."""
    return set(parts_of(skill).files.split("\n"))


def stem(path: str) -> str:
    return path.rpartition(".")[0] or path


def test_everyone_sees_the_same_files(skill: Skill, workspace: Workspace) -> None:
    entries = skill.files.entries()
    assert {entry.path for entry in entries if entry.kind == "file"} == FILES
    assert {entry.path: entry.target for entry in entries if entry.kind == "link"} == INSIDE
    assert [entry for entry in entries if entry.problem] == []

    manifest = build_manifest(skill.dir)
    assert {file.path for file in manifest.files} == FILES
    done, files, links = copied(workspace, skill)
    assert (files, links) == (FILES, INSIDE)
    assert manifest.hash == skill.files.digest() == done.hash
    assert is_complete(done.hash)

    assert set(walk(skill)) == {path for path in FILES if nameable(path)} == FILES - set(ODD)
    indexed = "\n".join(stem(path) for path in FILES - {"SKILL.md"}).split("\n")
    assert set(indexed) <= searched(skill)
    assert "left" not in "".join(searched(skill))


def packed(folder: Path) -> set[str]:
    """The files in a package of the skill, as its format has them."""
    made = pack_skills([read_skill_to_pack(str(folder))], "skill")
    with zipfile.ZipFile(io.BytesIO(made["awkward.skill"])) as archive:
        return {name.removeprefix("awkward/") for name in archive.namelist()}


def test_a_package_holds_the_same_files(folder: Path) -> None:
    """All that a package can hold: no link, and no name that is not UTF-8 or that check refuses."""
    for path in INSIDE:
        (folder / path).unlink()
    for path in ODD:
        (folder / path).unlink()
    assert packed(folder) == FILES - set(ODD)


@pytest.mark.parametrize("path", [*sorted(INSIDE), ODD[-1]])
def test_what_no_package_can_hold_is_named(folder: Path, path: str) -> None:
    for other in (*INSIDE, *ODD):
        if other != path:
            (folder / other).unlink()
    with pytest.raises(ConfigError, match=re.escape(repr(path))):
        packed(folder)


def test_check_names_what_others_cannot_use_and_looks_at_all_else(
    skill: Skill, folder: Path
) -> None:
    found = [(one.code, os.path.relpath(one.path, folder)) for one in check_entries(skill.dir)]
    assert found == [
        *(("entry-unusable", name) for name in sorted(ODD)[:3]),
        ("broken-link", "nowhere.md"),
        ("entry-unusable", sorted(ODD)[3]),
    ]
    (folder / DEEP).with_name("SKILL.md").touch()
    (folder / ".config" / "SKILL.md").touch()
    codes = [one.code for one in check_entries(skill.dir)]
    assert codes.count("nested-skill") == 2


@pytest.mark.parametrize("path", sorted(FILES - {"SKILL.md"}))
def test_each_file_counts_everywhere(
    skill: Skill, folder: Path, workspace: Workspace, path: str
) -> None:
    """A change of any of them is another skill, for who approves it and for who runs it."""
    before, _, _ = copied(workspace, skill)
    (folder / path).write_text("#!/bin/sh\necho changed\n")
    after, _, _ = copied(workspace, skill)
    assert after.hash == skill.files.digest() != before.hash
    copy = os.path.join(after.path, path)
    assert Path(copy).read_text() == "#!/bin/sh\necho changed\n"


@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_what_is_left_out_is_left_out_everywhere(
    skill: Skill, folder: Path, workspace: Workspace, name: str
) -> None:
    before, files, _ = copied(workspace, skill)
    (folder / name / "SKILL.md").write_text("other")
    (folder / "lib" / name / "new.md").write_text("new")
    shutil.rmtree(folder / "lib" / name / "deep")
    after, later, _ = copied(workspace, skill)
    assert before.hash == after.hash == skill.files.digest()
    assert files == later
    for path in (f"{name}/SKILL.md", f"lib/{name}/new.md"):
        with pytest.raises(FileUnreadable, match="not part of the skill"):
            read_file(skill, path, 1_000)
    # Nor is it reached by a detour; the hash says that it does not cover what is there.
    (folder / "detour.md").symlink_to(f"lib/{name}/new.md")
    with pytest.raises(FileUnreadable, match="not part of the skill"):
        read_file(skill, "detour.md", 1_000)
    assert not is_complete(skill.files.digest())
    assert "link-outside" in [one.code for one in check_entries(skill.dir)]


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(path.parent)  # the path of a socket may not be long
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


def make_link_out(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def make_link_up(path: Path) -> None:
    path.symlink_to("../lib/../../outside.md")


def make_depth(path: Path) -> None:
    (path / "/".join("d" * 70)).mkdir(parents=True)
    (path / "/".join("d" * 70) / "lost.md").touch()


@pytest.mark.parametrize(
    ("make", "problem", "code"),
    [
        (make_pipe, "not-a-file", "entry-unusable"),
        (make_socket, "not-a-file", "entry-unusable"),
        (make_link_out, "link-outside", "link-outside"),
        (make_link_up, "link-outside", "broken-link"),
        (make_depth, "too-deep", "folder-cut"),
    ],
)
def test_what_is_refused_is_refused_everywhere(
    skill: Skill,
    folder: Path,
    workspace: Workspace,
    make: Callable[[Path], None],
    problem: str,
    code: str,
) -> None:
    make(folder / "docs" / "odd.md")
    [entry] = [entry for entry in skill.files.entries() if entry.problem]
    assert entry.problem == problem
    with pytest.raises(RunRefused) as refused:
        stage(workspace, skill)
    assert f"{entry.path!r} {entry.reason}" in str(refused.value)
    assert code in [one.code for one in check_entries(skill.dir)]
    assert {file.path for file in build_manifest(skill.dir).files} == FILES
    assert set(walk(skill)) == FILES - set(ODD)
    assert "docs/odd" not in searched(skill)
    assert not any("lost" in text for text in searched(skill))
    if problem != "too-deep":
        with pytest.raises((LoadError, PathEscape)):
            read_file(skill, "docs/odd.md", 1_000)


def test_what_may_not_be_read_is_refused_everywhere(open_tree: Tree) -> None:
    folder = open_tree.skill("pdf")
    open_tree.write(folder / "closed.md", "x").chmod(0)
    open_tree.write(folder / "shut" / "inner.md", "x")
    (folder / "shut").chmod(0)
    # All is imported before root is left: the interpreter may lie where only root can read.
    code = f"""
import encodings.utf_8_sig, json, mimetypes, os
from skillbelt import Limits, Skill
from skillbelt.check.folder import check_entries
from skillbelt.disclosure.body import read_file, walk
from skillbelt.errors import ConfigError, FileUnreadable, RunRefused
from skillbelt.files.manifest import is_complete
from skillbelt.running.staging import stage
from skillbelt.running.workspace import open_workspace
from skillbelt.search.text import parts_of
from skillbelt.store import SessionKey
skill = Skill.from_folder({str(folder)!r})
mimetypes.guess_type("a.md")
skill.frontmatter, skill.files.digest()
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
print([(entry.path, entry.problem) for entry in skill.files.entries() if entry.problem])
print(list(walk(skill)), "inner" in parts_of(skill).files)
print(is_complete(skill.files.digest()), [one.code for one in skill.files.manifest().diagnostics])
print([one.code for one in check_entries(skill.dir)])
try:
    read_file(skill, "closed.md", 100)
except FileUnreadable as error:
    print("cannot be read" in str(error))
key = SessionKey("desk", "ada", "one")
with open_workspace({str(open_tree.path("state"))!r}, key) as workspace:
    try:
        stage(workspace, skill)
    except RunRefused as error:
        print("'closed.md'" in str(error))
"""
    os.chmod(open_tree.root, 0o777)
    done = open_tree.python("-c", code)
    assert done.stdout.splitlines() == [
        "[('shut', 'unreadable')]",
        "['SKILL.md', 'closed.md'] False",
        "False ['unreadable', 'unreadable']",
        "['entry-unusable', 'entry-unusable']",
        "True",
        "True",
    ], done.stderr


def test_the_mcp_server_publishes_the_same_files(skill: Skill, tree: Tree) -> None:
    with Runtime(tree.project) as belt:
        published = PublishedSkills(belt).find_skill("awkward")
    assert published is not None
    assert set(published.files) == FILES
    for path in FILES:
        assert read_bytes(published, published.files[path]) == Path(skill.dir, path).read_bytes()
