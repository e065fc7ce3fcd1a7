"""Executors start the commands of allowed runs: on this machine, or on nodes elsewhere.

The workbench makes all decisions before: it checks, stages, asks and resolves. An executor gets an
allowed run and starts its command. Afterwards the workbench finds the files that the command wrote,
on any machine, in the workspace of this machine; it collects and records them.

`skillbelt.testing.ExecutorConformance` tests all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from skillbelt.running.build.protocol import Progress
from skillbelt.sandbox.network.proxy import Egress, Network
from skillbelt.sandbox.protocol import Job, Listener, Running, Sandbox
from skillbelt.sandbox.registry import Sandboxes
from skillbelt.values import SkillSettings

if TYPE_CHECKING:
    from skillbelt.format.skill import Skill
    from skillbelt.running.run import Run
    from skillbelt.settings import Settings


class Executor(Protocol):
    """Carries out the commands of runs. Safe to use from any thread.

    An executor that runs no command on this machine may say so by an attribute `elsewhere = True`.
    One that keeps workspaces elsewhere may have a method `forget(key, workspaces)`, which removes
    those of a deleted conversation.
    """

    def of(self, skill: Skill, needs: str, said: SkillSettings) -> Sandbox:
        """Return the sandbox for a run of the skill; SandboxUnavailable when there is none.

        `needs` names the only sandbox that can carry it out, `said` are the settings of the skill.
        Only the executor calls its `start`.
        """

    def warnings(self, sandbox: Sandbox) -> tuple[str, ...]:
        """Return the warnings for each run in the sandbox."""

    def open_network(
        self, run: Run, hosts: tuple[str, ...], owner: int | None
    ) -> AbstractContextManager[Network]:
        """Let the command of the run reach these hosts, which were all allowed."""

    def start(self, run: Run, job: Job, listener: Listener | None = None) -> Running:
        """Start the command of an allowed run; RunRefused when it certainly did not start.

        When `Running.wait` has returned, the workspace has the files that the command wrote.
        """

    def close(self) -> None:
        """Release everything kept ready for the next run; it can still be used."""


class LocalExecutor(Sandboxes):
    """Carries out commands in the sandboxes of this machine."""

    def __init__(self, settings: Settings, progress: Callable[[str], None] | None = None) -> None:
        super().__init__(settings, progress, _install_tools)

    def open_network(self, run: Run, hosts: tuple[str, ...], owner: int | None) -> Egress:
        """Start the proxy of the run."""
        return Egress(hosts, limits=run.limits, owner=owner)

    def start(self, run: Run, job: Job, listener: Listener | None = None) -> Running:
        """Start the command in its sandbox."""
        return run.sandbox.start(job, listener)


def _install_tools(settings: Settings, progress: Progress) -> str:
    from skillbelt.running.build.toolset import install_tools  # cost: 30 ms, only for WASM

    return install_tools(settings, progress)
