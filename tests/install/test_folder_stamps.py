"""Folders that did not change are not read again, and every change is seen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from skillbelt.files.manifest import TICK_NS
from skillbelt.install import folder_stamps
from skillbelt.install.entries import stored_of
from skillbelt.install.folder_stamps import FolderStamps
from skillbelt.install.hashes import hash_folder
from skillbelt.install.lock_file import read_lock
from skillbelt.install.verify import verify_lock
from tests.install.desk import InstallDesk
from tests.tree import Tree


@pytest.fixture
def desk(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> InstallDesk:
    """Return an installation whose folders were read, and count as old."""
    monkeypatch.setattr(folder_stamps, "TICK_NS", 0)
    made = InstallDesk(tree)
    made.install()
    assert not drift(made)
    return made


def drift(desk: InstallDesk, *, full: bool = False) -> list[str]:
    found = verify_lock(read_lock(desk.place), desk.settings, full=full)
    return [one.kind for skill in found for one in skill.drift]


def count_reads(desk: InstallDesk, monkeypatch: pytest.MonkeyPatch, *, full: bool = False) -> int:
    read: list[str] = []
    real = hash_folder

    def count(folder: str, *, partial: bool = False) -> object:
        read.append(folder)
        return real(folder, partial=partial)

    monkeypatch.setattr(folder_stamps, "hash_folder", count)
    assert not drift(desk, full=full)
    return len(read)


def test_a_folder_that_did_not_change_is_read_once(
    desk: InstallDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert count_reads(desk, monkeypatch) == 0


def test_full_reads_every_file(desk: InstallDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_reads(desk, monkeypatch, full=True) == 2


def rewrite_with_the_same_times(script: Path) -> None:
    """Write other bytes of the same length, and set the time of the last write back."""
    before = script.stat()
    while script.stat().st_ctime_ns == before.st_ctime_ns:
        script.write_bytes(b"x" * before.st_size)
        os.utime(script, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert script.stat().st_mtime_ns == before.st_mtime_ns


def replace_by_a_copy_with_the_same_times(script: Path) -> None:
    copy = script.with_name("copy")
    shutil.copy2(script, copy)
    copy.write_bytes(b"x" * script.stat().st_size)
    shutil.copystat(script, copy)
    copy.rename(script)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (rewrite_with_the_same_times, "changed-file"),
        (replace_by_a_copy_with_the_same_times, "changed-file"),
        (lambda script: script.chmod(0o644), "changed-mode"),
        (lambda script: script.unlink(), "missing-file"),
        (lambda script: script.with_name("more").touch(), "extra-file"),
        (lambda script: script.with_name("out").symlink_to("/etc/passwd"), "unsafe"),
    ],
)
def test_a_change_is_seen(desk: InstallDesk, change: Callable[[Path], None], kind: str) -> None:
    change(desk.installed("alpha", "scripts/run.sh"))
    assert kind in drift(desk)
    assert kind in drift(desk)


def test_what_is_remembered_counts_only_for_what_the_lock_expects(desk: InstallDesk) -> None:
    stamps = FolderStamps(desk.place, desk.settings)
    beta = stored_of(read_lock(desk.place).entries["beta"])
    assert stamps.hash_folder(str(desk.installed("alpha")), beta).files


def test_files_that_are_no_stamps_count_as_none(desk: InstallDesk) -> None:
    folder = Path(desk.settings.cache_dir) / "install" / "stamps"
    (file,) = folder.iterdir()
    for data in (b"", b"[]", b'{"a": 1, "b": ["", 1, ""]}', b"\xff"):
        file.write_bytes(data)
        assert not drift(desk)


def test_a_folder_that_was_written_just_now_is_read_again(tree: Tree) -> None:
    desk = InstallDesk(tree)
    desk.install()
    soon = TICK_NS * 1_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_stamps, "TICK_NS", soon)
        assert not drift(desk)
    assert not (Path(desk.settings.cache_dir) / "install" / "stamps").exists()
