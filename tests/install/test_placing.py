"""Skills in the store, in their place and in the lock: all of it or nothing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skillbelt.errors import ConfigError, PathEscape, SourceError
from skillbelt.install.content_store import (
    StoredSkill,
    has_skill,
    incoming,
    keep_skill,
    store_folder,
    stored_skill,
)
from skillbelt.install.hashes import hash_folder
from skillbelt.install.lock_file import find_place, read_lock
from skillbelt.install.placing import (
    link_clients,
    linked_clients,
    put_skill,
    take_skill,
    using_place,
)
from skillbelt.install.values import LockEntry
from skillbelt.settings import load_settings
from tests.tree import Tree

CHANGES = {
    "os.rename", "os.mkdir", "os.symlink", "os.remove", "os.rmdir", "os.link", "os.chmod",
    "os.truncate", "os.utime",
}  # fmt: skip
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Desk:
    """A project to install into, and two versions of a skill."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.settings = load_settings(tree.project)
        self.place = find_place(self.settings, "project")
        self.base = Path(self.place.base)
        self.target = self.base / ".agents" / "skills" / "alpha"
        self.link = self.base / ".claude" / "skills" / "alpha"
        self.old = self.version("old")
        self.new = self.version("new")

    def version(self, text: str) -> str:
        folder = Path(self.tree.root) / "versions" / text
        (folder / "scripts").mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: alpha\ndescription: d\n---\n{text}\n")
        (folder / "scripts" / "run.sh").write_text(f"echo {text}\n")
        (folder / "scripts" / "run.sh").chmod(0o755)
        (folder / "again").symlink_to("scripts/run.sh")
        return str(folder)

    def entry(self, folder: str, *clients: str) -> LockEntry:
        hashes = hash_folder(folder)
        return LockEntry(
            name="alpha",
            source="./versions",
            source_type="local",
            skill_path="SKILL.md",
            computed_hash="0" * 64,
            content_digest=hashes.content_digest,
            tree_sha=hashes.tree_sha,
            clients=clients,
        )

    def put(self, folder: str, *clients: str, copy: bool = False) -> None:
        with using_place(self.place, self.settings):
            put_skill(self.place, self.entry(folder, *clients), folder, self.settings, copy=copy)

    def take(self) -> None:
        with using_place(self.place, self.settings):
            take_skill(self.place, "alpha", self.settings)

    def state(self) -> tuple[str, str, str]:
        """The digests of what is in place and in the lock, and where the link leads."""
        placed = hash_folder(str(self.target)).content_digest if self.target.exists() else ""
        entry = read_lock(self.place).entries.get("alpha")
        link = os.readlink(self.link) if self.link.is_symlink() else ""
        return placed, entry.content_digest if entry else "", link

    def litter(self) -> list[str]:
        """What is neither a skill nor a lock."""
        names = [str(path.relative_to(self.base)) for path in self.base.rglob("*")]
        marks = (".skillbelt-", ".gone-", ".part")
        return sorted(name for name in names if any(mark in name for mark in marks))


@pytest.fixture
def desk(tree: Tree) -> Desk:
    return Desk(tree)


# --- the store -----------------------------------------------------------------------------------


def test_the_store_keeps_contents_links_and_executable_bits(desk: Desk) -> None:
    stored = keep_skill(desk.old, desk.settings)
    with stored_skill(stored, desk.settings, fetch=lambda: pytest.fail("is there")) as folder:
        assert hash_folder(folder) == hash_folder(desk.old)
        assert not folder.startswith(str(desk.base))
    assert has_skill(stored, desk.settings)


def test_what_was_changed_in_the_store_is_fetched_again(desk: Desk) -> None:
    stored = keep_skill(desk.old, desk.settings)
    folder = os.path.join(store_folder(desk.settings), stored.digits, "skill")
    Path(folder, "scripts", "run.sh").write_text("echo evil\n")
    assert not has_skill(stored, desk.settings)
    with stored_skill(stored, desk.settings, fetch=lambda: desk.old) as again:
        assert Path(again, "scripts", "run.sh").read_text() == "echo old\n"


def test_a_fetch_that_brings_something_else_is_refused_and_not_kept(desk: Desk) -> None:
    stored = StoredSkill(*hash_folder(desk.old)[:2])
    with (
        pytest.raises(SourceError, match="other content than the lock"),
        stored_skill(stored, desk.settings, fetch=lambda: desk.new),
    ):
        pytest.fail("used it")
    assert not has_skill(stored, desk.settings)


def test_what_was_not_used_for_longest_leaves_a_full_store(desk: Desk) -> None:
    first = keep_skill(desk.old, desk.settings)
    second = StoredSkill(*hash_folder(desk.new)[:2])
    with stored_skill(second, desk.settings, fetch=lambda: desk.new, most=1):
        pass
    assert has_skill(second, desk.settings)
    assert not has_skill(first, desk.settings)


