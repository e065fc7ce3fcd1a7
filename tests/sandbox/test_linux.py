"""The sandbox for Linux holds every promise, whoever starts it."""

from __future__ import annotations

import pytest

from skillbelt.sandbox.conformance import SandboxConformance
from skillbelt.sandbox.linux import LinuxSandbox


class TestBubblewrap(SandboxConformance):
    @pytest.fixture
    def sandbox(self) -> LinuxSandbox:
        return LinuxSandbox()
