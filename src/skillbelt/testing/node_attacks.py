"""The attacks on the sandboxes of a node of a fleet. Runs on the node."""

from __future__ import annotations

from collections.abc import Iterable

from skillbelt.errors import SandboxUnavailable
from skillbelt.running.build.toolset import install_tools
from skillbelt.sandbox import registry
from skillbelt.sandbox.protocol import Sandbox
from skillbelt.settings import load_settings
from skillbelt.testing.attacks import AttackResult, run_attacks
from skillbelt.testing.probes import PROBES, Probe

# An attack that could not run proves nothing, so it does not count as stopped.
BAD = ("succeeded", "unclear")


def attack_sandbox(sandbox: Sandbox, probes: Iterable[Probe] = PROBES) -> list[AttackResult]:
    """Attack a sandbox; one result that says why when it turns out to be unavailable."""
    try:
        return run_attacks(sandbox, probes)
    except SandboxUnavailable as error:
        return [AttackResult(attack="any", number=0, outcome="unclear", detail=str(error))]


def attack_node() -> list[dict[str, object]]:
    """Attack every sandbox that works on this machine; return the results as plain values."""
    found: list[dict[str, object]] = []
    for sandbox in registry.sandboxes(load_settings(), install=install_tools):
        if sandbox.level > 0 and sandbox.unavailable() is None:
            found += [{"sandbox": sandbox.name, **one._asdict()} for one in attack_sandbox(sandbox)]
        sandbox.close()
    return found
