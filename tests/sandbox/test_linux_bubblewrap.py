"""The sandbox for Linux keeps every promise, for root and for an ordinary user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.files.usage import measure_folder
from skillbelt.sandbox.inside import entry
from skillbelt.sandbox.linux import bubblewrap
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.sandbox.process.spawn import descendants
from skillbelt.sandbox.process.watch import Guard
from skillbelt.sandbox.protocol import Mount, Outcome, run
from skillbelt.testing.sandbox_suite import PATH, Place, SandboxConformance
from skillbelt.values import Capabilities, Limits
from tests import needs
from tests.bounds import bounds
from tests.sandbox.ordinary import conformance_as_user
from tests.sandbox.outside import THROUGH_THE_PROXY_ALONE, tried


class TestBubblewrap(SandboxConformance):
    @pytest.fixture
    def sandbox(self) -> LinuxSandbox:
        return LinuxSandbox()


def test_an_ordinary_user_gets_the_same() -> None:
    found = conformance_as_user("linux.LinuxSandbox()")
    assert len(found) > 20
    assert {name: trace for name, trace in found.items() if trace} == {}


def inside(place: Place, script: str, **fields: object) -> Outcome:
    return run(LinuxSandbox(), place.shell(script, **fields))


def test_a_mount_may_be_at_another_place(place: Place) -> None:
    mounts = (Mount(place.folder, "/work", True),)
    outcome = inside(place, "pwd; echo x > made", mounts=mounts, cwd="/work")
    assert outcome.stdout.data == b"/work\n"
    assert os.listdir(place.folder) == ["made"]


def test_a_read_only_folder_inside_a_writable_one(place: Place) -> None:
    """In any order of the mounts."""
    fixed = os.path.join(place.folder, "fixed")
    os.mkdir(fixed)
    os.chown(fixed, *current_identity())
    for mounts in (
        (Mount(place.folder, place.folder, True), Mount(fixed, fixed)),
        (Mount(fixed, fixed), Mount(place.folder, place.folder, True)),
    ):
        outcome = inside(place, "echo > beside && ! echo > fixed/x", mounts=mounts)
        assert outcome.exit_code == 0, outcome
        assert os.listdir(fixed) == []


def test_granted_paths_are_where_they_are_on_the_host(place: Place) -> None:
    """One that does not exist is not there inside either."""
    read, write = place.beside("read"), place.beside("write")
    granted = Capabilities((read, "/no/such/folder"), (write,), processes=True)
    script = f"ls {read} && echo x > {write}/made && ! echo x > {read}/made"
    assert inside(place, script, capabilities=granted).exit_code == 0
    assert (os.listdir(read), os.listdir(write)) == ([], ["made"])


def test_nothing_else_of_the_host_is_there(place: Place) -> None:
    outcome = inside(place, "ls -A / /etc")
    names = set(outcome.stdout.data.decode().split())
    assert not names & {"home", "root", "var", "run", "srv", "opt", "mnt", "sys", "boot", "shadow"}
    assert {"usr", "proc", "dev", "tmp", "passwd"} <= names


def test_the_temporary_folder_is_private_and_empty(place: Place) -> None:
    mounts = (Mount(place.folder, "/work", True),)
    outcome = inside(place, "ls -A /tmp; echo x > /tmp/mine", mounts=mounts, cwd="/work")
    assert (outcome.exit_code, outcome.stdout.data) == (0, b"")
    assert not os.path.exists("/tmp/mine")


def test_the_environment_is_on_no_command_line(place: Place) -> None:
    """Those can be read by everybody on the machine."""
    env = {"PATH": PATH, "TOKEN": "a-secret-in-the-environment"}
    running = LinuxSandbox().start(place.job("sleep", "60", env=env))
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(os.getpid())]
    running.kill()
    running.wait()
    assert any(b"sleep" in line for line in lines)
    assert not any(b"a-secret-in" in line for line in lines)


def test_paths_of_the_host_are_on_no_command_line_inside(place: Place) -> None:
    mounts = (Mount(place.folder, "/work", True),)
    outcome = inside(place, "cat /proc/[0-9]*/cmdline", mounts=mounts, cwd="/work")
    assert place.folder.encode() not in outcome.stdout.data


def test_a_variable_can_not_lead_the_sandbox_itself_astray(place: Place) -> None:
    """The limits are set before the job's environment is there."""
    env = {
        "PATH": place.folder,
        "LD_PRELOAD": "/no/such/library.so",
        "ENV": "/no/such/file",
        "IFS": "0123456789",
        "gate": "x",
    }
    job = place.job("/usr/bin/env", env=env, limits=bounds(max_open_files=99))
    outcome = run(LinuxSandbox(), job)
    assert outcome.exit_code == 0
    assert b"gate=x\n" in outcome.stdout.data and b"IFS=0123456789\n" in outcome.stdout.data


