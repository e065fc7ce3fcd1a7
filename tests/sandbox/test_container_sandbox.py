"""The sandbox of containers holds every promise, with either engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from skillbelt.sandbox.container.sandbox import ContainerSandbox
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.sandbox.protocol import Mount, run
from skillbelt.settings import Settings
from skillbelt.testing.attacks import run_attacks
from skillbelt.testing.probes import PROBES
from skillbelt.testing.sandbox_suite import PATH, Place, SandboxConformance
from skillbelt.values import Limits
from tests.examples import MANY
from tests.sandbox.engines import NAMES, containers, said, until
from tests.sandbox.engines import engine as engine
from tests.sandbox.engines import place as place
from tests.sandbox.engines import shared as shared
from tests.sandbox.outside import THROUGH_THE_PROXY_ALONE, tried


@pytest.fixture(scope="module")
def sandbox(engine: str) -> Iterator[ContainerSandbox]:
    made = ContainerSandbox(Settings(container_engine=engine))
    yield made
    made.close()


@pytest.fixture
def alone(sandbox: ContainerSandbox, engine: str) -> ContainerSandbox:
    """The same sandbox, when it has no container."""
    sandbox.close()
    assert until(lambda: containers(engine) == [])
    return sandbox


class TestContainer(SandboxConformance):
    """Each test uses a container that another test has used."""


@pytest.mark.property
def test_every_attack_is_stopped(sandbox: ContainerSandbox, request: pytest.FixtureRequest) -> None:
    """Each engine gets others of them here; `make test-all` carries out every attack on each."""
    first = NAMES.index(request.node.callspec.params["engine"])
    probes = PROBES if MANY else PROBES[first::6]
    results = run_attacks(sandbox, probes)
    assert {result.attack for result in results} == {probe.name for probe in probes}
    assert [result for result in results if result.outcome != "stopped"] == []


# What is kept


def test_runs_in_turn_share_a_container(alone: ContainerSandbox, place: Place, engine: str) -> None:
    for _ in range(3):
        assert run(alone, place.job("true")).exit_code == 0
    assert len(containers(engine)) == 1


def test_runs_side_by_side_have_one_each(
    alone: ContainerSandbox, place: Place, engine: str
) -> None:
    runs = [alone.start(place.job("cat", stdin=None)) for _ in range(2)]
    assert len(containers(engine)) == 2
    for running in runs:
        running.close_stdin()
        running.wait()


def test_nothing_is_there_after_it_is_closed(
    alone: ContainerSandbox, place: Place, engine: str
) -> None:
    """And it can be used again all the same."""
    run(alone, place.job("true"))
    alone.close()
    assert until(lambda: containers(engine) == [])
    assert run(alone, place.job("true")).exit_code == 0


def test_a_container_for_one_run_alone(alone: ContainerSandbox, place: Place, engine: str) -> None:
    single = ContainerSandbox(Settings(container_engine=engine, container_reuse=False))
    assert said(run(single, place.shell("echo x > /tmp/mine; hostname"))) == "sandbox\n"
    assert until(lambda: containers(engine) == [])


def test_containers_end_with_the_runtime(place: Place, engine: str) -> None:
    """Attack 30: also when it is killed, those in use and those that are kept ready."""
    code = f"""
import time
from skillbelt.sandbox.container.sandbox import ContainerSandbox
from skillbelt.sandbox.protocol import Job, Mount
from skillbelt.settings import Settings
folder = {place.folder!r}
sandbox = ContainerSandbox(Settings(container_engine={engine!r}))
mounts = (Mount(folder, folder, True),)
job = Job(("cat",), {{"PATH": {PATH!r}}}, folder, mounts, folder, stdin=None)
runs = [sandbox.start(job) for _ in range(2)]
runs[0].close_stdin()
runs[0].wait()
print("up", flush=True)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        assert len(containers(engine, child.pid)) == 2
        child.kill()
    assert until(lambda: containers(engine, child.pid) == [])


# What one run can do to the next


def test_the_temporary_folders_are_empty_each_time(sandbox: ContainerSandbox, place: Place) -> None:
    leave = """
import ctypes, os
os.makedirs("/tmp/a/b")
open("/tmp/a/b/file", "w").close()
os.symlink("/etc", "/tmp/link")
os.mkfifo("/tmp/pipe")
open("/dev/shm/file", "w").close()
assert ctypes.CDLL("librt.so.1").mq_open(b"/queue", os.O_CREAT | os.O_RDWR, 0o600, None) >= 0
os.chmod("/tmp/a/b", 0)
os.chmod("/tmp/a", 0)
"""
    look = "import os; print(*(os.listdir(p) for p in ('/tmp', '/dev/shm', '/dev/mqueue')))"
    mounts = (Mount(place.folder, "/work", True),)
    assert run(sandbox, place.python(leave, mounts=mounts, cwd="/work")).exit_code == 0
    assert said(run(sandbox, place.python(look, mounts=mounts, cwd="/work"))) == "[] [] []\n"


@pytest.mark.parametrize("target", ["/tmp", "/dev/shm", "/var/tmp", "/run"])
def test_what_is_mounted_as_a_temporary_folder_is_not_emptied(
    sandbox: ContainerSandbox, place: Place, target: str
) -> None:
    mounts = (Mount(place.folder, target, True),)
    job = place.shell("echo x > kept; mkdir -p a", mounts=mounts, cwd=target)
    assert run(sandbox, job).exit_code == 0
    assert said(run(sandbox, job._replace(argv=("ls",)))) == "a\nkept\n"
    assert sorted(os.listdir(place.folder)) == ["a", "kept"]


