from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from skillbelt.sandbox.conformance import Place
from skillbelt.sandbox.identity import current_identity
from skillbelt.sandbox.wasm import WasmSandbox
from tests.sandbox.guests import hosts


@pytest.fixture
def place() -> Iterator[Place]:
    """A workspace of whoever runs commands, in a folder that everybody can reach."""
    folder = tempfile.mkdtemp(prefix="skillbelt-")
    os.chmod(folder, 0o755)
    yield Place(folder, current_identity())
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[WasmSandbox]:
    made = WasmSandbox(hosts())
    yield made
    made.close()
