"""The host components: what is built is kept, what is kept is checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skillbelt.errors import SandboxUnavailable
from skillbelt.running.build.toolset import install_tools
from skillbelt.sandbox.wasm import interpreters
from skillbelt.sandbox.wasm.interpreters import JAVASCRIPT_HOST, host_component
from skillbelt.settings import Settings
from tests import needs
from tests.sandbox.guests import hosts


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Settings, Path]:
    """Settings of a cache that holds the Python host, and where it lies there."""
    source = Path(host_component("python", hosts(), install=install_tools))
    folder = tmp_path / "wasm-hosts"
    folder.mkdir(mode=0o700)
    for name in (source.name, f"{source.name}.sha256"):
        shutil.copy(source.with_name(name), folder / name)
    return Settings(cache_dir=str(tmp_path), offline=True), folder / source.name


def refusal(settings: Settings) -> str:
    """Offline and with an empty environment of tools nothing can be built, so that it is seen."""
    with pytest.raises(SandboxUnavailable) as caught:
        host_component("python", settings, install=install_tools)
    return str(caught.value)


def test_the_python_host_is_built_once_and_only_for_its_owner() -> None:
    said: list[str] = []
    path = host_component("python", hosts(), install=install_tools, progress=said.append)
    said.clear()
    assert host_component("python", hosts(), install=install_tools, progress=said.append) == path
    assert said == []
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700


def test_one_that_is_there_is_used_offline(kept: tuple[Settings, Path]) -> None:
    settings, path = kept
    assert host_component("python", settings, install=install_tools) == str(path)


def test_offline_and_not_built_it_is_said_what_is_missing(tmp_path: Path) -> None:
    text = refusal(Settings(cache_dir=str(tmp_path), offline=True))
    assert "not built yet" in text and "offline" in text and "go online once" in text


@pytest.mark.parametrize("fault", ["content", "record", "others", "link", "hard link", "pipe"])
def test_one_that_is_not_as_it_was_built_is_not_used(
    fault: str, kept: tuple[Settings, Path]
) -> None:
    settings, path = kept
    if fault == "content":
        with open(path, "r+b") as file:
            file.seek(1000)
            file.write(b"changed")
    elif fault == "record":
        path.with_name(f"{path.name}.sha256").write_text("0" * 64)
    elif fault == "others":
        path.chmod(0o666)
    else:
        moved = path.with_name("moved")
        path.rename(moved)
        if fault == "link":
            path.symlink_to(moved)
        elif fault == "hard link":
            path.hardlink_to(moved)
        else:
            os.mkfifo(path)
    assert "not built yet" in refusal(settings)


def test_a_change_after_it_was_seen_is_seen(kept: tuple[Settings, Path]) -> None:
    settings, path = kept
    host_component("python", settings, install=install_tools)
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    assert "not built yet" in refusal(settings)


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wasm-hosts").mkdir()
    (tmp_path / "wasm-hosts").chmod(0o777)
    text = refusal(Settings(cache_dir=str(tmp_path)))
    assert "others can write to it" in text and "remove it" in text


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "wasm-hosts").symlink_to(tmp_path / "elsewhere")
    assert "not a folder" in refusal(Settings(cache_dir=str(tmp_path)))


@needs.root
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wasm-hosts").mkdir(mode=0o700)
    os.chown(tmp_path / "wasm-hosts", 61_999, 61_999)
    assert "belongs to another user" in refusal(Settings(cache_dir=str(tmp_path)))


def test_whoever_waits_for_a_builder_uses_what_it_made(kept: tuple[Settings, Path]) -> None:
    """Another process holds the lock, and puts the component there before it lets go."""
    settings, path = kept
    aside = path.with_name("aside")
    path.rename(aside)
    code = f"""
import fcntl, os, sys, time
lock = open({str(path.with_name(".lock"))!r}, "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(0.5)
os.rename({str(aside)!r}, {str(path)!r})
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        assert host_component("python", settings, install=install_tools) == str(path)


def test_what_a_killed_builder_left_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "wasm-hosts"
    folder.mkdir(mode=0o700)
    (folder / ".part-old").mkdir()
    (folder / ".part-old" / "host.wasm").write_text("half")
    interpreters._remove_old(str(folder))
    assert os.listdir(folder) == []


def test_the_javascript_host_comes_with_the_package() -> None:
    assert (
        host_component("javascript", Settings(offline=True), install=install_tools)
        == JAVASCRIPT_HOST
    )


def test_a_damaged_package_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "js_host.wasm"
    broken.write_bytes(b"\0asm")
    shutil.copy(f"{JAVASCRIPT_HOST}.sha256", f"{broken}.sha256")
    monkeypatch.setattr(interpreters, "JAVASCRIPT_HOST", str(broken))
    with pytest.raises(SandboxUnavailable, match="install skillbelt again"):
        host_component("javascript", Settings(), install=install_tools)
