"""A small Ray cluster of this test's own, with a token, in folders of its own."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from skillbelt.fleet.facts import UNITS, needs_of
from tests.fleet.clusters import descendants

SANDBOX = dict.fromkeys(needs_of("bubblewrap"), UNITS)
_TRIES = 6
TOKEN = "a-token-that-no-log-may-show-7b1f"


def _insist(start: Callable[[], Any]) -> Any:
    """Start something of Ray, again if it failed: on a busy machine its parts wait too briefly.

    A raylet whose agent is not there in half a minute ends itself, and Ray has no setting for it.
    """
    for _ in range(_TRIES - 1):
        with suppress(Exception):  # Ray raises this very class
            return start()
    return start()


class SmallCluster:
    """A cluster whose head runs nothing; `add` starts a node that announces a sandbox."""

    def __init__(self, folder: str) -> None:
        from ray.cluster_utils import Cluster

        self.folder = folder
        head = self._arguments(0, {})
        self._made: Any = _insist(lambda: Cluster(initialize_head=True, head_node_args=head))
        self.address = str(self._made.address)
        self.nodes: list[Any] = []

    @staticmethod
    def _arguments(cpus: int, resources: dict[str, float]) -> dict[str, Any]:
        return {
            "num_cpus": cpus,
            "object_store_memory": 100 * 2**20,
            "include_dashboard": False,
            "memory": 8 * 2**30,  # Ray would take what is free at this moment
            "resources": resources,
        }

    def add(self, cpus: int = 2, **arguments: Any) -> Any:
        """Start a node; the arguments are Ray's, such as `memory` and `num_gpus`."""
        given = {**self._arguments(cpus, SANDBOX), **arguments}
        node = _insist(lambda: self._made.add_node(**given))
        self.nodes.append(node)
        return node

    def kill(self, node: Any) -> None:
        """Kill a node with all its processes, at once."""
        self.nodes.remove(node)
        # Workers outlive their raylet for as long as they need to notice.
        raylet = node.all_processes["raylet"][0].process.pid
        for pid in [raylet, *descendants(raylet)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._made.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        import ray

        ray.shutdown()
        self._made.shutdown()


def _use_token() -> None:
    """Have Ray send the token also where a test imported it, and it read its settings, before."""
    from skillbelt.fleet.ray_parts import Config

    Config.initialize('{"AUTH_MODE": "token"}')


@contextmanager
def open_cluster(nodes: int = 1, cpus: int = 2) -> Iterator[SmallCluster]:
    """Start a cluster; stop it and remove its folders afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tempfile.mkdtemp(prefix="sb-", dir="/tmp")  # sockets need short paths
        os.chmod(folder, 0o711)
        os.mkdir(os.path.join(folder, "ray"))
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("SKILLBELT_STATE_DIR", os.path.join(folder, "state"))
        patch.setenv("SKILLBELT_CACHE_DIR", os.path.join(folder, "cache"))
        _use_token()
        cluster = SmallCluster(folder)
        try:
            for _ in range(nodes):
                cluster.add(cpus)
            yield cluster
        finally:
            cluster.close()
            shutil.rmtree(folder, ignore_errors=True)
