from __future__ import annotations

from skillbelt.sandbox.probe import Probe


def test_an_attack_needs_little_to_be_one() -> None:
    """A name, its numbers, what it is aimed at and what it does; it may start processes."""
    probe = Probe("stay", (1,), "files", "held()")
    assert probe.processes
    assert not (probe.terminal or probe.ends or probe.limits or probe.allowed)