@pytest.mark.parametrize("name", ["a b", "1a", "", "a=b", "BASH_FUNC_x%%", "é"])
def test_a_name_that_is_none_is_refused(place: Place, name: str) -> None:
    with pytest.raises(RunRefused, match="not a name"):
        inside(place, ":", env={name: "x"})


@pytest.mark.parametrize("target", ["/", "/../", "relative", ""])
def test_a_place_that_is_none_is_refused(place: Place, target: str) -> None:
    with pytest.raises(RunRefused, match="cannot be a place for a mount"):
        inside(place, ":", mounts=(Mount(place.folder, target),))


def test_a_mount_that_is_not_there_is_told(place: Place) -> None:
    missing = place.folder + "/none"
    with pytest.raises(SandboxUnavailable, match=r"bubblewrap cannot start: .*none"):
        inside(place, ":", mounts=(Mount(missing, missing),))


@needs.root
def test_a_mount_that_can_not_be_reached_is_told(place: Place, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    closed = str(tmp_path / "inner")
    os.mkdir(closed)
    with pytest.raises(SandboxUnavailable, match=r"is closed to uid \d+, which runs commands"):
        inside(place, ":", mounts=(Mount(closed, "/work"),))


@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [
        ("kernel/unprivileged_userns_clone", "0", "set kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "raise user.max_user_namespaces"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor profile"),
    ],
)
def test_the_setting_that_is_in_the_way_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, remedy: str
) -> None:
    path = tmp_path / setting
    path.parent.mkdir()
    path.write_text(f"{value}\n")
    monkeypatch.setattr(bubblewrap, "_SYSCTL", str(tmp_path))
    assert remedy in bubblewrap._explain("No permissions to create new namespace")


def test_a_preflight_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the program said."""
    words = (entry.PLACE, "-c", "echo oh >&2; exit 9", "sh")
    monkeypatch.setattr(entry, "LOCKED_WORDS", words)
    monkeypatch.setattr(entry, "paths_of", lambda word, path: ())
    with pytest.raises(SandboxUnavailable, match="ends with 9: oh"):
        bubblewrap._preflight.__wrapped__()


def test_a_system_that_does_not_start_our_program_has_no_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else could hold the command as well."""
    monkeypatch.setattr(entry, "program", lambda *_, **__: b"no program")
    with pytest.raises(SandboxUnavailable, match="bubblewrap cannot start"):
        bubblewrap._preflight.__wrapped__()


def test_a_preflight_watches_a_small_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preflight of more than a second measures the folder, which must not be the disk."""
    watched: list[str] = []

    class Noted(Guard):
        def __init__(self, limits: Limits, workspace: str, temporary: str | None) -> None:
            watched.append(workspace)
            super().__init__(limits, workspace, temporary)

    monkeypatch.setattr(bubblewrap, "Guard", Noted)
    bubblewrap._preflight.__wrapped__()
    assert [measure_folder(each, 2**62, 100).files < 100 for each in watched] == [True]


def test_a_preflight_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bubblewrap._preflight.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(entry, "program", lambda *_, **__: b"no program")
        assert "cannot start" in str(LinuxSandbox().unavailable())
    assert LinuxSandbox().unavailable() is None


def test_threads_but_no_processes(place: Place) -> None:
    """Case of a skill that may run its interpreter alone."""
    code = """
import os, threading
thread = threading.Thread(target=print, args=("thread",))
thread.start()
thread.join()
try:
    os.fork()
except OSError:
    print("no process")
"""
    outcome = run(LinuxSandbox(), place.python(code, capabilities=Capabilities()))
    assert outcome.stdout.data == b"thread\nno process\n", outcome
    assert outcome.enforced["child processes"].startswith("none: seccomp")


@pytest.mark.parametrize("processes", [True, False])
def test_named_hosts_are_reached_through_the_proxy_alone(place: Place, processes: bool) -> None:
    """Attacks 47 and 50: not past it, and not to a socket with a name."""
    outcome = tried(
        LinuxSandbox(),
        place,
        processes,
        lambda at: Mount(f"{at}/proxy.sock", "/tmp/proxy.sock"),
        "/tmp/proxy.sock",
    )
    assert outcome.stdout.data == THROUGH_THE_PROXY_ALONE, outcome
    assert outcome.enforced["network"] == "network namespace, proxy only"


def test_a_folder_of_the_system_may_go_while_a_runtime_lives(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of the system that is removed meanwhile takes its folder in /etc along."""
    gone = Path(place.folder, "gone")
    gone.mkdir()
    bubblewrap._common_flags.cache_clear()
    monkeypatch.setattr(bubblewrap, "shown_folders", lambda: (str(gone),))
    try:
        assert inside(place, "true").exit_code == 0
        gone.rmdir()
        assert inside(place, "true").exit_code == 0
    finally:
        bubblewrap._common_flags.cache_clear()
