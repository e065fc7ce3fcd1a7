from __future__ import annotations

from tests.sandbox.conftest import place as place
