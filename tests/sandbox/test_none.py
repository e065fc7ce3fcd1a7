from __future__ import annotations

import pytest

from skillbelt.sandbox.conformance import SandboxConformance
from skillbelt.sandbox.none import NoSandbox


class TestNone(SandboxConformance):
    @pytest.fixture
    def sandbox(self) -> NoSandbox:
        return NoSandbox()
