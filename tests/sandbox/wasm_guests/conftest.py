from __future__ import annotations

from collections.abc import Iterator

import pytest

from skillbelt.running.build.toolset import install_tools
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from tests.sandbox.conftest import place as place
from tests.sandbox.guests import hosts


@pytest.fixture(scope="module")
def sandbox() -> Iterator[WasmSandbox]:
    made = WasmSandbox(hosts(), install=install_tools)
    yield made
    made.close()
