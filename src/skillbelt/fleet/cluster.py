"""A Ray cluster for `skillbelt fleet`: its nodes, its queue, and functions called on every node.

Ray waits for minutes for a cluster that does not answer, and half a minute before it reports a
wrong token. So the connection is tested before Ray connects.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from skillbelt.errors import ClusterAway, ConfigError, NotFound, SkillbeltError
from skillbelt.fleet.authentication import TOKEN_MODE, require_token
from skillbelt.fleet.facts import PRODUCT, SETTINGS_LABEL, SHARE, START_LABEL, VERSION_LABEL
from skillbelt.fleet.join import DOWN, UP
from skillbelt.fleet.ray_parts import (
    Config,
    DrainNodeReason,
    GcsClient,
    GcsNodeInfo,
    get_cluster_status,
    ray_state,
    ray_worker,
)
from skillbelt.fleet.reachability import CONNECT_SECONDS, check_reachable
from skillbelt.sandbox.registry import AUTO
from skillbelt.text import one_line

NAMESPACE = "skillbelt"
WORKSPACES = "skillbelt-workspaces-"  # prefix of the names of the actors that keep workspaces
# The first call on a node starts a worker and imports the product; a busy machine takes minutes.
_ANSWER_SECONDS = 300.0
# Actors that keep workspaces run already.
_KEEPER_SECONDS = 60.0
# A node that runs the attacks builds an interpreter first, and then answers after each attack.
_SILENT_SECONDS = 900.0
_MACHINES_AT_ONCE = 64
_DRAIN_REASON = "DRAIN_NODE_REASON_PREEMPTION"
_WORD = "skillbelt fleet drain"


class NodeState(NamedTuple):
    """A node as Ray reports it.

    `used` is the number of runs and workspaces that hold a share of it.
    """

    id: str
    host: str
    address: str
    alive: bool
    draining: bool
    head: bool
    version: str
    settings: str
    processors: float
    memory_bytes: float
    gpus: float
    can: tuple[str, ...]
    used: int

    @property
    def runs(self) -> bool:
        """Whether the node takes runs; the head and the machines of servers need not."""
        return PRODUCT in self.can

    @property
    def sandboxes(self) -> tuple[str, ...]:
        """Return the names of the sandboxes that it announces."""
        begin = f"{PRODUCT}_sandbox_"
        names = (one.removeprefix(begin) for one in self.can if one.startswith(begin))
        return tuple(one for one in names if one != AUTO)

    @property
    def state(self) -> str:
        """Return one word: up, draining or down."""
        return "down" if not self.alive else "draining" if self.draining else "up"


class NodeAnswer(NamedTuple):
    """The result of a function on a node, or why there is none."""

    value: Any = None
    problem: str = ""


@contextmanager
def open_cluster(address: str) -> Iterator[Cluster]:
    """Connect to the cluster while the block lasts; ClusterAway when it does not answer.

    `address` is HOST:PORT of the head. This machine must be a node of the cluster.
    """
    connect(address)
    try:
        yield Cluster(address)
    finally:
        ray.shutdown()


def connect(address: str) -> None:
    """Connect this process to the cluster; ClusterAway when it does not answer."""
    check_reachable(address)
    os.environ.update(require_token(os.environ))
    check_token(address)
    logging.getLogger("ray").setLevel(logging.ERROR)  # it warns of threads, for example
    try:
        with printing_nothing():
            ray.init(
                address=address,
                namespace=NAMESPACE,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
    except Exception as error:  # Ray raises the exceptions of its parts
        raise _explain(address, error) from error


@contextmanager
def printing_nothing() -> Iterator[None]:
    """Keep Ray from printing events of the cluster over a connection that is made in the block.

    Ray starts a thread that prints to stdout when a worker or a node dies, and has no setting for
    it. Stdout may be a JSON document, or an MCP conversation. Ray's logs have the same lines. With
    a Ray version that works differently, only the output of Ray's loggers is suppressed.
    """
    listen = getattr(ray_worker, "listen_error_messages", None)
    if listen is None:
        yield
        return
    ray_worker.listen_error_messages = lambda *_: None
    try:
        yield
    finally:
        ray_worker.listen_error_messages = listen


def look_at_node(address: str, start: str) -> str:
    """Return the state that the head reports for the node with that `start` word; "" for none."""
    try:
        nodes = GcsClient(address=address).get_all_node_info(timeout=CONNECT_SECONDS)
    except Exception:  # the head may not have started; Ray raises the exceptions of its parts
        return ""
    for one in nodes.values():
        if one.labels.get(START_LABEL) == start:
            return UP if one.state == GcsNodeInfo.ALIVE else DOWN
    return ""


class Cluster:
    """A connection to a cluster. Do not share it between threads."""

    def __init__(self, address: str) -> None:
        self.address = address

    def nodes(self) -> list[NodeState]:
        """Return the nodes that are up or went down, the head first, then by host and id."""
        draining = set(ray_state.state.get_draining_nodes())
        free = ray_state.state.available_resources_per_node()
        found = [_node(one, draining, free) for one in ray.nodes()]  # type: ignore[no-untyped-call]
        return sorted(found, key=lambda one: (not one.alive, not one.head, one.host, one.id))

    def find(self, text: str) -> NodeState:
        """Return the running node with that id, prefix of an id, host or address."""
        up = [one for one in self.nodes() if one.alive]
        near = [one for one in up if text in (one.id, one.host, one.address)]
        near = near or [one for one in up if len(text) >= 4 and one.id.startswith(text)]
        if len(near) == 1:
            return near[0]
        known = ", ".join(f"{one.id[:12]} ({one.host})" for one in up)
        what = "several nodes are" if near else "no node is"
        raise NotFound(f"{what} called {one_line(text)!r}", f"give the id of one: {known}")

    def pending(self) -> int:
        """Return how many runs and workspaces wait for a node."""
        status = get_cluster_status(self.address)
        return sum(
            one.count
            for demand in status.resource_demands.ray_task_actor_demand
            for one in demand.bundles_by_count
            if PRODUCT in one.bundle
        )

    def call_each(
        self,
        function: Callable[..., object],
        nodes: Iterable[NodeState],
        *arguments: object,
        seconds: float = _ANSWER_SECONDS,
    ) -> dict[str, NodeAnswer]:
        """Call a function of the product on each node at once; return the answers by node id.

        The function travels by its name, so each node runs its own version of it.
        """
        asked = {node.id: _bind_to_node(node, function).remote(*arguments) for node in nodes}
        return self._collect(asked, seconds, force=True)

    def follow_each(
        self,
        function: Callable[..., Iterator[object]],
        calls: Iterable[tuple[NodeState, object]],
        seconds: float = _SILENT_SECONDS,
    ) -> dict[str, NodeAnswer]:
        """Call a generator function on each node, each time with another argument.

        Return what each node yielded, also when it failed or was silent for `seconds`. Nodes of one
        machine take turns, so that they do not disturb each other.
        """
        turns: dict[str, list[tuple[NodeState, object]]] = {}
        for node, argument in calls:
            turns.setdefault(node.address, []).append((node, argument))

        def follow_machine(address: str) -> dict[str, NodeAnswer]:
            return {
                node.id: _follow(
                    _bind_to_node(node, function, num_returns="streaming"), argument, seconds
                )
                for node, argument in turns[address]
            }

        found: dict[str, NodeAnswer] = {}
        with ThreadPoolExecutor(_MACHINES_AT_ONCE) as pool:
            for answers in pool.map(follow_machine, turns):
                found.update(answers)
        return found

    def _collect(
        self, asked: Mapping[str, Any], seconds: float, *, force: bool = False
    ) -> dict[str, NodeAnswer]:
        """Return the answers.

        `force`, which Ray does not allow for actors, kills the late calls.
        """
        if asked:
            ray.wait(list(asked.values()), num_returns=len(asked), timeout=seconds)
        found = {}
        for key, reference in asked.items():
            try:
                found[key] = NodeAnswer(ray.get(reference, timeout=0))
            except ray.exceptions.GetTimeoutError:
                ray.cancel(reference, force=force)
                found[key] = NodeAnswer(problem=f"no answer within {seconds:g} seconds")
            except Exception as error:  # raised by the function there, or by Ray
                found[key] = NodeAnswer(problem=first_line(error))
        return found

    def workspaces(self) -> dict[str, Any]:
        """Return the actors that keep workspaces, by name."""
        names = [one for one in ray.util.list_named_actors() if one.startswith(WORKSPACES)]
        found = {}
        for name in sorted(names):
            try:
                found[name] = ray.get_actor(name, namespace=NAMESPACE)
            except ValueError:
                continue  # it ended meanwhile
        return found

    def ask_workspaces(
        self, method: str, names: Sequence[str] | None = None, seconds: float = _KEEPER_SECONDS
    ) -> dict[str, NodeAnswer]:
        """Call a method of each actor that keeps workspaces; return the answers by name."""
        wanted = self.workspaces()
        if names is not None:
            wanted = {name: actor for name, actor in wanted.items() if name in names}
        asked = {name: getattr(actor, method).remote() for name, actor in wanted.items()}
        return self._collect(asked, seconds)

    def actors_on(self, node_id: str) -> list[str]:
        """Return the names of the actors that keep workspaces on a node."""
        return sorted(
            one["Name"]
            for one in ray_state.actors().values()
            if one["Name"].startswith(WORKSPACES)
            and one["State"] != "DEAD"
            and one["Address"]["NodeID"] == node_id
        )

    def drain(self, node_id: str) -> None:
        """Tell Ray to give the node no new work; the node ends when nothing runs on it."""
        reason = DrainNodeReason.Value(_DRAIN_REASON)
        accepted, why = GcsClient(address=self.address).drain_node(node_id, reason, _WORD, 0)
        if not accepted:
            raise SkillbeltError(f"Ray does not drain {node_id}: {one_line(why)}")


def _bind_to_node(node: NodeState, function: Callable[..., object], **options: object) -> Any:
    """Return the function as a Ray task on that node."""
    there = NodeAffinitySchedulingStrategy(node.id, soft=False)
    remote: Any = ray.remote(function)
    return remote.options(
        num_cpus=0, max_retries=0, scheduling_strategy=there, name=function.__name__, **options
    )


def _follow(task: Any, argument: object, seconds: float) -> NodeAnswer:
    """Call a generator task; return all that it yielded, and why it stopped."""
    found: list[object] = []
    yielded = task.remote(argument)
    while True:
        ready, _ = ray.wait([yielded], timeout=seconds)
        if not ready:
            ray.cancel(yielded, force=True)
            return NodeAnswer(found, f"nothing more came for {seconds:g} seconds")
        try:
            found.append(ray.get(next(yielded)))
        except StopIteration:
            return NodeAnswer(found)
        except Exception as error:  # raised by the function there, or by Ray
            return NodeAnswer(found, first_line(error))


def check_token(address: str) -> None:
    """Ask the head one question with the token, and one without.

    ClusterAway with the reason when it refuses the first, ConfigError when it answers the second.
    """
    _use_token(True)
    try:
        cluster_id = _ask_head(address)
    except Exception as error:
        raise _explain(address, error) from error
    _use_token(False)
    try:
        _ask_head(address, cluster_id)
    except Exception as error:
        if _is_refusal(error):
            return
        raise _explain(address, error) from error
    finally:
        _use_token(True)
    raise ConfigError(
        f"the Ray cluster at {address} answers without a token, so anyone who reaches it can run "
        "any program on its nodes; stop it, and start the head and every node with `skillbelt "
        "fleet join`, or with RAY_AUTH_MODE=token in their environment"
    )


def _ask_head(address: str, cluster_id: str | None = None) -> str:
    """Ask the head one question; return the id of its cluster.

    Without an id, the client asks for it, and Ray prints when that is refused.
    """
    head = GcsClient(address=address, cluster_id=cluster_id)
    head.check_alive([], timeout=CONNECT_SECONDS)
    return str(head.cluster_id.hex())


def _use_token(on: bool) -> None:
    """Set whether Ray's requests carry the token from now on; the environment does not change."""
    Config.initialize(json.dumps({"AUTH_MODE": TOKEN_MODE if on else "disabled"}))


