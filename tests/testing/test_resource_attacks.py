"""Attacks that hold hidden resources succeed where nothing counts them; results name them."""

from __future__ import annotations

import pytest

from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.process import watch
from skillbelt.sandbox.process.hidden_usage import HiddenUsage
from skillbelt.testing.attacks import run_attacks
from skillbelt.testing.probe import Probe
from skillbelt.testing.resource_attacks import HOARDS

ON_DISK = [probe for probe in HOARDS if probe.claim == "files without a name"]


def test_each_is_aimed_at_a_limit() -> None:
    """The kernel itself bounds pipes, so that one may end before the limit."""
    assert {probe.ends for probe in HOARDS} == {(), ("max_workspace_bytes",), ("max_memory_bytes",)}
    assert len(ON_DISK) == 3


@pytest.mark.long
@pytest.mark.parametrize("probe", ON_DISK[:1], ids=lambda probe: probe.name)
def test_it_comes_through_where_nobody_counts(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "measure_hidden", lambda *_: HiddenUsage())
    (result,) = run_attacks(LinuxSandbox(), [probe])
    assert (result.outcome, result.detail) == ("succeeded", "600 MiB")
