"""Start a node of the cluster that announces the capabilities of this machine.

`ray start` is Ray's own way to become a node. This module adds the options that an administrator
would have to write by hand, and refuses to start without a token: anyone who reaches a Ray node
without one can run any program on it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from skillbelt.errors import SkillbeltError
from skillbelt.fleet.facts import START_LABEL, NodeFacts

HEAD_PORT = 6379
STARTER = "ray.scripts.scripts"  # the module behind the command `ray`
# Files travel through the object store of the fleet; Ray carries only calls and results.
OBJECT_BYTES = 256 * 2**20
UP, DOWN = "up", "down"
# Ray passes these on to its workers, and its head fails with a traceback when one is set.
WORKER_PORTS = range(10002, 20000)
_POLL_SECONDS, _LOOK_SECONDS = 0.2, 3.0
# Ray gives up on a node that takes more than half a minute to start, as on a busy machine.
_TRIES = 3
# Ray drains a node for half a minute after SIGTERM.
_END_SECONDS = 45.0


class NodePlan(NamedTuple):
    """The options of a node: `address` of the head, or "" to be the head itself.

    Without `runs` it takes no work: the head, and the machines of servers.
    """

    address: str = ""
    port: int = HEAD_PORT
    runs: bool = True
    processors: int | None = None
    object_bytes: int = OBJECT_BYTES
    folder: str = ""
    node_address: str = ""
    start: str = ""  # a random word that identifies the node after it joined


def start_arguments(plan: NodePlan, facts: NodeFacts) -> list[str]:
    """Return the command that starts the node."""
    where = ["--address", plan.address]
    if not plan.address:
        # The dashboard takes jobs from anyone who reaches it, and nothing here needs it.
        where = ["--head", "--port", str(plan.port), "--include-dashboard", "false"]
    processors = plan.processors
    if processors is None:
        processors = max(1, int(facts.processors)) if plan.runs else 0
    labels = facts.labels() | ({START_LABEL: plan.start} if plan.start else {})
    made = [
        *(sys.executable, "-m", STARTER, "start", *where),
        *("--num-cpus", str(processors if plan.runs else 0)),
        *("--num-gpus", str(facts.gpus if plan.runs else 0)),
        *("--resources", json.dumps(facts.resources() if plan.runs else {})),
        *("--labels", ",".join(f"{key}={value}" for key, value in labels.items())),
        *("--object-store-memory", str(plan.object_bytes)),
        *("--disable-usage-stats", "--block"),
    ]
    if plan.runs:
        # Ray's own measurement depends on what else uses memory at this moment.
        made += ["--memory", str(max(1, facts.memory_bytes - plan.object_bytes))]
    if plan.folder and not plan.address:
        made += ["--temp-dir", plan.folder]
    if plan.node_address:
        made += ["--node-ip-address", plan.node_address]
    return made


def run_node(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    command: Sequence[str],
    look: Callable[[], str],
) -> int:
    """Run the node until it ends, and the command beside it; return the exit code.

    `look` returns the state of this node in the cluster: UP, DOWN, or "" when it is unknown. The
    command starts when the node is up. The node ends with the command, and the command with the
    node. SIGTERM is passed on: Ray then takes no new work and waits for running work. A drained
    node ends with 0. SkillbeltError when the node ended several times before it had joined.
    """
    running: list[subprocess.Popen[bytes]] = []
    with _passing_on(running) as stopped:
        try:
            for tries in range(1, _TRIES + 1):
                node = subprocess.Popen(arguments, env=dict(environ), start_new_session=True)
                running.append(node)
                if stopped.is_set():  # the signal came before the node was one of the processes
                    node.terminate()
                if _has_joined(node, look):
                    break
                if stopped.is_set() or not node.returncode:
                    return _exit_code(node)
                if tries == _TRIES:
                    raise SkillbeltError(_NOT_JOINED.format(tries=tries, code=_exit_code(node)))
                running.remove(node)
            beside = None
            if command and not stopped.is_set():
                beside = subprocess.Popen(command, env=dict(environ))
                running.insert(0, beside)
                if stopped.is_set():
                    beside.terminate()
            return _wait_for_end(node, beside, look)
        finally:
            for one in running:
                _end(one)


_NOT_JOINED = (
    "the node ended {tries} times before it had joined, the last time with exit code {code}; what "
    "Ray said is above. Ray gives a node 30 seconds to start: if the machine is busy, try again "
    "when it is not; if a port is in use, end what uses it"
)


def _has_joined(node: subprocess.Popen[bytes], look: Callable[[], str]) -> bool:
    """Wait until the cluster knows the node; False when the node ended before."""
    while not look():
        if node.poll() is not None:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _wait_for_end(
    node: subprocess.Popen[bytes],
    beside: subprocess.Popen[bytes] | None,
    look: Callable[[], str],
) -> int:
    looked = time.monotonic()
    while True:
        for one in filter(None, (beside, node)):
            if one.poll() is not None:
                return _exit_code(one)
        # `ray start` does not end when its node was drained.
        if time.monotonic() - looked > _LOOK_SECONDS:
            if look() == DOWN:
                return 0
            looked = time.monotonic()
        time.sleep(_POLL_SECONDS)


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    code = process.returncode
    return code if code >= 0 else 128 - code


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _passing_on(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[threading.Event]:
    """Pass SIGTERM and SIGINT on to the processes while the block lasts; yield whether one came."""
    came = threading.Event()

    def pass_on(number: int, _: object) -> None:
        came.set()
        for one in tuple(processes):
            with suppress(OSError):
                one.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
