"""The attacks on the sandboxes of a node of a fleet. Runs on the node."""

from __future__ import annotations

from skillbelt.running.build.toolset import install_tools
from skillbelt.sandbox import registry
from skillbelt.settings import load_settings
from skillbelt.testing.attacks import run_attacks
from skillbelt.testing.probes import PROBES

# An attack that could not run proves nothing, so it does not count as stopped.
BAD = ("succeeded", "unclear")


def attack_node() -> list[dict[str, object]]:
    """Attack every sandbox that works on this machine; return the results as plain values."""
    found: list[dict[str, object]] = []
    for sandbox in registry.sandboxes(load_settings(), install=install_tools):
        if sandbox.level > 0 and sandbox.unavailable() is None:
            results = run_attacks(sandbox, PROBES)
            found += [{"sandbox": sandbox.name, **one._asdict()} for one in results]
        sandbox.close()
    return found