def test_what_is_fetched_is_removed_at_the_end(desk: Desk) -> None:
    with incoming(desk.settings) as folder:
        Path(folder, "x").write_text("x")
        assert os.stat(folder).st_mode & 0o777 == 0o700
    assert not os.path.exists(folder)


def test_what_a_killed_process_fetched_is_removed_and_what_another_fetches_stays(
    desk: Desk,
) -> None:
    with incoming(desk.settings) as held:
        left = Path(held).with_name("left")
        (left / "git-0").mkdir(parents=True)
        for path in (held, left):
            os.utime(path, (0, 0))
        with incoming(desk.settings):
            assert not left.exists()
            assert os.path.isdir(held)


def test_a_folder_without_a_skill_is_refused(desk: Desk) -> None:
    os.rename(f"{desk.old}/SKILL.md", f"{desk.old}/README.md")
    with pytest.raises(SourceError, match=r"has no SKILL\.md"):
        keep_skill(desk.old, desk.settings)
    os.symlink("README.md", f"{desk.old}/SKILL.md")
    with pytest.raises(SourceError, match=r"SKILL\.md is a link"):
        keep_skill(desk.old, desk.settings)


# --- the place -----------------------------------------------------------------------------------


def test_a_skill_is_put_in_place_with_a_relative_link_and_its_entry(desk: Desk) -> None:
    desk.put(desk.old, "claude")
    digest = desk.entry(desk.old).content_digest
    assert desk.state() == (digest, digest, "../../.agents/skills/alpha")
    assert read_lock(desk.place).entries["alpha"].clients == ("claude",)
    assert linked_clients(desk.place, "alpha", desk.settings) == ("claude",)
    assert (desk.target / "scripts" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert desk.litter() == []


def test_another_version_takes_its_place(desk: Desk) -> None:
    desk.put(desk.old)
    desk.put(desk.new, "claude")
    digest = desk.entry(desk.new).content_digest
    assert desk.state() == (digest, digest, "../../.agents/skills/alpha")


def test_a_copy_in_place_of_a_link(desk: Desk) -> None:
    desk.put(desk.old, "claude", copy=True)
    assert not desk.link.is_symlink()
    assert hash_folder(str(desk.link)) == hash_folder(desk.old)


def test_a_copy_of_a_client_stays_a_copy_and_goes_with_the_skill(desk: Desk) -> None:
    desk.put(desk.old, "claude", copy=True)
    desk.put(desk.new, "claude")
    assert not desk.link.is_symlink()
    assert hash_folder(str(desk.link)) == hash_folder(desk.new)
    desk.take()
    assert not desk.link.exists()
    assert desk.litter() == []


def test_an_edited_copy_of_a_client_stays(desk: Desk) -> None:
    desk.put(desk.old, "claude", copy=True)
    (desk.link / "mine").write_text("mine")
    desk.take()
    assert not desk.target.exists()
    assert (desk.link / "mine").read_text() == "mine"


def test_a_client_without_links_gets_a_copy(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(desk.old)
    plain = Path(desk.version("old"))
    (plain / "again").unlink()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", refuse)
    desk.put(str(plain), "claude")
    assert hash_folder(str(desk.link)) == hash_folder(str(plain))


def test_removing_takes_the_links_and_the_entry_too(desk: Desk) -> None:
    desk.put(desk.old, "claude", "codex")
    desk.take()
    assert desk.state() == ("", "", "")
    assert not (desk.base / ".codex" / "skills" / "alpha").is_symlink()
    assert desk.litter() == []


def test_a_folder_of_the_user_in_the_way_of_a_link_stays(desk: Desk) -> None:
    desk.link.mkdir(parents=True)
    (desk.link / "mine").write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        desk.put(desk.old, "claude")
    assert (desk.link / "mine").read_text() == "mine"
    assert desk.state()[:2] == ("", "")
    assert desk.litter() == []


def test_a_client_whose_folder_is_a_link_to_the_skills_needs_none(desk: Desk) -> None:
    desk.put(desk.old)
    (desk.base / ".claude").mkdir()
    (desk.base / ".claude" / "skills").symlink_to("../.agents/skills")
    with using_place(desk.place, desk.settings):
        assert link_clients(desk.place, "alpha", ["claude"], desk.settings) == ()
    assert desk.target.is_dir()
    assert not desk.target.is_symlink()


@pytest.mark.parametrize("name", [".agents", ".agents/skills"])
def test_a_link_of_a_project_that_leads_out_is_refused(desk: Desk, name: str) -> None:
    outside = Path(desk.tree.root) / "outside"
    outside.mkdir()
    (desk.base / name).parent.mkdir(exist_ok=True)
    (desk.base / name).symlink_to(outside)
    with pytest.raises(PathEscape, match="leads out of the project"):
        desk.put(desk.old)
    assert list(outside.iterdir()) == []


def test_a_lock_that_is_none_stops_before_anything_is_done(desk: Desk) -> None:
    Path(desk.place.lock).write_text("{")
    with pytest.raises(ConfigError):
        desk.put(desk.old)
    assert not desk.target.exists()


# --- kills ---------------------------------------------------------------------------------------


def killed_at(number: int, work: Callable[[], None]) -> bool:
    """Do the work in a child that ends before the change of the disk of that number.

    True when it was killed, False when there are fewer changes.
    """
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, 9), code
        return code == 9
    seen = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in CHANGES or (event == "open" and int(arguments[2] or 0) & WRITES):  # type: ignore[call-overload]
            if seen == number:
                os._exit(9)
            seen += 1

    try:
        sys.addaudithook(count)
        work()
        os._exit(0)
    except BaseException:
        os._exit(1)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("install", marks=pytest.mark.long),
        "replace",
        pytest.param("remove", marks=pytest.mark.long),
    ],
)
def test_a_kill_at_any_change_of_the_disk_leaves_the_old_state_or_the_new(
    desk: Desk, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # only a loss of power needs it
    works: dict[str, Callable[[], None]] = {
        "install": lambda: desk.put(desk.old, "claude"),
        "replace": lambda: desk.put(desk.new, "claude"),
        "remove": desk.take,
    }
    if change != "install":
        desk.put(desk.old, "claude")
    aside = Path(desk.tree.root) / "aside"
    shutil.copytree(desk.base, aside, symlinks=True)
    old = desk.state()
    works[change]()
    new = desk.state()
    assert old != new
    killed = True
    ends: list[tuple[str, str, str]] = []
    while killed:
        shutil.rmtree(desk.base)
        shutil.copytree(aside, desk.base, symlinks=True)
        killed = killed_at(len(ends), works[change])
        # Before any other command: each folder is one of the versions, or not there.
        assert desk.state()[0] in (old[0], new[0], "")
        with using_place(desk.place, desk.settings):
            ends.append(desk.state())
        assert ends[-1] in (old, new), len(ends)
        assert desk.litter() == [], len(ends)
    assert len(ends) > 10
    assert (ends[0], ends[-1]) == (old, new)
    assert ends == sorted(ends, key=lambda state: state == new)  # once it is new, it stays new


def test_two_processes_at_once_leave_one_of_both(desk: Desk) -> None:
    children = []
    for folder in (desk.old, desk.new):
        child = os.fork()
        if not child:
            try:
                for _ in range(5):
                    desk.put(folder, "claude")
                os._exit(0)
            except BaseException:
                os._exit(1)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in children] == [0, 0]
    placed, locked, _ = desk.state()
    assert placed == locked != ""
    assert desk.litter() == []


