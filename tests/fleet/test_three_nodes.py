"""Conversations on three nodes that take runs: one is drained, one is killed, the work goes on."""

from __future__ import annotations

import glob
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skillbelt import Runtime
from skillbelt.permission.rules import Rule
from tests.fleet.cluster import TOKEN, SmallCluster, open_cluster

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
WRITE = """
mkdir -p $WORK_DIR/a/b $WORK_DIR/empty
printf 'x\\000\\377' > $WORK_DIR/a/b/bytes
printf '#!/bin/sh\\necho %s' "$1" > $WORK_DIR/a/said; chmod 700 $WORK_DIR/a/said
ln -s a/said $WORK_DIR/link
head -c 300000 /dev/zero > $WORK_DIR/large
"""
READ = """
cd $WORK_DIR; ./link; od -An -tx1 a/b/bytes; ls -d empty; wc -c < large; echo more >> log; cat log
"""

# What is reached is printed: ports and sockets of Ray, its folders, its token in any process.
REACH = """
import glob, json, os, socket, sys
host, ports, sockets, folder, token = sys.argv[1:]
def attempt(what, way):
    try:
        way()
        print(what)
    except OSError:
        pass
def connect(family, address):
    with socket.socket(family) as end:
        end.settimeout(5)
        end.connect(address)
for port in json.loads(ports):
    attempt(f"port {port}", lambda: connect(socket.AF_INET, (host, port)))
for path in json.loads(sockets):
    attempt(f"socket {path}", lambda: connect(socket.AF_UNIX, path))
attempt(f"folder {folder}", lambda: os.listdir(folder))
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        if token.encode() in open(path, "rb").read():
            print("token")
    except OSError:
        pass
"""
JOB = """
import sys
from skillbelt.fleet.cluster import open_cluster
from skillbelt.fleet.cluster_key import ClusterTies
with open_cluster(sys.argv[1]):
    print(ClusterTies().job)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SmallCluster]:
    with open_cluster(3, cpus=1) as made:
        yield made


@pytest.fixture(scope="module")
def belt(cluster: SmallCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    project = tmp_path_factory.mktemp("project")
    skill = project / ".agents" / "skills" / "echo"
    skill.mkdir(parents=True)
    text = "---\nname: echo\ndescription: Says things. Use it to say things.\n---\n"
    skill.joinpath("SKILL.md").write_text(text)
    rules = [Rule("*", "*", "allow")]
    with Runtime(project, rules=rules, executor="ray", ray_address=cluster.address) as made:
        # The first run connects this process; Ray would connect by itself, in another namespace.
        assert made.run_sync("echo", "echo connected").stdout == "connected\n"
        yield made


def conversations(cluster: SmallCluster) -> dict[str, dict[str, Any]]:
    """The workspaces of the living actors, by the hash of the conversation; the last run counts."""
    from skillbelt.fleet.cluster import Cluster

    found: dict[str, dict[str, Any]] = {}
    for answer in Cluster(cluster.address).ask_workspaces("list").values():
        for one in answer.value or ():
            before = found.get(one["conversation"])
            if before is None or before["last_used"] < one["last_used"]:
                found[one["conversation"]] = one
    return found


def node_of_last_run(cluster: SmallCluster) -> str:
    last = max(conversations(cluster).values(), key=lambda one: float(one["last_used"]))
    return str(last["node"])


def living_nodes() -> list[dict[str, Any]]:
    import ray

    return [one for one in ray.nodes() if one["Alive"]]  # type: ignore[no-untyped-call]


def left_on(cluster: SmallCluster, node: str) -> list[str]:
    """The folders of the actors of a node, and the workspaces of its user elsewhere."""
    name = f"nodes/{node[:12]}-*"
    return glob.glob(f"{cluster.folder}/state/{name}") + glob.glob(f"/var/lib/skillbelt*/*{name}*")


def talk(belt: Runtime, cluster: SmallCluster) -> dict[str, str]:
    """Begin conversations until each of three nodes has one; return one name for each node."""
    found: dict[str, str] = {}
    for number in range(60):
        name = f"talk-{number}"
        done = belt.run_sync(
            "echo", ["sh", "-c", WRITE, "-", name], session=belt.session("me", name)
        )
        assert done.exit_code == 0, done
        found.setdefault(node_of_last_run(cluster), name)
        if len(found) == 3:
            return found
    raise AssertionError(found)


def wait_until_unsure() -> None:
    """Wait until the executor asks each actor again whether it lives."""
    from skillbelt.fleet import executor

    time.sleep(2 * executor._SURE_SECONDS)


def wait_for(is_so: Callable[[], object]) -> None:
    until = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def read(belt: Runtime, name: str) -> str:
    return belt.run_sync("echo", ["sh", "-c", READ], session=belt.session("me", name)).stdout


def expected(name: str, runs: int) -> str:
    return f"{name}\n 78 00 ff\nempty\n300000\n" + "more\n" * runs


def test_a_skill_reaches_nothing_of_the_cluster(belt: Runtime, cluster: SmallCluster) -> None:
    session = belt.session("me", "attacker")
    sockets, ports = set[str](), {int(cluster.address.rpartition(":")[2])}
    for one in living_nodes():
        sockets |= {one["RayletSocketName"], one["ObjectStoreSocketName"]}
        ports |= {one["NodeManagerPort"], one["ObjectManagerPort"]}
    host = cluster.address.rpartition(":")[0]
    words = [host, json.dumps([*ports]), json.dumps([*sockets]), cluster.folder, TOKEN]
    # The attack works where nothing stops it.
    bare = subprocess.run([sys.executable, "-c", REACH, *words], capture_output=True, text=True)
    reached = bare.stdout.split("\n")
    assert {f"port {one}" for one in ports} | {f"socket {one}" for one in sockets} <= set(reached)
    assert {f"folder {cluster.folder}", "token"} <= set(reached)
    done = belt.run_sync("echo", ["python3", "-c", REACH, *words], session=session)
    assert (done.stdout, done.exit_code) == ("", 0), done


def test_cases_of_an_evaluation_run_on_the_cluster(cluster: SmallCluster, tmp_path: Path) -> None:
    skill = tmp_path / ".agents" / "skills" / "sum"
    (skill / "scripts").mkdir(parents=True)
    (skill / "evals").mkdir()
    text = "---\nname: sum\ndescription: Adds numbers. Use it to add numbers.\n---\n"
    skill.joinpath("SKILL.md").write_text(text)
    skill.joinpath("scripts", "sum.py").write_text(
        "import sys\nprint(sum(map(int, sys.argv[1:])))\n"
    )
    cases = [
        {"script": "scripts/sum.py", "arguments": ["1", "2"], "expect": {"contains": found}}
        for found in ("3", "4")
    ]
    skill.joinpath("evals", "evals.json").write_text(json.dumps({"scripts": cases}))

    def evaluate(address: str) -> dict[str, Any]:
        settings = tmp_path / "settings.toml"
        settings.write_text(f'executor = "ray"\nray_address = "{address}"\n')
        words = [sys.executable, "-m", "skillbelt", "eval", "script", "sum", "--yes", "--json"]
        done = subprocess.run(
            [*words, "--config", str(settings)], capture_output=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 1, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    assert evaluate("127.0.0.1:1")["error"]["kind"] == "cluster_away"
    outcomes = [one["outcome"] for one in evaluate(cluster.address)["cases"]]
    assert outcomes == ["passed", "failed"]


def test_dead_servers_are_found_without_what_ray_may_drop(
    belt: Runtime, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skillbelt.fleet import cluster_key

    words = [sys.executable, "-c", JOB, cluster.address]
    gone = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    ties = cluster_key.ClusterTies()
    # Ray marks a job as soon as its process has ended.
    wait_for(lambda: gone in ties.find_dead_jobs())
    assert ties.job not in ties.find_dead_jobs()
    monkeypatch.delattr("ray._private.state.jobs")
    other = cluster_key.ClusterTies()
    assert gone in other.find_dead_jobs()
    assert other.job not in other.find_dead_jobs()


def test_a_ray_that_prints_otherwise_is_still_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name must be there in the Ray that is pinned: without it Ray prints into documents."""
    from ray._private import worker

    from skillbelt.fleet.cluster import printing_nothing

    before = worker.listen_error_messages
    with printing_nothing():
        assert worker.listen_error_messages is not before
    assert worker.listen_error_messages is before
    monkeypatch.delattr(worker, "listen_error_messages")
    with printing_nothing():
        pass


