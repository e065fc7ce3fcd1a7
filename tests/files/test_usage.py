from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import pytest

from skillbelt.files.remove import remove_tree
from skillbelt.files.usage import measure_folder
from tests.files.test_remove import nest
from tests.running.test_workspace import as_user
from tests.tree import QUICK, Tree

PLENTY = 2**60


@pytest.fixture
def quick() -> Iterator[Path]:
    """A folder where many files are made quickly."""
    folder = Path(mkdtemp(prefix="skillbelt-", dir=QUICK))
    yield folder
    assert remove_tree(str(folder)) == ()


def test_a_folder_is_summed_up_by_what_lies_on_disk(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100_000))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(os.urandom(50_000))
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(10**9)
    found = measure_folder(str(tmp_path), PLENTY)
    assert found.files == 4
    assert 150_000 <= found.bytes < 10**6
    assert found.largest == 10**9
    assert not found.hidden


def test_links_are_neither_followed_nor_counted_twice(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "big").write_bytes(bytes(10**6))
    (inside / "away").symlink_to(outside)
    (inside / "one").write_bytes(bytes(200_000))
    os.link(inside / "one", inside / "two")
    found = measure_folder(str(inside), PLENTY)
    assert found.bytes < 300_000
    assert found.files == 2


def test_it_stops_at_the_bound(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).write_bytes(bytes(10_000))
    assert measure_folder(str(tmp_path), PLENTY, 10).files == 11
    assert measure_folder(str(tmp_path), 50_000, PLENTY).files < 10


def test_no_depth_hides_anything(quick: Path) -> None:
    """And no handle stays open."""
    nest(quick / "tree", 2_000)
    found = measure_folder(str(quick / "tree"), PLENTY)
    assert (found.files, found.hidden) == (2_001, False)
    assert [path for path in _open_files() if path.startswith(str(quick))] == []


def test_folders_beside_each_other_are_seen_on_every_level(tmp_path: Path) -> None:
    for path in ("a/b/c", "a/b/d", "a/e", "f/g/h", "f/i"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "file").write_bytes(bytes(1000))
    found = measure_folder(str(tmp_path), PLENTY)
    assert (found.files, found.hidden) == (9 + 5, False)


CLOSED = """
from skillbelt.files.usage import measure_folder
top = sys.argv[1] + "/tree"
os.makedirs(top + "/a/b/c")
for path in ("/a/1", "/a/b/2", "/a/b/c/3"):
    open(top + path, "w").write("x" * 50_000)
for path, mode in (("/a/b/c", 0o400), ("/a/b", 0), ("/a", 0o100)):
    os.chmod(top + path, mode)
most = int(sys.argv[2])
print(measure_folder(top, most))
for path in ("/a", "/a/b", "/a/b/c"):
    print(oct(os.stat(top + path).st_mode & 0o777))
    os.chmod(top + path, 0o700)
"""


@pytest.mark.parametrize(("most", "files"), [(PLENTY, "6"), (100_000, "[45]")])
def test_what_is_closed_is_seen_and_stays_closed(open_tree: Tree, most: int, files: str) -> None:
    """Also when the bound is passed on the way."""
    os.chmod(open_tree.root, 0o777)
    lines = as_user(CLOSED, open_tree.root, str(most)).splitlines()
    assert re.search(f"files={files}, largest=50000, hidden=False", lines[0])
    assert lines[1:] == ["0o100", "0o0", "0o400"]


def test_what_is_moved_away_meanwhile_is_said_to_be_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is looked at that lies elsewhere."""
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "file").write_bytes(b"x")
    plain = os.open

    def moving(path: str, flags: int, *rest: int, **named: int) -> int:
        handle = plain(path, flags, *rest, **named)
        if path == "b":
            (tmp_path / "tree" / "a" / "b").rename(tmp_path / "else" / "b")
        return handle

    monkeypatch.setattr(os, "open", moving)
    found = measure_folder(str(tmp_path / "tree"), PLENTY)
    assert (found.files, found.hidden) == (2, True)


def test_a_folder_that_is_gone_is_hidden(tmp_path: Path) -> None:
    assert measure_folder(str(tmp_path / "none"), PLENTY) == (0, 0, 0, True)


def _open_files() -> list[str]:
    """Return where the open handles of this process lead; other tests' may come and go."""
    found = []
    for handle in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{handle}"))
    return found
