"""The promises of containers that do not depend on the engine; tested with one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from skillbelt import Rule
from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.running.secret_store import SecretStore
from skillbelt.sandbox.container import sandbox as container
from skillbelt.sandbox.container.sandbox import ContainerSandbox
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.protocol import Mount, run
from skillbelt.settings import Settings
from skillbelt.testing.sandbox_suite import PATH, Place
from skillbelt.values import Capabilities
from tests import needs
from tests.benches import SKILL, Bench
from tests.bounds import bounds
from tests.sandbox.engines import any_engine as any_engine
from tests.sandbox.engines import containers, said, until
from tests.sandbox.engines import place as place
from tests.sandbox.engines import shared as shared


@pytest.fixture(scope="module")
def sandbox(any_engine: str) -> Iterator[ContainerSandbox]:
    made = ContainerSandbox(Settings(container_engine=any_engine))
    yield made
    made.close()


def test_a_skill_gives_the_same_result_as_natively(bench: Bench, any_engine: str) -> None:
    """Byte for byte, but for what held it and how long it took."""
    bench.write(
        "scripts/report.py",
        "import os, sys\n"
        "print(sorted(os.listdir()), sys.argv, sys.stdin.read(), os.environ['HOME'])\n"
        "print('to the side', file=sys.stderr)\n"
        "open('out/report.txt', 'w').write('text')\n"
        "open(os.environ['WORK_DIR'] + '/kept', 'a').write('x')\n"
        "sys.exit(3)\n",
    )
    documents = []
    for number, name in enumerate(("bubblewrap", "container")):
        belt = bench.open(sandbox=name, container_engine=any_engine)
        session = belt.session("ada", f"chat-{number}")
        options: Any = {"session": session, "stdin": b"given", "outputs": ["out/*", "work/*"]}
        ran = [belt.run_sync(SKILL, "python3 scripts/report.py a 'b c'", **options) for _ in "ab"]
        documents.append([without(one.document()) for one in ran])
        assert ran[1].sandbox == name
        belt.close()
    assert documents[0] == documents[1]
    assert documents[1][1]["exit_code"] == 3


def without(document: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a result that must be the same in every sandbox."""
    own = ("duration_ms", "enforced", "sandbox")
    return {key: value for key, value in document.items() if key not in own}


def test_a_stored_secret_is_in_its_own_run_alone(bench: Bench, any_engine: str) -> None:
    """The container is kept and used again; neither it nor the engine's records have the value."""
    from docker import APIClient

    rules = [Rule("run", "*", "allow"), Rule("secret", "*", "allow")]
    belt = bench.open(sandbox="container", container_engine=any_engine, rules=rules)
    SecretStore(belt.settings).set("ECHO_API_KEY", "s3cr3t-v4lue", SKILL)
    session = belt.session("me", "a")
    command = "echo ${ECHO_API_KEY:-none} ${#ECHO_API_KEY}; grep -l s3cr3t /proc/[0-9]*/environ"
    given = belt.run_sync(SKILL, command, session=session, secrets=["ECHO_API_KEY"])
    assert given.sandbox == "container"
    assert given.stdout.startswith("[ECHO_API_KEY] 12\n/proc/"), given.stderr
    later = belt.run_sync(SKILL, command, session=session)
    assert later.stdout == "none 0\n"
    client = APIClient(base_url=any_engine, version="auto")
    kept = [client.inspect_container(one) for one in containers(any_engine)]
    client.close()
    assert kept and "s3cr3t" not in str(kept)
    belt.close()


def test_idle_containers_go(sandbox: ContainerSandbox, place: Place, any_engine: str) -> None:
    limits = bounds(container_idle_seconds=0.1)
    hasty = ContainerSandbox(Settings(container_engine=any_engine, limits=limits))
    run(hasty, place.job("true"))
    assert until(lambda: containers(any_engine) == [])


