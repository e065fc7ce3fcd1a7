"""The sandbox for Linux holds every promise, whoever starts it."""

from __future__ import annotations

import pytest

from skillbelt.sandbox.conformance import SandboxConformance
from skillbelt.sandbox.linux import LinuxSandbox
from tests.sandbox.ordinary import conformance_as_user


class TestBubblewrap(SandboxConformance):
    @pytest.fixture
    def sandbox(self) -> LinuxSandbox:
        return LinuxSandbox()


def test_an_ordinary_user_gets_the_same() -> None:
    found = conformance_as_user("linux.LinuxSandbox()")
    assert len(found) > 20
    assert {name: trace for name, trace in found.items() if trace} == {}
