"""A real cluster of three nodes on this machine, by the command line alone."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.clusters import OBJECT_BYTES, WAIT_SECONDS, TestCluster, free_port, python
from tests.sandbox.guests import hosts

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
SERVER = """
import sys
from skillbelt import Rule, Runtime
rules = [Rule("*", "*", "allow")]
with Runtime(sys.argv[1], rules=rules, executor="ray", ray_address=sys.argv[2]) as belt:
    print(belt.run_sync("echo", "echo hello").stdout, end="")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    objects = tmp_path_factory.mktemp("objects")
    # What nodes build for the WASM sandbox takes minutes, and is the same for all tests.
    cache = hosts().cache_dir
    # No containers: to attack them on each node takes as long as all others.
    made = TestCluster(
        SKILLBELT_OBJECTS=objects.as_uri(),
        SKILLBELT_CACHE_DIR=cache,
        SKILLBELT_CONTAINER_ENGINE="unix:///none",
    )
    try:
        made.start("one", "--processors", "1")
        made.start("two", "--processors", "2", SKILLBELT_MAX_PROCESSES="50")
        yield made
    finally:
        made.close()


@contextmanager
def open_to_all(cluster: TestCluster) -> Iterator[str]:
    """Start a head that asks for no token; yield its address."""
    port = free_port()
    words = ["--head", "--port", str(port), "--num-cpus", "0", "--include-dashboard", "false"]
    words += ["--object-store-memory", str(OBJECT_BYTES), "--temp-dir", str(cluster.root / "o")]
    head = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "start", *words, "--block"],
        env={**cluster.environ, "RAY_AUTH_MODE": "disabled"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + WAIT_SECONDS
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert head.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        head.terminate()
        head.wait()


def nodes(cluster: TestCluster, **wanted: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cluster.fleet("nodes", "--json").stdout)["nodes"]
    return [one for one in found if wanted.items() <= one.items()]


def test_status_counts_nodes_and_tries_the_stores(cluster: TestCluster) -> None:
    status = json.loads(cluster.fleet("status", "--json").stdout)
    assert status["nodes"]["up"] >= 3
    assert (status["running"], status["queue"]) == (0, 0)
    found = {one["part"]: one["problem"] for one in status["parts"]}
    assert found == {"store": "", "objects": ""}


def test_each_node_announces_what_it_can_do(cluster: TestCluster) -> None:
    one = nodes(cluster, processors=1)[0]
    assert set(one["facts"]["resources"]) == set(one["can"])
    assert "skillbelt_sandbox_auto" in one["can"]
    (head,) = nodes(cluster, head=True)
    assert (head["can"], head["processors"]) == ([], 0)


def test_a_setting_that_differs_between_nodes_is_a_finding(cluster: TestCluster) -> None:
    done = cluster.fleet("nodes", "--json")
    assert done.returncode == 1
    findings = json.loads(done.stdout)["findings"]
    assert [one for one in findings if one.startswith("the setting max_processes differs")]


def test_runs_that_wait_and_run_are_counted(cluster: TestCluster) -> None:
    code = """
import subprocess, time
@ray.remote(num_cpus=1, resources={"skillbelt": 0.001})
def hold(): time.sleep(600)
asked = [hold.remote() for _ in range(5)]
words = [sys.executable, "-m", "skillbelt", "fleet", "status", "--json", "--address", sys.argv[1]]
while True:
    said = subprocess.run(words, capture_output=True, text=True).stdout
    if '"running": 3' in said and '"queue": 2' in said: break
print("seen")
"""
    assert python(cluster, code) == "seen\n"


def test_a_wrong_token_is_said_to_be_wrong(cluster: TestCluster) -> None:
    done = cluster.fleet("status", "--json", RAY_AUTH_TOKEN="0" * 32)
    assert done.returncode == 1
    assert "refuses the token" in json.loads(done.stdout)["error"]["message"]


def test_a_token_is_all_that_a_server_needs(cluster: TestCluster, tmp_path: Path) -> None:
    assert "RAY_AUTH_MODE" not in cluster.environ
    skill = tmp_path / ".agents" / "skills" / "echo"
    skill.mkdir(parents=True)
    text = "---\nname: echo\ndescription: Says things. Use it to say things.\n---\n"
    skill.joinpath("SKILL.md").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", SERVER, str(tmp_path), cluster.address],
        env={**cluster.environ, "HOME": str(cluster.root / "head")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "hello\n", done.stderr


def test_a_cluster_that_answers_without_a_token_is_refused(cluster: TestCluster) -> None:
    with open_to_all(cluster) as address:
        for words in (["status"], ["join", address, "--no-runs"]):
            done = cluster.fleet(*words, "--json", "--address", address)
            assert done.returncode == 2
            assert "answers without a token" in json.loads(done.stdout)["error"]["message"]


def test_an_unknown_node_is_an_error_that_lists_the_known(cluster: TestCluster) -> None:
    done = cluster.fleet("drain", "nowhere", "--json")
    assert done.returncode == 1
    known = nodes(cluster, head=True)[0]["id"][:12]
    assert known in json.loads(done.stdout)["error"]["message"]


def test_the_head_is_not_drained(cluster: TestCluster) -> None:
    (head,) = nodes(cluster, head=True)
    assert cluster.fleet("drain", head["id"]).returncode == 2


def test_a_drained_node_ends_and_can_be_put_back(cluster: TestCluster) -> None:
    victim = nodes(cluster, processors=1, state="up")[0]["id"]
    done = cluster.fleet("drain", victim[:10], "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["drained"]
    assert cluster.nodes["one"].wait(150) == 0
    cluster.start("one", "--processors", "1")
    assert [one["id"] for one in nodes(cluster, processors=1, state="up")] != [victim]


def test_a_node_that_is_busy_takes_no_new_work_while_it_is_drained(cluster: TestCluster) -> None:
    code = """
import subprocess, time
@ray.remote(num_cpus=1, resources={"skillbelt": 0.001}, max_retries=0)
def where(until):
    import os
    while until and not os.path.exists(until): time.sleep(0.05)
    return ray.get_runtime_context().get_node_id()
alive = [one for one in ray.nodes() if one["Alive"]]
busy = [one["NodeID"] for one in alive if one["Resources"].get("CPU") == 1][0]
there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(busy, soft=False)
held = where.options(scheduling_strategy=there).remote(sys.argv[2])
while ray.available_resources().get("CPU", 0) > 2:
    time.sleep(0.05)
words = [sys.executable, "-m", "skillbelt", "fleet", "drain", busy, "--address", sys.argv[1]]
first = subprocess.run([*words, "--timeout", "1"], capture_output=True, text=True)
others = set(ray.get([where.remote("") for _ in range(6)]))
open(sys.argv[2], "x").close()
print(first.returncode, busy in others, ray.get(held) == busy)
"""
    mark = cluster.root / "go on"
    assert python(cluster, code, [str(mark)]) == "124 False True\n"
    assert cluster.nodes["one"].wait(150) == 0
    cluster.start("one", "--processors", "1")


def test_doctor_attacks_the_sandboxes_of_every_node(cluster: TestCluster) -> None:
    done = cluster.fleet("doctor", "--json")
    document = json.loads(done.stdout)
    found = {(row["node"], row["sandbox"]): set[str]() for row in document["matrix"]}
    for row in document["matrix"]:
        found[row["node"], row["sandbox"]].add(row["outcome"])
    announced = {
        (one["id"], sandbox["name"])
        for one in nodes(cluster, state="up")
        for sandbox in one["facts"]["sandboxes"]
        if one["can"] and sandbox["works"]
    }
    assert set(found) == announced
    assert len({node for node, _ in announced}) == 2
    assert set.union(*found.values()) <= {"stopped", "not claimed"}, done.stdout
    (finding,) = document["findings"]
    assert finding.startswith("the setting max_processes differs")
