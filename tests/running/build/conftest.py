from __future__ import annotations

from tests.sandbox.conftest import place as place
from tests.sandbox.wasm_guests.conftest import sandbox as sandbox
