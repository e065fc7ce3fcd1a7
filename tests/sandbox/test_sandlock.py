"""Run where the optional package is installed; that it is missing is tested everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.sandbox import sandlock
from skillbelt.sandbox.attacks import AttackResult, run_attacks
from skillbelt.sandbox.conformance import DAEMON, PATH, Place, SandboxConformance
from skillbelt.sandbox.landlock import LandlockSandbox
from skillbelt.sandbox.linux import LinuxSandbox
from skillbelt.sandbox.probes import PROBES
from skillbelt.sandbox.protocol import Mount, run
from skillbelt.sandbox.registry import choose, sandboxes
from skillbelt.sandbox.sandlock import SandlockSandbox
from tests.sandbox.ordinary import as_user, conformance_as_user

pytestmark = pytest.mark.timeout(300)
installed = pytest.mark.skipif(
    sandlock._missing() is not None, reason="sandlock can not be used here"
)
MODULE = "__import__('skillbelt.sandbox.sandlock', fromlist=['sandlock'])"
TEXT = b"What sandlock needs around the launcher"
# The same as by Landlock alone.
NOT_CLAIMED = {
    "change the modes of files",
    "fill what is in memory",
    "leave something where all can find it",
}


@installed
class TestSandlock(SandboxConformance):
    @pytest.fixture
    def sandbox(self) -> SandlockSandbox:
        return SandlockSandbox()


@installed
def test_an_ordinary_user_gets_the_same() -> None:
    found = conformance_as_user(f"{MODULE}.SandlockSandbox()")
    assert len(found) > 20
    assert {name: trace for name, trace in found.items() if trace} == {}


def open_doors(results: list[AttackResult]) -> set[str]:
    assert {result.attack for result in results} == {probe.name for probe in PROBES}
    return {result.attack for result in results if result.outcome != "stopped"}


@installed
def test_it_stops_every_attack_but_on_what_it_does_not_claim() -> None:
    assert open_doors(run_attacks(SandlockSandbox())) == NOT_CLAIMED


@installed
def test_that_of_an_ordinary_user_stops_the_same() -> None:
    make = f"{MODULE}.SandlockSandbox()"
    found = as_user(f"json.dump(attacks.run_attacks({make}), sys.stdout)")
    assert isinstance(found, list)
    assert open_doors([AttackResult(*each) for each in found]) == NOT_CLAIMED


# Each way to say the same file; all are tried before the answer is given.
LOOK = """
import os, sys
pid = sys.argv[1]
os.symlink("/proc", "link")
folder = os.open("/proc", os.O_PATH)
os.chdir("/proc")
seen = [name for name in os.listdir("/proc") if name == pid]
for way in (f"/proc/{pid}", f"/proc/self/../{pid}", f"/usr/..//proc/./{pid}", pid,
            f"{sys.argv[2]}/link/{pid}"):
    for file in ("cmdline", "status", f"task/{pid}/comm"):
        try:
            seen.append(open(f"{way}/{file}").read())
        except OSError:
            pass
try:
    os.open(f"{pid}/cmdline", os.O_RDONLY, dir_fd=folder)
    seen.append("by handle")
except OSError:
    pass
