from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import LocalStore, MemoryStore

from skillbelt.artifacts import ArtifactStore
from skillbelt.artifacts.conformance import ArtifactStoreConformance
from skillbelt.artifacts.objects import ObjectArtifacts


class TestObjectArtifactsInMemory(ArtifactStoreConformance):
    @pytest.fixture
    def artifacts(self) -> ArtifactStore:
        return ObjectArtifacts(MemoryStore(), "some/prefix/")


class TestObjectArtifactsInAFolder(ArtifactStoreConformance):
    @pytest.fixture
    def artifacts(self, tmp_path: Path) -> ArtifactStore:
        return ObjectArtifacts(LocalStore(tmp_path))
