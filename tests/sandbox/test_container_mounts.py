"""The intended folder is mounted, and read-only holds for all of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.sandbox.container import mounts as container_mounts
from skillbelt.sandbox.container.mounts import exposed, identities, with_submounts
from skillbelt.sandbox.protocol import Mount


def test_another_folder_of_the_same_name_is_another(tmp_path: Path) -> None:
    folder = tmp_path / "skill"
    folder.mkdir()
    mounts = (Mount(str(folder), "/skill"),)
    before = identities(mounts)
    assert identities(mounts) == before
    folder.rename(tmp_path / "old")
    folder.mkdir()
    assert identities(mounts) != before


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="none cannot be mounted: No such file"):
        identities([Mount(str(tmp_path / "none"), "/none")])


def test_a_link_in_a_writable_folder_does_not_count(tmp_path: Path) -> None:
    """Attack 9: a command that can write there may replace the checked entry by a link."""
    secret, outer = tmp_path / "secret", tmp_path / "outer"
    secret.mkdir()
    (outer / "real").mkdir(parents=True)
    for name, target in (("away", secret), ("up", Path("../secret")), ("root", Path("/"))):
        (outer / name).symlink_to(target)
        mounts = [Mount(str(outer), "/outer", True), Mount(f"{outer}/{name}", "/inner")]
        with pytest.raises(RunRefused, match="behind a link"):
            identities(mounts)
    real = os.stat(outer / "real")
    mounts = [Mount(str(outer), "/outer", True), Mount(f"{outer}/real", "/inner")]
    assert identities(mounts)[1] == (real.st_dev, real.st_ino)


def test_a_mount_in_a_writable_one_could_be_moved(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    writable, fixed = Mount(str(outer), "/outer", True), Mount(str(inner), "/inner")
    assert exposed([writable, fixed])
    assert not exposed([writable._replace(writable=False), fixed])
    assert not exposed([writable, Mount(str(tmp_path), "/around")])


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A folder with a mount below it, in a place with a blank in its name."""
    if os.getuid() != 0:
        pytest.skip("needs root to mount: sudo make test")
    below = tmp_path / "a b" / "below"
    below.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", below], check=True)
    yield below.parent
    subprocess.run(["umount", below], check=True)


def test_a_mount_below_a_read_only_one_is_read_only_too(mounted: Path) -> None:
    """An engine would show it as it is, and that can be written."""
    fixed = Mount(str(mounted), "/fixed")
    assert list(with_submounts([fixed])) == [fixed, Mount(f"{mounted}/below", "/fixed/below")]
    writable = fixed._replace(writable=True)
    assert list(with_submounts([writable])) == [writable]


def test_what_the_job_mounts_there_itself_stays_as_it_is(mounted: Path) -> None:
    given = [Mount(str(mounted), "/fixed"), Mount("/tmp", "/fixed/below", True)]
    assert list(with_submounts(given)) == given


def test_without_a_table_of_mounts_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_mounts, "_MOUNT_TABLE", "/no/such/file")
    assert list(with_submounts([Mount("/", "/all")])) == [Mount("/", "/all")]