print(seen)
"""


def look(sandbox: SandlockSandbox | LandlockSandbox, place: Place) -> bytes:
    job = place.job("python3", "-c", LOOK, str(os.getpid()), place.folder)
    return run(sandbox, job).stdout.data


@installed
def test_other_processes_are_not_shown(place: Place) -> None:
    assert look(SandlockSandbox(), place) == b"[]\n"


def test_with_landlock_alone_they_are(place: Place) -> None:
    """So what is not shown was there to be seen."""
    assert str(os.getpid()).encode() in look(LandlockSandbox(), place)


@installed
def test_its_own_processes_are_shown(place: Place) -> None:
    # It is a copy of the shell until it has become the other program.
    became = "until [ $(cat /proc/$!/comm) = sleep ]; do :; done"
    script = f"sleep 60 & {became}; cat /proc/$!/comm /proc/$$/comm; kill $!"
    assert run(SandlockSandbox(), place.shell(script)).stdout.data == b"sleep\nsh\n"


@installed
def test_the_name_of_the_host_is_not_told(place: Place) -> None:
    found = run(SandlockSandbox(), place.job("uname", "-n")).stdout.data.decode().strip()
    assert found.startswith("sandbox-")
    assert found != os.uname().nodename


@installed
def test_it_is_never_root(place: Place) -> None:
    """Neither the command nor who looks after it; as root both would keep all rights."""
    outcome = run(SandlockSandbox(), place.shell("id -u; stat -c %u /proc/$PPID"))
    assert b"0" not in outcome.stdout.data.split()
    assert len(outcome.stdout.data.split()) == 2


@installed
def test_named_hosts_are_refused(place: Place) -> None:
    with pytest.raises(SandboxUnavailable, match="named hosts need the sandbox 'bubblewrap'"):
        SandlockSandbox().start(place.job("true", bridge=("python3", "bridge.py", "door")))


@installed
def test_a_folder_is_at_its_own_place_only(place: Place) -> None:
    mounts = (Mount(place.folder, "/elsewhere", True),)
    with pytest.raises(SandboxUnavailable, match="another place than its own"):
        SandlockSandbox().start(place.job("true", mounts=mounts))


@installed
def test_a_long_command_arrives(place: Place) -> None:
    """Longer than one variable of the environment, in which it goes inside."""
    words = ["x" * 100_000 + str(n) for n in range(5)]
    env = {"PATH": PATH, "LONG": "é" * 20_000, "\udcff": "\udcfe"}
    script = (
        "import os, sys; print(len(sys.argv), len(os.environb[b'LONG']), os.environb[b'\\xff'])"
    )
    outcome = run(SandlockSandbox(), place.job("python3", "-c", script, *words, env=env))
    assert outcome.stdout.data == b"6 40000 b'\\xfe'\n", outcome.stderr.data[-500:]


@installed
def test_one_that_is_too_long_is_refused(place: Place) -> None:
    with pytest.raises(RunRefused, match="too long for sandlock"):
        SandlockSandbox().start(place.job("true", *["x" * 100_000] * 11))


def launchers(parent: int) -> list[int]:
    """The children that run our text: the launcher of us, the supervisor of the launcher."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if TEXT in Path(f"/proc/{pid}/cmdline").read_bytes()]


def alive(place: Place) -> list[str]:
    """The processes that stand in the workspace."""
    return [
        name
        for name in os.listdir("/proc")
        if name.isdigit() and os.path.exists(f"/proc/{name}/cwd/beat") and stands(name, place)
    ]


def stands(name: str, place: Place) -> bool:
    try:
        return os.readlink(f"/proc/{name}/cwd") == place.folder
    except OSError:
        return False


@installed
def test_without_its_supervisor_nothing_lives_on(place: Place) -> None:
    running = SandlockSandbox().start(place.python(DAEMON + "time.sleep(1000)"))
    while not alive(place):
        assert running.wait(0.05) is None
    [launcher] = launchers(os.getpid())
    [supervisor] = launchers(launcher)
    os.kill(supervisor, 9)
    outcome = running.wait(60)
    assert outcome is not None
    assert outcome.exit_code == 137
    assert alive(place) == []


RUNTIME = """
import sys, time
from skillbelt.sandbox.conformance import Place, DAEMON
from skillbelt.sandbox.protocol import Job, Mount
from skillbelt.sandbox.sandlock import SandlockSandbox
from skillbelt.values import Capabilities
folder = sys.argv[1]
job = Job(("python3", "-c", DAEMON + "time.sleep(1000)"), {"PATH": "/usr/bin:/bin"}, folder,
          (Mount(folder, folder, True),), folder, Capabilities(processes=True))
SandlockSandbox().start(job)
print("started", flush=True)
time.sleep(1000)
"""


@installed
def test_when_the_runtime_is_killed_its_commands_end(place: Place) -> None:
    """Attack 30."""
    argv = [sys.executable, "-c", RUNTIME, place.folder]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as runtime:
        assert runtime.stdout is not None
        assert runtime.stdout.readline() == b"started\n"
        while not alive(place):
            assert runtime.poll() is None
        runtime.kill()
    for _ in range(600):
        if not alive(place):
            break
        subprocess.run(["sleep", "0.1"], check=True)
    assert alive(place) == []


@installed
def test_auto_takes_it_before_landlock_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the same and more."""
    monkeypatch.setattr(LinuxSandbox, "unavailable", lambda self: "it is broken")
    assert choose().name == "sandlock"


def test_it_is_not_taken_before_bubblewrap() -> None:
    names = [sandbox.name for sandbox in sandboxes()]
    assert names.index("bubblewrap") < names.index("sandlock") < names.index("landlock")


def test_when_it_is_not_installed_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 68."""
    monkeypatch.setattr(sys, "path", [])
    sandlock._preflight.cache_clear()
    with pytest.raises(SandboxUnavailable, match=r"pip install 'skillbelt\[sandlock\]'"):
        choose("sandlock")


def test_one_that_does_not_load_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sandlock").mkdir()
    (tmp_path / "sandlock" / "__init__.py").write_text("raise OSError('made for another machine')")
    monkeypatch.syspath_prepend(tmp_path)
    sandlock._preflight.cache_clear()
    reason = SandlockSandbox().unavailable()
    assert reason is not None
    assert "made for another machine" in reason