def test_an_actor_that_does_not_answer_is_a_problem(belt: Runtime, cluster: SmallCluster) -> None:
    """Ray refuses to end what an actor does by force, and the late answer of one is none."""
    import ray

    from skillbelt.fleet.cluster import NAMESPACE, WORKSPACES, Cluster

    class Silent:
        def list(self) -> None:
            import threading

            threading.Event().wait()

    name, remote = f"{WORKSPACES}silent", ray.remote  # type: Any, Any
    silent = remote(Silent).options(name=name, namespace=NAMESPACE, num_cpus=0).remote()
    try:
        [answer] = Cluster(cluster.address).ask_workspaces("list", [name], seconds=1).values()
        assert answer.problem == "no answer within 1 seconds"
    finally:
        ray.kill(silent)


def test_a_deleted_conversation_goes_from_its_node(belt: Runtime, cluster: SmallCluster) -> None:
    before = {*conversations(cluster)}
    belt.run_sync("echo", "echo x > $WORK_DIR/x", session=belt.session("me", "deleted"))
    [made] = {*conversations(cluster)} - before
    assert belt.delete_session("me", "deleted")
    wait_for(lambda: made not in conversations(cluster))


def test_conversations_go_on_when_a_node_is_drained_and_another_killed(
    belt: Runtime, cluster: SmallCluster
) -> None:
    talks = talk(belt, cluster)
    assert len(talks) == 3
    drained, killed, _ = talks

    words = [sys.executable, "-m", "skillbelt", "fleet", "drain", drained, "--json"]
    done = subprocess.run(
        [*words, "--address", cluster.address], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["snapshotted"] >= 1
    assert left_on(cluster, drained) == []
    assert [read(belt, name) for name in talks.values()] == [
        expected(name, 1) for name in talks.values()
    ]
    assert drained not in {one["node"] for one in conversations(cluster).values()}

    (victim,) = [one for one in cluster.nodes if one.node_id == killed]
    cluster.kill(victim)
    wait_until_unsure()
    # At once: Ray does not know yet that the node is gone.
    assert [read(belt, name) for name in talks.values()] == [
        expected(name, 2) for name in talks.values()
    ]
    assert killed not in {one["node"] for one in conversations(cluster).values()}
    # The next test finds a cluster that knows which nodes it has.
    wait_for(lambda: killed not in {one["NodeID"] for one in living_nodes()})
