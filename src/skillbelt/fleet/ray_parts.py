"""The private parts of Ray that skillbelt uses, all in one place.

Ray's public API for the same needs the dashboard, which is off. The extra `ray` allows one minor
version of Ray; with another one that lacks a part, the user gets one readable error. Two more parts
have a fallback where they are used: `ray._private.state.jobs` (`cluster_key`), and
`ray._private.worker.listen_error_messages` (`cluster`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import ray

from skillbelt.errors import ConfigError

# By module: the names, with a dot for attributes of an object.
PARTS = {
    "ray._private.state": (
        "actors", "state.get_draining_nodes", "state.available_resources_per_node"
    ),
    "ray._private.worker": (),
    "ray._raylet": (
        "AuthenticationMode.TOKEN", "AuthenticationTokenLoader.instance", "Config.initialize",
        "GcsClient", "InnerGcsClient.check_alive", "InnerGcsClient.cluster_id",
        "InnerGcsClient.drain_node", "InnerGcsClient.get_all_job_info",
        "InnerGcsClient.get_all_node_info", "get_authentication_mode",
    ),
    "ray.actor": ("ActorHandle._actor_id",),
    "ray.autoscaler.v2.sdk": ("get_cluster_status",),
    "ray.core.generated.autoscaler_pb2": ("DrainNodeReason.Value",),
    "ray.core.generated.gcs_pb2": ("GcsNodeInfo.ALIVE",),
}  # fmt: skip


def find_part(module: str, name: str = "") -> Any:
    """Return a part of Ray; ConfigError when this version does not have it."""
    try:
        found: Any = import_module(module)
        for word in filter(None, name.split(".")):
            found = getattr(found, word)
    except (ImportError, AttributeError) as error:
        part = f"{module}.{name}".rstrip(".")
        raise ConfigError(
            f"Ray {ray.__version__} has no {part}, which skillbelt needs; install the version that "
            "this skillbelt was made for, on every machine: pip install 'skillbelt[ray]'"
        ) from error
    return found


def check_parts() -> None:
    """Check every part; ConfigError names the first one that is missing."""
    for module, names in PARTS.items():
        for name in names or ("",):
            find_part(module, name)


check_parts()
ray_state: Any = find_part("ray._private.state")
ray_worker: Any = find_part("ray._private.worker")
_raylet: Any = find_part("ray._raylet")
AuthenticationMode, AuthenticationTokenLoader = (
    _raylet.AuthenticationMode,
    _raylet.AuthenticationTokenLoader,
)
Config, GcsClient = _raylet.Config, _raylet.GcsClient
get_authentication_mode = _raylet.get_authentication_mode
get_cluster_status: Any = find_part("ray.autoscaler.v2.sdk", "get_cluster_status")
DrainNodeReason: Any = find_part("ray.core.generated.autoscaler_pb2", "DrainNodeReason")
GcsNodeInfo: Any = find_part("ray.core.generated.gcs_pb2", "GcsNodeInfo")
