"""Archives against the rules; the same through a whole pull is in test_remote.py."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from skillbelt.discovery.sources.archive import detect, unpack
from skillbelt.discovery.sources.bounds import Deadline, PullBudget
from skillbelt.discovery.sources.failure import OutOfTime
from skillbelt.errors import ArchiveRefused
from skillbelt.files.contain import open_folder
from tests.bounds import bounds
from tests.discovery.sources.archives import SKILL, member, tar_of, tarred, tgz_of, tree_of, zipped
from tests.examples import examples


@pytest.fixture(autouse=True)
def small() -> None:
    bounds(max_extracted_file_bytes=100_000, max_extracted_bytes=250_000, max_archive_files=50)


def unpacked(data: bytes, folder: Path, seconds: float = 30) -> int:
    folder.mkdir(exist_ok=True)
    fd = open_folder(str(folder))
    try:
        budget = PullBudget(Deadline("test", seconds))
        return unpack(io.BytesIO(data), fd, source="test", budget=budget)
    finally:
        os.close(fd)


def refused(data: bytes, tmp_path: Path, reason: str) -> None:
    """The archive is refused for that reason, and nothing was written outside its folder."""
    with pytest.raises(ArchiveRefused, match=reason):
        unpacked(data, tmp_path / "in" / "to")
    outside = {path for path in tree_of(tmp_path) if not path.startswith("in/to/")}
    assert outside == {"witness"}
    assert (tmp_path / "witness").read_bytes() == b"untouched"


@pytest.fixture(autouse=True)
def witness(tmp_path: Path) -> None:
    (tmp_path / "witness").write_bytes(b"untouched")
    (tmp_path / "in").mkdir()


FILES = {"SKILL.md": SKILL, "scripts/a/run.py": b"print()\n", "empty": b""}


@pytest.mark.parametrize("make", [zipped, tar_of, tgz_of])
def test_every_format_gives_the_same_files(make: object, tmp_path: Path) -> None:
    assert callable(make)
    assert unpacked(make(FILES), tmp_path / "out") == 3
    assert tree_of(tmp_path / "out") == FILES


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_of_every_tar_dialect(format: int, tmp_path: Path) -> None:
    long = "/".join(["folder-with-a-name"] * 8) + "/ends.md"
    data = tarred([(member(long, b"x"), b"x")], format=format)
    unpacked(data, tmp_path / "out")
    assert tree_of(tmp_path / "out") == {long: b"x"}


def test_a_tar_made_of_the_current_folder(tmp_path: Path) -> None:
    data = tarred(
        [
            (member("./", kind=tarfile.DIRTYPE), b""),
            (member("./a/", kind=tarfile.DIRTYPE), b""),
            (member("./a/x", b"1"), b"1"),
            (member("./a/", kind=tarfile.DIRTYPE), b""),
        ]
    )
    assert unpacked(data, tmp_path / "out") == 1
    assert tree_of(tmp_path / "out") == {"a/x": b"1"}


def test_a_tar_with_a_comment_for_all_files_as_git_writes_it(tmp_path: Path) -> None:
    out = io.BytesIO()
    headers = {"comment": "5f3c"}
    with tarfile.open(fileobj=out, mode="w", pax_headers=headers) as archive:
        archive.addfile(member("a", b"1"), io.BytesIO(b"1"))
    unpacked(out.getvalue(), tmp_path / "out")
    assert tree_of(tmp_path / "out") == {"a": b"1"}


UNSAFE = {
    "../x": "leads out",
    "a/../../x": "leads out",
    "/abs": "absolute",
    "//abs": "absolute",
    "C:x": "colon",
    "a\\..\\x": "backslash",
    "a//b": "component",
    "x" * 300: "too long",
    "/".join("a" * 70): "too deep",
    "bell\a": "control",
}


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("form", ["zip", "tar"])
def test_an_unsafe_name_refuses_the_whole(name: str, form: str, tmp_path: Path) -> None:
    """Case 27."""
    pairs = [("fine.md", b"1"), (name, b"bad"), ("later.md", b"2")]
    members = [(member(name, data), data) for name, data in pairs]
    data = zipped(pairs) if form == "zip" else tarred(members)
    refused(data, tmp_path, UNSAFE[name])


def test_a_name_with_a_nul_is_refused(tmp_path: Path) -> None:
    data = zipped({"fine.mdX../x": b"bad"}).replace(b"fine.mdX", b"fine.md\0")
    refused(data, tmp_path, "NUL")


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.USTAR_FORMAT, encoding="latin-1"
    ) as archive:
        archive.addfile(member("\xff"))
    refused(out.getvalue(), tmp_path, "UTF-8")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (tarfile.SYMTYPE, "symbolic link"),
        (tarfile.LNKTYPE, "hard link"),
        (tarfile.CHRTYPE, "device"),
        (tarfile.BLKTYPE, "device"),
        (tarfile.FIFOTYPE, "FIFO"),
        (tarfile.GNUTYPE_SPARSE, "sparse"),
        (b"Z", "unknown kind"),
    ],
)
@pytest.mark.parametrize("target", ["/etc/passwd", "../../witness", "fine.md"])
def test_only_files_and_folders(kind: bytes, reason: str, target: str, tmp_path: Path) -> None:
    """Case 27. A link is refused even if it stays inside."""
    members = [(member("fine.md", b"1"), b"1"), (member("x", kind=kind, linkname=target), b"")]
    refused(tarred(members), tmp_path, reason)


def test_a_long_link_target_is_refused(tmp_path: Path) -> None:
    link = member("x", kind=tarfile.SYMTYPE, linkname="../" * 60 + "etc/passwd")
    refused(tarred([(link, b"")], format=tarfile.GNU_FORMAT), tmp_path, "link")
    refused(tarred([(link, b"")], format=tarfile.PAX_FORMAT), tmp_path, "link")


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_a_zip_entry_that_is_no_file_is_refused(mode: int, tmp_path: Path) -> None:
    """Case 27."""
    refused(zipped({"x": b"/etc/passwd"}, mode=mode | 0o777), tmp_path, "link or a device")


@pytest.mark.parametrize(
    "names",
    [
        ("a", "a"),
        ("./a", "a"),
        ("A.md", "a.md"),
        ("\u00e9", "e\u0301"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("A/x", "a/y"),
    ],
)
@pytest.mark.parametrize("form", ["zip", "tar"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_meet_refuse_the_whole(
    names: tuple[str, str], form: str, tmp_path: Path
) -> None:
    pairs = [(name, b"1") for name in names]
    members = [(member(name, data), data) for name, data in pairs]
    refused(zipped(pairs) if form == "zip" else tarred(members), tmp_path, "meets")


def test_only_the_executable_bit_survives(tmp_path: Path) -> None:
    data = tarred([(member("run", b"1", mode=0o6777), b"1"), (member("text", mode=0o666), b"")])
    unpacked(data, tmp_path / "tar")
    unpacked(zipped({"run": b"1"}, mode=0o107777), tmp_path / "zip")
    for form in ("tar", "zip"):
        assert stat.S_IMODE((tmp_path / form / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "tar" / "text").stat().st_mode) == 0o600


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    data = bytearray(zipped({"a": b"1"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    refused(bytes(data), tmp_path, "encrypted")


def test_a_zip_with_a_rare_method_is_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"1" * 100)
    refused(out.getvalue(), tmp_path, "unknown method")


BOMB = b"\0" * 300_000


@pytest.mark.parametrize("make", [zipped, tar_of, tgz_of])
def test_a_file_over_the_limit_is_refused_while_reading(make: object, tmp_path: Path) -> None:
    """Case 28."""
    assert callable(make)
    refused(make({"a": BOMB}), tmp_path, "more than 100000 bytes")
    assert sum(map(len, tree_of(tmp_path / "in" / "to").values())) <= 100_000


@pytest.mark.parametrize("make", [zipped, tar_of, tgz_of])
def test_too_much_in_all_is_refused_while_reading(make: object, tmp_path: Path) -> None:
    """Case 28."""
    assert callable(make)
    refused(make({str(i): BOMB[:90_000] for i in range(3)}), tmp_path, "more than 250000 bytes")
    assert sum(map(len, tree_of(tmp_path / "in" / "to").values())) <= 250_000


@pytest.mark.parametrize("make", [zipped, tar_of, tgz_of])
def test_too_many_files_are_refused(make: object, tmp_path: Path) -> None:
    assert callable(make)
    refused(make({str(i): b"" for i in range(51)}), tmp_path, "more than 50 files")
    unpacked(make({str(i): b"" for i in range(50)}), tmp_path / "fits")


def test_folders_count_as_files_do(tmp_path: Path) -> None:
    refused(zipped({f"{i}/a/b/c/d/e": b"" for i in range(9)}), tmp_path, "more than 50 files")


def test_the_claims_of_a_zip_header_are_not_believed(tmp_path: Path) -> None:
    """A header that claims 10 bytes of 300,000: the checksum covers other bytes than were read."""
    data = bytearray(zipped({"a": BOMB}))
    for start, offset in ((data.index(b"PK\x01\x02"), 24), (data.index(b"PK\x03\x04"), 22)):
        struct.pack_into("<I", data, start + offset, 10)
    refused(bytes(data), tmp_path, "damaged")


def test_a_tar_header_of_any_size_is_not_read_into_memory(tmp_path: Path) -> None:
    huge = member("x", kind=b"x")
    huge.size = 2**32
    data = gzip.compress(huge.tobuf(tarfile.USTAR_FORMAT) + bytes(4 * 2**20))
    refused(data, tmp_path, "extended header has more than")


def test_endless_compressed_padding_is_refused(tmp_path: Path) -> None:
    bounds(max_archive_files=1)
    refused(gzip.compress(bytes(2**20)), tmp_path, "more than 250000 bytes")


def test_a_sparse_file_by_extended_header_is_refused(tmp_path: Path) -> None:
    info = member("x", b"1")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.realsize": "99999999"}
    refused(tarred([(info, b"1")]), tmp_path, "sparse")


@pytest.mark.parametrize("make", [zipped, tar_of, tgz_of])
def test_an_archive_cut_short_anywhere_is_refused(make: object, tmp_path: Path) -> None:
    assert callable(make)
    whole = make({"SKILL.md": SKILL, "a/b": os.urandom(3000)})
    needed = len(whole) if make is not tar_of else len(whole.rstrip(b"\0")) + 512
    for end in range(0, needed - 600, 97):
        with pytest.raises(ArchiveRefused):
            unpacked(whole[:end], tmp_path / str(end))


def test_a_damaged_header_in_the_middle_is_not_the_end(tmp_path: Path) -> None:
    data = bytearray(tar_of({"a": b"1", "b": b"2"}))
    data[1024] ^= 0xFF
    refused(bytes(data), tmp_path, "checksum")


@pytest.mark.parametrize("data", [b"", b"PK", b"hello", b"<!DOCTYPE html>" * 60, b"\x1f\x8b"])
def test_what_is_no_archive_is_refused(data: bytes, tmp_path: Path) -> None:
    refused(data, tmp_path, "neither|damaged|early")


def test_formats_are_told_by_content() -> None:
    assert detect(zipped({"a": b""})) == "zip"
    assert detect(zipped({})) == "zip"
    assert detect(tgz_of({"a": b""})) == "gzip"
    assert detect(tar_of({"a": b""})) == "tar"
    assert detect(b"BZh91AY&SY" * 60) is None


def test_time_ends_it(tmp_path: Path) -> None:
    with pytest.raises(OutOfTime):
        unpacked(tar_of(FILES), tmp_path / "tar", seconds=0)
    with pytest.raises(OutOfTime):
        unpacked(zipped(FILES), tmp_path / "zip", seconds=0)


def test_a_disk_that_can_not_be_written_is_not_the_archives_fault(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "SKILL.md").write_text("already there")
    with pytest.raises(FileExistsError):
        unpacked(zipped(FILES), tmp_path / "out")


names = st.text(st.sampled_from("./\\:aA\u00e9\0") | st.characters(), min_size=1, max_size=12)


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(names, st.binary(max_size=20)), max_size=6), st.booleans())
@example([("a/../../../../../../../../tmp/evil", b"x")], False)
def test_random_names_never_write_outside(pairs: list[tuple[str, bytes]], as_zip: bool) -> None:
    try:
        if as_zip:
            data = zipped(pairs)
        else:
            data = tarred((member(name, content), content) for name, content in pairs)
    except (UnicodeError, ValueError, UserWarning):
        return
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "deep").mkdir()
        try:
            count = unpacked(data, root / "deep" / "er")
        except ArchiveRefused:
            count = -1
        found = tree_of(root)
        assert all(path.startswith("deep/er/") for path in found)
        if count >= 0:
            assert len(found) == count


@settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([zipped(FILES), tar_of(FILES), tgz_of(FILES)]),
    st.lists(st.tuples(st.integers(0, 5000), st.binary(min_size=1, max_size=8)), max_size=5),
)
def test_damaged_bytes_are_refused_or_whole_and_never_raise_otherwise(
    data: bytes, edits: list[tuple[int, bytes]]
) -> None:
    damaged = bytearray(data)
    for place, content in edits:
        start = place % len(damaged)
        damaged[start : start + len(content)] = content
    with tempfile.TemporaryDirectory() as place_name:
        root = Path(place_name)
        with suppress(ArchiveRefused):
            unpacked(bytes(damaged), root / "out")
        assert all(path.startswith("out/") for path in tree_of(root))


@settings(max_examples=examples(200))
@given(st.sampled_from([b"", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08\x00"]), st.binary())
def test_random_bytes_never_raise_otherwise(start: bytes, rest: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        with suppress(ArchiveRefused):
            unpacked(start + rest, Path(place) / "out")
        assert all(path.startswith("out/") for path in tree_of(place))
