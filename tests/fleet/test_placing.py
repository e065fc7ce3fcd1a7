"""The nodes that meet the needs of a run, without a cluster; and on a real one of two nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from skillbelt import Rule, Runtime, __version__
from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.fleet.facts import UNITS, needs_of
from skillbelt.fleet.placing import AnnouncedNode, NodeNeeds, find_placement, interpreter_of
from tests import needs as machine
from tests.fleet.cluster import SmallCluster, open_cluster
from tests.tree import Tree

GIB = 2**30
HEAD = AnnouncedNode("0" * 56, "head", {"memory": 99 * GIB, "CPU": 0})


def node(digit: str, sandbox: str = "bubblewrap", **resources: float) -> AnnouncedNode:
    has = {**dict.fromkeys(needs_of(sandbox), UNITS), "CPU": 2, "memory": 4 * GIB, **resources}
    return AnnouncedNode(digit * 56, f"host-{digit}", has)


def test_a_run_goes_to_every_node_that_has_what_it_needs() -> None:
    place = find_placement([HEAD, node("1"), node("2")], NodeNeeds("bubblewrap", 2 * GIB))
    assert (place.name, place.actors) == ("bubblewrap-2048m", 4)
    assert place.options == {"resources": needs_of("bubblewrap")}


def test_nodes_with_too_little_memory_are_left_out() -> None:
    nodes = [HEAD, node("1", memory=GIB), node("2"), node("3", sandbox="landlock")]
    place = find_placement(nodes, NodeNeeds("bubblewrap", 2 * GIB))
    assert place.actors == 2
    assert place.options["label_selector"] == {"ray.io/node-id": f"in({'2' * 56})"}


def test_memory_that_no_node_has_is_refused_with_the_nodes_and_the_remedy() -> None:
    with pytest.raises(RunRefused) as caught:
        find_placement([HEAD, node("1"), node("2", memory=GIB)], NodeNeeds("bubblewrap", 8 * GIB))
    said = str(caught.value)
    assert "8.0 GiB (max_memory_bytes)" in said
    assert "host-1 (111111111111) has 4.0 GiB, host-2 (222222222222) has 1.0 GiB" in said
    assert "lower max_memory_bytes, or add a node" in said and "head" not in said


def test_nodes_of_another_version_are_left_out() -> None:
    """While a fleet is renewed, a server uses the nodes that speak as it does."""
    other, same = node("1")._replace(version="99.1"), node("2")._replace(version=__version__)
    place = find_placement([HEAD, other, same], NodeNeeds("bubblewrap", GIB))
    assert place.actors == 2
    assert place.options["label_selector"] == {"ray.io/node-id": f"in({'2' * 56})"}
    with pytest.raises(RunRefused, match=f"version of skillbelt, {__version__}: ") as caught:
        find_placement([HEAD, other], NodeNeeds("bubblewrap", GIB))
    assert "host-1 (111111111111) has 99.1; nothing was run" in str(caught.value)


def test_each_gpu_has_its_actor() -> None:
    nodes = [node("1"), node("2", GPU=4), node("3", GPU=1)]
    place = find_placement(nodes, NodeNeeds("bubblewrap", GIB, gpus=2))
    assert (place.name, place.actors) == ("bubblewrap-1024m-gpu2", 2)
    assert place.options["num_gpus"] == 2
    with pytest.raises(RunRefused, match="the 8 GPUs") as caught:
        find_placement(nodes, NodeNeeds("bubblewrap", GIB, gpus=8))
    assert "host-2 (222222222222) has 4, host-3" in str(caught.value)


def test_a_sandbox_that_no_node_announces_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="announces the sandbox 'wasm'"):
        find_placement([node("1")], NodeNeeds("wasm", GIB))


def test_an_interpreter_is_looked_for_where_some_node_has_it() -> None:
    nodes = [node("1"), node("2", skillbelt_node=UNITS)]
    place = find_placement(nodes, NodeNeeds("bubblewrap", GIB, interpreter="node"))
    assert place.actors == 2 and "skillbelt_node" in place.options["resources"]
    # Where none has it the command fails as it does on one machine.
    place = find_placement(nodes, NodeNeeds("bubblewrap", GIB, interpreter="ruby"))
    assert place.actors == 4 and "skillbelt_ruby" not in place.options["resources"]
    assert interpreter_of(("node", "a.js"), "bubblewrap") == "node"
    assert interpreter_of(("node", "a.js"), "container") == ""
    assert interpreter_of(("./node", "a.js"), "bubblewrap") == ""


# --- On a real cluster: a large node without a GPU, a small one with two -------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[SmallCluster]:
    with open_cluster(nodes=0) as made:
        made.add(cpus=1, memory=8 * GIB)
        made.add(cpus=1, memory=3 * GIB, num_gpus=2)
        yield made


def placed(cluster: SmallCluster, tree: Tree, **options: Any) -> tuple[str, tuple[float, float]]:
    """The actor that a run went to; the memory of its node in GiB, and its GPUs."""
    import ray

    there: Any = ray
    given = {"executor": "ray", "ray_address": cluster.address, **options}
    with Runtime(tree.project, rules=[Rule("*", "*", "allow")], **given) as belt:
        assert belt.run_sync("sum", ["python3", "-c", "print(6)"]).stdout == "6\n"
        [one] = there.util.list_named_actors(all_namespaces=True)
        actor = there.get_actor(one["name"], one["namespace"])
        at = there.get(actor.ping.options(concurrency_group="control").remote())
        there.kill(actor)
    [has] = [one["Resources"] for one in there.nodes() if one["NodeID"] == at]
    return one["name"], (has["memory"] / GIB, has.get("GPU", 0))


@machine.linux
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_ray_places_runs_by_memory_and_gpus(cluster: SmallCluster, tree: Tree) -> None:
    tree.skill("project/.agents/skills/sum")
    name, where = placed(cluster, tree, max_memory_bytes=4 * GIB)
    assert (name, where) == (f"skillbelt-workspaces-{__version__}-bubblewrap-4096m-0", (8.0, 0))
    name, where = placed(cluster, tree, skills={"sum": {"gpus": 1}})
    assert (name[-12:], where) == ("2048m-gpu1-0", (3.0, 2.0))
    # The node with GPUs has too little memory for this.
    with pytest.raises(RunRefused, match="the 2 GPUs"):
        placed(cluster, tree, skills={"sum": {"gpus": 2}}, max_memory_bytes=4 * GIB)
    with pytest.raises(RunRefused, match=r"16\.0 GiB \(max_memory_bytes\)"):
        placed(cluster, tree, max_memory_bytes=16 * GIB)
