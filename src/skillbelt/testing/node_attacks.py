"""The attacks on the sandboxes of a node of a fleet. Runs on the node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from skillbelt.errors import SandboxUnavailable
from skillbelt.running.build.toolset import install_tools
from skillbelt.sandbox import registry
from skillbelt.sandbox.protocol import Sandbox
from skillbelt.settings import load_settings
from skillbelt.testing.attacks import AttackResult, attack_one_by_one
from skillbelt.testing.probes import PROBES, Probe

# An attack that could not run proves nothing, so it does not count as stopped.
BAD = ("succeeded", "unclear")


def attack_sandbox(sandbox: Sandbox, probes: Iterable[Probe] = PROBES) -> Iterator[AttackResult]:
    """Attack a sandbox; if it turns out to be unavailable, yield one result that says why."""
    try:
        yield from attack_one_by_one(sandbox, probes)
    except SandboxUnavailable as error:
        yield AttackResult(attack="any", number=0, outcome="unclear", detail=str(error))


def attack_node(names: Collection[str]) -> Iterator[dict[str, object]]:
    """Attack the sandboxes of these names; yield each result as it comes, as plain values."""
    for sandbox in registry.sandboxes(load_settings(), install=install_tools):
        if sandbox.name in names:
            for one in attack_sandbox(sandbox):
                yield {"sandbox": sandbox.name, **one._asdict()}
        sandbox.close()
