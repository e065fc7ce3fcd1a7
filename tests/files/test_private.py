"""Folders and files of the user alone, with any umask."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.errors import ConfigError
from skillbelt.files.private import create_file, make_folder
from skillbelt.permission.audit import AuditEvent, AuditLog
from tests.tree import Tree

ANOTHER = 4321


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: str | os.PathLike[str]) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_every_folder_that_is_made_is_private(tmp_path: Path, umask: int) -> None:
    make_folder(str(tmp_path / ".local/state/skillbelt"))
    for path in (".local", ".local/state", ".local/state/skillbelt"):
        assert mode(tmp_path / path) == 0o700
    create_file(str(tmp_path / ".local/a"))
    assert mode(tmp_path / ".local/a") & 0o077 == 0
    create_file(str(tmp_path / ".local/a"))


def test_what_was_there_above_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o775)
    make_folder(str(tmp_path / "shared/own"))
    assert mode(tmp_path / "shared") == 0o775
    (tmp_path / "shared/own").chmod(0o755)
    make_folder(str(tmp_path / "shared/own"))
    assert mode(tmp_path / "shared/own") == 0o755


def test_one_that_others_may_write_to_is_mended_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o777)
    with caplog.at_level(logging.WARNING, "skillbelt"):
        make_folder(str(tmp_path))
        make_folder(str(tmp_path))
    assert mode(tmp_path) == 0o755
    assert len(caplog.records) == 1
    assert str(tmp_path) in caplog.text


def test_a_folder_where_only_owners_may_rename_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    make_folder(str(tmp_path))
    assert mode(tmp_path) == 0o1777


def test_one_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner is faked where only root may give a folder away."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, ANOTHER, ANOTHER)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: ANOTHER)
    with pytest.raises(PermissionError, match="belongs to another user"):
        make_folder(str(folder))
    log = AuditLog(str(folder / "audit"))
    with pytest.raises(ConfigError, match="belongs to another user"):
        log.append(AuditEvent(0.0, "run"))


def test_a_file_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        make_folder(str(tmp_path / "a"))


def test_a_log_closes_folders_that_were_left_open(tmp_path: Path) -> None:
    """An earlier version created them like this where the umask was 000."""
    folder = str(tmp_path / "state/audit")
    AuditLog(folder).append(AuditEvent(0.0, "run"))
    (tmp_path / "state").chmod(0o777)
    (tmp_path / "state/audit").chmod(0o777)
    AuditLog(folder).append(AuditEvent(0.0, "run"))
    assert mode(tmp_path / "state") & 0o022 == 0
    assert mode(tmp_path / "state/audit") & 0o022 == 0


def test_all_that_commands_make_is_private_whatever_the_umask(open_tree: Tree) -> None:
    open_tree.skill("project/.agents/skills/pdf", text="Body.\n")
    before = os.umask(0)
    try:
        for command in (
            ["list"], ["search", "pdf"], ["load", "pdf"], ["trust", "add"],
            ["permissions", "allow", "pdf"], ["run", "pdf", "--yes", "--", "true"],
        ):  # fmt: skip
            done = open_tree.run(*command)
            assert done.exit_code == 0, (command, done.stderr)
    finally:
        os.umask(before)
    found = [path for path in open_tree.home.rglob("*") if not path.is_symlink()]
    names = {path.name for path in found}
    assert {"audit", "trust.json", "permissions.toml"} <= names
    assert any(name.endswith(".sqlite3") and name.startswith("index") for name in names)
    workspaces = open_tree.home / ".local/state/skillbelt/workspaces"
    for path in found:
        # A workspace belongs to its runner, behind a folder that no other user can enter.
        if workspaces in path.parents:
            continue
        others = mode(path) & 0o077
        assert not others & (0o066 if path.is_dir() else 0o077), (path, oct(mode(path)))
