from __future__ import annotations

import pytest

from skillbelt.artifacts import ArtifactStore
from skillbelt.artifacts.conformance import KEY, ArtifactStoreConformance
from skillbelt.artifacts.memory import MemoryArtifacts


class TestMemoryArtifacts(ArtifactStoreConformance):
    @pytest.fixture
    def artifacts(self) -> ArtifactStore:
        return MemoryArtifacts()


def test_each_store_is_a_world_of_its_own() -> None:
    one, other = MemoryArtifacts(), MemoryArtifacts()
    one.save(KEY, "a", b"x")
    assert other.latest(KEY) == []
