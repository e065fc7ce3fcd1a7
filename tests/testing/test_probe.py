from __future__ import annotations

from skillbelt.testing.probe import Probe


def test_an_attack_has_the_rights_of_an_ordinary_run() -> None:
    probe = Probe("look", (1,), "files", "held()")
    assert (probe.processes, probe.terminal, probe.ends, probe.limits) == (True, False, (), ())
