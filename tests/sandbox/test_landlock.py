from __future__ import annotations

import pytest

from skillbelt.sandbox.conformance import SandboxConformance
from skillbelt.sandbox.landlock import LandlockSandbox
from tests.sandbox.ordinary import conformance_as_user


class TestLandlock(SandboxConformance):
    @pytest.fixture
    def sandbox(self) -> LandlockSandbox:
        return LandlockSandbox()


def test_an_ordinary_user_gets_the_same() -> None:
    found = conformance_as_user("landlock.LandlockSandbox()")
    assert len(found) > 20
    assert {name: trace for name, trace in found.items() if trace} == {}