def _text_of(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    said: BaseException | None = error
    while said is not None:
        text += f" {said}"
        said = said.__cause__
    return text


def _is_refusal(error: BaseException) -> bool:
    """Whether Ray refused a wrong or missing token."""
    text = _text_of(error)
    return "AuthToken" in text or "UNAUTHENTICATED" in text or "Unauthenticated" in text


def _explain(address: str, error: Exception) -> ClusterAway:
    if _is_refusal(error):
        return ClusterAway(
            f"the Ray cluster at {address} refuses the token: set RAY_AUTH_TOKEN_PATH (or "
            "RAY_AUTH_TOKEN) to that of the cluster"
        )
    text = _text_of(error)
    if "node_ip_address" in text or ("raylet" in text and "find" in text):
        return ClusterAway(
            f"this machine is not a node of the Ray cluster at {address}: run the command on a "
            "node, or let this machine join without runs: "
            f"`skillbelt fleet join {address} --no-runs`"
        )
    return ClusterAway(f"the Ray cluster at {address} does not answer: {first_line(error)}")


def first_line(error: BaseException) -> str:
    """Return the message of a Ray error, without the traceback of the other process."""
    lines = [line for line in str(error).split("\n") if line.strip()]
    cause = getattr(error, "cause", None)
    if cause is not None and str(cause):
        lines = [f"{type(cause).__name__}: {cause}"]
    return one_line(lines[-1] if lines else type(error).__name__)[:300]


def _node(
    one: Mapping[str, Any], draining: set[str], free: Mapping[str, Mapping[str, float]]
) -> NodeState:
    resources, labels = one["Resources"], one["Labels"]
    left = free.get(one["NodeID"], {}).get(PRODUCT)
    used = 0 if left is None else round((resources.get(PRODUCT, 0) - left) / SHARE)
    return NodeState(
        id=one["NodeID"],
        host=one["NodeManagerHostname"],
        address=one["NodeManagerAddress"],
        alive=one["Alive"],
        draining=one["NodeID"] in draining,
        head="node:__internal_head__" in resources,
        version=labels.get(VERSION_LABEL, ""),
        settings=labels.get(SETTINGS_LABEL, ""),
        processors=resources.get("CPU", 0),
        memory_bytes=resources.get("memory", 0),
        gpus=resources.get("GPU", 0),
        can=tuple(sorted(name for name in resources if name.startswith(PRODUCT))),
        used=used,
    )
