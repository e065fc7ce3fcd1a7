from __future__ import annotations

from pathlib import Path

import pytest

from tests.tree import Tree


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """An empty project and an empty home."""
    return Tree(tmp_path, monkeypatch)
