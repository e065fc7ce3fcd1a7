from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skillbelt.sandbox.linux import identity
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.identity import (
    Identity,
    blocking_folder,
    current_identity,
    interpreter,
    run_identity,
    trusted_program,
)
from skillbelt.sandbox.protocol import Mount, run
from skillbelt.testing.sandbox_suite import Place
from tests import needs
from tests.sandbox.ordinary import USER, as_user

STRANGER = Identity(61_000, 61_000)
root_only = needs.root


@root_only
def test_root_becomes_somebody_else() -> None:
    assert run_identity() == current_identity() == (identity.RUN_ID, identity.RUN_ID)


@root_only
def test_an_ordinary_user_stays_who_they_are() -> None:
    code = "json.dump([identity.run_identity(), identity.current_identity()], sys.stdout)"
    assert as_user(code) == [None, [USER, USER]]


def test_commands_are_never_root(place: Place) -> None:
    done = run(LinuxSandbox(), place.shell("id -u; id -G"))
    assert tuple(map(int, done.stdout.data.split())) == current_identity()


def test_programs_of_the_system_are_found_whatever_the_path_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Attack 13: a planted `bwrap` is never run."""
    planted = tmp_path / "bwrap"
    planted.write_text("#!/bin/sh\ntouch ran\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    trusted_program.cache_clear()
    assert trusted_program("bwrap") == os.path.realpath("/usr/bin/bwrap")
    assert trusted_program("no-such-program") is None


@root_only
def test_a_program_that_others_can_change_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(identity, "_TRUSTED_FOLDERS", (str(tmp_path),))
    assert trusted_program.__wrapped__("tool") is None  # /tmp itself is open to all


def test_the_folder_that_blocks_is_named(place: Place) -> None:
    inner = os.path.join(place.folder, "a", "b")
    os.makedirs(inner)
    os.chmod(place.folder, 0o755)
    os.chmod(os.path.join(place.folder, "a"), 0o700)
    assert blocking_folder(os.path.join(inner, "file"), STRANGER) == os.path.join(place.folder, "a")
    os.chmod(os.path.join(place.folder, "a"), 0o711)
    assert blocking_folder(os.path.join(inner, "file"), STRANGER) is None
    assert blocking_folder("/no/such/folder/file", STRANGER) == "/no"


def test_the_python_for_commands_can_be_run_inside(place: Place) -> None:
    python = interpreter()
    assert python is not None
    mounts = [Mount(place.folder, place.target, True)]
    mounts += [Mount(folder, folder) for folder in python.folders]
    done = run(LinuxSandbox(), place.job(python.path, "-c", "print(1)", mounts=tuple(mounts)))
    assert done.stdout.data == b"1\n", done


def test_a_python_of_our_own_comes_with_its_folder(
    monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    """One that the command can read; what is installed beside the runtime stays away."""
    prefix = os.path.join(place.folder, "python")
    os.makedirs(os.path.join(prefix, "bin"))
    os.chmod(place.folder, 0o755)
    subprocess.run(["cp", "/bin/true", os.path.join(prefix, "bin", "python3")], check=True)
    monkeypatch.setattr("sys.executable", os.path.join(prefix, "bin", "python3"))
    monkeypatch.setattr("sys.base_prefix", prefix)
    found = interpreter.__wrapped__(STRANGER)
    assert found == (os.path.join(prefix, "bin", "python3"), (prefix,))
    os.chmod(prefix, 0o700)
    system = interpreter.__wrapped__(STRANGER)
    assert system is not None
    assert identity.in_system(system.path) and system.folders == ()


def test_a_root_that_can_become_nobody_else_is_refused() -> None:
    code = (
        "from skillbelt.errors import SandboxUnavailable as E\n"
        "from skillbelt.sandbox.linux import identity\n"
        "try: print(identity.run_identity())\n"
        "except E as error: print(error)"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", code],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "there is no uid 62000 to become; start as an ordinary user" in done.stdout
