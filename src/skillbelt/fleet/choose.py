"""Which executor the settings name."""

from __future__ import annotations

from collections.abc import Callable

from skillbelt.errors import ConfigError
from skillbelt.running.executors import Executor
from skillbelt.settings import Settings


def executor_for(
    settings: Settings, progress: Callable[[str], None] | None = None
) -> Executor | None:
    """Return the executor that the settings name; None for this machine, the usual one."""
    if settings.executor == "local":
        return None
    if not settings.ray_address:
        raise ConfigError(
            "executor is 'ray', and ray_address is not set; give HOST:PORT of the head, such as "
            'ray_address = "10.0.0.1:6379"'
        )
    from skillbelt.fleet.executor import RayExecutor  # extra: ray

    return RayExecutor(settings, progress)
