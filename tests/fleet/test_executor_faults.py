"""Failures in a cluster of two nodes, and secrets that no file of the cluster may show."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skillbelt import RunLost, Runtime
from skillbelt.errors import RunRefused
from skillbelt.permission.rules import Rule
from skillbelt.running.following import Follower
from skillbelt.running.history import RunHistory
from tests.fleet.cluster import TOKEN, SmallCluster, open_cluster

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::ResourceWarning")]
WAIT_SECONDS = 300.0
SERVER = """
import sys
from skillbelt import Rule, Runtime
rules = [Rule("*", "*", "allow")]
belt = Runtime(sys.argv[1], rules=rules, executor="ray", ray_address=sys.argv[2])
session = belt.session("me", sys.argv[3])
belt.run_sync("echo", f"echo begun > $WORK_DIR/x; exec sleep {sys.argv[4]}", session=session)
"""
QUIET = """
import os, signal, sys
from ray._private.state import actors
from skillbelt import Rule, Runtime
from skillbelt.errors import SkillbeltError
rules = [Rule("*", "*", "allow")]
with Runtime(sys.argv[1], rules=rules, executor="ray", ray_address=sys.argv[2]) as belt:
    session = belt.session("me", sys.argv[3])

    def end_workers(*_):
        for one in actors().values():
            if one["State"] == "ALIVE":
                os.kill(one["Pid"], signal.SIGKILL)

    command = "echo begun; exec sleep 7004.25"
    try:
        belt.run_sync("echo", command, session=session, listener=end_workers)
    except SkillbeltError as error:
        print(error.kind)
    # It needs another actor, whose start takes longer than the news of the death of this one.
    print(belt.run_sync("echo", "echo again", session=session).stdout, end="")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SmallCluster]:
    with open_cluster(2) as made:
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    skill = tmp_path / "project" / ".agents" / "skills" / "echo"
    skill.mkdir(parents=True)
    skill.joinpath("SKILL.md").write_text(
        "---\nname: echo\ndescription: Says things. Use it to say things.\n---\n"
    )
    return tmp_path / "project"


@pytest.fixture
def belt(cluster: SmallCluster, project: Path) -> Iterator[Runtime]:
    rules = [Rule("*", "*", "allow")]
    made = Runtime(project, rules=rules, executor="ray", ray_address=cluster.address)
    with made:
        yield made


def processes(mark: str, program: str = "sleep") -> list[int]:
    """The processes of this machine whose command line begins with the program and the mark."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = Path(path).read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [program.encode(), mark.encode()]:
            found.append(int(path.split("/")[2]))
    return found


def wait_for(is_so: Callable[[], object]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def begin(belt: Runtime, mark: str, name: str) -> tuple[threading.Thread, list[object], Follower]:
    """Begin a run that lasts; return once its command runs."""
    follower, ended = Follower(), list[object]()

    def run() -> None:
        from skillbelt.running.call import Asker, RunCall

        who = Asker(belt.session("me", name).session.key, "user")
        call = RunCall(f"echo begun > $WORK_DIR/x; exec sleep {mark}")
        try:
            ended.append(belt.workbench.run(belt.get_skill("echo"), call, who, follower.watch))
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: processes(mark))
    return thread, ended, follower


def test_secrets_are_in_no_file_of_the_cluster(belt: Runtime, cluster: SmallCluster) -> None:
    value = "s3cret-value-5f1c77"
    done = belt.run_sync("echo", "echo ${#API_KEY}", env={"API_KEY": value})
    assert done.stdout == f"{len(value)}\n"
    found = []
    for folder, _, names in os.walk(cluster.folder):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                data = Path(path).read_bytes()
                found += [path for text in (value, TOKEN) if text.encode() in data]
    assert not found


def test_a_cancelled_command_is_dead_on_its_node(belt: Runtime) -> None:
    """The call returns after the command has ended, not before."""
    thread, ended, follower = begin(belt, "7001.25", "cancelled")
    follower.kill()
    thread.join(WAIT_SECONDS)
    assert not processes("7001.25")
    assert ended[0].cancelled  # type: ignore[attr-defined]


def peak_bytes(pid: int | str) -> int:
    """The most memory that a process had at once."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_output_that_is_not_taken_fills_no_memory_and_outlasts_no_deadline(belt: Runtime) -> None:
    from ray._private.state import actors

    belt.run_sync("echo", "echo warm")
    pids = [one["Pid"] for one in actors().values() if one["State"] == "ALIVE"]
    before = {pid: peak_bytes(pid) for pid in (*pids, "self")}

    def hold(stream: str, data: bytes) -> None:
        # Its node ends the command, though this server takes nothing.
        wait_for(lambda: not processes("/dev/zero", "cat"))

    done = belt.run_sync("echo", "exec cat /dev/zero", listener=hold, timeout_seconds=5)
    assert done.timed_out
    grown = {pid: peak_bytes(pid) - peak for pid, peak in before.items()}
    assert max(grown.values()) < 200 * 2**20, grown


