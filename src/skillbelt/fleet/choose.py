"""Choose where commands run, by the settings: on this machine, or in a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from skillbelt.artifacts import ArtifactStore
from skillbelt.errors import ConfigError
from skillbelt.format.skill import Skill
from skillbelt.install.package_locks import PackageLocks
from skillbelt.permission.gate import Gate
from skillbelt.running.executors import Executor
from skillbelt.running.workbench import Workbench
from skillbelt.settings import Settings


def make_workbench(
    settings: Settings | Callable[[], Settings],
    gate: Gate,
    find: Callable[[str], Skill],
    *,
    skills: Callable[[], Mapping[str, Skill]],
    artifacts: ArtifactStore | None = None,
    progress: Callable[[str], None] | None = None,
) -> Workbench:
    """Return a workbench whose commands run where the settings say."""
    now = settings() if callable(settings) else settings
    return Workbench(
        settings,
        gate,
        find,
        skills=skills,
        artifacts=artifacts,
        progress=progress,
        executor=_find_executor(now, progress),
        locked=PackageLocks(settings).of,
    )


def _find_executor(settings: Settings, progress: Callable[[str], None] | None) -> Executor | None:
    """Return the executor that the settings name; None for this machine, the default."""
    if settings.executor == "local":
        return None
    if not settings.ray_address:
        raise ConfigError(
            "executor is 'ray', and ray_address is not set; give HOST:PORT of the head, such as "
            'ray_address = "10.0.0.1:6379"'
        )
    from skillbelt.fleet.executor import RayExecutor  # extra: ray

    return RayExecutor(settings, progress)