def test_the_first_process_can_not_be_reached(sandbox: ContainerSandbox, place: Place) -> None:
    """Though it is the same user's: it would see what a later run is given."""
    code = """
import os
for name in ("mem", "environ", "fd", "fd/0", "fd/1", "maps", "root", "cwd", "task/1/mem"):
    try:
        os.open("/proc/1/" + name, os.O_RDONLY)
    except PermissionError:
        continue
    print("open:", name)
for number in (1, 2, 9, 15, 17, 19):
    os.kill(1, number)
"""
    assert said(run(sandbox, place.python(code))) == ""
    assert said(run(sandbox, place.shell("echo still"))) == "still\n"


# What is there


def test_a_read_only_folder_inside_a_writable_one(sandbox: ContainerSandbox, place: Place) -> None:
    """In any order of the mounts."""
    fixed = os.path.join(place.folder, "fixed")
    os.mkdir(fixed)
    os.chown(fixed, *current_identity())
    for mounts in (
        (Mount(place.folder, place.folder, True), Mount(fixed, fixed)),
        (Mount(fixed, fixed), Mount(place.folder, place.folder, True)),
    ):
        outcome = run(sandbox, place.shell("echo > beside && ! echo > fixed/x", mounts=mounts))
        assert outcome.exit_code == 0, outcome
        assert os.listdir(fixed) == []


def test_nothing_else_of_the_host_is_there(sandbox: ContainerSandbox, place: Place) -> None:
    names = set(said(run(sandbox, place.shell("ls -A / /etc /run /sys /var"))).split())
    assert not names & {"home", "root", "srv", "opt", "mnt", "boot", "shadow", "log", "kernel"}
    assert {"usr", "proc", "dev", "tmp", "passwd"} <= names


def test_nothing_of_the_hosts_network_is_there(sandbox: ContainerSandbox, place: Place) -> None:
    devices = said(run(sandbox, place.shell("cat /proc/net/dev /etc/resolv.conf 2>/dev/null; :")))
    assert [line.split(":")[0].strip() for line in devices.splitlines()[2:]] == ["lo"]


def test_commands_see_and_say_what_they_do_in_the_native_sandbox(
    sandbox: ContainerSandbox, place: Place
) -> None:
    """Byte for byte, both streams and the exit code."""
    script = "printf 'echo plain' > s; chmod +x s"
    jobs = [
        place.shell(script),
        place.job("env"),
        place.job("id"),
        place.job("./s"),
        place.job("s"),
        place.job("/no/such"),
        place.job("/etc"),
        place.job("/etc/passwd"),
        place.shell("umask; ulimit -c; ulimit -f; ulimit -n; hostname; tty; cat /etc/passwd"),
        place.python("import sys, time, locale; print(sys.version, sys.path, time.tzname)"),
        place.shell("kill -TERM $$"),
    ]
    for job in jobs:
        native, ours = run(LinuxSandbox(), job), run(sandbox, job)
        assert (ours.exit_code, ours.stdout, ours.stderr) == (
            native.exit_code, native.stdout, native.stderr,
        ), job.argv  # fmt: skip


# Limits


def limits_hit(sandbox: ContainerSandbox, place: Place, code: str, **limits: int) -> set[str]:
    return set(run(sandbox, place.python(code, limits=Limits(**limits))).limits_hit)


def test_memory_is_told_alike(sandbox: ContainerSandbox, place: Place) -> None:
    """No matter which of its processes the kernel kills."""
    limit = {"max_memory_bytes": 64 * 2**20}
    bomb = "x = [bytearray(b'x') * 2**20 for _ in range(200)]"
    assert limits_hit(sandbox, place, bomb, **limit) == {"max_memory_bytes"}
    child = f"import subprocess, sys; subprocess.call([sys.executable, '-c', {bomb!r}])"
    assert limits_hit(sandbox, place, child, **limit) == {"max_memory_bytes"}
    files = "open('/tmp/x', 'wb').write(bytes(150 * 2**20))"
    assert limits_hit(sandbox, place, files, **limit) == {"max_memory_bytes"}


def test_processes_are_told_alike(sandbox: ContainerSandbox, place: Place) -> None:
    code = """
import os, time
for _ in range(30):
    try:
        if os.fork() == 0:
            time.sleep(60)
    except OSError:
        break
"""
    assert limits_hit(sandbox, place, code, max_processes=10) == {"max_processes"}
    assert limits_hit(sandbox, place, "pass", max_processes=10) == set()


def test_processor_time_and_disk_are_told_alike(sandbox: ContainerSandbox, place: Place) -> None:
    assert limits_hit(sandbox, place, "while True: pass", max_cpu_seconds=1) == {"max_cpu_seconds"}
    fill = """
import time
for n in range(40):
    open(f"part{n}", "wb").write(bytes(2**20))
time.sleep(30)
"""
    hit = limits_hit(sandbox, place, fill, max_workspace_bytes=8 * 2**20)
    assert hit == {"max_workspace_bytes"}


# The network


@pytest.mark.parametrize("processes", [True, False])
def test_named_hosts_are_reached_through_the_proxy_alone(
    sandbox: ContainerSandbox, place: Place, processes: bool
) -> None:
    """Attacks 47 and 50: not past it, and not to a socket with a name."""
    outcome = tried(
        sandbox, place, processes, lambda at: Mount(at, "/run/net"), "/run/net/proxy.sock"
    )
    assert outcome.stdout.data == THROUGH_THE_PROXY_ALONE, outcome
    assert outcome.enforced["network"] == "network namespace, proxy only"