def test_a_skill_under_development_is_linked_and_taken_away(tree: Tree) -> None:
    folder = tree.skill("project/drafts/mine")
    done = tree.run("link", str(folder))
    assert (done.exit_code, done.stdout) == (0, "mine: linked\n"), done.stderr
    link = Path(tree.project) / ".agents/skills/mine"
    assert os.readlink(link) == "../../drafts/mine"
    assert "mine" in tree.catalog()
    assert tree.run("remove", "mine").stdout == "mine: unlinked\n"
    assert not link.is_symlink()
    assert (folder / "SKILL.md").exists()


def test_a_project_may_not_link_to_a_folder_outside(tree: Tree) -> None:
    folder = tree.skill("elsewhere/mine")
    done = tree.run("link", str(folder))
    assert done.exit_code == 2
    assert "use -g" in done.stderr
    assert tree.run("link", "-g", str(folder)).exit_code == 0
    assert "mine" in tree.catalog()


def test_a_path_without_a_skill_is_not_linked(tree: Tree) -> None:
    done = tree.run("link", "nowhere")
    assert done.exit_code == 2
    assert "give the folder of a skill" in done.stderr


def test_a_folder_that_is_there_is_not_replaced_by_a_link(tree: Tree) -> None:
    folder = tree.skill("project/drafts/mine")
    there = tree.skill("project/.agents/skills/mine")
    assert tree.run("link", str(folder)).exit_code == 2
    assert there.exists()


def test_a_skill_in_its_place_needs_no_link(tree: Tree) -> None:
    tree.skill("project/.agents/skills/alpha")
    done = tree.run("link", ".agents/skills/alpha")
    assert done.exit_code == 2 and "it needs no link" in done.stderr
    assert "remove" not in done.stderr


def test_what_a_disk_refuses_is_finished_by_the_next_command(tree: Tree, tmp_path: Path) -> None:
    folder = tmp_path / "source/skills/alpha"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: alpha\ndescription: d\n---\n")
    in_the_way = tree.project / "skills-lock.json.part"
    in_the_way.mkdir()
    done = tree.run("add", str(tmp_path / "source"), "--yes", "-q")
    assert (done.exit_code, str(in_the_way) in done.stderr) == (1, True)
    again = tree.run("verify")
    assert again.exit_code == 2
    assert "was begun and cannot be finished" in again.stderr
    in_the_way.rmdir()
    assert tree.run("verify").exit_code == 0
    assert (tree.project / "skills-lock.json").exists()
