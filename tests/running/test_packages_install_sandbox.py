"""Rooms for installers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.running.packages.fetched import IndexPage, NotFetched, page_of
from skillbelt.running.packages.install_sandbox import NativeSandbox, NativeSandboxes
from skillbelt.running.packages.installation import InstallStep
from skillbelt.running.packages.installers import Uv
from tests import needs

pytestmark = needs.linux
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/install/home"}
GET = (
    "import sys, urllib.request as u\n"
    "for url in sys.argv[1:]:\n"
    "    try: print(u.urlopen(url).read().decode())\n"
    "    except u.HTTPError as error: print(error.code, error.read().decode().strip())\n"
)


class OnePage:
    """A shelf with one page."""

    def page(self, path: str) -> IndexPage:
        if path == "/there":
            return page_of(200, "text/plain", b"found")
        raise NotFetched(404, f"nothing at {path}")


@pytest.fixture
def room() -> Iterator[NativeSandbox]:
    with NativeSandboxes().open(2**20) as found:
        yield found


def step(*argv: str, package_index: OnePage | None = None) -> InstallStep:
    return InstallStep(argv, 60, ENV, package_index)


def test_a_room_is_empty_and_nothing_of_the_user_is_there(room: NativeSandbox) -> None:
    home = os.path.expanduser("~")
    _, said = room.run(step("sh", "-c", f"pwd; ls -A; id -u; ls -A {home} && echo seen; env"))
    lines = said.splitlines()
    assert lines[:1] == ["/install"]
    assert lines[1] != "0"
    assert "seen" not in lines
    assert {line.partition("=")[0] for line in lines if "=" in line} <= {"PATH", "HOME", "PWD", "_"}


def test_files_go_in_and_come_out(room: NativeSandbox) -> None:
    room.put("a", b"x")
    assert room.run(step("sh", "-c", "cat a > b; mkdir d; echo y > d/c")) == (0, "")
    assert room.read("b", 10) == b"x"
    assert (room.names("d"), room.names("none")) == (["c"], [])
    room.put("d", b"in place of a folder")
    assert room.read("d", 100) == b"in place of a folder"


def test_only_the_index_is_reached(room: NativeSandbox) -> None:
    urls = ("http://packages.invalid/there", "http://packages.invalid/x", "http://127.0.0.1:9/")
    _, said = room.run(step("python3", "-c", GET, *urls, package_index=OnePage()))
    found, missing, other = said.splitlines()
    assert (found, missing) == ("found", "404 nothing at /x")
    assert other.startswith("403 ") and "is not the package index" in other
    code, _ = room.run(step("python3", "-c", GET, urls[0]))
    assert code != 0


def test_the_index_is_only_read(room: NativeSandbox) -> None:
    post = GET.replace("u.urlopen(url)", "u.urlopen(url, b'x')")
    _, said = room.run(
        step("python3", "-c", post, "http://packages.invalid/there", package_index=OnePage())
    )
    assert said.startswith("403 ") and "read-only" in said


@pytest.mark.parametrize(
    "script",
    ["ln -s /etc/passwd out/x", "mkfifo out/x", "ln -s ../../x out/x"],
)
def test_what_leads_out_is_not_copied(room: NativeSandbox, script: str, tmp_path: Path) -> None:
    room.run(step("sh", "-c", f"mkdir out; {script}"))
    with pytest.raises(RunRefused, match="the packages"):
        room.copy("out", str(tmp_path))


def test_what_is_copied_is_data(room: NativeSandbox, tmp_path: Path) -> None:
    room.run(step("sh", "-c", "mkdir out; cp /bin/true out/x; chmod 6755 out/x; ln -s x out/y"))
    room.copy("out", str(tmp_path))
    assert os.stat(tmp_path / "x").st_mode & 0o7777 == 0o555
    assert os.readlink(tmp_path / "y") == "x"


@pytest.mark.parametrize("script", ["ln -s /etc/passwd x", "mkfifo x", "mkdir x", "true"])
def test_what_is_no_file_is_not_read(room: NativeSandbox, script: str) -> None:
    room.run(step("sh", "-c", script))
    with pytest.raises(RunRefused, match="the installer left"):
        room.read("x", 10)


def test_too_much_is_not_read(room: NativeSandbox) -> None:
    room.put("x", b"12345")
    with pytest.raises(RunRefused, match="more than 4 bytes"):
        room.read("x", 4)


def test_a_room_is_gone_afterwards() -> None:
    with NativeSandboxes().open(2**20) as room:
        folder = os.path.dirname(room._room)
        assert os.path.isdir(folder)
    assert not os.path.exists(folder)


def test_what_somebody_left_is_cleared_away_and_what_is_in_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if folder != Path("/tmp") and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "skillbelt-install-left"
    left.mkdir()
    with NativeSandboxes().open(2**20), NativeSandboxes().open(2**20):
        assert not left.exists()
        assert len(os.listdir(tmp_path)) == 2


def test_a_program_is_there_wherever_it_lies(room: NativeSandbox, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\necho here\n")
    program.chmod(0o700)
    assert room.run(step(room.shown(str(program)))) == (0, "here\n")
    assert room.shown("/bin/sh") == os.path.realpath("/bin/sh")


def test_a_program_of_the_machine_can_not_be_changed(room: NativeSandbox, tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\necho changed >>$0 || chmod 777 $0 || rm -f $0 || echo here\n")
    program.chmod(0o777)
    before = (program.read_bytes(), program.stat().st_mode)
    code, said = room.run(step(room.shown(str(program))))
    assert (code, said.splitlines()[0]) == (0, "here")
    assert (program.read_bytes(), program.stat().st_mode) == before


def test_a_program_with_the_rights_of_its_owner_is_copied_without_them(
    room: NativeSandbox, tmp_path: Path
) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\nstat -L -c %a $0\n")
    program.chmod(0o4755)
    assert room.run(step(room.shown(str(program)))) == (0, "555\n")


@pytest.mark.parametrize("asked", ["exit 1\n# default package index (by default: <", "echo '"])
def test_the_default_index_is_read_from_uv_else_uv_is_asked(
    room: NativeSandbox, tmp_path: Path, asked: str
) -> None:
    program = tmp_path / "uv"
    said = "--default-index [by default: <https://index.example/simple>]'"
    written = "https://index.example/simple>)"
    program.write_text(f"#!/bin/sh\n{asked}{said if 'echo' in asked else written}\n")
    program.chmod(0o755)
    uv = Uv(program=str(program), python="/usr/bin/python3", folders=(), seconds=60.0)
    assert uv.default_index(room) == "https://index.example/simple"


def test_a_python_that_the_installer_can_not_reach_is_refused(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    closed.chmod(0)
    with pytest.raises(RunRefused, match="cannot be used: packages are installed in a sandbox"):
        NativeSandboxes().folders_of(str(closed / "python"))
    closed.chmod(0o700)


def test_the_python_for_runs_can_be_used() -> None:
    rooms = NativeSandboxes()
    assert os.access(rooms.python, os.X_OK)
    rooms.folders_of(rooms.python)
