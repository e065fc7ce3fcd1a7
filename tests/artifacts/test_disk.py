from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from skillbelt.artifacts import ArtifactStore, disk, read
from skillbelt.artifacts.conformance import KEY, SAME_USER, ArtifactStoreConformance
from skillbelt.artifacts.disk import DiskArtifacts
from skillbelt.errors import ArtifactError
from tests import warm
from tests.tree import NOBODY, Tree


class TestDiskArtifacts(ArtifactStoreConformance):
    @pytest.fixture
    def artifacts(self, tmp_path: Path) -> ArtifactStore:
        return DiskArtifacts(tmp_path / "artifacts")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "artifacts"


@pytest.fixture
def store(folder: Path) -> DiskArtifacts:
    return DiskArtifacts(folder)


def files(folder: Path, below: str = "") -> list[Path]:
    return sorted(path for path in (folder / below).rglob("*") if path.is_file())


def test_nothing_is_made_before_the_first_save(folder: Path, store: DiskArtifacts) -> None:
    store.latest(KEY)
    store.delete(KEY, "a")
    with pytest.raises(ArtifactError, match="no artifact 'a'"):
        store.find(KEY, "a")
    assert not folder.parent.exists()


def test_only_the_user_can_read(folder: Path, store: DiskArtifacts) -> None:
    before = os.umask(0)
    try:
        store.save(KEY, "a", b"secret")
    finally:
        os.umask(before)
    for path in [folder.parent, *folder.parent.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_another_store_on_the_folder_sees_the_same(folder: Path, store: DiskArtifacts) -> None:
    saved = store.save(KEY, "a", b"x")
    assert read(DiskArtifacts(folder), KEY, "a") == (saved, b"x")


def test_no_part_of_a_name_is_in_a_path(folder: Path, store: DiskArtifacts) -> None:
    store.save(KEY, "../../evil", b"x")
    store.save(KEY, "secret name", b"x")
    assert not [path for path in folder.parent.rglob("*") if "evil" in str(path)]
    assert not [path for path in folder.parent.rglob("*") if "secret" in str(path)]


def test_the_same_bytes_are_stored_once(folder: Path, store: DiskArtifacts) -> None:
    data = os.urandom(1000)
    for key, name in ((KEY, "a"), (KEY, "a"), (KEY, "b"), (SAME_USER, "user:a")):
        store.save(key, name, data)
    inodes = {path.stat().st_ino for path in files(folder) if path.stat().st_size == 1000}
    assert len(inodes) == 1
    assert [path.name for path in files(folder, "blobs")] == [hashlib.sha256(data).hexdigest()]


def test_the_last_delete_removes_the_bytes(folder: Path, store: DiskArtifacts) -> None:
    for name in "ab":
        store.save(KEY, name, b"data")
    store.delete(KEY, "a")
    assert len(files(folder, "blobs")) == 1
    store.delete(KEY, "b")
    assert [path.stat().st_size for path in files(folder)] == [0, 0]


def test_nothing_begun_is_left_behind(folder: Path, store: DiskArtifacts) -> None:
    store.save(KEY, "a", b"x")
    with (
        open("/proc/self/mem", "rb") as file,
        pytest.raises(ArtifactError, match="cannot be read"),
    ):
        store.save(KEY, "a", file)
    assert files(folder, "new") == []


def test_a_full_disk_is_told_and_leaves_nothing(
    folder: Path, store: DiskArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is made; then the record cannot be written."""
    store.save(KEY, "a", b"first")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "encoded", full)
    with pytest.raises(ArtifactError, match=r"'a' cannot be kept: No space left"):
        store.save(KEY, "a", b"second")
    monkeypatch.undo()
    assert [one.version for one in store.versions(KEY, "a")] == [0]
    assert files(folder, "new") == []
    assert store.save(KEY, "a", b"third").version == 2


def test_a_damaged_file_is_told(folder: Path, store: DiskArtifacts) -> None:
    store.save(KEY, "a", b"right")
    [blob] = files(folder, "blobs")
    blob.write_bytes(b"wrong")
    with pytest.raises(ArtifactError, match="damaged"):
        read(store, KEY, "a")
    blob.write_bytes(b"cut")
    with pytest.raises(ArtifactError, match="no artifact 'a' in version 0"):
        store.open(KEY, "a")


@pytest.mark.parametrize("record", [b"", b"{}", b"[]", b"\xff", b'{"name": "a"}', b"[" * 9999])
def test_a_damaged_record_is_told(folder: Path, store: DiskArtifacts, record: bytes) -> None:
    store.save(KEY, "a", b"x")
    [path] = folder.rglob("0.json")
    path.write_bytes(record)
    for ask in (store.find, store.versions, store.open):
        with pytest.raises(ArtifactError, match="damaged"):
            ask(KEY, "a")


def test_what_is_not_ours_is_passed_over(folder: Path, store: DiskArtifacts) -> None:
    saved = store.save(KEY, "a", b"x")
    place = next(folder.rglob("0.json")).parent
    for path in (place / "notes.json", place / "x.data", place.parent / ".DS_Store"):
        path.write_bytes(b"")
    assert store.latest(KEY) == store.versions(KEY, "a") == [saved]
    assert store.save(KEY, "a", b"y").version == 1
    assert store.delete(KEY, "a")


def test_a_folder_that_can_not_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = DiskArtifacts(tmp_path / "file" / "artifacts")
    with pytest.raises(ArtifactError, match="cannot be kept"):
        store.save(KEY, "a", b"x")


WRITER = """
import os, sys
from skillbelt.artifacts.disk import DiskArtifacts
from skillbelt.store import SessionKey
store, key = DiskArtifacts(sys.argv[1]), SessionKey("app", "ada", "chat")
sys.stdin.read(1)
for turn in range(int(sys.argv[2])):
    print(store.save(key, "a", f"{os.getpid()} {turn}".encode() * 1000).version, flush=True)
"""


def writer(folder: Path, turns: int) -> subprocess.Popen[bytes]:
    return warm.Popen[bytes](
        [sys.executable, "-c", WRITER, str(folder), str(turns)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_processes_never_share_or_lose_a_number(folder: Path, store: DiskArtifacts) -> None:
    writers = [writer(folder, 25) for _ in range(4)]
    for one in writers:
        assert one.stdin is not None
        one.stdin.write(b"x")
        one.stdin.flush()
    given = [int(line) for one in writers for line in one.communicate(timeout=500)[0].split()]
    assert sorted(given) == list(range(100))
    kept = store.versions(KEY, "a")
    assert [one.version for one in kept] == list(range(100))
    assert {read(store, KEY, "a", one.version)[0] for one in kept} == set(kept)


def test_a_killed_writer_leaves_nothing_half(
    folder: Path, store: DiskArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    for round_ in range(8):
        with writer(folder, 10_000) as one:
            assert one.stdin is not None
            assert one.stdout is not None
            one.stdin.write(b"x")
            one.stdin.flush()
            told += [int(one.stdout.readline()) for _ in range(3)]
            time.sleep(0.003 * round_)
            one.send_signal(signal.SIGKILL)
            told += [int(line) for line in one.stdout.read().splitlines(True) if line[-1:] == b"\n"]
    kept = {found.version for found in store.versions(KEY, "a")}
    assert set(told) <= kept
    for version in kept:
        assert read(store, KEY, "a", version)[1]
    assert store.save(KEY, "a", b"after").version > max(told)
    # A day later nothing of the killed ones is left, and a delete leaves one empty mark.
    monkeypatch.setattr(disk, "_STALE_SECONDS", -60.0)
    again = DiskArtifacts(folder)
    again.save(KEY, "b", b"x")
    assert files(folder, "new") == []
    assert again.delete(KEY, "a")
    assert again.delete(KEY, "b")
    assert [path.stat().st_size for path in files(folder)] == [0, 0]


def test_bytes_that_lost_their_blob_are_still_there(folder: Path, store: DiskArtifacts) -> None:
    """This happens when a deleter counts the links just before a writer adds one."""
    store.save(KEY, "a", b"x")
    files(folder, "blobs")[0].unlink()
    assert read(store, KEY, "a")[1] == b"x"
    store.save(KEY, "b", b"x")
    assert store.delete(KEY, "a")
    assert read(store, KEY, "b")[1] == b"x"


def test_a_blob_that_goes_while_it_is_linked(
    folder: Path, store: DiskArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def racing(source: str, target: str) -> None:
        if source.startswith(str(folder / "blobs")):
            os.unlink(source)
        real(source, target)

    monkeypatch.setattr(os, "link", racing)
    store.save(KEY, "a", b"x")
    assert read(store, KEY, "a")[1] == b"x"


@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("step", ["listdir", "unlink", "rename", "stat"])
def test_a_delete_spares_what_is_saved_at_any_moment(
    store: DiskArtifacts, monkeypatch: pytest.MonkeyPatch, step: str, at: int
) -> None:
    """Just after the deleter has listed, removed or looked at something."""
    for data in (b"same", b"other"):
        store.save(KEY, "a", data)
    real, calls, saved = getattr(os, step), iter(range(1, 1000)), []

    def interrupted(*args: Any, **options: Any) -> Any:
        done = real(*args, **options)
        if next(calls) == at:
            monkeypatch.undo()
            saved.append(store.save(KEY, "a", b"same"))
        return done

    monkeypatch.setattr(os, step, interrupted)
    assert store.delete(KEY, "a")
    monkeypatch.undo()
    for found in store.versions(KEY, "a"):
        assert [found] == saved
        assert read(store, KEY, "a") == (found, b"same")
    assert store.save(KEY, "a", b"later").version == 2 + len(saved)


@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("step", ["open", "mkdir", "link", "listdir", "rename", "unlink"])
def test_a_save_survives_a_delete_at_any_moment(
    store: DiskArtifacts, monkeypatch: pytest.MonkeyPatch, step: str, at: int
) -> None:
    """Just before the saver opens, links or renames something."""
    store.save(KEY, "a", b"same")
    real, calls = getattr(os, step), iter(range(1, 1000))

    def interrupted(*args: Any, **options: Any) -> Any:
        if next(calls) == at:
            monkeypatch.undo()
            store.delete(KEY, "a")
        return real(*args, **options)

    monkeypatch.setattr(os, step, interrupted)
    saved = store.save(KEY, "a", b"same")
    monkeypatch.undo()
    assert saved.version == 1
    kept = store.versions(KEY, "a")
    assert kept[-1:] in ([saved], [])
    for found in kept:
        assert read(store, KEY, "a", found.version) == (found, b"same")
    assert store.save(KEY, "a", b"later").version == 2


def test_an_ordinary_user_can_keep_artifacts(open_tree: Tree) -> None:
    code = (
        "import os, sys\n"
        "from skillbelt.artifacts.disk import DiskArtifacts\n"
        "from skillbelt.store import SessionKey\n"
        "if os.getuid() == 0:\n"
        f"    os.chown(sys.argv[1], {NOBODY}, {NOBODY})\n"
        f"    os.setuid({NOBODY})\n"
        "store, key = DiskArtifacts(sys.argv[1] + '/state/artifacts'), SessionKey('a', 'b', 'c')\n"
        "print(store.save(key, 'x', b'data').version, store.open(key, 'x').read())\n"
    )
    done = open_tree.python("-W", "ignore", "-c", code, str(open_tree.root))
    assert (done.stdout, done.stderr) == ("0 b'data'\n", "")