def test_live_output_of_many_windows_arrives_whole(belt: Runtime) -> None:
    from skillbelt.fleet.live_output import WINDOW_BYTES

    arrived = 0

    def count(stream: str, data: bytes) -> None:
        nonlocal arrived
        arrived += len(data)

    size = 4 * WINDOW_BYTES
    done = belt.run_sync("echo", f"head -c {size} /dev/zero | tr '\\0' x", listener=count)
    assert (done.exit_code, arrived) == (0, size)


def test_the_history_has_the_output_of_a_run_on_a_node_while_it_lasts(belt: Runtime) -> None:
    history = RunHistory(belt.store)
    before = {one.id for one in history.page()[0]}

    def begun() -> list[str]:
        return [one.id for one in history.page()[0] if one.id not in before]

    def printed() -> str:
        return "".join(one.text for id in begun() for one in history.output(id))

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(belt.run_sync, "echo", "echo first; echo then >&2; exec sleep 7006.25")
        wait_for(lambda: {"first", "then"} <= set(printed().split()))
        (id,) = begun()
        assert history.stop(id, "a test")
        assert run.result().cancelled
    assert not processes("7006.25")


def test_runs_that_begin_together_are_spread_over_all_actors(belt: Runtime) -> None:
    """Two nodes with two processors carry out eight for each processor; none waits."""
    from skillbelt.fleet.node import RUNS_AT_ONCE
    from skillbelt.running.call import Asker, RunCall

    belt.run_sync("echo", "echo connected")
    many, follower = 4 * RUNS_AT_ONCE, Follower()
    who = Asker(belt.session("me", "once").session.key, "user", once="whole")
    call, skill = RunCall("exec sleep 7005.25", timeout_seconds=600), belt.get_skill("echo")
    with ThreadPoolExecutor(many) as pool:
        runs = [
            pool.submit(belt.workbench.run, skill, call, who, follower.watch) for _ in range(many)
        ]
        try:
            wait_for(lambda: len(processes("7005.25")) == many)
        finally:
            follower.kill()
        assert all(one.result().cancelled for one in runs)


def test_runs_of_a_server_that_is_gone_are_ended(cluster: SmallCluster, project: Path) -> None:
    words = [sys.executable, "-c", SERVER, str(project), cluster.address, "gone", "7002.25"]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: processes("7002.25"))
    finally:
        server.kill()
        server.wait()
    wait_for(lambda: not processes("7002.25"))


def test_a_run_on_a_worker_that_dies_is_lost_and_not_repeated(belt: Runtime) -> None:
    import ray

    session = belt.session("me", "worker")
    belt.run_sync("echo", "echo kept > $WORK_DIR/kept", session=session)
    thread, ended, _ = begin(belt, "7003.25", "worker")
    for name in ray.util.list_named_actors():
        if name.startswith("skillbelt-workspaces-"):
            ray.kill(ray.get_actor(name))
    thread.join(WAIT_SECONDS)
    assert isinstance(ended[0], RunLost), ended
    assert ended[0].kind == "run_lost"
    wait_for(lambda: not processes("7003.25"))
    # The conversation goes on elsewhere, with what was there after its last run.
    done = belt.run_sync("echo", "cat $WORK_DIR/kept; ls $WORK_DIR", session=session)
    assert done.stdout == "kept\ninputs\nkept\n"


def test_a_large_conversation_outlives_its_worker(belt: Runtime) -> None:
    """More than one message holds, there and back."""
    import ray

    session = belt.session("me", "large")
    write = "for n in 1 2 3 4 5; do head -c 70000000 /dev/zero | tr '\\0' $n > $WORK_DIR/$n; done"
    done = belt.run_sync("echo", write, session=session)
    assert (done.exit_code, done.warnings) == (0, ())
    for name in ray.util.list_named_actors():
        if name.startswith("skillbelt-workspaces-"):
            ray.kill(ray.get_actor(name))
    read = "for n in 1 2 3 4 5; do tail -c 1 $WORK_DIR/$n; wc -c < $WORK_DIR/$n; done"
    done = belt.run_sync("echo", read, session=session)
    assert done.stdout == "".join(f"{number}70000000\n" for number in range(1, 6))
    belt.delete_session("me", "large")


def test_nothing_of_ray_is_printed_when_a_worker_dies(cluster: SmallCluster, project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUIET, str(project), cluster.address, "quiet"],
        capture_output=True,
        text=True,
        timeout=5 * WAIT_SECONDS,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("run_lost\nagain\n", "")


def test_a_conversation_outlives_its_node(belt: Runtime, cluster: SmallCluster) -> None:
    session = belt.session("me", "node")
    belt.run_sync("echo", "echo kept > $WORK_DIR/kept", session=session)
    for node in list(cluster.nodes):
        cluster.kill(node)
    with pytest.raises(RunRefused, match=r"no node|No node|gone|announces"):
        belt.run_sync("echo", "echo hello", session=session, timeout_seconds=5)
    cluster.add()
    done = belt.run_sync("echo", "cat $WORK_DIR/kept", session=session)
    assert done.stdout == "kept\n"
