from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.errors import PathEscape
from skillbelt.files import contain
from tests import needs

BAD = {
    "": "empty",
    "./": "empty",
    "/abs": "absolute",
    "//host/share": "absolute",
    "../x": "leads out",
    "a/../../x": "leads out",
    "a/..": "leads out",
    "..": "leads out",
    ".": "component",
    "a//b": "component",
    "a/./b": "component",
    "a/": "component",
    "C:x": "colon",
    "C:\\x": "backslash",
    "https://other/x": "colon",
    "a\\b": "backslash",
    "a\0b": "NUL",
    "a\nb": "control",
    "x" * 256: "too long",
    "/".join(["abcdefgh"] * 60) + "/" + "x" * 250 + "/" + "y" * 250: "too long",
    "/".join("a" * 65): "too deep",
    "\ud800": "Unicode",
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "inside").mkdir()
    fd = contain.open_folder(str(tmp_path / "inside"))
    yield fd
    os.close(fd)


@pytest.mark.parametrize("name", BAD)
def test_an_unsafe_name_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(PathEscape, match=BAD[name]) as caught:
        contain.check_relative(name)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", ["a", "a/b.md", "..a/b..", "...", "-x", "ä/ß", " a "])
def test_a_plain_name_comes_back_as_it_is(name: str) -> None:
    assert contain.check_relative(name) == name
    assert contain.check_relative(f"./{name}") == name


@pytest.mark.parametrize("name", ["a/b", ".hidden", "..", ".", "", "a\\b"])
def test_a_segment_is_one_plain_name(name: str) -> None:
    with pytest.raises(PathEscape):
        contain.check_segment(name)
    assert contain.check_segment("pdf-tools_2.0") == "pdf-tools_2.0"


@given(st.text(st.sampled_from("./\\:ab~\0 ") | st.characters(), max_size=40))
def test_no_accepted_name_leads_out(name: str) -> None:
    try:
        plain = contain.check_relative(name)
    except PathEscape:
        return
    joined = os.path.normpath(os.path.join("/root/of/all", plain))
    assert joined.startswith("/root/of/all/")
    assert joined == f"/root/of/all/{plain}"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a", "a"),
        ("A.md", "a.md"),
        ("stra\u00dfe", "STRASSE"),
        ("e\u0301", "\u00e9"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("A/x", "a/y"),
        ("a/b/c", "a/B/d"),
    ],
)
def test_names_that_meet_on_some_disk_are_refused(first: str, second: str) -> None:
    table = contain.NameTable()
    table.add_file(first)
    with pytest.raises(PathEscape, match="meets"):
        table.add_file(second)


def test_a_folder_may_be_named_again_and_every_node_counts() -> None:
    table = contain.NameTable()
    table.add_folder("a")
    table.add_file("a/b/c")
    table.add_folder("a")
    table.add_folder("a/b")
    assert len(table) == 3
    with pytest.raises(PathEscape, match="meets"):
        table.add_folder("A")
    with pytest.raises(PathEscape, match="meets"):
        table.add_folder("a/b/c")


