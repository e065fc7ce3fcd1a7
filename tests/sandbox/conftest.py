from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.testing.sandbox_suite import Place


@pytest.fixture
def place() -> Iterator[Place]:
    """A workspace of the user that runs commands, in a folder that every user can reach."""
    folder = tempfile.mkdtemp(prefix="skillbelt-")
    os.chmod(folder, 0o755)
    yield Place(folder, current_identity())
    shutil.rmtree(folder)
