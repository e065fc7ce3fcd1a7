from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt import Manifest, Skill, build_manifest
from skillbelt.files.manifest import PARTIAL, LocalFiles, is_complete
from tests.examples import examples
from tests.tree import QUICK, Tree

OLD = 1_600_000_000
TICK = 0.02  # longer than one of the file system's clock


@pytest.fixture
def folder(tree: Tree) -> Path:
    """A skill with a script and a document."""
    folder = tree.skill("pdf")
    tree.write(folder / "scripts" / "run.sh", "#!/bin/sh\n")
    tree.write(folder / "notes.md", "# Notes\n")
    return folder


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often files were read rather than looked at."""
    count = [0]
    whole = LocalFiles.manifest

    def counted(files: LocalFiles) -> Manifest:
        count[0] += 1
        return whole(files)

    monkeypatch.setattr(LocalFiles, "manifest", counted)
    return lambda: count[0]


def later(monkeypatch: pytest.MonkeyPatch, seconds: float = 10) -> None:
    """Let so much time pass."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + int(seconds * 1e9))


def mark(folder: Path) -> str:
    return Skill.from_folder(folder).files.digest()


def test_of_a_plain_skill_it_is_the_hash_of_its_files(folder: Path) -> None:
    assert mark(folder) == build_manifest(str(folder)).hash
    assert is_complete(mark(folder))