def test_there_are_never_more_than_allowed(
    sandbox: ContainerSandbox, place: Place, any_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is idle makes way; where all are in use, nothing is started."""
    limits = bounds(max_containers=1)
    narrow = ContainerSandbox(Settings(container_engine=any_engine, limits=limits))
    other = (Mount(place.folder, "/other", True),)
    run(narrow, place.job("true"))
    running = narrow.start(place.job("cat", stdin=None, mounts=other, cwd="/other"))
    with monkeypatch.context() as patch:
        patch.setattr(container, "_PATIENCE_SECONDS", 0.1)
        with pytest.raises(SandboxUnavailable, match="all 1 containers are in use"):
            narrow.start(place.job("true"))
    running.kill()
    running.wait()
    assert run(narrow, place.job("true")).exit_code == 0
    narrow.close()


def test_a_fork_of_the_runtime_has_its_own(
    sandbox: ContainerSandbox, place: Place, any_engine: str
) -> None:
    """The containers of the parent are not touched."""
    code = f"""
import os
from skillbelt.sandbox.container.sandbox import ContainerSandbox
from skillbelt.sandbox.protocol import Job, Mount, run
from skillbelt.settings import Settings
folder = {place.folder!r}
sandbox = ContainerSandbox(Settings(container_engine={any_engine!r}))
job = Job(("hostname",), {{"PATH": {PATH!r}}}, folder, (Mount(folder, folder, True),), folder)
run(sandbox, job)
if os.fork() == 0:
    os._exit(run(sandbox, job).exit_code)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
assert run(sandbox, job).stdout.data == b"sandbox\\n"
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_what_is_mounted_below_the_temporary_folder_is_left_alone(
    sandbox: ContainerSandbox, place: Place
) -> None:
    mounts = (Mount(place.folder, "/tmp/deep/work", True),)
    job = place.shell("echo x > kept; echo y > /tmp/gone", mounts=mounts, cwd="/tmp/deep/work")
    assert run(sandbox, job).exit_code == 0
    assert said(run(sandbox, job._replace(argv=("ls", "/tmp", ".")))) == ".:\nkept\n\n/tmp:\ndeep\n"
    assert os.listdir(place.folder) == ["kept"]


def test_a_container_that_can_not_be_emptied_is_not_used_again(
    sandbox: ContainerSandbox, place: Place, any_engine: str
) -> None:
    deep = "import os; os.chdir('/tmp')\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    first = run(sandbox, place.python(deep))
    assert first.exit_code == 0, first
    assert said(run(sandbox, place.shell("ls /tmp/d 2>/dev/null || echo gone"))) == "gone\n"


@pytest.mark.parametrize(
    "change",
    [
        "os.setpriority(os.PRIO_PROCESS, 1, 19)",
        "os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))",
        "os.sched_setaffinity(1, {min(os.sched_getaffinity(1))})",
    ],
)
def test_a_run_can_not_slow_the_next_one_down(
    sandbox: ContainerSandbox, place: Place, change: str
) -> None:
    look = (
        "import os; print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), "
        "len(os.sched_getaffinity(0)))"
    )
    before = said(run(sandbox, place.python(look)))
    assert run(sandbox, place.python(f"import os; {change}")).exit_code == 1
    assert said(run(sandbox, place.python(look))) == before


def test_a_folder_that_was_replaced_is_seen_as_it_is_now(
    sandbox: ContainerSandbox, place: Place
) -> None:
    """A container has the folder itself, not its name."""
    skill = place.beside("skill")
    mounts = (Mount(place.folder, place.target, True), Mount(skill, "/skill"))
    job = place.shell("cat /skill/version", mounts=mounts)
    Path(skill, "version").write_text("one")
    assert said(run(sandbox, job)) == "one"
    os.rename(skill, skill + "-old")
    place.beside("skill")
    Path(skill, "version").write_text("two")
    assert said(run(sandbox, job)) == "two"


def test_a_mount_may_be_at_another_place(sandbox: ContainerSandbox, place: Place) -> None:
    mounts = (Mount(place.folder, "/work", True),)
    outcome = run(sandbox, place.shell("pwd; echo x > made", mounts=mounts, cwd="/work"))
    assert said(outcome) == "/work\n"
    assert os.listdir(place.folder) == ["made"]


def test_a_link_that_leads_out_is_not_followed_by_the_engine(
    sandbox: ContainerSandbox, place: Place
) -> None:
    """It would be, as root: nothing is run."""
    secret = place.beside("secret")
    os.symlink(secret, os.path.join(place.folder, "inner"))
    inner = os.path.join(place.folder, "inner")
    mounts = (Mount(place.folder, place.folder, True), Mount(inner, "/inner"))
    with pytest.raises(RunRefused, match="there is a link on the way"):
        run(sandbox, place.job("true", mounts=mounts))


def test_a_link_that_is_made_in_time_is_seen(
    sandbox: ContainerSandbox, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack 9: between the check and the mount of the engine."""
    secret, inner = place.beside("secret"), os.path.join(place.folder, "inner")
    os.mkdir(inner)
    make = sandbox._engine.make

    def swapped(*given: Any) -> Any:
        os.rmdir(inner)
        os.symlink(secret, inner)
        return make(*given)

    monkeypatch.setattr(sandbox._engine, "make", swapped)
    mounts = (Mount(place.folder, place.folder, True), Mount(inner, "/inner"))
    with pytest.raises(RunRefused, match="it followed a link"):
        run(sandbox, place.job("true", mounts=mounts))


@needs.root
def test_a_folder_that_is_closed_to_commands_is_not_opened_by_the_engine(
    sandbox: ContainerSandbox, place: Place, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "inner").mkdir()
    with pytest.raises(SandboxUnavailable, match=r"is closed to uid \d+, which runs commands"):
        run(sandbox, place.job("true", mounts=(Mount(str(tmp_path / "inner"), "/work"),)))


def test_a_mount_that_is_not_there_is_told(sandbox: ContainerSandbox, place: Place) -> None:
    missing = place.folder + "/none"
    with pytest.raises(SandboxUnavailable, match="none cannot be mounted: No such file"):
        run(sandbox, place.job("true", mounts=(Mount(missing, missing),)))


def test_a_folder_to_start_in_that_is_not_there_is_told(
    sandbox: ContainerSandbox, place: Place
) -> None:
    with pytest.raises(SandboxUnavailable, match=r"cannot start the command: .*'/none'"):
        run(sandbox, place.job("true", cwd="/none"))


def test_it_says_the_same_things_of_itself(sandbox: ContainerSandbox, place: Place) -> None:
    native, ours = (run(one, place.job("true")).enforced for one in (LinuxSandbox(), sandbox))
    assert list(ours) == list(native)


def test_the_environment_is_on_no_command_line(sandbox: ContainerSandbox, place: Place) -> None:
    """Those can be read by everybody on the machine."""
    env = {"PATH": PATH, "TOKEN": "a-secret-in-the-environment"}
    running = sandbox.start(place.job("sleep", "60", env=env))
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    running.kill()
    running.wait()
    assert any(line == b"sleep\x0060\0" for line in lines)
    assert not any(b"a-secret-in" in line for line in lines)


@pytest.mark.parametrize("name", ["a b", "", "a=b", "é"])
def test_a_name_that_is_none_is_refused(sandbox: ContainerSandbox, place: Place, name: str) -> None:
    with pytest.raises(RunRefused, match="not a name"):
        run(sandbox, place.job("true", env={name: "x"}))


def test_threads_but_no_processes(sandbox: ContainerSandbox, place: Place) -> None:
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
    outcome = run(sandbox, place.python(code, capabilities=Capabilities()))
    assert outcome.stdout.data == b"thread\nno process\n", outcome
    assert outcome.enforced["child processes"].startswith("none: seccomp")
