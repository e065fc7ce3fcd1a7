"""Facts about the cluster that servers and nodes share, from Ray itself."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import ray

from skillbelt.errors import ConfigError
from skillbelt.fleet.ray_parts import (
    AuthenticationMode,
    AuthenticationTokenLoader,
    GcsClient,
    get_authentication_mode,
    ray_state,
)


class ClusterTies:
    """The connection of this process to its cluster.

    Its node, its job, and the key that seals orders. The key is derived from the cluster's token;
    ConfigError without one.
    """

    def __init__(self) -> None:
        context = ray.get_runtime_context()
        self.node, self.job = str(context.get_node_id()), str(context.get_job_id())
        token = AuthenticationTokenLoader.instance().get_raw_token()
        if not token or get_authentication_mode() != AuthenticationMode.TOKEN:
            raise ConfigError(
                "this process is connected to Ray without a token, so anyone in its network could "
                "run commands on the cluster; let skillbelt connect, or set RAY_AUTH_MODE=token "
                "before Ray is connected; every server and node has the same RAY_AUTH_TOKEN, or "
                "RAY_AUTH_TOKEN_PATH with the file that holds it"
            )
        # A Ray version that cannot list dead servers is an error now, not when a server dies.
        self.find_dead_jobs()
        self.key = hmac.new(token.encode(), b"skillbelt orders", hashlib.sha256).digest()

    def find_dead_jobs(self) -> set[str]:
        """Return the jobs of servers that are gone; Ray notices when a server's process ends.

        Ray's public API for this needs the dashboard, which is off.
        """
        jobs: Any = getattr(ray_state, "jobs", None)
        if jobs is not None:
            return {one["JobID"] for one in jobs() if one["IsDead"]}
        head = GcsClient(address=ray.get_runtime_context().gcs_address)
        jobs = head.get_all_job_info(
            skip_submission_job_info_field=True, skip_is_running_tasks_field=True
        )
        return {job.hex() for job, one in jobs.items() if one.is_dead}

    def end_this_actor(self) -> None:
        """End the actor in this process."""
        ray.kill(ray.get_runtime_context().current_actor)
