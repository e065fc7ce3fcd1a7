from __future__ import annotations

import pytest

from skillbelt.sandbox.none import NoSandbox
from skillbelt.sandbox.protocol import run
from skillbelt.testing.sandbox_suite import Place, SandboxConformance


class TestNone(SandboxConformance):
    @pytest.fixture
    def sandbox(self) -> NoSandbox:
        return NoSandbox()


def test_it_says_that_nothing_is_held_back(place: Place) -> None:
    enforced = run(NoSandbox(), place.job("true")).enforced
    for what in ("files", "network", "system calls", "other processes", "child processes"):
        assert enforced[what].startswith("not enforced")


def test_it_is_not_root_all_the_same(place: Place) -> None:
    assert run(NoSandbox(), place.shell("id -u")).stdout.data.strip() != b"0"
