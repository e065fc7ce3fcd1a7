from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from skillbelt.sandbox.conformance import Place
from skillbelt.sandbox.identity import current_identity


@pytest.fixture
def place() -> Iterator[Place]:
    """A workspace of whoever runs commands, in a folder that everybody can reach."""
    folder = tempfile.mkdtemp(prefix="skillbelt-")
    os.chmod(folder, 0o755)
    yield Place(folder, current_identity())
    shutil.rmtree(folder)
