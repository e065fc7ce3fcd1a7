from __future__ import annotations

import pytest

from skillbelt.testing.prelude import PRELUDE
from skillbelt.testing.probes import PROBES, Probe
from skillbelt.values import Limits

# Those of the list that a run can try; the others are for staging, collecting and the proxy.
TRIED = {1, 2, 3, 4, 5, 6, 7, 10, 16, 17, 23, 24, 25, 26, 28, 29, 32, 33, 34, 35, 36, 37, 38, 39,
         40, 41, 42, 43, 44, 45, 47, 48, 50, 51, 53, 54, 55, 56, 58, 61, 62}  # fmt: skip


def test_every_attack_that_a_run_can_try_is_there() -> None:
    assert {number for probe in PROBES for number in probe.numbers} >= TRIED
    assert len({probe.name for probe in PROBES}) == len(PROBES)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_a_probe_is_python_and_comes_to_an_end(probe: Probe) -> None:
    compile(PRELUDE + probe.script, probe.name, "exec")
    compile(PRELUDE + probe.allowed, probe.name, "exec")
    assert probe.ends or "held(" in probe.script or "attempt(" in probe.script
    assert {name for name, _ in probe.limits} <= set(Limits._fields)
    assert probe.timeout_seconds <= 30
