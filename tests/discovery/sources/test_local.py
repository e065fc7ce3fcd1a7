from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skillbelt.discovery.sources import Pulled
from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.discovery.sources.pull import path_of
from tests.bounds import bounds
from tests.discovery.sources.archives import SKILL, tgz_of, tree_of, zipped
from tests.discovery.sources.conftest import QUICK, Pull
from tests.tree import codes

Files = Callable[[Pulled], dict[str, bytes]]


def test_an_archive_by_path_or_url(tmp_path: Path, fetch: Pull, files: Files) -> None:
    archive = tmp_path / "my skills.tar.gz"
    archive.write_bytes(tgz_of({"one/SKILL.md": SKILL}))
    for source in (str(archive), archive.as_uri(), f"file://localhost{archive.as_posix()}"):
        pulled = fetch(source)
        assert pulled.diagnostics == ()
        assert files(pulled) == {"one/SKILL.md": SKILL}
        assert pulled.folders[0].origin.kind == "archive"
        assert pulled.folders[0].origin.url.startswith("file://")


def test_an_archive_that_is_a_skill_gets_its_name(
    tmp_path: Path, fetch: Pull, files: Files
) -> None:
    (tmp_path / "pdf-tools.zip").write_bytes(zipped({"SKILL.md": SKILL, "a": b"1"}))
    pulled = fetch(str(tmp_path / "pdf-tools.zip"))
    assert files(pulled) == {"pdf-tools/SKILL.md": SKILL, "pdf-tools/a": b"1"}


def test_a_changed_archive_is_unpacked_again(tmp_path: Path, fetch: Pull, files: Files) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(zipped({"one/SKILL.md": SKILL}))
    first = fetch(str(archive))
    assert fetch(str(archive)) == first == fetch(str(archive), refresh=True, offline=True)
    archive.write_bytes(zipped({"another/SKILL.md": SKILL}))
    assert files(fetch(str(archive))) == {"another/SKILL.md": SKILL}
    assert files(first) == {"one/SKILL.md": SKILL}


def test_a_broken_archive_leaves_the_last_copy(tmp_path: Path, fetch: Pull, files: Files) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(zipped({"one/SKILL.md": SKILL}))
    fetch(str(archive))
    archive.write_bytes(zipped({"../one": SKILL}))
    pulled = fetch(str(archive))
    assert files(pulled) == {"one/SKILL.md": SKILL}
    assert codes(pulled) == ["archive-refused"]
    archive.unlink()
    pulled = fetch(str(archive))
    assert files(pulled) == {"one/SKILL.md": SKILL}
    assert codes(pulled) == ["source-unreadable"]


def test_a_single_skill(tmp_path: Path, fetch: Pull, files: Files) -> None:
    (tmp_path / "pdf").mkdir()
    (tmp_path / "pdf" / "SKILL.md").write_bytes(SKILL)
    pulled = fetch((tmp_path / "pdf" / "SKILL.md").as_uri())
    assert files(pulled) == {"pdf/SKILL.md": SKILL}
    assert pulled.folders[0].origin.kind == "url"


def test_a_folder_is_taken_where_it_is(tmp_path: Path, fetch: Pull, cache: Path) -> None:
    (tmp_path / "skills").mkdir()
    pulled = fetch((tmp_path / "skills").as_uri())
    assert [(one.folder, one.origin.kind) for one in pulled.folders] == [
        (str(tmp_path / "skills"), "local")
    ]
    assert not cache.exists()


@pytest.mark.parametrize(
    "source", ["file://elsewhere/a.zip", "file:///a%00b.zip", "file://", "file:///no/such.zip"]
)
def test_what_is_not_here_is_said(source: str, fetch: Pull, cache: Path) -> None:
    pulled = fetch(source)
    assert pulled.folders == ()
    assert codes(pulled) == ["source-unreadable"]
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_pipe_and_a_device_do_not_block(tmp_path: Path, fetch: Pull) -> None:
    os.mkfifo(tmp_path / "a.zip")
    (tmp_path / "b.zip").symlink_to("/dev/zero")
    for name in ("a.zip", "b.zip"):
        assert codes(fetch(str(tmp_path / name))) == ["source-unreadable"]


def test_a_file_over_the_limit_is_refused(tmp_path: Path, fetch: Pull, cache: Path) -> None:
    """Case 28."""
    (tmp_path / "a.zip").write_bytes(zipped({"SKILL.md": SKILL}))
    limits = bounds(QUICK, max_download_bytes=50)
    assert codes(fetch(str(tmp_path / "a.zip"), limits=limits)) == ["remote-too-large"]
    assert tree_of(cache) == {}


def test_a_path_is_read_from_its_url() -> None:
    assert path_of("file:///a%20b/%C3%A4") == "/a b/ä"
    assert os.fsencode(path_of("file:///%ff")) == b"/\xff"
    with pytest.raises(SourceFailure):
        path_of("file://host/x")
