from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from skillbelt.disclosure.body import nameable, read_file, walk
from skillbelt.errors import FileTooLarge, FileTypeRefused, FileUnreadable, PathEscape
from skillbelt.files.tree import SkillTree
from skillbelt.format.skill import Skill
from tests.handles import no_handle_left
from tests.tree import Tree

MOST = 1_000
SECRET = b"secret " * 10


@pytest.fixture
def folder(tree: Tree) -> Path:
    tree.write("outside/secret.md", SECRET)
    made = tree.skill("project/.agents/skills/pdf")
    tree.write(made / "references/deep/a.md", "inside")
    return made


@pytest.fixture
def skill(folder: Path) -> Skill:
    return Skill.from_folder(folder)


@pytest.fixture(params=["openat2", "walk"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With `openat2`, and as on a kernel without it."""
    if request.param == "walk":
        monkeypatch.setattr("skillbelt.files.contain._openat2", lambda: None)
    return str(request.param)


def test_a_file_of_the_skill_is_read(skill: Skill, kernel: str) -> None:
    assert read_file(skill, "references/deep/a.md", MOST) == b"inside"


def test_a_link_that_stays_inside(folder: Path, skill: Skill) -> None:
    (folder / "link.md").symlink_to("references/deep/a.md")
    assert read_file(skill, "link.md", MOST) == b"inside"


@pytest.mark.parametrize("target", ["{out}/secret.md", "../../../../outside/secret.md"])
def test_a_link_that_leads_out_is_refused(
    folder: Path, skill: Skill, tree: Tree, kernel: str, target: str
) -> None:
    (folder / "link.md").symlink_to(target.format(out=tree.path("outside")))
    with pytest.raises(PathEscape, match=r"link\.md"):
        read_file(skill, "link.md", MOST)


def test_a_linked_folder_that_leads_out_is_refused(
    folder: Path, skill: Skill, tree: Tree, kernel: str
) -> None:
    (folder / "more").symlink_to(tree.path("outside"))
    with pytest.raises(PathEscape):
        read_file(skill, "more/secret.md", MOST)


def test_links_in_a_circle_are_refused(folder: Path, skill: Skill, kernel: str) -> None:
    (folder / "a.md").symlink_to("b.md")
    (folder / "b.md").symlink_to("a.md")
    with pytest.raises(PathEscape):
        read_file(skill, "a.md", MOST)


def test_the_skill_itself_may_be_reached_through_a_link(folder: Path, tree: Tree) -> None:
    tree.path("project/linked").symlink_to(folder)
    skill = Skill.from_folder(tree.path("project/linked"))
    assert read_file(skill, "references/deep/a.md", MOST) == b"inside"


@pytest.mark.parametrize("place", ["link.md", "more/secret.md"])
def test_a_link_swapped_while_files_are_read_never_lets_a_byte_out(
    folder: Path, skill: Skill, tree: Tree, kernel: str, place: str
) -> None:
    """The name is a file inside at one moment and a link to the secret at the next."""
    first, _, rest = place.partition("/")
    tree.write(folder / "good" / rest if rest else folder / "good", "inside")
    (folder / "bad").symlink_to(tree.path("outside" if rest else "outside/secret.md"))
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for name in ("good", "bad"):
                os.rename(folder / name, folder / first)
                os.rename(folder / first, folder / name)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: dict[object, int] = {}
    try:
        while len(seen) < 3 or sum(seen.values()) < 2_000:
            outcome = attempt(lambda: read_file(skill, place, MOST))
            seen[outcome] = seen.get(outcome, 0) + 1
    finally:
        stop.set()
        swapper.join()
    assert set(seen) == {b"inside", PathEscape, FileUnreadable}


def attempt(read: Callable[[], bytes]) -> object:
    try:
        return read()
    except (PathEscape, FileUnreadable) as error:
        return type(error)


def test_a_pipe_is_not_waited_for(folder: Path, skill: Skill) -> None:
    os.mkfifo(folder / "pipe.md")
    with pytest.raises(FileTypeRefused, match="not a regular file"):
        read_file(skill, "pipe.md", MOST)


def test_a_folder_is_no_file(skill: Skill) -> None:
    with pytest.raises(FileTypeRefused, match="not a regular file"):
        read_file(skill, "references", MOST)


def test_a_socket_is_no_file(folder: Path, skill: Skill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)  # the path of a socket may not be long
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.md")
        with pytest.raises(FileUnreadable):
            read_file(skill, "s.md", MOST)


def test_a_file_at_the_limit_is_read_and_one_beyond_is_not(folder: Path, skill: Skill) -> None:
    (folder / "a.md").write_bytes(b"x" * MOST)
    assert len(read_file(skill, "a.md", MOST)) == MOST
    (folder / "a.md").write_bytes(b"x" * (MOST + 1))
    with pytest.raises(FileTooLarge, match=r"1,001 bytes; the limit is 1,000.*reference/"):
        read_file(skill, "a.md", MOST)


def test_a_file_whose_size_says_nothing_is_bounded_too() -> None:
    """Files of /proc have size 0, but content."""
    skill = Skill("x", "x", "x", "/proc/self/SKILL.md")
    with pytest.raises(FileTooLarge):
        read_file(skill, "environ", 3)


def test_a_script_that_can_be_executed_is_refused(folder: Path, skill: Skill) -> None:
    script = folder / "run.md"
    script.write_text("#!/bin/sh\n")
    assert read_file(skill, "run.md", MOST)
    script.chmod(0o755)
    with pytest.raises(FileTypeRefused, match="executable"):
        read_file(skill, "run.md", MOST)


def test_a_missing_file_names_the_closest(skill: Skill) -> None:
    with pytest.raises(FileUnreadable, match=r"closest: references/deep/a\.md"):
        read_file(skill, "references/a.md", MOST)


def test_a_skill_that_is_gone(tree: Tree) -> None:
    skill = Skill("x", "x", "x", str(tree.path("nowhere/SKILL.md")))
    with pytest.raises(FileUnreadable, match="no such file"):
        read_file(skill, "a.md", MOST)
    assert list(walk(skill)) == []


def test_a_skill_made_from_text_has_no_files() -> None:
    skill = Skill.from_text("---\nname: a\ndescription: b\n---\n")
    with pytest.raises(FileUnreadable, match="made from text"):
        read_file(skill, "a.md", MOST)
    assert list(walk(skill)) == []


def test_a_file_nobody_may_read(open_tree: Tree) -> None:
    folder = open_tree.skill("project/.agents/skills/pdf")
    open_tree.write(folder / "a.md", "x").chmod(0)
    # A module that is imported late may be in a folder that the user cannot read.
    code = f"""
import os
from skillbelt.disclosure.body import read_file
from skillbelt.files.tree import SkillTree
from skillbelt.format.skill import Skill
skill = Skill.from_folder({str(folder)!r})
read_file(skill, "SKILL.md", 100)
if os.getuid() == 0:
    os.setuid(65534)
try:
    read_file(skill, "a.md", 100)
except Exception as error:
    print(type(error).__name__, error)
"""
    done = open_tree.python("-c", code)
    assert done.stdout == "FileUnreadable a.md: cannot be read: permission denied\n", done.stderr


def test_no_handle_stays_open(folder: Path, skill: Skill, kernel: str) -> None:
    os.mkfifo(folder / "pipe.md")
    (folder / "link.md").symlink_to("/etc/hostname")
    read_file(skill, "SKILL.md", MOST)
    with no_handle_left():
        for path in ("SKILL.md", "pipe.md", "link.md", "references", "missing.md", "SKILL.md/x"):
            for most in (MOST, 0):
                attempt_any(skill, path, most)
        next(walk(skill))


def attempt_any(skill: Skill, path: str, most: int) -> None:
    try:
        read_file(skill, path, most)
    except (PathEscape, FileTooLarge, FileTypeRefused, FileUnreadable):
        return


def test_the_walk_gives_files_by_folder_and_name(folder: Path, skill: Skill, tree: Tree) -> None:
    for path in ("b.md", "a.md", ".hidden", "references/z.md", ".git/config", "x/node_modules/y"):
        tree.write(folder / path, "")
    (folder / "link.md").symlink_to("a.md")
    (folder / "more").symlink_to(tree.path("outside"))
    os.mkfifo(folder / "pipe")
    assert list(walk(skill)) == [
        ".hidden",
        "SKILL.md",
        "a.md",
        "b.md",
        "references/z.md",
        "references/deep/a.md",
    ]


def test_the_walk_leaves_out_what_could_not_be_asked_for(folder: Path, skill: Skill) -> None:
    for name in (b"back\\slash.md", b"co:lon.md", b"new\nline.md", b"\xff.md"):
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).touch()
    assert list(walk(skill)) == ["SKILL.md", "references/deep/a.md"]
    assert not nameable("a/../b")
    assert nameable("./a")


def test_the_walk_is_bounded(folder: Path, skill: Skill, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(20):
        (folder / f"{n}.md").touch()
    deep = folder / "/".join("d" * 10)
    deep.mkdir(parents=True)
    (deep / "far.md").touch()
    assert "far.md" in "".join(walk(skill))
    monkeypatch.setattr("skillbelt.files.tree.MAX_ENTRY_DEPTH", 5)
    assert "far.md" not in "".join(walk(skill))
    monkeypatch.setattr("skillbelt.files.tree.MAX_MANIFEST_FILES", 5)
    assert len(list(walk(skill))) <= 5


def test_the_walk_stays_inside_while_a_folder_is_swapped(
    folder: Path, skill: Skill, tree: Tree
) -> None:
    """A folder that is replaced by a link before it is opened gives nothing."""
    with SkillTree(str(folder)) as found:
        entries = found.entries()
        assert [next(entries).path for _ in range(2)] == ["SKILL.md", "references"]
        (folder / "references").rename(tree.path("outside/references"))
        (folder / "references").symlink_to(tree.path("outside"))
        assert [(entry.path, entry.problem) for entry in entries] == [("references", "unreadable")]
