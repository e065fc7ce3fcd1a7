"""The profile for macOS, as text; and the way a command takes, with a stand-in for sandbox-exec.

Whether macOS enforces what the text says only a Mac can show.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.sandbox.macos.seatbelt import (
    SYSTEM,
    SeatbeltSandbox,
    canonical,
    look_up,
    needed_programs,
    profile,
    write_profile,
)
from skillbelt.sandbox.protocol import Job, Mount, Sandbox, run
from skillbelt.testing.sandbox_suite import Place, SandboxConformance
from skillbelt.values import Capabilities
from tests.handles import no_handle_left

# What sandbox-exec does, but for the sandbox: it wants a profile that is there, takes the
# parameters, and becomes the command.
STAND_IN = """#!/bin/sh
[ "$1" = -f ] && [ -r "$2" ] || exit 65
shift 2
while [ "$1" = -D ]; do shift 2; done
[ "$1" = -- ] || exit 64
shift
exec "$@"
"""
HOSTILE = (
    '/w/")) (allow default) ((subpath "',
    "/w/(allow file-read*)",
    "/w/a\n(allow default)",
    "/w/;comment",
    '/w/\\") (allow network*)',
    '/w/#"x"',
    "/w/PATH_0",
    '/w/(param "PATH_0")',
    "/w/ü-李 \u202e",
)
ONE_RULE = re.compile(r"\((allow|deny|version) .*\)")


def job(*mounts: Mount, **fields: object) -> Job:
    values: dict[str, object] = {"cwd": "/w", "workspace": "/w", **fields}
    return Job(("/p/python",), {"PATH": "/usr/bin:/bin"}, mounts=mounts, **values)  # type: ignore[arg-type]


def shown(made: Job, *programs: str, port: int | None = None) -> list[str]:
    """The rules of the profile, each parameter in place, as only a test may do it."""
    text, parameters = profile(made, programs, port)
    lines = text.splitlines()
    return [
        re.sub(r'\(param "(\w+)"\)', lambda match: parameters[match[1]], line) for line in lines
    ]


def test_it_denies_what_it_does_not_name() -> None:
    first, second, *rest = shown(job())
    assert (first, second) == ("(version 1)", "(deny default)")
    assert not any("default" in rule for rule in rest)
    assert "(allow sysctl-read)" in rest


def test_the_system_can_be_read_and_run_but_not_written() -> None:
    rules = shown(job())
    for path in ("/System", "/usr/lib", "/usr/bin"):
        reading = [rule for rule in rules if f'(subpath "{path}")' in rule]
        assert [rule.partition(" (")[0] for rule in reading] == [
            "(allow file-read*",
            "(allow file-map-executable",
        ]
    assert not any(path.startswith(("/Users", "/Applications", "/opt")) for path in SYSTEM)


def test_temporary_files_are_shared() -> None:
    assert '(allow file-read* file-write* (subpath "/private/tmp") (subpath "/tmp"))' in shown(
        job()
    )


def test_the_skill_is_read_only_and_the_workspace_is_not() -> None:
    rules = shown(job(Mount("/w", "/w", True), Mount("/s", "/s")))
    assert "(allow file-read* (subpath /s))" in rules
    assert "(deny file-write* (subpath /s))" in rules
    assert "(allow file-write* (subpath /w))" in rules


def test_an_inner_place_counts_more_than_the_one_around_it() -> None:
    """The later rule counts."""
    mounts = [Mount("/w/s/out", "/w/s/out", True), Mount("/w/s", "/w/s"), Mount("/w", "/w", True)]
    written = [rule for rule in shown(job(*mounts)) if "file-write* (subpath /w" in rule]
    assert written == [
        "(allow file-write* (subpath /w))",
        "(deny file-write* (subpath /w/s))",
        "(allow file-write* (subpath /w/s/out))",
    ]


def test_a_place_that_is_named_twice_is_the_more_careful_one() -> None:
    for mounts in ((Mount("/s", "/s"), Mount("/s", "/s", True)),) * 2:
        assert "(allow file-write* (subpath /s))" not in shown(job(*mounts))
        assert "(allow file-write* (subpath /s))" not in shown(job(*reversed(mounts)))


def test_granted_paths() -> None:
    rules = shown(job(capabilities=Capabilities(read=("/in",), write=("/out",))))
    assert "(deny file-write* (subpath /in))" in rules
    assert "(allow file-read* (subpath /in))" in rules
    assert "(allow file-write* (subpath /out))" in rules


def test_nothing_protected_can_be_moved_away() -> None:
    """Nor a folder above it; these rules come after every one that allows something."""
    rules = shown(job(Mount("/w", "/w", True), Mount("/w/a/b/skill", "/w/a/b/skill")))
    last = max(n for n, rule in enumerate(rules) if rule.startswith("(allow"))
    for path in ("/w", "/w/a", "/w/a/b", "/w/a/b/skill"):
        assert rules.index(f"(deny file-write-unlink (literal {path}))") > last


def test_a_profile_can_not_be_changed_by_a_run() -> None:
    path = write_profile("x")
    os.unlink(path)
    (rule,) = (rule for rule in shown(job(Mount("/w", "/w", True))) if "regex" in rule)
    match = re.fullmatch(r'\(deny file-write\* \(regex #"(.*)"\)\)', rule)
    assert match is not None
    assert re.search(match[1], path)


def test_folders_on_the_way_can_be_seen_but_not_listed() -> None:
    rules = shown(job(Mount("/Users/me/w", "/Users/me/w", True)))
    assert "(allow file-read-metadata (literal /Users/me))" in rules
    assert not any("file-read* (literal /Users" in rule for rule in rules)


def test_signals_reach_nobody_outside() -> None:
    (rule,) = (rule for rule in shown(job()) if "signal" in rule)
    assert rule == "(allow signal (target same-sandbox))"


def test_without_a_port_there_is_no_network() -> None:
    hosts = Capabilities(hosts=("example.com",))
    assert not any("network" in rule for rule in shown(job(capabilities=hosts)))


def test_with_a_port_the_proxy_is_all_there_is() -> None:
    network = [rule for rule in shown(job(), port=4711) if "network" in rule]
    assert network == ['(allow network-outbound (remote tcp "localhost:4711"))']


def test_without_processes_only_the_interpreter_is_executed() -> None:
    rules = shown(job(), "/p/python")
    assert [rule for rule in rules if "process-" in rule and "info" not in rule] == [
        "(allow process-exec (literal /p/python))"
    ]
    assert "(allow file-map-executable (subpath /p))" in rules


def test_with_processes_anything_is_executed() -> None:
    rules = shown(job(capabilities=Capabilities(processes=True)), "/p/python")
    assert "(allow process-fork)" in rules
    assert "(allow process-exec)" in rules


def test_libraries_are_taken_from_where_nobody_can_put_one() -> None:
    mounts = (Mount("/w", "/w", True), Mount("/s", "/s"))
    rules = shown(job(*mounts))
    assert "(allow file-map-executable (subpath /s))" in rules
    assert "(allow file-map-executable (subpath /w))" not in rules


@pytest.mark.parametrize("path", HOSTILE)
def test_a_path_can_not_add_a_rule(path: str) -> None:
    made = job(
        Mount(path, path, True),
        Mount(f"{path}/in", f"{path}/in"),
        capabilities=Capabilities(read=(f"{path}r",), write=(f"{path}w",)),
    )
    plain = job(
        Mount("/w/x", "/w/x", True),
        Mount("/w/x/in", "/w/x/in"),
        capabilities=Capabilities(read=("/w/xr",), write=("/w/xw",)),
    )
    text, parameters = profile(made, (f"{path}/python",), 1)
    assert path in parameters.values()
    if path.count("/") == 2:
        assert text == profile(plain, ("/w/x/python",), 1).text


@given(st.lists(st.text(st.characters(exclude_characters="\0")), max_size=4), st.booleans())
def test_no_text_of_a_job_is_in_the_profile(names: list[str], writable: bool) -> None:
    paths = [os.path.normpath(f"/w/{name}") for name in names]
    text, parameters = profile(job(*(Mount(path, path, writable) for path in paths)), paths[:1])
    assert set(paths) <= set(parameters.values())
    assert all(re.fullmatch(r"PATH_\d+", name) for name in parameters)
    assert set(re.findall(r'\(param "(.*?)"\)', text)) == set(parameters)
    assert all(ONE_RULE.fullmatch(line) for line in text.splitlines())
    assert all(line.count("(") == line.count(")") for line in text.splitlines())


def test_every_path_is_the_one_the_system_uses(tmp_path: Path) -> None:
    real = tmp_path / "private"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    path = str(tmp_path / "link")
    made = job(Mount(path, path, True), capabilities=Capabilities(read=(path,), write=(path,)))
    found = canonical(made)
    assert found.mounts == (Mount(str(real), str(real), True),)
    assert (found.capabilities.read, found.capabilities.write) == ((str(real),),) * 2


@pytest.mark.parametrize("path", ["/", "//", "/w/../..", "a\0b"])
def test_not_everything_can_be_granted(path: str) -> None:
    with pytest.raises(RunRefused, match="cannot be a place"):
        canonical(job(capabilities=Capabilities(write=(path,))))


def test_a_place_stays_where_it_is() -> None:
    with pytest.raises(SandboxUnavailable, match="at another place"):
        canonical(job(Mount("/a", "/b")))


def test_what_a_script_needs_to_start(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env sh\n")
    script.chmod(0o755)
    made = job(cwd=str(tmp_path))
    assert look_up("./script", made) == f"{tmp_path}/./script"
    assert needed_programs(str(script), made) == (
        str(script),
        os.path.realpath("/usr/bin/env"),
        os.path.realpath("/bin/sh"),
    )
    assert look_up("no-such-program", made) is None


def test_a_python_of_a_framework_becomes_another_program() -> None:
    version = "/Library/Frameworks/Python.framework/Versions/3.12"
    assert needed_programs(f"{version}/bin/python3.12", job())[1:] == (
        f"{version}/Resources/Python.app/Contents/MacOS/Python",
    )


def test_a_profile_is_a_file_of_its_own() -> None:
    first, second = write_profile("one"), write_profile("two")
    try:
        pattern = rf"openskills-seatbelt-{os.getpid()}-\d+\.sb"
        assert re.fullmatch(pattern, os.path.basename(first))
        assert first != second
        assert (Path(first).read_text(), Path(second).read_text()) == ("one", "two")
    finally:
        os.unlink(first)
        os.unlink(second)


@pytest.mark.skipif(
    sys.platform == "darwin", reason="needs a system without Seatbelt, so not macOS"
)
def test_it_is_for_macos_alone() -> None:
    assert SeatbeltSandbox().unavailable() == "this system is not macOS"
    with pytest.raises(SandboxUnavailable, match="not macOS"):
        SeatbeltSandbox().start(job())


def test_without_its_program_it_is_not_used() -> None:
    reason = SeatbeltSandbox("/nowhere/sandbox-exec", "darwin").unavailable()
    assert reason == "there is no /nowhere/sandbox-exec, which belongs to macOS"


def test_a_profile_that_is_not_accepted_is_told(place: Place) -> None:
    program = Path(place.beside("bin")) / "sandbox-exec"
    program.write_text("#!/bin/sh\necho 'sandbox-exec: bad profile' >&2; exit 65\n")
    program.chmod(0o755)
    reason = SeatbeltSandbox(str(program), "darwin").unavailable()
    assert reason == "a program in it ends with 65: sandbox-exec: bad profile"


@pytest.fixture
def stand_in(place: Place) -> str:
    path = os.path.join(place.beside("bin"), "sandbox-exec")
    Path(path).write_text(STAND_IN)
    os.chmod(path, 0o755)
    return path


@pytest.mark.long
class TestTheWayOfACommand(SandboxConformance):
    """The part that does not need the sandbox itself, on any system."""

    @pytest.fixture
    def sandbox(self, stand_in: str) -> Iterator[SeatbeltSandbox]:
        before = profiles()
        yield SeatbeltSandbox(stand_in, "darwin")
        assert profiles() == before

    # Only a Mac can show it.
    test_a_read_only_mount_can_not_be_written = None  # type: ignore[assignment]

    def test_nothing_outlives_a_command(self, sandbox: Sandbox, place: Place) -> None:
        """A process that leaves its group and its parent is not found, and the result says so."""
        outcome = run(sandbox, place.shell("sleep 100 & echo $!"))
        assert gone(int(outcome.stdout.data))
        assert outcome.enforced["time"].startswith("not enforced for a process that leaves")

    def test_nothing_outlives_a_timeout(self, sandbox: Sandbox, place: Place) -> None:
        """Not even in a session of its own, as long as its parent is there."""
        code = "import subprocess; p = subprocess.Popen(['sleep', '100'], start_new_session=True)"
        wanted = place.python(f"{code}; print(p.pid, flush=True); p.wait()", timeout_seconds=2.0)
        assert gone(int(run(sandbox, wanted).stdout.data))

    def test_no_handle_stays_behind(self, sandbox: Sandbox, place: Place) -> None:
        """After any kind of end."""
        run(sandbox, place.job("true"))
        with no_handle_left():
            for _ in range(5):
                run(sandbox, place.job("true"))
                run(sandbox, place.job("no-such-program"))
                run(sandbox, place.job("sleep", "9", timeout_seconds=0.2))

    def test_a_terminal_on_request(self, sandbox: Sandbox, place: Place) -> None:
        with pytest.raises(RunRefused, match="cannot give a command a terminal"):
            sandbox.start(place.job("true", terminal=True))


def gone(pid: int) -> bool:
    """Whether the process ends soon; the process that adopts an orphan has to reap it."""
    until = time.monotonic() + 150
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] == b"Z":
                    return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def profiles() -> list[str]:
    names = os.listdir(tempfile.gettempdir())
    return [name for name in names if name.startswith(f"openskills-seatbelt-{os.getpid()}-")]


def test_the_command_line(place: Place) -> None:
    path = os.path.join(place.beside("bin"), "sandbox-exec")
    Path(path).write_text('#!/bin/sh\nfor word; do echo "$word"; done; cat "$2" >&2\n')
    os.chmod(path, 0o755)
    outcome = run(SeatbeltSandbox(path, "darwin"), place.job("true", "a b"))
    first, file, *words = outcome.stdout.data.decode().splitlines()
    assert (first, words[-3:]) == ("-f", ["--", "/usr/bin/true", "a b"])
    assert f"={os.path.realpath(place.folder)}" in "\n".join(words)
    assert set(words[:-3:2]) == {"-D"}
    assert outcome.stderr.data.startswith(b"(version 1)\n(deny default)\n")
    assert not os.path.exists(file)


def test_it_says_what_no_mac_has_shown(place: Place, stand_in: str) -> None:
    outcome = run(SeatbeltSandbox(stand_in, "darwin"), place.job("true"))
    assert outcome.enforced["files"] == "Seatbelt profile, not verified"
    assert outcome.enforced["memory"].startswith("not enforced")


def test_the_proxy_is_found_at_the_port_that_is_allowed(place: Place, stand_in: str) -> None:
    door = os.path.join(place.beside("door"), "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(door)
        listener.listen(1)
        given: list[int] = []

        def take() -> None:
            way, _ = listener.accept()
            with way:
                given.extend(socket.recv_fds(way, 1, 1)[1])
                way.sendall(b"1")

        thread = threading.Thread(target=take)
        thread.start()
        wanted = place.shell('echo "$HTTPS_PROXY"', bridge=("python3", door))
        outcome = run(SeatbeltSandbox(stand_in, "darwin"), wanted)
        thread.join()
    with socket.socket(fileno=given[0]) as port:
        assert outcome.stdout.data.decode() == f"http://127.0.0.1:{port.getsockname()[1]}\n"
    assert outcome.enforced["network"] == "Seatbelt profile, not verified, proxy only"


def test_without_a_proxy_nothing_is_run(place: Place, stand_in: str) -> None:
    wanted = place.job("true", bridge=("python3", "/nowhere"))
    with pytest.raises(SandboxUnavailable, match="no way to the network"):
        SeatbeltSandbox(stand_in, "darwin").start(wanted)