WAYS = ["walk"] if not sys.platform.startswith("linux") else ["openat2", "walk"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way of opening: the kernel's, and ours where the kernel has none."""
    if request.param == "walk":
        monkeypatch.setattr(contain, "_openat2", lambda: None)
    return str(request.param)


def test_a_file_below_is_opened(folder: int, tmp_path: Path, way: str) -> None:
    (tmp_path / "inside" / "a").mkdir()
    (tmp_path / "inside" / "a" / "b.md").write_text("text")
    fd = contain.open_beneath(folder, "a/b.md", os.O_RDONLY)
    assert not os.get_inheritable(fd)
    with os.fdopen(fd) as file:
        assert file.read() == "text"
    with pytest.raises(FileNotFoundError):
        contain.open_beneath(folder, "a/none", os.O_RDONLY)
    with pytest.raises(NotADirectoryError):
        contain.open_beneath(folder, "a/b.md/c", os.O_RDONLY)


@pytest.mark.parametrize("target", ["/etc", "../outside", "..", "/proc/self/root"])
def test_no_link_leads_out(folder: int, tmp_path: Path, way: str, target: str) -> None:
    (tmp_path / "outside").mkdir()
    for name in ("passwd", "etc"):
        (tmp_path / "outside" / name).write_text("secret")
    (tmp_path / "inside" / "link").symlink_to(target)
    for path in ("link", "link/passwd", "link/etc"):
        with pytest.raises(PathEscape):
            contain.open_beneath(folder, path, os.O_RDONLY)


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../x", "a\0b"])
def test_no_path_leads_out(folder: int, way: str, path: str) -> None:
    with pytest.raises(PathEscape):
        contain.open_beneath(folder, path, os.O_RDONLY)


@needs.linux
def test_a_link_that_stays_below_is_followed(folder: int, tmp_path: Path) -> None:
    (tmp_path / "inside" / "a.md").write_text("text")
    (tmp_path / "inside" / "link").symlink_to("a.md")
    with os.fdopen(contain.open_beneath(folder, "link", os.O_RDONLY)) as file:
        assert file.read() == "text"


def test_a_kernel_without_the_call_is_walked_around(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    (tmp_path / "inside" / "a.md").write_text("text")
    for refusal in (errno.ENOSYS, errno.EPERM, errno.EAGAIN):
        monkeypatch.setattr(contain, "_openat2", lambda code=refusal: lambda *_: -code)
        with os.fdopen(contain.open_beneath(folder, "a.md", os.O_RDONLY)) as file:
            assert file.read() == "text"


def test_a_new_file_is_private_and_never_replaces(folder: int, tmp_path: Path) -> None:
    os.close(contain.create_beneath(folder, "a/b/c.py", executable=True))
    os.close(contain.create_beneath(folder, "a/b/d.md"))
    made = tmp_path / "inside" / "a" / "b"
    assert stat.S_IMODE((made / "c.py").stat().st_mode) == 0o700
    assert stat.S_IMODE((made / "d.md").stat().st_mode) == 0o600
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    with pytest.raises(FileExistsError):
        contain.create_beneath(folder, "a/b/c.py")


def test_nothing_is_made_through_a_link(folder: int, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "inside" / "link").symlink_to("../outside")
    (tmp_path / "inside" / "file").symlink_to("../outside/file")
    for path in ("link/x", "link/deep/x"):
        with pytest.raises(PathEscape, match="link"):
            contain.create_beneath(folder, path)
    with pytest.raises(FileExistsError):
        contain.create_beneath(folder, "file")
    with pytest.raises(PathEscape, match="link"):
        contain.make_folders(folder, "link/deep")
    assert list((tmp_path / "outside").iterdir()) == []


def test_no_handle_is_left_open(folder: int, tmp_path: Path, way: str) -> None:
    (tmp_path / "inside" / "link").symlink_to("/etc")
    before = len(os.listdir("/dev/fd"))
    for _ in range(20):
        for path in ("none/x", "link/x", "none"):
            with pytest.raises((PathEscape, OSError)):
                contain.open_beneath(folder, path, os.O_RDONLY)
        with pytest.raises(PathEscape):
            contain.create_beneath(folder, "link/x")
        os.close(contain.make_folders(folder, "a/b/c"))
    assert len(os.listdir("/dev/fd")) == before


def test_a_folder_beside_one_with_a_longer_name_is_not_inside(tmp_path: Path) -> None:
    assert contain.inside(f"{tmp_path}/a/b", f"{tmp_path}/a")
    assert not contain.inside(f"{tmp_path}/ab", f"{tmp_path}/a")
    assert not contain.inside(f"{tmp_path}/a/../b", f"{tmp_path}/a")