def test_equal_skills_in_two_places_are_equal(folder: Path, tree: Tree) -> None:
    (folder / "scripts" / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("notes.md")
    copy = tree.path("elsewhere/other")
    shutil.copytree(folder, copy, symlinks=True)
    os.utime(copy / "notes.md", (OLD, OLD))
    assert mark(copy) == mark(folder)


CHANGES: dict[str, Callable[[Path], object]] = {
    "the instructions": lambda f: (f / "SKILL.md").write_text("More.\n"),
    "content": lambda f: (f / "notes.md").write_text("# Nodes\n"),
    "a name": lambda f: (f / "notes.md").rename(f / "note.md"),
    "a place": lambda f: (f / "notes.md").rename(f / "scripts" / "notes.md"),
    "added": lambda f: (f / "new").write_text(""),
    "added deep": lambda f: (f / "scripts" / ".hidden").write_text(""),
    "removed": lambda f: (f / "notes.md").unlink(),
    "executable": lambda f: (f / "scripts" / "run.sh").chmod(0o744),
    "swapped": lambda f: (f / "notes.md").write_bytes((f / "scripts" / "run.sh").read_bytes()),
    "a link for a file": lambda f: (f / "x").symlink_to("notes.md"),
    "a pipe": lambda f: os.mkfifo(f / "pipe"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_change_changes_it(
    folder: Path, change: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        later(patch)
        before = mark(folder)
        assert mark(folder) == before
    time.sleep(TICK)
    change(folder)
    assert mark(folder) != before


def test_a_link_to_another_place_is_another_skill(folder: Path) -> None:
    link = folder / "data"
    link.symlink_to("notes.md")
    before = mark(folder)
    link.unlink()
    link.symlink_to("scripts/run.sh")
    assert mark(folder) != before
    link.unlink()
    link.symlink_to("notes.md")
    assert mark(folder) == before


def test_a_link_is_not_the_file_it_leads_to(folder: Path, tree: Tree) -> None:
    copy = tree.path("copy")
    shutil.copytree(folder, copy)
    (folder / "data").symlink_to("notes.md")
    shutil.copy(copy / "notes.md", copy / "data")
    assert mark(copy) != mark(folder)


def test_times_and_other_bits_do_not_matter(folder: Path) -> None:
    before = mark(folder)
    os.utime(folder / "notes.md", (OLD, OLD))
    (folder / "notes.md").chmod(0o600)
    assert mark(folder) == before


def test_repositories_and_caches_do_not_matter(folder: Path, tree: Tree) -> None:
    before = mark(folder)
    for name in (".git/config", "node_modules/x/y.js"):
        tree.write(folder / name, "x")
    there = mark(folder)
    tree.write(folder / ".git/config", "y")
    assert before == there == mark(folder)


def test_a_link_into_what_is_not_covered_makes_it_partial(folder: Path, tree: Tree) -> None:
    """Otherwise instructions could be hidden where no reader looks."""
    tree.write(folder / "node_modules/x.md", "x")
    (folder / "more.md").symlink_to("node_modules/x.md")
    assert not is_complete(mark(folder))


# A skill that is made of text


def test_text_alone_is_hashed() -> None:
    text = "---\nname: a\ndescription: b\n---\nBody ü\n"
    one = Skill.from_text(text).files.digest()
    assert one == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    assert Skill.from_text(text + "x").files.digest() != one


def test_text_of_any_characters_is_hashed() -> None:
    skill = Skill.from_text("x")._replace(source="\ud800")
    assert skill.files.digest().startswith("sha256:")


# A skill that cannot be read completely


def test_too_many_files_are_marked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was seen, each change still changes it."""
    monkeypatch.setattr("skillbelt.files.tree.MAX_MANIFEST_FILES", 3)
    before = mark(folder)
    assert before.endswith(PARTIAL)
    assert not is_complete(before)
    (folder / "SKILL.md").write_text((folder / "SKILL.md").read_text() + "x")
    assert mark(folder) != before


def test_too_many_bytes_are_marked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (folder / "SKILL.md").stat().st_size
    monkeypatch.setattr("skillbelt.files.manifest.MAX_MANIFEST_BYTES", size)
    before = mark(folder)
    assert not is_complete(before)
    (folder / "SKILL.md").write_text((folder / "SKILL.md").read_text().upper())
    assert mark(folder) != before


def test_what_was_left_out_is_not_taken_for_absent(
    folder: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tree.skill("copy", name="pdf")
    shutil.copy(folder / "SKILL.md", copy / "SKILL.md")
    size = (folder / "SKILL.md").stat().st_size
    monkeypatch.setattr("skillbelt.files.manifest.MAX_MANIFEST_BYTES", size)
    assert is_complete(mark(copy))
    assert mark(folder) != mark(copy)
    assert mark(folder).removesuffix(PARTIAL) != mark(copy)


def test_a_folder_that_is_gone_is_marked(folder: Path) -> None:
    skill = Skill.from_folder(folder)
    shutil.rmtree(folder)
    assert skill.files.digest().endswith(PARTIAL)


def test_an_unreadable_file_is_marked_until_it_can_be_read(open_tree: Tree) -> None:
    folder = open_tree.skill("pdf")
    open_tree.write(folder / "notes.md", "x")
    code = f"""
import time
now = time.time_ns
time.time_ns = lambda: now() + 10**10
skill = Skill.from_folder({str(folder)!r})
def show(mode):
    os.chmod({str(folder / "notes.md")!r}, mode)
    print(skill.files.digest())
for mode in (0o600, 0, 0o600):
    show(mode)
"""
    first, second, third = open_tree.as_user(code).split()
    assert is_complete(first)
    assert not is_complete(second)
    assert third == first


# What it costs


def test_asking_again_reads_nothing(
    folder: Path, reads: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    later(monkeypatch)
    before = mark(folder)
    assert reads() == 1
    assert [mark(folder) for _ in range(3)] == [before] * 3
    assert reads() == 1
    (folder / "notes.md").write_text("new")
    assert mark(folder) != before
    assert reads() == 2


def test_what_was_written_just_now_is_read_again(folder: Path, reads: Callable[[], int]) -> None:
    """Two writes within one tick of the clock leave the same times."""
    mark(folder)
    mark(folder)
    assert reads() == 2


def test_a_time_of_the_future_is_never_old(
    folder: Path, reads: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    later(monkeypatch)
    os.utime(folder / "notes.md", (2**32, 2**32))
    mark(folder)
    mark(folder)
    assert reads() == 2


def test_a_file_put_back_with_its_old_times_is_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size, time of change and name are as before; the kernel's own time is not."""
    later(monkeypatch)
    file = folder / "notes.md"
    os.utime(file, (OLD, OLD))
    before = mark(folder)
    time.sleep(TICK)
    file.write_text("# Nodes\n")
    os.utime(file, (OLD, OLD))
    assert mark(folder) != before


def test_only_so_many_are_kept(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    from skillbelt.files import manifest as module

    later(monkeypatch)
    monkeypatch.setattr(module, "_MAX_CACHED", 5)
    monkeypatch.setattr(module, "_cache", {})
    for number in range(20):
        mark(tree.skill(f"s{number}"))
        assert len(module._cache) <= 5
    assert any(key[0].endswith("/s19") for key in module._cache)


# Any tree, any change

names = st.text(alphabet="ab.é", min_size=1, max_size=3).filter(lambda n: n.strip("."))
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
files = st.dictionaries(paths, st.tuples(st.binary(max_size=4), st.booleans()), max_size=6)
Files = dict[str, tuple[bytes, bool]]


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=QUICK) as name:
        yield Path(name)


def build(folder: Path, content: Files) -> Files:
    """Write what fits: a file in the place of a folder is left out. What is there now."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: a\ndescription: b\n---\n")
    there = {}
    for path, (data, executable) in content.items():
        file = folder / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue
        file.chmod(0o755 if executable else 0o644)
        there[path] = data, executable
    return there


@given(files, files)
@settings(max_examples=examples(150))
def test_two_skills_have_one_fingerprint_if_and_only_if_they_are_equal(
    scratch: Path, one: Files, other: Files
) -> None:
    first, second = scratch / "one", scratch / "other"
    equal = build(first, one) == build(second, other)
    assert (mark(first) == mark(second)) == equal


@given(files, st.data())
@settings(max_examples=examples(150))
def test_any_step_away_changes_it_and_the_step_back_restores_it(
    scratch: Path, content: Files, data: st.DataObject
) -> None:
    folder = scratch / "steps"
    there = build(folder, content)
    before = mark(folder)
    assert mark(folder) == before
    path = data.draw(st.sampled_from(["SKILL.md", *there]))
    file, kept = folder / path, folder.parent / "kept"
    shutil.copy2(file, kept)
    match data.draw(st.sampled_from(["content", "name", "removed", "bit", "added"])):
        case "content":
            file.write_bytes(kept.read_bytes() + b"x")
        case "name":
            file.rename(file.with_name("renamed"))
        case "removed":
            file.unlink()
        case "bit":
            file.chmod(0o644 if os.access(file, os.X_OK) else 0o755)
        case "added":
            file.with_name("renamed").write_bytes(b"")
    skill = Skill("a", "a", "b", str(folder / "SKILL.md"))
    changed = skill.files.digest()
    file.with_name("renamed").unlink(missing_ok=True)
    shutil.copy2(kept, file)
    assert skill.files.digest() == before
    assert changed != before
