"""The packages of a run: resolved, then asked for, then installed; always in that order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from skillbelt.permission.gate import Gate
from skillbelt.permission.packages import Environment
from skillbelt.permission.rules import Request
from skillbelt.running.cleanup import held_environment
from skillbelt.running.packages.declared import Needs, describe, names_of
from skillbelt.running.packages.environments import INSTALL_TIMEOUT_SECONDS, plan, provide
from skillbelt.running.packages.install_sandbox import NativeSandboxes
from skillbelt.running.questions import install_request
from skillbelt.settings import Settings, process_environment


def packages_for(
    gate: Gate,
    request: Request,
    needs: Needs,
    settings: Settings,
    *,
    cache_dir: str,
    progress: Callable[[str], None] | None = None,
) -> AbstractContextManager[Environment]:
    """Return the environment with the packages that the skill declares, held for the block.

    `request` is the one for what needs them. PermissionDenied when the packages are not allowed,
    RunRefused when they cannot be installed.
    """
    named = named_request(request, needs)
    if gate.rules.decide(named)[0] == "deny":
        gate.require(named)  # a package that is denied by name is not even looked up
    planned = plan(
        needs,
        cache_dir,
        sandboxes=NativeSandboxes(settings.limits, settings.sandbox),
        environ=process_environment(),
        offline=settings.offline,
        allow_builds=settings.allow_builds,
        hosts=settings.package_hosts,
        timeout_seconds=INSTALL_TIMEOUT_SECONDS,
        max_bytes=settings.limits.max_packages_bytes,
        progress=progress,
    )
    packages = tuple(one.text for one in planned.lock.packages)
    gate.require(install_request(request, needs, packages))
    return held_environment(partial(provide, planned))


def named_request(request: Request, needs: Needs) -> Request:
    """Return the request for the declared packages, by their names alone."""
    about = f"install {describe(needs)} for the skill {request.skill}"
    return request._replace(type="install", patterns=names_of(needs), always=(), summary=about)
