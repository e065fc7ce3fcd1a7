"""What servers and nodes of one cluster know of it, asked of Ray itself."""

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
    """Ties of this process to its cluster: its node, its job, and the key that seals orders.

    The key is made of the cluster's token; ConfigError without one.
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
        # A Ray that does not say which servers are gone is an error now, not when one is gone.
        self.find_dead_jobs()
        self.key = hmac.new(token.encode(), b"skillbelt orders", hashlib.sha256).digest()

    def find_dead_jobs(self) -> set[str]:
        """Return the jobs of servers that are gone; Ray notices when the process of one ends.

        Its public ways to ask need the dashboard, which is off.
        """
        jobs: Any = getattr(ray_state, "jobs", None)
        if jobs is not None:
            return {one["JobID"] for one in jobs() if one["IsDead"]}
        head = GcsClient(address=ray.get_runtime_context().gcs_address)
        told = head.get_all_job_info(
            skip_submission_job_info_field=True, skip_is_running_tasks_field=True
        )
        return {job.hex() for job, one in told.items() if one.is_dead}

    def end_this_actor(self) -> None:
        """End the actor that this process is."""
        ray.kill(ray.get_runtime_context().current_actor)
