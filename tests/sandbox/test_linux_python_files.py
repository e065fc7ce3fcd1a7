"""The parts of a Python that runs see, for any place of installation."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.running.packages.install_sandbox import NativeSandboxes
from skillbelt.sandbox.linux import identity
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.identity import interpreter
from skillbelt.sandbox.linux.landlock import LandlockSandbox
from skillbelt.sandbox.linux.python_files import shown_of
from skillbelt.sandbox.protocol import Mount, Sandbox, run
from skillbelt.testing.sandbox_suite import Place
from tests.needs import not_run

VERSION = "python3.99"


@pytest.fixture
def home(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user, with a secret; everybody could read it."""
    found = Path(os.path.realpath(place.folder), "home")
    (found / ".ssh").mkdir(parents=True)
    (found / ".ssh/id").write_text("secret")
    for folder in (Path(place.folder), found, found / ".ssh"):
        folder.chmod(0o755)
    monkeypatch.setenv("HOME", str(found))
    for name in ("STATE", "CACHE", "CONFIG", "DATA"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    monkeypatch.chdir(found)
    return found


def install(prefix: Path) -> str:
    """A stand-in for a Python: a program that prints files, its library, and its short name."""
    library = prefix / "lib" / VERSION
    library.mkdir(parents=True)
    (library / "os.py").write_text("library")
    (prefix / "lib/libpython3.99.so.1.0").write_text("shared")
    (prefix / "lib/libpython3.99.so").symlink_to("libpython3.99.so.1.0")
    (prefix / "bin").mkdir()
    program = shutil.copy("/bin/cat", prefix / "bin" / VERSION)
    (prefix / "bin/python3").symlink_to(VERSION)
    return str(program)


def needed(prefix: Path) -> set[str]:
    parts = (f"bin/{VERSION}", "bin/python3", "lib/libpython3.99.so.1.0", f"lib/{VERSION}")
    return {str(prefix / part) for part in parts}


@pytest.mark.parametrize("where", [".pyenv/versions/3.99", ".local/share/uv/python/cpython-3.99"])
def test_a_folder_of_its_own_is_shown_whole(home: Path, where: str) -> None:
    assert shown_of(install(home / where), str(home / where)) == (str(home / where),)


@pytest.mark.parametrize("where", [".", ".local", "opt", "app"])
def test_of_a_shared_folder_there_is_only_what_a_python_needs(home: Path, where: str) -> None:
    prefix = home / where
    program = install(prefix)
    (home / "opt/share/keyrings").mkdir(parents=True)
    (home / "app/lib/notes").mkdir(parents=True)
    assert set(shown_of(program, str(prefix))) == needed(prefix.resolve())


@pytest.mark.parametrize("name", ["XDG_STATE_HOME", "SKILLBELT_STATE_DIR", "HOME"])
def test_what_holds_private_folders_is_not_shown_at_all(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    prefix = home / "python"
    program = install(prefix)
    monkeypatch.setenv(name, str(prefix / "include"))
    assert set(shown_of(program, str(prefix))) == needed(prefix)
    monkeypatch.setenv(name, str(prefix / "lib" / VERSION / "deep"))
    assert shown_of(program, str(prefix)) == ()
    with pytest.raises(RunRefused, match="are among private files; use the system's python3"):
        NativeSandboxes().folders_of(program)
    monkeypatch.setattr("sys.executable", program)
    monkeypatch.setattr("sys.base_prefix", str(prefix))
    found = interpreter.__wrapped__()
    assert found is None or identity.in_system(found.path)


def test_a_project_in_the_folder_of_a_python_is_private(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = install(home / "python")
    (home / "python/include").mkdir()
    monkeypatch.chdir(home / "python/include")
    assert set(shown_of(program, str(home / "python"))) == needed(home / "python")


@pytest.mark.parametrize("sandbox", [LinuxSandbox(), LandlockSandbox()], ids=lambda one: one.name)
@pytest.mark.parametrize("where", [".", ".local"])
def test_a_python_in_the_home_shows_nothing_else_of_it(
    place: Place, home: Path, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox, where: str
) -> None:
    if reason := sandbox.unavailable():
        not_run(reason)
    prefix = (home / where).resolve()
    program = install(prefix)
    (prefix / "share").mkdir()
    (prefix / "share/key").write_text("secret")
    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", program)
        patch.setattr("sys.base_prefix", str(prefix))
        python = interpreter.__wrapped__()
    assert python is not None and python.path == str(prefix / "bin" / VERSION)
    work = os.path.join(place.folder, "work")
    os.mkdir(work)
    os.chown(work, *identity.current_identity())
    inside = work if sandbox.name == "landlock" else place.target
    mounts = [Mount(work, inside, True), *(Mount(path, path) for path in python.folders)]

    def said(path: Path) -> bytes:
        job = place.job(python.path, str(path), mounts=tuple(mounts), cwd=inside, workspace=work)
        return run(sandbox, job).stdout.data

    assert said(prefix / "lib" / VERSION / "os.py") == b"library"
    assert said(prefix / "lib/libpython3.99.so.1.0") == b"shared"
    assert said(home / ".ssh/id") == said(prefix / "share/key") == b""
